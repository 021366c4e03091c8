//! The Glue wire: names, types, exceptions and limits of the catalog's protocol.
//!
//! A request is checked against the service's model (all violations at once), handed to its operation, and the answer is
//! rendered in the service's shapes. [`operations`] is the one table of what is served.

mod errors;
mod exception;
mod handlers;
mod input;
mod model;
pub mod operations;
mod render;
mod specs;
mod validate;
mod wire;

pub use exception::{GlueException, GlueExceptionName};
pub use specs::partition_specs;
pub use wire::{
    IF_REVISION_HEADER, REVISION_HEADER, WireAnswer, answer, call, call_each_if, call_if, explain_partitions,
};

#[cfg(test)]
mod tests;

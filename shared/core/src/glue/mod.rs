//! The Glue wire: names, types, exceptions and limits of the catalog's protocol.

mod exception;

pub use exception::{GlueException, GlueExceptionName};

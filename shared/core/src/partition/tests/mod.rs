//! Partitions under many clients at once, on a store that loses answers.

mod checker;
mod linearizability;
mod store;

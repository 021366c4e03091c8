//! Partitions under many clients at once, on a store that loses answers.

mod as_of;
mod checker;
mod linearizability;
mod store;

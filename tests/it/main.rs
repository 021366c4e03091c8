//! The one integration binary. Modules, not binaries: linking is what takes the time.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "this is all test code"
)]

mod contract;
mod events;

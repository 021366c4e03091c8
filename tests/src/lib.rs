//! Helpers of the tests that cross crates: embedded servers and apps on them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "only tests call this; a failure here should end the test"
)]

pub mod fake;
pub mod servers;
pub mod values;
pub mod world;

//! Listings: which partitions, in which order, page by page.

#[allow(dead_code, reason = "listings are moving to it")]
pub(in crate::partition) mod source;

pub use source::View;

//! Lakewarden on a laptop.

pub mod exclusive;
pub mod s3;

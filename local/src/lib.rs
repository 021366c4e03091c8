//! Lakewarden on a laptop.

pub mod dynamodb;
pub mod exclusive;
pub mod s3;

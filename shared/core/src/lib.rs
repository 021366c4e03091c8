//! The domain of Lakewarden: partitions, commits and sweeps, and the ports they stand on.
//!
//! Nothing in here knows about Lambda, HTTP frameworks or the AWS SDK, so that the rules build and test in seconds.
//! Dependencies point one way: `functions -> aws -> core`, `local -> functions`.

pub mod catalog;
pub mod commit;
pub mod delta;
pub mod glue;
pub mod iceberg;
pub mod limits;
pub mod location;
pub mod partition;
pub mod ports;
pub mod predicate;
pub mod store;
pub mod sweep;

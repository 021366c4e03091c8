//! Sweeps of whole tables in memory.

mod audited;
mod comparing;
mod deleting;
mod delta;
mod delta_log;
mod dropped;
mod elsewhere;
mod fixtures;
mod guards;
mod interleaving;
mod leases;
mod lists;
mod optimizers;
mod packed;
mod pending;
mod planner;
mod random;
mod refusals;
mod registered;
mod runs;
mod scopes;
mod seeing;
mod sightings;
mod slices;
mod strangers;
mod unmarked;

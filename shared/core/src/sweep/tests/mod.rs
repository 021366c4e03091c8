//! Sweeps of whole tables in memory.

mod audited;
mod comparing;
mod deleting;
mod delta;
mod elsewhere;
mod fixtures;
mod guards;
mod interleaving;
mod leases;
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
mod stores;
mod unmarked;

//! Sweeps of whole tables in memory.

mod delta;
mod guards;
mod interleaving;
mod optimizers;
mod planner;
mod refusals;
mod runs;
mod scopes;

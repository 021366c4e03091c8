pub(in crate::commit) mod judging;
mod kit;

mod audits;
mod budget;
mod conflicts;
mod crashes;
mod flow;
mod hostile;
mod house;
mod log_store;
mod matrix;
mod model;
mod mutated;
mod state;

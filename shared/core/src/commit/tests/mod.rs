mod conflicts;
mod crashes;
mod flow;
mod hostile;
mod mutated;
pub(in crate::commit) mod judging;
mod kit;
mod state;

mod conflicts;
mod crashes;
mod flow;
mod hostile;
pub(in crate::commit) mod judging;
mod kit;
mod state;

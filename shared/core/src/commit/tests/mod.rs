mod conflicts;
mod crashes;
mod flow;
mod hostile;
mod kit;
mod state;

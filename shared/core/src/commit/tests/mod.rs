mod kit;

mod conflicts;
mod crashes;
mod flow;
mod hostile;
mod schema;
mod schema_properties;

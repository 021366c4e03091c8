//! The Delta log: paths, actions, snapshots, schema.

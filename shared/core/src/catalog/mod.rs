//! Databases, tables, versions and where tables lie.

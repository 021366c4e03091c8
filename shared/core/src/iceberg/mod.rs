//! Iceberg metadata: which files a table needs.

//! Reader of Avro object containers that keeps a handful of fields and skips the rest.
//!
//! Iceberg's manifests carry dozens of columns of statistics per entry; the sweep needs two of them. The writer's schema
//! is compiled into a program that walks each record and hands out the wanted fields, found by Iceberg's `field-id`
//! (names differ between format versions). Every length, count and depth in the input is bounded.

mod codec;
mod container;
mod cursor;
mod schema;
#[cfg(test)]
mod tests;

use thiserror::Error;

pub use container::Container;

/// Bounds on what a file may ask of the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AvroLimits {
    /// One block after decompression.
    pub block_max_bytes: usize,
    /// All blocks of a file after decompression.
    pub file_max_bytes: usize,
    /// The writer's schema as JSON text.
    pub schema_max_bytes: usize,
    /// Nesting of types and of values.
    pub depth_max: usize,
}

impl Default for AvroLimits {
    fn default() -> Self {
        Self {
            block_max_bytes: 256 * 1024 * 1024,
            file_max_bytes: 1024 * 1024 * 1024,
            schema_max_bytes: 4 * 1024 * 1024,
            depth_max: 64,
        }
    }
}

/// A file is not an Avro container that we can read to the end.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AvroError {
    #[error("not an Avro object container")]
    NotAvro,
    #[error("the file ends in the middle of {0}")]
    Truncated(&'static str),
    #[error("the schema cannot be read: {0}")]
    Schema(String),
    #[error("codec `{0}` is not read: null, deflate, snappy, zstandard, bzip2 and xz are")]
    UnknownCodec(String),
    #[error("corrupt data: {0}")]
    Corrupt(String),
    #[error("{what} of {found} is above the limit of {most}")]
    TooLarge { what: &'static str, found: u64, most: u64 },
    #[error("nested deeper than {0} levels")]
    TooDeep(usize),
    #[error("the schema has no field with id {0}")]
    MissingField(i32),
}

/// A captured field of one record; borrows from the decompressed block.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Captured<'a> {
    /// Not in the schema, or null.
    #[default]
    Null,
    Int(i64),
    Text(&'a str),
    Bytes(&'a [u8]),
}

impl<'a> Captured<'a> {
    pub fn int(self) -> Option<i64> {
        if let Captured::Int(number) = self { Some(number) } else { None }
    }

    pub fn text(self) -> Option<&'a str> {
        if let Captured::Text(text) = self { Some(text) } else { None }
    }
}

//! What the footer of a data file says about it, compared with the table's schema.

mod compare;
mod kind;
mod nulls;
mod read;

pub use compare::{FooterCheck, SchemaProblem, check_footer};
pub use read::{FOOTER_MAX_BYTES, Footer, FooterError, read_footer, read_footer_and_tail};

#[cfg(test)]
mod tests;

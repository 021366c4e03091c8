//! Catalog-managed tables: the commit call alone decides, what was staged is ratified unchanged or refused, and
//! `<version>.json` is a copy of what was ratified, whoever puts it there.
//!
//! [`ratify()`] carries a commit call out, [`state`] is what the head keeps, [`overlay`] makes a table's view of the log and
//! of what is ratified and not published yet, [`publish`] copies into the log and recognises the copies of clients,
//! [`listing`] answers which commits are unpublished, [`watch`] looks at versions that turn up in the log.

pub mod listing;
pub mod overlay;
pub mod publish;
pub mod ratify;
mod refusals;
pub mod state;
pub mod watch;

#[cfg(test)]
mod tests;

pub use listing::{Unpublished, unpublished};
pub use publish::{message as publish_message, publish_pending};
pub use ratify::{Asked, Ratification, ratify};
pub use state::{Managed, Ratified};

/// Ratified commits that may wait for their publication.
pub const UNPUBLISHED_MAX: usize = 10;

//! Queues on a laptop, surviving restarts, with the rules of SQS: delivery at least once and unordered, a received
//! message is hidden for a while and comes back unless deleted, and one that was received too often becomes a dead
//! letter. Dead letters stay until somebody looks: they are listed with what went wrong and can be sent again.
//!
//! [`LocalQueues`] is used within the process (and as the [`lakewarden_core::store::Queue`] port); [`serve`] lets the
//! AWS SDKs and the CLI at it.

mod dead;
mod failure;
mod http;
mod message_attributes;
mod operations;
mod protocol;
mod queues;
mod schema;
mod store;
#[cfg(test)]
mod tests;

pub use dead::{DeadLetter, DeadLetterId, DeadLetters};
pub use failure::{OpenError, QueueFailure};
pub use http::{DRAIN_MS, serve};
pub use message_attributes::{MessageAttribute, MessageAttributes};
pub use queues::{Outgoing, Receipt, ReceiveOptions, Received, Sent};
pub use store::{LocalQueues, QueueCounts, QueueSettings};

/// Body and message attributes together. AWS allows more by now; what passes here passes there.
pub const MESSAGE_MAX_BYTES: usize = 256 * 1024;
/// The longest delay of a message.
pub const DELAY_MAX_MS: u64 = 15 * 60 * 1000;
/// The longest visibility timeout.
pub const VISIBILITY_MAX_MS: u64 = 12 * 60 * 60 * 1000;
/// Messages of one receive or one batch.
pub const BATCH_MAX: usize = 10;

//! Opaque identities. A database or table created again under an old name has a new one, so what hung below the old one
//! is unreachable.

use std::fmt;

use crate::store::{Ids, Value};

macro_rules! opaque {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(String);

        impl $name {
            pub fn fresh(ids: &dyn Ids) -> Self {
                Self(ids.uuid().simple().to_string())
            }

            /// An identity read from an item or a message.
            pub fn from_text(text: impl Into<String>) -> Self {
                Self(text.into())
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&$name> for Value {
            fn from(id: &$name) -> Self {
                Value::Text(id.0.clone())
            }
        }
    };
}

opaque! {
    /// Identity of a database, from creation to drop.
    DatabaseId
}
opaque! {
    /// Identity of a table, from creation to drop.
    TableId
}
opaque! {
    /// Identity of a partition, from creation to deletion.
    PartitionId
}
opaque! {
    /// State of an item: every write gives a new one, never seen before, also across delete and recreate.
    Revision
}

//! Keys of the table `commits`.
//!
//! | item | pk | sk |
//! |---|---|---|
//! | head | `table#<root>` | `head` |
//! | proposal | `<generation>#<root>` | `proposal#<uuid>` |
//! | version record | `<generation>#<root>` | `version#<20 digits>` |
//! | time-ordered list | `<generation>#<root>` | `time#<15 digits, ms>#<uuid>` |
//! | alarm | `<generation>#<root>` | `alarm#<20 digits, version>#<kind>#<16 digits of a hash>` |
//! | table, for those that go over all | `tables` | SHA-256 of the root |
//! | id look-up | `id#<uuid>` | SHA-256 of the root |
//!
//! The head stands outside the generations, since it says which generation is the current one and must be found with
//! one strong read.

use std::fmt;

use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::delta::Version;
use crate::location::Location;
use crate::store::{Key, Table};

/// Counts the tables that have stood at one root, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub i64);

/// Names a proposal within its table and generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProposalId(pub Uuid);

impl fmt::Display for ProposalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

pub fn head(root: &Location) -> Key {
    Key::new(Table::Commits, format!("table#{root}"), "head")
}

/// Partition key of what belongs to one generation of a table.
pub fn table_pk(root: &Location, generation: Generation) -> String {
    format!("{}#{root}", generation.0)
}

pub const PROPOSAL_PREFIX: &str = "proposal#";
pub const TIME_PREFIX: &str = "time#";
pub const ALARM_PREFIX: &str = "alarm#";
pub const TABLES_PK: &str = "tables";

pub fn proposal(root: &Location, generation: Generation, id: ProposalId) -> Key {
    Key::new(Table::Commits, table_pk(root, generation), format!("{PROPOSAL_PREFIX}{id}"))
}

pub fn version(root: &Location, generation: Generation, version: Version) -> Key {
    Key::new(Table::Commits, table_pk(root, generation), format!("version#{:020}", version.0))
}

pub fn time(root: &Location, generation: Generation, received_ms: i64, id: ProposalId) -> Key {
    Key::new(Table::Commits, table_pk(root, generation), format!("{TIME_PREFIX}{:015}#{id}", received_ms.max(0)))
}

pub fn lookup_pk(id: ProposalId) -> String {
    format!("id#{id}")
}

/// `mark` tells happenings of one kind at one version apart.
pub fn alarm(root: &Location, generation: Generation, version: Version, kind: &str, mark: &str) -> Key {
    let digest = hex::encode(Sha256::digest(mark));
    let mark = digest.get(..16).unwrap_or_default();
    let sort = format!("{ALARM_PREFIX}{:020}#{kind}#{mark}", version.0.max(0));
    Key::new(Table::Commits, table_pk(root, generation), sort)
}

/// An entry in the list of all tables.
pub fn listed_table(root: &Location) -> Key {
    Key::new(Table::Commits, TABLES_PK, hex::encode(Sha256::digest(root.to_string())))
}

/// The root is hashed, since a key may be longer than DynamoDB's 1,024 bytes for a sort key.
pub fn lookup(root: &Location, id: ProposalId) -> Key {
    let digest = hex::encode(Sha256::digest(root.to_string()));
    Key::new(Table::Commits, lookup_pk(id), digest)
}

/// SHA-256 of a commit's bytes, in hexadecimal.
pub fn content_hash(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

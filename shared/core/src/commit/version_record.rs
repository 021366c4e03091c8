//! Item: what we published as a version: by whom, with which content.

use super::head::decode_id;
use super::keys::{self, Generation, ProposalId};
use crate::delta::Version;
use crate::location::Location;
use crate::store::{Condition, DecodeError, Fields, Item, Value, Write};

pub const SCHEMA_VERSION: i64 = 1;

/// Whether a commit read nothing of its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blindness {
    Blind,
    Reading,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionRecord {
    pub version: Version,
    pub proposal: ProposalId,
    pub sha256: String,
    pub operation: Option<String>,
    pub blindness: Blindness,
    pub committed_ms: i64,
}

impl VersionRecord {
    pub fn encode(&self) -> Item {
        let mut item = Item::from([
            ("schema_version".into(), Value::Int(SCHEMA_VERSION)),
            ("version".into(), Value::Int(self.version.0)),
            ("proposal".into(), self.proposal.to_string().into()),
            ("sha256".into(), self.sha256.as_str().into()),
            ("blind".into(), Value::Bool(self.blindness == Blindness::Blind)),
            ("committed_ms".into(), Value::Int(self.committed_ms)),
        ]);
        if let Some(operation) = &self.operation {
            item.insert("operation".into(), operation.as_str().into());
        }
        item
    }

    pub fn decode(item: &Item) -> Result<VersionRecord, DecodeError> {
        item.check_layout(SCHEMA_VERSION)?;
        Ok(VersionRecord {
            version: Version(item.int("version")?),
            proposal: decode_id(item, "proposal")?,
            sha256: item.text("sha256")?.to_owned(),
            operation: item.opt_text("operation")?.map(str::to_owned),
            blindness: if item.flag("blind")? { Blindness::Blind } else { Blindness::Reading },
            committed_ms: item.int("committed_ms")?,
        })
    }

    /// Written together with the head, whose condition guards both.
    pub fn write(&self, root: &Location, generation: Generation) -> Write {
        let key = keys::version(root, generation, self.version);
        Write::Put { key, item: self.encode(), condition: Condition::Always }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_as_it_was() {
        let record = VersionRecord {
            version: Version(3),
            proposal: ProposalId(uuid::Uuid::from_u128(5)),
            sha256: "abc".into(),
            operation: Some("WRITE".into()),
            blindness: Blindness::Blind,
            committed_ms: 7,
        };
        assert_eq!(VersionRecord::decode(&record.encode()).unwrap(), record);
        let other = VersionRecord { operation: None, blindness: Blindness::Reading, ..record };
        assert_eq!(VersionRecord::decode(&other.encode()).unwrap(), other);
    }
}

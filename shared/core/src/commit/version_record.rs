//! Item: what a version holds: what we published, or what the audit saw first of others.

use super::head::decode_id;
use super::keys::{self, Generation, ProposalId};
use crate::delta::Version;
use crate::location::Location;
use crate::store::{Condition, DecodeError, ETag, Fields, Item, Value, Write};

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
    /// None: another writer's.
    pub proposal: Option<ProposalId>,
    /// None: only its ETag is known.
    pub sha256: Option<String>,
    pub etag: Option<ETag>,
    pub operation: Option<String>,
    pub blindness: Blindness,
    pub committed_ms: i64,
}

impl VersionRecord {
    pub fn encode(&self) -> Item {
        let mut item = Item::from([
            ("schema_version".into(), Value::Int(SCHEMA_VERSION)),
            ("version".into(), Value::Int(self.version.0)),
            ("blind".into(), Value::Bool(self.blindness == Blindness::Blind)),
            ("committed_ms".into(), Value::Int(self.committed_ms)),
        ]);
        if let Some(proposal) = self.proposal {
            item.insert("proposal".into(), proposal.to_string().into());
        }
        if let Some(sha256) = &self.sha256 {
            item.insert("sha256".into(), sha256.as_str().into());
        }
        if let Some(etag) = &self.etag {
            item.insert("etag".into(), etag.0.as_str().into());
        }
        if let Some(operation) = &self.operation {
            item.insert("operation".into(), operation.as_str().into());
        }
        item
    }

    pub fn decode(item: &Item) -> Result<VersionRecord, DecodeError> {
        item.check_layout(SCHEMA_VERSION)?;
        Ok(VersionRecord {
            version: Version(item.int("version")?),
            proposal: item.opt_text("proposal")?.map(|_| decode_id(item, "proposal")).transpose()?,
            sha256: item.opt_text("sha256")?.map(str::to_owned),
            etag: item.opt_text("etag")?.map(|etag| ETag(etag.to_owned())),
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
            proposal: Some(ProposalId(uuid::Uuid::from_u128(5))),
            sha256: Some("abc".into()),
            etag: Some(ETag("e".into())),
            operation: Some("WRITE".into()),
            blindness: Blindness::Blind,
            committed_ms: 7,
        };
        assert_eq!(VersionRecord::decode(&record.encode()).unwrap(), record);
        let other = VersionRecord {
            proposal: None,
            sha256: None,
            etag: None,
            operation: None,
            blindness: Blindness::Reading,
            ..record
        };
        assert_eq!(VersionRecord::decode(&other.encode()).unwrap(), other);
    }
}

//! Part of a head's item: what was ratified of a catalog-managed table.

use crate::commit::keys::ProposalId;
use crate::delta::Version;
use crate::delta::log::StagedKey;
use crate::location::Location;
use crate::store::{DecodeError, ETag, Fields, Item, Value};

/// A commit that is part of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ratified {
    pub version: Version,
    pub id: ProposalId,
    /// Of the staged object.
    pub etag: ETag,
    pub sha256: String,
    pub size_bytes: u64,
    /// When the client says it wrote the file.
    pub modified_ms: i64,
    /// The in-commit timestamp.
    pub timestamp_ms: i64,
}

impl Ratified {
    pub fn staged_key(&self, root: &Location) -> StagedKey {
        StagedKey { root: root.clone(), version: self.version, id: self.id.0 }
    }

    /// The name of its file in `_staged_commits/`.
    pub fn file_name(&self) -> String {
        format!("{:020}.{}.json", self.version.0, self.id)
    }

    fn encode(&self) -> Value {
        Value::Map(Item::from([
            ("version".into(), Value::Int(self.version.0)),
            ("id".into(), self.id.to_string().into()),
            ("etag".into(), self.etag.0.as_str().into()),
            ("sha256".into(), self.sha256.as_str().into()),
            ("size_bytes".into(), Value::Int(i64::try_from(self.size_bytes).unwrap_or(i64::MAX))),
            ("modified_ms".into(), Value::Int(self.modified_ms)),
            ("timestamp_ms".into(), Value::Int(self.timestamp_ms)),
        ]))
    }

    fn decode(item: &Item) -> Result<Ratified, DecodeError> {
        Ok(Ratified {
            version: Version(item.int("version")?),
            id: crate::commit::head::decode_id(item, "id")?,
            etag: ETag(item.text("etag")?.to_owned()),
            sha256: item.text("sha256")?.to_owned(),
            size_bytes: u64::try_from(item.int("size_bytes")?).unwrap_or(0),
            modified_ms: item.int("modified_ms")?,
            timestamp_ms: item.int("timestamp_ms")?,
        })
    }
}

/// What the head of a catalog-managed table says beside its version, which is the latest ratified one. Its `log_etag` is
/// that of the latest published one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Managed {
    /// Under which the catalog knows the table.
    pub table_id: String,
    /// The latest version that was seen in the log.
    pub published: Version,
    /// What follows `published`, ascending.
    pub ratified: Vec<Ratified>,
}

impl Managed {
    /// Whether a proposal is ratified and not published yet: its staged object is the only copy of the commit.
    pub fn is_unpublished(&self, id: ProposalId) -> bool {
        self.ratified.iter().any(|one| one.id == id)
    }

    pub fn encode(&self) -> Value {
        Value::Map(Item::from([
            ("table_id".into(), self.table_id.as_str().into()),
            ("published".into(), Value::Int(self.published.0)),
            ("ratified".into(), Value::List(self.ratified.iter().map(Ratified::encode).collect())),
        ]))
    }

    /// Reads it from a head's item; none for any other table.
    pub fn decode(head: &Item) -> Result<Option<Managed>, DecodeError> {
        let Some(Value::Map(item)) = head.get("managed") else { return Ok(None) };
        let mut ratified = Vec::new();
        if let Some(Value::List(list)) = item.get("ratified") {
            for one in list {
                let Value::Map(one) = one else {
                    let message = "an entry is no map".to_owned();
                    return Err(DecodeError::Invalid { field: "ratified".into(), message });
                };
                ratified.push(Ratified::decode(one)?);
            }
        }
        Ok(Some(Managed {
            table_id: item.text("table_id")?.to_owned(),
            published: Version(item.int("published")?),
            ratified,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ratified_comes_back_as_it_was() {
        let one = |version: i64| Ratified {
            version: Version(version),
            id: ProposalId(uuid::Uuid::from_u128(7)),
            etag: ETag("e".into()),
            sha256: "s".into(),
            size_bytes: 9,
            modified_ms: 1,
            timestamp_ms: 2,
        };
        for ratified in [vec![], vec![one(4), one(5)]] {
            let managed = Managed { table_id: "t".into(), published: Version(3), ratified };
            let head = Item::from([("managed".into(), managed.encode())]);
            assert_eq!(Managed::decode(&head).unwrap(), Some(managed));
        }
        assert_eq!(Managed::decode(&Item::new()).unwrap(), None);
    }
}

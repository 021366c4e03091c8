//! Item: a proposal in the order of arrival, for listings.

use super::head::decode_id;
use super::keys::{self, Generation, ProposalId};
use crate::location::Location;
use crate::store::{Condition, DecodeError, Fields, Item, Value, Write};

pub const SCHEMA_VERSION: i64 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeEntry {
    pub id: ProposalId,
    pub received_ms: i64,
}

impl TimeEntry {
    pub fn encode(&self) -> Item {
        Item::from([
            ("schema_version".into(), Value::Int(SCHEMA_VERSION)),
            ("id".into(), self.id.to_string().into()),
            ("received_ms".into(), Value::Int(self.received_ms)),
        ])
    }

    pub fn decode(item: &Item) -> Result<TimeEntry, DecodeError> {
        item.check_layout(SCHEMA_VERSION)?;
        Ok(TimeEntry { id: decode_id(item, "id")?, received_ms: item.int("received_ms")? })
    }

    pub fn write(&self, root: &Location, generation: Generation) -> Write {
        let key = keys::time(root, generation, self.received_ms, self.id);
        Write::Put { key, item: self.encode(), condition: Condition::Always }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_comes_back_as_it_was_and_sorts_by_time() {
        let entry = TimeEntry { id: ProposalId(uuid::Uuid::from_u128(5)), received_ms: 1_700_000_000_000 };
        assert_eq!(TimeEntry::decode(&entry.encode()).unwrap(), entry);
        let root = Location::new("b", "t");
        let earlier = keys::time(&root, Generation(0), 999_999_999_999, ProposalId(uuid::Uuid::from_u128(9)));
        assert!(earlier < keys::time(&root, Generation(0), entry.received_ms, entry.id));
    }
}

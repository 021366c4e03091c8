//! Item: look-up of a proposal's table and generation by its id. One for each (id, root), since nobody keeps two
//! tables from using one id.

use super::head::{decode_id, decode_root};
use super::keys::{self, Generation, ProposalId};
use crate::location::Location;
use crate::store::{Condition, DecodeError, Fields, Item, Value, Write};

pub const SCHEMA_VERSION: i64 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    pub id: ProposalId,
    pub root: Location,
    pub generation: Generation,
}

impl Lookup {
    pub fn encode(&self) -> Item {
        Item::from([
            ("schema_version".into(), Value::Int(SCHEMA_VERSION)),
            ("id".into(), self.id.to_string().into()),
            ("root".into(), self.root.to_string().into()),
            ("generation".into(), Value::Int(self.generation.0)),
        ])
    }

    pub fn decode(item: &Item) -> Result<Lookup, DecodeError> {
        item.check_layout(SCHEMA_VERSION)?;
        Ok(Lookup {
            id: decode_id(item, "id")?,
            root: decode_root(item)?,
            generation: Generation(item.int("generation")?),
        })
    }

    /// Always the same content for one proposal, so no condition is needed beside the proposal's own.
    pub fn write(&self) -> Write {
        Write::Put { key: keys::lookup(&self.root, self.id), item: self.encode(), condition: Condition::Always }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_up_comes_back_as_it_was() {
        let lookup = Lookup {
            id: ProposalId(uuid::Uuid::from_u128(5)),
            root: Location::new("b", "a#b"),
            generation: Generation(3),
        };
        assert_eq!(Lookup::decode(&lookup.encode()).unwrap(), lookup);
    }
}

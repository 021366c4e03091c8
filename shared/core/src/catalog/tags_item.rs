//! Item: tags of a database or table. `catalog`, pk as its definition, sk `tags`.

use std::collections::BTreeMap;

use super::{DatabaseId, Revision, TableId, database_item, table_definition_item};
use crate::store::{DecodeError, Fields, Item, Key, Value};

const SCHEMA_VERSION: i64 = 1;
const SORT: &str = "tags";

/// Tags by name, and the state they are in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tags {
    pub(super) tags: BTreeMap<String, String>,
    pub(super) revision: Revision,
}

pub(super) fn database_key(id: &DatabaseId) -> Key {
    Key { sk: SORT.into(), ..database_item::definition_key(id) }
}

pub(super) fn table_key(id: &TableId) -> Key {
    Key { sk: SORT.into(), ..table_definition_item::key(id) }
}

pub(super) fn encode(tags: &Tags) -> Item {
    let map = tags.tags.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    Item::from([
        ("schema_version".to_owned(), Value::Int(SCHEMA_VERSION)),
        ("tags".to_owned(), Value::Map(map)),
        ("revision".to_owned(), (&tags.revision).into()),
    ])
}

pub(super) fn decode(item: &Item) -> Result<Tags, DecodeError> {
    item.check_layout(SCHEMA_VERSION)?;
    let wrong = || DecodeError::WrongType { field: "tags".to_owned(), expected: "a map of texts" };
    let Some(Value::Map(map)) = item.get("tags") else { return Err(wrong()) };
    let text = |(name, value): (&String, &Value)| match value {
        Value::Text(value) => Ok((name.clone(), value.clone())),
        _ => Err(wrong()),
    };
    Ok(Tags {
        tags: map.iter().map(text).collect::<Result<_, _>>()?,
        revision: Revision::from_text(item.text("revision")?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_come_back() {
        let tags = BTreeMap::from([("team".to_owned(), "ü".to_owned()), ("empty".to_owned(), String::new())]);
        let tags = Tags { tags, revision: Revision::from_text("r") };
        assert_eq!(decode(&encode(&tags)).unwrap(), tags);
        let none = Tags { tags: BTreeMap::new(), ..tags };
        assert_eq!(decode(&encode(&none)).unwrap(), none);
    }
}

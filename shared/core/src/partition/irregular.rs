//! Which irregular values a table may hold.
//!
//! A partition whose values are written the canonical way lies where the values alone say. One written otherwise (`01`), or
//! with a value that its key's type cannot read, must be looked for. Most tables have none of those, so the head of a table
//! says which kinds of them were ever written under the current epoch of its keys, and listings look for no others.

use super::index_item::values_of;
use super::key::{Written, written};
use super::key_type::KeyType;
use crate::catalog::{CatalogError, TableRef, note_irregular};
use crate::ports::Ports;
use crate::store::Write;

/// What is irregular about a value of a typed key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IrregularKind {
    /// Not the canonical text of what it says.
    OtherSpelling,
    /// Its key's type cannot read it.
    Unreadable,
    /// The Hive default marker: one more unreadable value in strict mode, otherwise NULL, which is regular.
    NullMarker,
}

impl IrregularKind {
    const ALL: [Self; 3] = [Self::OtherSpelling, Self::Unreadable, Self::NullMarker];

    fn bit(self) -> u8 {
        1 << self as u8
    }

    /// The name in items.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OtherSpelling => "other_spelling",
            Self::Unreadable => "unreadable",
            Self::NullMarker => "null_marker",
        }
    }

    pub fn from_stored(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Irregular(u8);

impl Irregular {
    pub const NONE: Self = Self(0);
    /// Anything is possible, as nothing is known.
    pub const ANY: Self = Self(0b111);

    /// Kinds among values of these types, by position; positions beyond are text, on which everything is regular.
    pub fn of(types: &[KeyType], values: &[String]) -> Self {
        values.iter().zip(types).fold(Self::NONE, |all, (value, key_type)| match written(*key_type, value) {
            Written::Canonical => all,
            Written::Variant => all.with(IrregularKind::OtherSpelling),
            Written::Marker => all.with(IrregularKind::NullMarker),
            Written::Unreadable => all.with(IrregularKind::Unreadable),
        })
    }

    #[must_use]
    pub fn with(self, kind: IrregularKind) -> Self {
        Self(self.0 | kind.bit())
    }

    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub fn has(self, kind: IrregularKind) -> bool {
        self.0 & kind.bit() != 0
    }

    pub fn has_all(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub fn kinds(self) -> impl Iterator<Item = IrregularKind> {
        IrregularKind::ALL.into_iter().filter(move |kind| self.has(*kind))
    }
}

impl FromIterator<IrregularKind> for Irregular {
    fn from_iter<I: IntoIterator<Item = IrregularKind>>(kinds: I) -> Self {
        kinds.into_iter().fold(Self::NONE, Self::with)
    }
}

/// Before partitions with these values, or images of them, are written under the current epoch: makes the head of the table
/// say so. Nothing to do where all values are regular, or the head is known to say it already.
pub(super) async fn note_values<'a>(
    ports: &Ports,
    table: &TableRef,
    values: impl IntoIterator<Item = &'a [String]>,
) -> Result<(), CatalogError> {
    let kinds = values.into_iter().map(|values| Irregular::of(&table.epoch_types, values));
    note_irregular(ports, table, kinds.fold(Irregular::NONE, Irregular::union)).await
}

/// The same for all values that these writes put.
pub(super) async fn note_writes(ports: &Ports, table: &TableRef, writes: &[Write]) -> Result<(), CatalogError> {
    if table.irregular == Irregular::ANY {
        return Ok(());
    }
    let mut kinds = Irregular::NONE;
    for write in writes {
        if let Write::Put { item, .. } = write {
            kinds = kinds.union(Irregular::of(&table.epoch_types, &values_of(item)?));
        }
    }
    note_irregular(ports, table, kinds).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::HIVE_DEFAULT_PARTITION;

    #[test]
    fn kinds_of_values() {
        use IrregularKind::{NullMarker, OtherSpelling, Unreadable};
        use KeyType::{Date, Decimal, Integer, Other, Text, Timestamp};
        for (key_type, value, expected) in [
            (Integer, "1", None),
            (Integer, "-1", None),
            (Integer, "01", Some(OtherSpelling)),
            (Integer, "+1", Some(OtherSpelling)),
            (Integer, "-0", Some(OtherSpelling)),
            (Integer, "", Some(Unreadable)),
            (Integer, "1.5", Some(Unreadable)),
            (Integer, HIVE_DEFAULT_PARTITION, Some(NullMarker)),
            (Decimal, "1.5", None),
            (Decimal, "1.50", Some(OtherSpelling)),
            (Decimal, "x", Some(Unreadable)),
            (Date, "2024-02-29", None),
            (Date, "2024-02-30", Some(Unreadable)),
            (Timestamp, "2024-02-29 00:00:00", None),
            (Timestamp, "2024-02-29 00:00:00.0", Some(OtherSpelling)),
            (Timestamp, HIVE_DEFAULT_PARTITION, Some(NullMarker)),
            (Text, "01", None),
            (Text, HIVE_DEFAULT_PARTITION, None),
            (Other, "", None),
        ] {
            let found = Irregular::of(&[key_type], &[value.to_owned()]);
            assert_eq!(found, expected.into_iter().collect(), "{key_type:?} {value}");
            assert_eq!(found.kinds().collect::<Irregular>(), found);
        }
        let both = Irregular::of(&[Integer, Date], &["01".to_owned(), "x".to_owned(), "beyond".to_owned()]);
        assert_eq!(both, [OtherSpelling, Unreadable].into_iter().collect());
        assert!(Irregular::ANY.has_all(both) && both.has_all(Irregular::NONE) && !both.has_all(Irregular::ANY));
        for kind in IrregularKind::ALL {
            assert_eq!(IrregularKind::from_stored(kind.as_str()), Some(kind));
        }
    }
}

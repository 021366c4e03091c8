//! Types of partition keys, as far as order and filters tell them apart.

/// How the values of a partition key are read. Two type names with one reading (`int`, `bigint`) are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyType {
    /// `string`, `varchar(n)`, `char(n)`.
    Text,
    /// `tinyint`, `smallint`, `int`, `integer`, `bigint`, `long`.
    Integer,
    /// `decimal(p,s)`.
    Decimal,
    Date,
    Timestamp,
    /// Everything else (`float`, `boolean`, `binary`, …): kept as text, not filtered by.
    Other,
}

impl KeyType {
    /// Reads a type of the catalog: case does not matter, parameters in parentheses neither.
    pub fn of(type_name: &str) -> Self {
        let bare = type_name.split('(').next().unwrap_or_default().trim().to_ascii_lowercase();
        match bare.as_str() {
            "string" | "varchar" | "char" => Self::Text,
            "tinyint" | "smallint" | "int" | "integer" | "bigint" | "long" => Self::Integer,
            "decimal" => Self::Decimal,
            "date" => Self::Date,
            "timestamp" => Self::Timestamp,
            _ => Self::Other,
        }
    }

    /// The name in items.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Integer => "integer",
            Self::Decimal => "decimal",
            Self::Date => "date",
            Self::Timestamp => "timestamp",
            Self::Other => "other",
        }
    }

    pub fn from_stored(text: &str) -> Option<Self> {
        [Self::Text, Self::Integer, Self::Decimal, Self::Date, Self::Timestamp, Self::Other]
            .into_iter()
            .find(|key_type| key_type.as_str() == text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_names_are_read_loosely() {
        for (name, expected) in [
            ("string", KeyType::Text),
            ("VARCHAR(20)", KeyType::Text),
            ("char (3)", KeyType::Text),
            ("Int", KeyType::Integer),
            ("integer", KeyType::Integer),
            ("long", KeyType::Integer),
            ("decimal(10,2)", KeyType::Decimal),
            ("decimal", KeyType::Decimal),
            (" date ", KeyType::Date),
            ("timestamp", KeyType::Timestamp),
            ("double", KeyType::Other),
            ("array<int>", KeyType::Other),
            ("", KeyType::Other),
        ] {
            assert_eq!(KeyType::of(name), expected, "{name}");
            assert_eq!(KeyType::from_stored(expected.as_str()), Some(expected));
        }
    }
}

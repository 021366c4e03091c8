//! What a search can say of a table, and whether a table is that.

use std::cmp::{Ordering, Reverse};

use serde_json::{Value as Json, json};

use super::CatalogError;
use super::table_definition_item::TableDefinition;
use super::table_head_item::TableRef;

/// A property of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Property {
    Name,
    Database,
    /// A text of the definition: Description, Owner, TableType.
    Text(&'static str),
    Location,
    Created,
    Updated,
    /// A time of the definition: LastAccessTime, LastAnalyzedTime.
    Time(&'static str),
    /// Any other key is one of the table's Parameters.
    Parameter(String),
}

impl Property {
    fn parse(key: &str) -> Self {
        match key {
            "Name" => Property::Name,
            "DatabaseName" => Property::Database,
            "Description" => Property::Text("Description"),
            "Owner" => Property::Text("Owner"),
            "TableType" => Property::Text("TableType"),
            "Location" => Property::Location,
            "CreateTime" => Property::Created,
            "UpdateTime" => Property::Updated,
            "LastAccessTime" => Property::Time("LastAccessTime"),
            "LastAnalyzedTime" => Property::Time("LastAnalyzedTime"),
            other => Property::Parameter(other.to_owned()),
        }
    }

    fn is_time(&self) -> bool {
        matches!(self, Property::Created | Property::Updated | Property::Time(_))
    }

    fn text<'a>(&self, table: &'a TableRef, definition: &'a TableDefinition) -> Option<&'a str> {
        match self {
            Property::Name => Some(&table.name),
            Property::Database => Some(&table.database),
            Property::Text(member) => definition.input.get(*member)?.as_str(),
            Property::Location => definition.location_uri(),
            Property::Parameter(name) => definition.parameter(name),
            Property::Created | Property::Updated | Property::Time(_) => None,
        }
    }

    fn time_ms(&self, table: &TableRef, definition: &TableDefinition) -> Option<i64> {
        match self {
            Property::Created => Some(table.created_ms),
            Property::Updated => Some(definition.updated_ms),
            Property::Time(member) => Some((definition.input.get(*member)?.as_f64()? * 1000.0) as i64),
            _ => None,
        }
    }
}

/// One entry of `Filters`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Filter {
    pub(super) property: Property,
    wanted: Wanted,
}

#[derive(Clone, Debug, PartialEq)]
enum Wanted {
    /// In lower case.
    Text(String),
    Time {
        comparator: Comparator,
        ms: i64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparator {
    Equals,
    Greater,
    Less,
    GreaterEquals,
    LessEquals,
}

impl Comparator {
    fn parse(name: &str) -> Self {
        match name {
            "GREATER_THAN" => Comparator::Greater,
            "LESS_THAN" => Comparator::Less,
            "GREATER_THAN_EQUALS" => Comparator::GreaterEquals,
            "LESS_THAN_EQUALS" => Comparator::LessEquals,
            _ => Comparator::Equals,
        }
    }

    fn holds(self, order: Ordering) -> bool {
        match self {
            Comparator::Equals => order.is_eq(),
            Comparator::Greater => order.is_gt(),
            Comparator::Less => order.is_lt(),
            Comparator::GreaterEquals => order.is_ge(),
            Comparator::LessEquals => order.is_le(),
        }
    }
}

impl Filter {
    pub(super) fn parse(filter: &Json) -> Result<Self, CatalogError> {
        let text = |member: &str| filter.get(member).and_then(Json::as_str);
        let invalid = |text: String| Err(CatalogError::Invalid(text));
        let (Some(key), Some(value)) = (text("Key"), text("Value")) else {
            return invalid("A filter needs a Key and a Value.".to_owned());
        };
        let property = Property::parse(key);
        let comparator = Comparator::parse(text("Comparator").unwrap_or_default());
        if property.is_time() {
            let Some(ms) = parse_time_ms(value) else {
                return invalid(format!(
                    "`{value}` is not a time: give seconds since 1970, or a text such as 2024-05-31 or \
                     2024-05-31T12:30:00Z."
                ));
            };
            return Ok(Self { property, wanted: Wanted::Time { comparator, ms } });
        }
        if comparator != Comparator::Equals {
            return invalid(format!("{key} is not a time: it can be compared with EQUALS only."));
        }
        Ok(Self { property, wanted: Wanted::Text(value.to_lowercase()) })
    }

    pub(super) fn matches(&self, table: &TableRef, definition: &TableDefinition) -> bool {
        match &self.wanted {
            Wanted::Text(_) => self.property.text(table, definition).is_some_and(|text| self.matches_text(text)),
            Wanted::Time { comparator, ms } => {
                let found_ms = self.property.time_ms(table, definition);
                found_ms.is_some_and(|found_ms| comparator.holds(found_ms.cmp(ms)))
            }
        }
    }

    /// Whether a text is, or has as one of its words, what is wanted.
    pub(super) fn matches_text(&self, text: &str) -> bool {
        let Wanted::Text(wanted) = &self.wanted else { return false };
        let text = text.to_lowercase();
        text == *wanted || text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == wanted)
    }
}

/// `SearchText`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TextQuery {
    /// Each occurs somewhere; in lower case.
    Words(Vec<String>),
    /// Something is exactly this; in lower case.
    Exact(String),
}

impl TextQuery {
    /// `None` for a blank text, which asks for nothing.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim().to_lowercase();
        for quote in ['"', '\''] {
            let inner = text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
            if let Some(inner) = inner {
                return Some(TextQuery::Exact(inner.to_owned()));
            }
        }
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        (!words.is_empty()).then_some(TextQuery::Words(words))
    }

    pub(super) fn matches(&self, table: &TableRef, definition: &TableDefinition) -> bool {
        let texts: Vec<String> = texts_of(table, definition).into_iter().map(str::to_lowercase).collect();
        match self {
            TextQuery::Exact(wanted) => texts.contains(wanted),
            TextQuery::Words(words) => words.iter().all(|word| texts.iter().any(|text| text.contains(word))),
        }
    }
}

/// Everything that a table says in words.
fn texts_of<'a>(table: &'a TableRef, definition: &'a TableDefinition) -> Vec<&'a str> {
    let mut texts = vec![table.name.as_str(), table.database.as_str()];
    let input = &definition.input;
    texts.extend(["Description", "Owner", "TableType"].iter().filter_map(|member| input.get(*member)?.as_str()));
    texts.extend(definition.location_uri());
    texts.extend(definition.parameters().into_iter().flat_map(|(name, value)| [name, value]));
    let columns = definition.storage_descriptor().and_then(|descriptor| descriptor.get("Columns"));
    for column in [columns, input.get("PartitionKeys")].into_iter().flatten().filter_map(Json::as_array).flatten() {
        texts.extend(["Name", "Comment"].iter().filter_map(|member| column.get(*member)?.as_str()));
    }
    texts
}

/// What tables are sorted by; what says nothing comes first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SortValue {
    Nothing,
    Ms(i64),
    Text(String),
}

impl SortValue {
    pub(super) fn to_json(&self) -> Json {
        match self {
            SortValue::Nothing => json!(false),
            SortValue::Ms(ms) => json!(ms),
            SortValue::Text(text) => json!(text),
        }
    }

    pub(super) fn from_json(json: &Json) -> Option<Self> {
        match json {
            Json::Bool(_) => Some(SortValue::Nothing),
            Json::Number(ms) => ms.as_i64().map(SortValue::Ms),
            Json::String(text) => Some(SortValue::Text(text.clone())),
            _ => None,
        }
    }
}

/// `SortCriteria`, of which there is one at most.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SortBy {
    property: Property,
    is_descending: bool,
}

/// Place of a table in an order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    Ascending(SortValue, String, String),
    Descending(Reverse<SortValue>, String, String),
}

pub(super) fn parse_sort(criterion: &Json) -> Result<SortBy, CatalogError> {
    let field = criterion.get("FieldName").and_then(Json::as_str).unwrap_or_default();
    let property = Property::parse(field);
    if matches!(property, Property::Parameter(_)) {
        return Err(CatalogError::Invalid(format!(
            "Tables cannot be sorted by `{field}`: Name, DatabaseName, Description, Owner, TableType, Location, \
             CreateTime, UpdateTime, LastAccessTime and LastAnalyzedTime are possible."
        )));
    }
    let is_descending = criterion.get("Sort").and_then(Json::as_str) == Some("DESC");
    Ok(SortBy { property, is_descending })
}

impl SortBy {
    pub(super) fn value(&self, table: &TableRef, definition: &TableDefinition) -> SortValue {
        let text = self.property.text(table, definition).map(|text| SortValue::Text(text.to_owned()));
        let time = self.property.time_ms(table, definition).map(SortValue::Ms);
        text.or(time).unwrap_or(SortValue::Nothing)
    }

    pub(super) fn rank(&self, value: Option<SortValue>, database: String, table: String) -> Rank {
        let value = value.unwrap_or(SortValue::Nothing);
        if self.is_descending {
            Rank::Descending(Reverse(value), database, table)
        } else {
            Rank::Ascending(value, database, table)
        }
    }

    pub(super) fn unrank(&self, rank: Rank) -> (Option<SortValue>, String, String) {
        match rank {
            Rank::Ascending(value, database, table) | Rank::Descending(Reverse(value), database, table) => {
                (Some(value), database, table)
            }
        }
    }
}

/// Milliseconds since 1970 of seconds since then, `yyyy-MM-dd`, or that with `T` or a blank, `HH:mm:ss[.fff]` and
/// perhaps `Z`.
fn parse_time_ms(text: &str) -> Option<i64> {
    if let Ok(seconds) = text.parse::<f64>() {
        return (seconds.is_finite() && seconds.abs() < 1.0e12).then_some((seconds * 1000.0) as i64);
    }
    let text = text.strip_suffix('Z').or_else(|| text.strip_suffix("+00:00")).unwrap_or(text);
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00:00"));
    let mut date = date.splitn(3, '-').map(|part| part.parse::<u32>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let mut clock = time.splitn(3, ':');
    let (hour, minute) = (clock.next()?.parse::<u32>().ok()?, clock.next()?.parse::<u32>().ok()?);
    let second = clock.next()?.parse::<f64>().ok()?;
    let is_real = (1..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && (0.0..60.0).contains(&second);
    if !is_real {
        return None;
    }
    let minutes = (days_since_1970(i64::from(year), i64::from(month), i64::from(day)) * 24 + i64::from(hour)) * 60;
    Some((minutes + i64::from(minute)) * 60_000 + (second * 1000.0) as i64)
}

/// Days of the Gregorian calendar: years begin in March, so that the day a leap year has more is a year's last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    // 1 March of the year 0 was 719,468 days before 1970.
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_every_spelling() {
        for (text, ms) in [
            ("0", Some(0)),
            ("1717158600", Some(1_717_158_600_000)),
            ("1717158600.5", Some(1_717_158_600_500)),
            ("1970-01-01", Some(0)),
            ("2024-05-31", Some(1_717_113_600_000)),
            ("2024-05-31 12:30:00", Some(1_717_158_600_000)),
            ("2024-05-31T12:30:00Z", Some(1_717_158_600_000)),
            ("2024-05-31T12:30:00.250+00:00", Some(1_717_158_600_250)),
            ("2000-02-29", Some(951_782_400_000)),
            ("1969-12-31T23:59:59", Some(-1000)),
            ("yesterday", None),
            ("2024-13-01", None),
            ("2024-01-01T25:00:00", None),
            ("2024-01-01T10:00", None),
            ("NaN", None),
            ("inf", None),
            ("", None),
        ] {
            assert_eq!(parse_time_ms(text), ms, "{text}");
        }
    }

    #[test]
    fn words_and_whole_values_match() {
        let filter = |value: &str| Filter::parse(&json!({ "Key": "Name", "Value": value })).unwrap();
        for (value, name, is_match) in [
            ("link", "customer-link", true),
            ("link", "xx-link-yy", true),
            ("link", "xxlinkyy", false),
            ("LINK", "a:link", true),
            ("customer-link", "customer-link", true),
            ("orders", "orders_2024", false),
            ("orders_2024", "orders_2024", true),
        ] {
            assert_eq!(filter(value).matches_text(name), is_match, "{value} {name}");
        }
    }

    #[test]
    fn filters_without_meaning_are_refused() {
        for filter in [
            json!({}),
            json!({ "Key": "Name" }),
            json!({ "Key": "UpdateTime", "Value": "soon" }),
            json!({ "Key": "Name", "Value": "x", "Comparator": "LESS_THAN" }),
        ] {
            assert!(matches!(Filter::parse(&filter), Err(CatalogError::Invalid(_))), "{filter}");
        }
        assert!(parse_sort(&json!({ "FieldName": "Colour" })).is_err());
    }

    #[test]
    fn quotes_make_a_text_exact() {
        assert_eq!(TextQuery::parse("  "), None);
        assert_eq!(TextQuery::parse("\"Big Table\""), Some(TextQuery::Exact("big table".to_owned())));
        assert_eq!(TextQuery::parse("Big table"), Some(TextQuery::Words(vec!["big".to_owned(), "table".to_owned()])));
    }
}

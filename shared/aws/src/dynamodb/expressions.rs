//! Conditions and key ranges as DynamoDB's expressions. Names and values always go through placeholders.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use lakewarden_core::store::{Condition, Query, SortRange, Table};

use super::attributes::{Attributes, Form, encode_sort, encode_value};

/// An expression and its placeholders; maps are absent where empty, as DynamoDB demands.
#[derive(Debug, PartialEq)]
pub struct Expression<V = AttributeValue> {
    pub text: Option<String>,
    pub names: Option<HashMap<String, String>>,
    pub values: Option<Attributes<V>>,
}

struct Writer<V> {
    names: HashMap<String, String>,
    values: Attributes<V>,
}

impl<V> Writer<V> {
    fn new() -> Self {
        Self { names: HashMap::new(), values: HashMap::new() }
    }

    fn name(&mut self, name: &str) -> String {
        if let Some((placeholder, _)) = self.names.iter().find(|(_, known)| *known == name) {
            return placeholder.clone();
        }
        let placeholder = format!("#n{}", self.names.len());
        self.names.insert(placeholder.clone(), name.to_owned());
        placeholder
    }

    fn value(&mut self, value: V) -> String {
        let placeholder = format!(":v{}", self.values.len());
        self.values.insert(placeholder.clone(), value);
        placeholder
    }

    fn finish(self, text: Option<String>) -> Expression<V> {
        Expression {
            text,
            names: Some(self.names).filter(|names| !names.is_empty()),
            values: Some(self.values).filter(|values| !values.is_empty()),
        }
    }
}

impl Writer<AttributeValue> {
    /// Text of a condition, nothing where it always holds.
    fn condition(&mut self, table: Table, condition: &Condition) -> Option<String> {
        match condition {
            Condition::Always => None,
            Condition::Absent => Some(format!("attribute_not_exists({})", self.name(table.hash_attribute()))),
            Condition::Present => Some(format!("attribute_exists({})", self.name(table.hash_attribute()))),
            Condition::Equals { field, value } => {
                let name = self.name(field);
                Some(format!("{name} = {}", self.value(encode_value(value))))
            }
            Condition::AbsentOrAtMost { field, value } => {
                let (hash, name) = (self.name(table.hash_attribute()), self.name(field));
                let most = self.value(AttributeValue::N(value.to_string()));
                Some(format!("(attribute_not_exists({hash}) OR {name} <= {most})"))
            }
            Condition::All(conditions) => {
                let parts: Vec<String> = conditions.iter().filter_map(|one| self.condition(table, one)).collect();
                if parts.is_empty() { None } else { Some(format!("({})", parts.join(" AND "))) }
            }
        }
    }
}

pub(super) fn encode_condition(table: Table, condition: &Condition) -> Expression {
    let mut writer = Writer::new();
    let text = writer.condition(table, condition);
    writer.finish(text)
}

/// A check of a transaction must state something: where any state is fine, it says so.
pub(super) fn encode_check(table: Table, condition: &Condition) -> Expression {
    let mut writer = Writer::new();
    let text = writer.condition(table, condition).unwrap_or_else(|| {
        let hash = writer.name(table.hash_attribute());
        format!("attribute_exists({hash}) OR attribute_not_exists({hash})")
    });
    writer.finish(Some(text))
}

/// The key condition of a query that [`Query::check`] let pass. An empty lower bound is no bound.
pub fn encode_range<F: Form>(query: &Query) -> Expression<F::Value> {
    let mut writer = Writer::new();
    let hash = writer.name(query.table.hash_attribute());
    let pk = writer.value(F::text(query.pk.clone()));
    let mut text = format!("{hash} = {pk}");
    let range = match &query.range {
        SortRange::Prefix(low) | SortRange::AtLeast(low) if low.as_bytes().is_empty() => &SortRange::All,
        SortRange::Between(low, high) if low.as_bytes().is_empty() => &SortRange::AtMost(high.clone()),
        other => other,
    };
    if *range != SortRange::All {
        let name = writer.name(query.table.range_attribute());
        let part = match range {
            SortRange::All => String::new(),
            SortRange::Prefix(prefix) => format!("begins_with({name}, {})", writer.value(encode_sort::<F>(prefix))),
            SortRange::AtLeast(low) => format!("{name} >= {}", writer.value(encode_sort::<F>(low))),
            SortRange::AtMost(high) => format!("{name} <= {}", writer.value(encode_sort::<F>(high))),
            SortRange::Between(low, high) => {
                let low = writer.value(encode_sort::<F>(low));
                format!("{name} BETWEEN {low} AND {}", writer.value(encode_sort::<F>(high)))
            }
        };
        text = format!("{text} AND {part}");
    }
    writer.finish(Some(text))
}

#[cfg(test)]
mod tests {
    use super::super::attributes::Sdk;
    use super::*;

    fn text(condition: &Condition) -> Option<String> {
        encode_condition(Table::Catalog, condition).text
    }

    #[test]
    fn conditions_are_written_with_placeholders() {
        let cases = [
            (Condition::Always, None),
            (Condition::Absent, Some("attribute_not_exists(#n0)")),
            (Condition::Present, Some("attribute_exists(#n0)")),
            (Condition::equals("revision", "r"), Some("#n0 = :v0")),
            (Condition::AbsentOrAtMost { field: "ends", value: 5 }, Some("(attribute_not_exists(#n0) OR #n1 <= :v0)")),
            (Condition::All(vec![]), None),
            (Condition::All(vec![Condition::Always, Condition::Absent]), Some("(attribute_not_exists(#n0))")),
            (
                Condition::All(vec![
                    Condition::equals("a", 1),
                    Condition::All(vec![Condition::equals("a", 2), Condition::Present]),
                ]),
                Some("(#n0 = :v0 AND (#n0 = :v1 AND attribute_exists(#n1)))"),
            ),
        ];
        for (condition, expected) in cases {
            assert_eq!(text(&condition).as_deref(), expected, "{condition:?}");
        }
        let expression = encode_condition(Table::DeltaLog, &Condition::Absent);
        assert_eq!(expression.names.unwrap()["#n0"], "tablePath");
        assert_eq!(expression.values, None);
        assert_eq!(encode_condition(Table::Catalog, &Condition::Always), Expression::default());
        assert!(encode_check(Table::Catalog, &Condition::Always).text.unwrap().contains("OR"));
    }

    #[test]
    fn ranges_are_written_as_dynamodb_knows_them() {
        let cases = [
            (SortRange::All, "#n0 = :v0"),
            (SortRange::Prefix("a".into()), "#n0 = :v0 AND begins_with(#n1, :v1)"),
            (SortRange::Prefix("".into()), "#n0 = :v0"),
            (SortRange::Between("a".into(), "b".into()), "#n0 = :v0 AND #n1 BETWEEN :v1 AND :v2"),
            (SortRange::Between("".into(), "b".into()), "#n0 = :v0 AND #n1 <= :v1"),
            (SortRange::AtLeast("a".into()), "#n0 = :v0 AND #n1 >= :v1"),
            (SortRange::AtMost("a".into()), "#n0 = :v0 AND #n1 <= :v1"),
        ];
        for (range, expected) in cases {
            let query = Query::new(Table::Catalog, "p", range);
            assert_eq!(encode_range::<Sdk>(&query).text.as_deref(), Some(expected), "{query:?}");
        }
    }
}

//! Rules that rows of a table must keep, as far as they tell whether a statement about the table had to look at its rows.

use std::collections::BTreeSet;

use crate::delta::Metadata;
use crate::delta::schema::Schema;

/// Prefix of the properties that are CHECK constraints, in small letters.
const CONSTRAINTS: &str = "delta.constraints.";
/// Members of a field's metadata that are rules.
const OF_FIELDS: [&str; 2] = ["delta.invariants", "delta.generationExpression"];
const NOT_NULL: &str = "NOT NULL";

/// Constraints, invariants, generated columns and NOT NULL: where each is, and how it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowRules(BTreeSet<(String, String)>);

impl RowRules {
    /// The rules of a metaData action; none where its schema cannot be read.
    pub fn parse(metadata: &Metadata) -> Option<RowRules> {
        Schema::parse(&metadata.schema_string).ok().map(|schema| RowRules::of(metadata, &schema))
    }

    pub fn of(metadata: &Metadata, schema: &Schema) -> RowRules {
        let constraints = metadata.configuration.iter().filter_map(|(name, text)| {
            let name = name.to_ascii_lowercase();
            name.starts_with(CONSTRAINTS).then(|| (name, text.clone().unwrap_or_default()))
        });
        let mut rules: BTreeSet<(String, String)> = constraints.collect();
        for (path, field) in schema.walk() {
            for name in OF_FIELDS {
                if let Some(text) = field.metadata.get(name) {
                    rules.insert((format!("{path} {name}"), text.to_string()));
                }
            }
            if !field.nullable {
                rules.insert((path, NOT_NULL.to_owned()));
            }
        }
        RowRules(rules)
    }

    /// Whether rows that keep `others` may break one of these.
    pub fn go_beyond(&self, others: &RowRules) -> bool {
        !self.0.is_subset(&others.0)
    }
}

//! The rules of a table, from its properties and its fields' metadata.

use serde_json::Value;

use crate::commit::sql::{Comparison, Expr};
use crate::delta::Metadata;
use crate::delta::schema::{DataType, Schema};

/// Prefix of the properties that are CHECK constraints.
const CONSTRAINTS: &str = "delta.constraints.";
const INVARIANTS: &str = "delta.invariants";
const GENERATED: &str = "delta.generationExpression";

/// Where a rule comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleKind {
    Check,
    Invariant,
    Generated,
}

/// What must be true of every row.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    pub kind: RuleKind,
    /// Name of the constraint, or path of the column.
    pub name: String,
    /// As it is written.
    pub text: String,
    /// Or why it is not understood.
    pub expr: Result<Expr, String>,
}

impl Rule {
    /// In words.
    pub fn describe(&self) -> String {
        match self.kind {
            RuleKind::Check => format!("CHECK constraint {} ({})", self.name, self.text),
            RuleKind::Invariant => format!("invariant of column {} ({})", self.name, self.text),
            RuleKind::Generated => format!("generated column {} = {}", self.name, self.text),
        }
    }

    /// Columns that it is made of.
    pub fn columns(&self) -> Vec<Vec<String>> {
        let named = self.expr.as_ref().map(Expr::columns).unwrap_or_default();
        let mut columns: Vec<Vec<String>> = named.into_iter().map(<[String]>::to_vec).collect();
        columns.sort();
        columns.dedup();
        columns
    }
}

/// All rules of a table, constraints first.
pub fn rules_of(metadata: &Metadata, schema: &Schema) -> Vec<Rule> {
    let mut rules = Vec::new();
    for (name, text) in &metadata.configuration {
        if let (Some(name), Some(text)) = (name.strip_prefix(CONSTRAINTS), text) {
            let (name, text, expr) = (name.to_owned(), text.clone(), Expr::parse(text));
            rules.push(Rule { kind: RuleKind::Check, name, text, expr });
        }
    }
    for (name, field) in schema.walk() {
        if let Some(found) = field.metadata.get(INVARIANTS) {
            let (text, expr) = match invariant(found) {
                Some(text) => (text.clone(), Expr::parse(&text)),
                None => (found.to_string(), Err("it is not written as the protocol has invariants".to_owned())),
            };
            rules.push(Rule { kind: RuleKind::Invariant, name: name.clone(), text, expr });
        }
        if let Some(found) = field.metadata.get(GENERATED) {
            let text = found.as_str().map_or_else(|| found.to_string(), str::to_owned);
            let expr = Expr::parse(&text).and_then(|expr| {
                let DataType::Primitive(kind) = &field.data_type else {
                    return Err("a generated column has a nested type".to_owned());
                };
                let column = name.split('.').map(str::to_owned).collect();
                let value = Box::new(Expr::Cast(Box::new(expr), kind.clone()));
                Ok(Expr::Compare(Comparison::NullSafeEqual, Box::new(Expr::Column(column)), value))
            });
            rules.push(Rule { kind: RuleKind::Generated, name, text, expr });
        }
    }
    rules
}

/// `{"expression":{"expression":"x > 3"}}`, as a text.
fn invariant(found: &Value) -> Option<String> {
    let value: Value = serde_json::from_str(found.as_str()?).ok()?;
    value.get("expression")?.get("expression")?.as_str().map(str::to_owned)
}

/// Columns that rules are made of, each with the rule in words. A rule that is not understood guards every column that
/// its text names.
pub fn guarded_columns(metadata: &Metadata, schema: &Schema) -> Vec<(Vec<String>, String)> {
    let mut guarded = Vec::new();
    for rule in rules_of(metadata, schema) {
        let described = rule.describe();
        let columns = match &rule.expr {
            Ok(_) => rule.columns(),
            Err(_) => {
                let words = rule.text.split(|letter: char| !(letter.is_alphanumeric() || letter == '_'));
                let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
                let is_named = |name: &str| words.iter().any(|word| word.eq_ignore_ascii_case(name));
                let named = schema.fields.iter().filter(|field| is_named(&field.name));
                named.map(|field| vec![field.name.clone()]).collect()
            }
        };
        let columns =
            columns.into_iter().filter(|column| rule.kind != RuleKind::Generated || column.join(".") != rule.name);
        guarded.extend(columns.map(|column| (column, described.clone())));
    }
    guarded
}

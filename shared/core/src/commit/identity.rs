//! Identity columns: numbers that each insert takes from a mark which the schema keeps, and moves on.
//!
//! The mark makes every two inserts meet, so that such a table has one writer at a time (see [`IdentityWriters`]). What a
//! commit must keep: the mark never goes back, and where writers may not choose the numbers themselves, those of new files
//! lie up to the mark that the commit leaves, and for an append beyond the mark that it found.

use parquet::file::metadata::ParquetMetaData;
use serde_json::Value;

use super::verdict::{Exception, Refusal};
use crate::delta::AddFile;
use crate::delta::footer::{Datum, FileField, LeafFacts, Node, facts_of_file, find};
use crate::delta::schema::{DataType, Field, MappingMode, Primitive, Schema};
use crate::ports::IdentityWriters;

const PREFIX: &str = "delta.identity.";
const START: &str = "delta.identity.start";
const STEP: &str = "delta.identity.step";
pub(super) const HIGH_WATER_MARK: &str = "delta.identity.highWaterMark";
const EXPLICIT: &str = "delta.identity.allowExplicitInsert";
/// Tag of a commit whose metaData only moves marks.
const TAG: &str = "delta.identity.schemaUpdate";

fn is_identity(field: &Field) -> bool {
    field.metadata.keys().any(|name| name.starts_with(PREFIX))
}

/// Path of the first identity column.
pub fn first_column(schema: &Schema) -> Option<String> {
    schema.walk().into_iter().find(|(_, field)| is_identity(field)).map(|(path, _)| path)
}

/// Whether a commit says that its metaData does nothing but move marks. Only where the setting admits it.
pub(super) fn says_marks_only(info: Option<&crate::delta::CommitInfo>, writers: IdentityWriters) -> bool {
    let tag = info.and_then(|info| info.0.get("tags")).and_then(|tags| tags.get(TAG));
    let is_set = tag.is_some_and(|tag| tag.as_bool() == Some(true) || tag.as_str() == Some("true"));
    is_set && writers == IdentityWriters::HighWaterMark
}

/// What a field says of its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    start: i64,
    step: i64,
    mark: Option<i64>,
    /// Writers may choose numbers themselves.
    is_explicit: bool,
}

impl Identity {
    /// Whether `number` comes after `mark` in the order in which numbers are given out.
    fn is_beyond(self, number: i128, mark: i64) -> bool {
        if self.step > 0 { number > i128::from(mark) } else { number < i128::from(mark) }
    }
}

fn read(field: &Field) -> Result<Identity, Refusal> {
    let wrong = |text: String| Refusal::invalid("IDENTITY_COLUMN", text).column(&field.name);
    let number = |name: &str| match field.metadata.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_i64() {
            Some(number) => Ok(Some(number)),
            None => Err(wrong(format!("{name} of the column `{}` is {value}, which is no whole number", field.name))),
        },
    };
    if field.data_type != DataType::Primitive(Primitive::Long) {
        return Err(wrong(format!("the identity column `{}` is no long", field.name)));
    }
    let (start, step, mark) = (number(START)?, number(STEP)?, number(HIGH_WATER_MARK)?);
    let (Some(start), Some(step)) = (start, step.filter(|step| *step != 0)) else {
        let text = format!("the identity column `{}` needs {START}, and a {STEP} that is not 0", field.name);
        return Err(wrong(text));
    };
    let is_explicit = field.metadata.get(EXPLICIT).is_some_and(|value| value.as_bool() == Some(true));
    Ok(Identity { start, step, mark, is_explicit })
}

/// Checks a schema that a commit brings: identity columns are whole, stand at the top, and their marks do not go back,
/// unless the table is `replaced` as a whole.
pub fn check_schema(old: Option<&Schema>, new: &Schema, replaced: bool) -> Result<(), Refusal> {
    let is_nested = |(path, field): &(String, &Field)| is_identity(field) && new.column(path).is_none();
    if let Some((path, _)) = new.walk().into_iter().find(is_nested) {
        let text = format!("the identity column `{path}` lies inside another one");
        return Err(Refusal::invalid("IDENTITY_COLUMN", text).column(&path));
    }
    for field in new.fields.iter().filter(|field| is_identity(field)) {
        let now = read(field)?;
        let before = old.and_then(|old| old.column(&field.name)).filter(|field| is_identity(field));
        let Some(before) = before.and_then(|field| read(field).ok()).filter(|_| !replaced) else { continue };
        let Some(mark) = before.mark else { continue };
        let went_back = now.mark.is_none_or(|new| now.is_beyond(mark.into(), new));
        if went_back && now.start == before.start && now.step == before.step {
            let found = now.mark.map_or("none".to_owned(), |mark| mark.to_string());
            let text = format!(
                "the mark of the identity column `{}` goes back from {mark} to {found}: numbers would be given out twice",
                field.name
            );
            let advice = "read the table again, and leave the mark where it is or move it on";
            return Err(
                Refusal::new(Exception::SchemaMismatchException, "IDENTITY_MARK", text, advice).column(&field.name)
            );
        }
    }
    Ok(())
}

/// Which numbers new files may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbers {
    column: String,
    identity: Identity,
    /// An append must have numbers beyond this mark.
    beyond: Option<i64>,
}

/// The numbers that the files of a commit may have, for each column whose numbers writers may not choose. `appends`: the
/// commit removes no file, so that it moves no rows.
pub fn numbers(old: Option<&Schema>, new: &Schema, appends: bool) -> Vec<Numbers> {
    let columns = new.fields.iter().filter(|field| is_identity(field));
    let rules = columns.filter_map(|field| {
        // A column that cannot be read was refused where it came in; one of before cannot be judged.
        let identity = read(field).ok().filter(|identity| !identity.is_explicit)?;
        let before = old.and_then(|old| old.column(&field.name)).and_then(|field| read(field).ok());
        let beyond = before.and_then(|before| before.mark).filter(|_| appends);
        Some(Numbers { column: field.name.clone(), identity, beyond })
    });
    rules.collect()
}

/// Holds a new file against the numbers that it may have. Warns where its statistics do not tell.
pub fn check_file(
    add: &AddFile,
    metadata: &ParquetMetaData,
    fields: &[FileField],
    schema: &Schema,
    mode: MappingMode,
    rules: &[Numbers],
) -> Result<Vec<String>, Refusal> {
    let mut warnings = Vec::new();
    for rule in rules {
        let Some(field) = schema.column(&rule.column) else { continue };
        let Some(FileField { node: Node::Leaf { kind, leaf }, .. }) = find(fields, field, mode) else { continue };
        let facts = facts_of_file(metadata, *leaf, kind);
        if facts.rows == 0 || facts.nulls == Some(facts.rows) {
            continue;
        }
        match rule.broken_by(&facts) {
            Some(None) => {}
            Some(Some(text)) => {
                let advice = "let the writer take the column's numbers from the mark, and move the mark on in the same \
                              commit";
                return Err(Refusal::new(Exception::SchemaMismatchException, "IDENTITY_VALUES", text, advice)
                    .class("DELTA_IDENTITY_COLUMNS_EXPLICIT_INSERT_NOT_SUPPORTED")
                    .file(&add.path)
                    .column(&rule.column));
            }
            None => warnings.push(format!("column {}: its numbers are not proved to come from the mark", rule.column)),
        }
    }
    Ok(warnings)
}

impl Numbers {
    /// What is wrong, if anything; the outer none: the statistics do not tell.
    fn broken_by(&self, facts: &LeafFacts) -> Option<Option<String>> {
        let end = |bound: &Option<crate::delta::footer::Bound>| match bound.as_ref().map(|bound| &bound.value) {
            Some(Datum::Int(number)) => Some(*number),
            _ => None,
        };
        let (low, high) = (end(&facts.low)?, end(&facts.high)?);
        let (first, last) = if self.identity.step > 0 { (low, high) } else { (high, low) };
        let column = &self.column;
        let Some(mark) = self.identity.mark else {
            return Some(Some(format!(
                "the file has numbers ({low} to {high}) in the identity column `{column}`, whose mark says that none were \
                 given out"
            )));
        };
        if self.identity.is_beyond(last, mark) {
            return Some(Some(format!(
                "the file has the number {last} in the identity column `{column}`, beyond its mark {mark}"
            )));
        }
        match self.beyond.filter(|beyond| !self.identity.is_beyond(first, *beyond)) {
            Some(beyond) => Some(Some(format!(
                "the file has the number {first} in the identity column `{column}`, which was given out before (its mark \
                 was {beyond})"
            ))),
            None => Some(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delta::footer::Bound;
    use serde_json::json;

    fn schema(metadata: &Value) -> Schema {
        let field = json!({"name": "n", "type": "long", "nullable": true, "metadata": metadata});
        Schema::parse(&json!({"type": "struct", "fields": [field]}).to_string()).unwrap()
    }

    fn identity(step: i64, mark: Option<i64>) -> Value {
        let mut metadata = json!({START: 1, STEP: step, EXPLICIT: false});
        if let Some(mark) = mark {
            metadata[HIGH_WATER_MARK] = json!(mark);
        }
        metadata
    }

    #[test]
    fn the_mark_never_goes_back() {
        let reason = |old: Value, new: Value, replaced: bool| {
            check_schema(Some(&schema(&old)), &schema(&new), replaced).err().map(|refusal| refusal.reason.clone())
        };
        for (step, old, new, replaced, expected) in [
            (1, None, Some(3), false, None),
            (1, Some(3), Some(3), false, None),
            (1, Some(3), Some(4), false, None),
            (1, Some(3), Some(2), false, Some("IDENTITY_MARK")),
            (1, Some(3), None, false, Some("IDENTITY_MARK")),
            (1, Some(3), None, true, None),
            (-1, Some(-3), Some(-4), false, None),
            (-1, Some(-3), Some(-2), false, Some("IDENTITY_MARK")),
        ] {
            let found = reason(identity(step, old), identity(step, new), replaced);
            assert_eq!(found.as_deref(), expected, "{step} {old:?} {new:?}");
        }
    }

    #[test]
    fn a_column_is_whole() {
        for (metadata, fits) in [
            (identity(1, None), true),
            (json!({}), true),
            (json!({START: 1}), false),
            (json!({START: 1, STEP: 0}), false),
            (json!({START: "1", STEP: 1}), false),
            (json!({START: 1, STEP: 1, HIGH_WATER_MARK: 1.5}), false),
        ] {
            assert_eq!(check_schema(None, &schema(&metadata), false).is_ok(), fits, "{metadata}");
        }
        let text = r#"{"type":"struct","fields":[{"name":"n","type":"string","nullable":true,"metadata":{"delta.identity.start":1,"delta.identity.step":1}}]}"#;
        assert!(check_schema(None, &Schema::parse(text).unwrap(), false).is_err());
        let nested = r#"{"type":"struct","fields":[{"name":"s","type":{"type":"struct","fields":[{"name":"n","type":"long","nullable":true,"metadata":{"delta.identity.start":1,"delta.identity.step":1}}]},"nullable":true,"metadata":{}}]}"#;
        assert!(check_schema(None, &Schema::parse(nested).unwrap(), false).is_err());
    }

    #[test]
    fn numbers_come_from_the_mark() {
        let facts = |low: i128, high: i128| {
            let bound = |number| Some(Bound { value: Datum::Int(number), is_exact: true });
            LeafFacts { rows: 2, nulls: Some(0), low: bound(low), high: bound(high), may_be_nan: false }
        };
        for (step, old, new, appends, file, fits) in [
            (1, Some(3), Some(5), true, (4, 5), true),
            (1, Some(3), Some(5), true, (4, 6), false),
            (1, Some(3), Some(5), true, (3, 5), false),
            (1, Some(3), Some(5), false, (1, 5), true),
            (1, Some(3), Some(3), false, (1, 3), true),
            (1, None, None, true, (1, 1), false),
            (1, None, Some(2), true, (1, 2), true),
            (-2, Some(-3), Some(-7), true, (-7, -5), true),
            (-2, Some(-3), Some(-7), true, (-9, -5), false),
            (-2, Some(-3), Some(-7), true, (-7, -3), false),
        ] {
            let rules = numbers(Some(&schema(&identity(step, old))), &schema(&identity(step, new)), appends);
            let found = rules[0].broken_by(&facts(file.0, file.1)).unwrap();
            assert_eq!(found.is_none(), fits, "{step} {old:?} {new:?} {file:?}: {found:?}");
            assert_eq!(rules[0].broken_by(&LeafFacts { rows: 2, ..LeafFacts::default() }), None);
        }
        let mut by_default = identity(1, Some(3));
        by_default[EXPLICIT] = json!(true);
        assert_eq!(numbers(None, &schema(&by_default), true), []);
    }
}

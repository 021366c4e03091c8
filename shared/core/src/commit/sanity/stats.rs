//! Statistics of added files: readers skip files by them, so what is wrong in them loses rows.

use serde_json::{Map, Value};

use crate::commit::read_set::{bound, physical_name};
use crate::commit::statistics_honesty::read_bound;
use crate::commit::verdict::{Refusal, clip};
use crate::delta::json::parse_strict;
use crate::delta::schema::{DataType, Field, Primitive, Schema, join};
use crate::delta::{AddFile, Metadata};

/// Whether statistics may name columns that the table does not have, or be empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Columns {
    Known,
    /// Of a file that was there before.
    Any,
}

/// `stats.numRecords`; statistics that are no object are refused, absent ones are fine.
pub fn row_count(add: &AddFile) -> Result<Option<u64>, Refusal> {
    members(add)?.map_or(Ok(None), |members| rows_of(add, &members))
}

fn members(add: &AddFile) -> Result<Option<Map<String, Value>>, Refusal> {
    let Some(text) = add.stats.as_deref().filter(|text| !text.trim().is_empty()) else { return Ok(None) };
    match parse_strict(text).map_err(|error| wrong(add, format!("add.stats: {error}")))? {
        Value::Object(members) => Ok(Some(members)),
        _ => Err(wrong(add, "add.stats is not an object".into())),
    }
}

fn rows_of(add: &AddFile, members: &Map<String, Value>) -> Result<Option<u64>, Refusal> {
    match members.get("numRecords") {
        None | Some(Value::Null) => Ok(None),
        Some(count) => match count.as_u64() {
            Some(count) => Ok(Some(count)),
            None => Err(wrong(add, format!("stats.numRecords is {count}"))),
        },
    }
}

/// `stats.tightBounds`, where it is told.
pub(super) fn has_tight_bounds(add: &AddFile) -> Result<Option<bool>, Refusal> {
    match members(add)?.and_then(|mut members| members.remove("tightBounds")) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(tight)) => Ok(Some(tight)),
        Some(other) => Err(wrong(add, format!("stats.tightBounds is {other}"))),
    }
}

fn wrong(add: &AddFile, text: String) -> Refusal {
    Refusal::invalid("STATS", text).file(&add.path)
}

/// Statistics are JSON where there are any, columns are the table's, what is said of them has their types, lower bounds are not above upper ones, there are no more nulls than rows.
pub(super) fn check(add: &AddFile, metadata: &Metadata, schema: &Schema, columns: Columns) -> Result<(), Refusal> {
    let Some(members) = members(add)? else {
        // Delta's kernel cannot read a table with such a file.
        return match add.stats {
            Some(_) if columns == Columns::Known => {
                Err(wrong(add, "add.stats is an empty text; leave it out where there are none".into()))
            }
            _ => Ok(()),
        };
    };
    let rows = rows_of(add, &members)?;
    has_tight_bounds(add)?;
    let part = |name: &str| match members.get(name) {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(inner)) => Ok(inner.clone()),
        Some(_) => Err(wrong(add, format!("stats.{name} is not an object"))),
    };
    let (min, max, nulls) = (part("minValues")?, part("maxValues")?, part("nullCount")?);
    let check = Check { add, metadata, columns, rows };
    check.names("", &min, &schema.fields)?;
    check.names("", &max, &schema.fields)?;
    check.names("", &nulls, &schema.fields)?;
    for (member, found) in [(Member::Bound, &min), (Member::Bound, &max), (Member::NullCount, &nulls)] {
        check.types(member, "", found, &schema.fields)?;
    }
    check.bounds("", &min, &max, &schema.fields)?;
    check.null_counts("", &nulls, &schema.fields)
}

/// What a member of the statistics says of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member {
    Bound,
    NullCount,
}

struct Check<'a> {
    add: &'a AddFile,
    metadata: &'a Metadata,
    columns: Columns,
    rows: Option<u64>,
}

impl Check<'_> {
    fn names(&self, above: &str, found: &Map<String, Value>, fields: &[Field]) -> Result<(), Refusal> {
        for (name, value) in found {
            let field = fields.iter().find(|field| physical_name(self.metadata, field) == name);
            let path = join(above, name);
            match (field.map(|field| &field.data_type), value) {
                (None, _) if self.columns == Columns::Known => {
                    let text = format!("the statistics name the column `{path}`, which the table does not have");
                    return Err(Refusal::invalid("STATS_COLUMN", text).file(&self.add.path).column(&path));
                }
                (Some(DataType::Struct(inner)), Value::Object(value)) => self.names(&path, value, inner)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Statistics are read with the types of the columns: some readers fail on others, and some lose all of them.
    fn types(&self, member: Member, above: &str, found: &Map<String, Value>, fields: &[Field]) -> Result<(), Refusal> {
        if self.columns == Columns::Any {
            return Ok(());
        }
        for field in fields {
            let name = physical_name(self.metadata, field);
            let Some(value) = found.get(name).filter(|value| !value.is_null()) else { continue };
            let path = join(above, name);
            let fits = match (&field.data_type, value) {
                (DataType::Struct(inner), Value::Object(value)) => {
                    self.types(member, &path, value, inner)?;
                    true
                }
                (DataType::Struct(_), _) => false,
                (DataType::Primitive(kind), value) if member == Member::Bound => is_bound_of(kind, value),
                // Arrays and maps have no order, so that bounds of them say nothing.
                (_, value) => member == Member::Bound || value.is_number(),
            };
            if !fits {
                let what = if member == Member::Bound { "a bound" } else { "the null count" };
                let text = format!("the statistics of `{path}` have {value} for {what}, which is of another type");
                let mut refusal = Refusal::invalid("STATS_TYPE", text).file(&self.add.path).column(&path);
                let expected =
                    if member == Member::Bound { field.data_type.to_string() } else { "a number".to_owned() };
                (refusal.place.expected, refusal.place.found) = (Some(clip(&expected)), Some(clip(&value.to_string())));
                return Err(refusal);
            }
        }
        Ok(())
    }

    fn bounds(
        &self,
        above: &str,
        min: &Map<String, Value>,
        max: &Map<String, Value>,
        fields: &[Field],
    ) -> Result<(), Refusal> {
        for field in fields {
            let name = physical_name(self.metadata, field);
            let (Some(low), Some(high)) = (min.get(name), max.get(name)) else { continue };
            let path = join(above, name);
            match (&field.data_type, low, high) {
                (DataType::Struct(inner), Value::Object(low), Value::Object(high)) => {
                    self.bounds(&path, low, high, inner)?;
                }
                (DataType::Primitive(kind), low, high) if is_above(low, high, kind) => {
                    let text = format!("the statistics of `{path}` have the minimum {low} above the maximum {high}");
                    let mut refusal = Refusal::invalid("STATS_BOUNDS", text).file(&self.add.path).column(&path);
                    refusal.place.expected = Some(clip(&format!("a maximum of at least {low}")));
                    refusal.place.found = Some(clip(&high.to_string()));
                    return Err(refusal);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn null_counts(&self, above: &str, found: &Map<String, Value>, fields: &[Field]) -> Result<(), Refusal> {
        for field in fields {
            let name = physical_name(self.metadata, field);
            let path = join(above, name);
            match (&field.data_type, found.get(name)) {
                (DataType::Struct(inner), Some(Value::Object(found))) => self.null_counts(&path, found, inner)?,
                (_, Some(count @ Value::Number(_))) => {
                    let fits = count.as_u64().is_some_and(|count| self.rows.is_none_or(|rows| count <= rows));
                    if !fits {
                        let text = match self.rows {
                            Some(rows) => format!("the statistics of `{path}` count {count} nulls in {rows} rows"),
                            None => format!("the statistics of `{path}` count {count} nulls"),
                        };
                        return Err(Refusal::invalid("STATS_NULL_COUNT", text).file(&self.add.path).column(&path));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Whether the bound of a column can be such a JSON value. Numbers that JSON has not are written as texts. Decimals may
/// have been rounded up to a digit more.
fn is_bound_of(kind: &Primitive, value: &Value) -> bool {
    let whole = |range: std::ops::RangeInclusive<i64>| value.as_i64().is_some_and(|value| range.contains(&value));
    match kind {
        Primitive::Byte => whole(i8::MIN.into()..=i8::MAX.into()),
        Primitive::Short => whole(i16::MIN.into()..=i16::MAX.into()),
        Primitive::Integer => whole(i32::MIN.into()..=i32::MAX.into()),
        Primitive::Long => value.is_i64(),
        Primitive::Decimal { precision, scale } => {
            let most = 10_f64.powi(i32::from(*precision) - i32::from(*scale));
            read_bound(value, kind).and_then(|value| value.to_f64()).is_some_and(|value| value.abs() <= most)
        }
        Primitive::Binary => value.is_string(),
        _ => read_bound(value, kind).is_some(),
    }
}

/// Surely above; what cannot be read as the type is not.
fn is_above(low: &Value, high: &Value, kind: &Primitive) -> bool {
    match (bound(low, kind), bound(high, kind)) {
        (Some(low), Some(high)) => low.low.compare(&high.high).is_some_and(std::cmp::Ordering::is_gt),
        _ => false,
    }
}

//! NOT NULL, proved or refuted by what footers say of null counts.

use std::collections::HashMap;

use parquet::basic::Repetition;
use parquet::file::metadata::ParquetMetaData;
use parquet::schema::types::Type;

use super::compare::{SchemaProblem, plain_group};
use crate::delta::schema::{DataType, Field, Schema};

/// Names from the root to a column. Names may hold dots, so that a joined text would be ambiguous.
type Steps = Vec<String>;

fn step(above: &[String], name: &str) -> Steps {
    above.iter().cloned().chain([name.to_owned()]).collect()
}

const NOT_NULL: &str = "DELTA_NOT_NULL_CONSTRAINT_VIOLATED";

/// Nulls of a leaf over all row groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nulls {
    None,
    Some(u64),
    Unknown,
}

/// Every column that must not be null and is not proved to be without nulls.
pub(super) fn check_nulls(
    metadata: &ParquetMetaData,
    schema: &Schema,
    partition_columns: &[String],
) -> Vec<SchemaProblem> {
    let counts = count_nulls(metadata);
    let mut problems = Vec::new();
    let columns: Vec<&Field> = schema.fields.iter().filter(|field| !partition_columns.contains(&field.name)).collect();
    check_fields(
        &[],
        metadata.file_metadata().schema().get_fields(),
        &columns,
        Parents::AlwaysThere,
        &counts,
        &mut problems,
    );
    problems
}

/// Whether a missing parent could explain a null below it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parents {
    AlwaysThere,
    MayBeNull,
}

fn check_fields(
    above: &[String],
    found: &[std::sync::Arc<Type>],
    expected: &[&Field],
    parents: Parents,
    counts: &HashMap<Steps, Nulls>,
    problems: &mut Vec<SchemaProblem>,
) {
    for field in expected {
        let Some(one) = found.iter().find(|one| one.name() == field.name) else { continue };
        let path = step(above, &field.name);
        let required = is_required(one);
        if !field.nullable && !required {
            problems.extend(judge(&path, one, field, parents, counts));
        }
        if let (DataType::Struct(inner), Some(group)) = (&field.data_type, plain_group(one)) {
            let below = if parents == Parents::AlwaysThere && (required || !field.nullable) {
                Parents::AlwaysThere
            } else {
                Parents::MayBeNull
            };
            check_fields(&path, group, &inner.iter().collect::<Vec<_>>(), below, counts, problems);
        }
    }
}

fn judge(
    steps: &[String],
    one: &Type,
    field: &Field,
    parents: Parents,
    counts: &HashMap<Steps, Nulls>,
) -> Option<SchemaProblem> {
    let path = steps.join(".");
    let leaves = leaves_below(steps, one);
    let nulls: Vec<Nulls> = leaves.iter().map(|leaf| counts.get(leaf).copied().unwrap_or(Nulls::Unknown)).collect();
    // A leaf without nulls proves all that is above it, too.
    if nulls.contains(&Nulls::None) {
        return None;
    }
    let (message, advice) = match nulls.as_slice() {
        [Nulls::Some(count)] if one.is_primitive() && parents == Parents::AlwaysThere => (
            format!("column `{path}` must not be null and has {count} nulls"),
            "remove the nulls and write the file anew",
        ),
        _ => (
            format!("column `{path}` must not be null, and the footer does not prove it"),
            "write null counts (statistics), or declare the column as required in the file",
        ),
    };
    Some(SchemaProblem {
        class: NOT_NULL,
        column: path,
        expected: Some(format!("{} not null", field.data_type)),
        found: None,
        message,
        advice,
    })
}

fn is_required(one: &Type) -> bool {
    let info = one.get_basic_info();
    info.has_repetition() && info.repetition() == Repetition::REQUIRED
}

fn leaves_below(steps: &[String], one: &Type) -> Vec<Steps> {
    if one.is_primitive() {
        return vec![steps.to_vec()];
    }
    one.get_fields().iter().flat_map(|inner| leaves_below(&step(steps, inner.name()), inner)).collect()
}

fn count_nulls(metadata: &ParquetMetaData) -> HashMap<Steps, Nulls> {
    let mut counts = HashMap::new();
    for group in metadata.row_groups().iter().filter(|group| group.num_rows() > 0) {
        for column in group.columns() {
            let found = match column.statistics().and_then(|statistics| statistics.null_count_opt()) {
                Some(0) => Nulls::None,
                Some(count) => Nulls::Some(count),
                None => Nulls::Unknown,
            };
            let sum = counts.entry(column.column_path().parts().to_vec()).or_insert(Nulls::None);
            *sum = match (*sum, found) {
                (Nulls::Unknown, _) | (_, Nulls::Unknown) => Nulls::Unknown,
                (Nulls::Some(a), Nulls::Some(b)) => Nulls::Some(a.saturating_add(b)),
                (Nulls::Some(a), Nulls::None) | (Nulls::None, Nulls::Some(a)) => Nulls::Some(a),
                (Nulls::None, Nulls::None) => Nulls::None,
            };
        }
    }
    // Without rows nothing can be null.
    if counts.is_empty() {
        for leaf in metadata.file_metadata().schema_descr().columns() {
            counts.insert(leaf.path().parts().to_vec(), Nulls::None);
        }
    }
    counts
}

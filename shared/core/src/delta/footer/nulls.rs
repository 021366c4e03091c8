//! NOT NULL, proved or refuted by what footers say of null counts.

use parquet::file::metadata::ParquetMetaData;

use super::compare::{FileIndex, FooterCheck, SchemaProblem, TableColumns, UnprovedNotNull};
use super::tree::{FileField, Node, Presence};
use crate::delta::schema::{DataType, Field};

const NOT_NULL: &str = "DELTA_NOT_NULL_CONSTRAINT_VIOLATED";

/// Nulls of a leaf over all row groups. The count of a leaf includes the rows whose parents are null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nulls {
    None,
    Some(u64),
    Unknown,
}

/// Every column that must not be null and has nulls, or may have some.
pub(super) fn check_nulls(
    metadata: &ParquetMetaData,
    found: &[FileField],
    table: TableColumns<'_>,
    out: &mut FooterCheck,
) {
    let counts = count_nulls(metadata);
    let columns: Vec<&Field> = table.schema.fields.iter().filter(|field| !table.is_partition(field)).collect();
    let mut check = Check { counts: &counts, table, out };
    check.fields(&[], found, &columns, Parents::AlwaysThere);
}

/// Whether a missing parent could explain a null below it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parents {
    AlwaysThere,
    MayBeNull,
}

struct Check<'a> {
    counts: &'a [Nulls],
    table: TableColumns<'a>,
    out: &'a mut FooterCheck,
}

impl Check<'_> {
    fn fields(&mut self, above: &[String], found: &[FileField], expected: &[&Field], parents: Parents) {
        let index = FileIndex::of(found, self.table.mode);
        for field in expected {
            let Some(one) = index.find(field) else { continue };
            let steps: Vec<String> = above.iter().cloned().chain([field.name.clone()]).collect();
            let required = one.presence == Presence::Required;
            if !field.nullable && !required {
                self.judge(&steps, one, field, parents);
            }
            if let (DataType::Struct(inner), Node::Struct(group)) = (&field.data_type, &one.node) {
                let always = parents == Parents::AlwaysThere && (required || !field.nullable);
                let below = if always { Parents::AlwaysThere } else { Parents::MayBeNull };
                self.fields(&steps, group, &inner.iter().collect::<Vec<_>>(), below);
            }
        }
    }

    fn judge(&mut self, steps: &[String], one: &FileField, field: &Field, parents: Parents) {
        let nulls: Vec<Nulls> =
            one.leaves().iter().map(|leaf| self.counts.get(*leaf).copied().unwrap_or(Nulls::Unknown)).collect();
        // A leaf without nulls proves all that is above it, too.
        if nulls.contains(&Nulls::None) {
            return;
        }
        let expected = format!("{} not null", field.data_type);
        match (nulls.as_slice(), &one.node) {
            ([Nulls::Some(count)], Node::Leaf { .. }) if parents == Parents::AlwaysThere => {
                let column = steps.join(".");
                self.out.problems.push(SchemaProblem {
                    class: NOT_NULL,
                    message: format!("column `{column}` must not be null and has {count} nulls"),
                    column,
                    expected: Some(expected),
                    found: Some(format!("{count} nulls")),
                    advice: "remove the nulls and write the file anew",
                });
            }
            _ => self.out.unproved.push(UnprovedNotNull { steps: steps.to_vec(), expected }),
        }
    }
}

/// Nulls of every leaf, by its index.
pub fn count_nulls(metadata: &ParquetMetaData) -> Vec<Nulls> {
    let leaves = metadata.file_metadata().schema_descr().num_columns();
    // Without rows nothing can be null.
    let mut counts = vec![Nulls::None; leaves];
    for group in metadata.row_groups().iter().filter(|group| group.num_rows() > 0) {
        for (column, sum) in group.columns().iter().zip(&mut counts) {
            let found = match column.statistics().and_then(|statistics| statistics.null_count_opt()) {
                Some(0) => Nulls::None,
                Some(count) => Nulls::Some(count),
                None => Nulls::Unknown,
            };
            *sum = match (*sum, found) {
                (Nulls::Unknown, _) | (_, Nulls::Unknown) => Nulls::Unknown,
                (Nulls::Some(a), Nulls::Some(b)) => Nulls::Some(a.saturating_add(b)),
                (Nulls::Some(a), Nulls::None) | (Nulls::None, Nulls::Some(a)) => Nulls::Some(a),
                (Nulls::None, Nulls::None) => Nulls::None,
            };
        }
    }
    counts
}

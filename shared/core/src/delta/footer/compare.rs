use parquet::basic::{ConvertedType, LogicalType, Repetition};
use parquet::file::metadata::ParquetMetaData;
use parquet::schema::types::Type;

use super::kind::{Fit, fit, kind_of};
use super::nulls::check_nulls;
use crate::delta::schema::{DataType, Field, Primitive, Schema, join};

/// What a data file does that its table does not allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaProblem {
    /// Delta's name of the error.
    pub class: &'static str,
    /// Dotted path of the column.
    pub column: String,
    pub expected: Option<String>,
    pub found: Option<String>,
    pub message: String,
    pub advice: &'static str,
}

/// What the comparison found out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FooterCheck {
    pub problems: Vec<SchemaProblem>,
    pub warnings: Vec<String>,
}

const MISMATCH: &str = "DELTA_METADATA_MISMATCH.SCHEMA_MISMATCH";
const MERGE_TYPES: &str = "DELTA_MERGE_INCOMPATIBLE_DATATYPE";
const MERGE_DECIMALS: &str = "DELTA_MERGE_INCOMPATIBLE_DECIMAL_TYPE";
const MISSING_NOT_NULL: &str = "DELTA_MISSING_NOT_NULL_COLUMN_VALUE";
const DUPLICATES: &str = "DELTA_DUPLICATE_COLUMNS_FOUND.DUPLICATE_COLUMNS";

/// Problems named of one file; a file that is wrong altogether would name hundreds.
const PROBLEMS_MAX: usize = 20;

/// Compares a file's schema and null counts with the table's schema. Partition columns may be in the file or not; `extras`
/// are columns that the table does not have and its files may have.
pub fn check_footer(
    metadata: &ParquetMetaData,
    schema: &Schema,
    partition_columns: &[String],
    extras: &[&str],
) -> FooterCheck {
    let mut comparison = Comparison::default();
    let root = metadata.file_metadata().schema();
    comparison.fields("", root.get_fields(), &schema.fields, &|name| {
        partition_columns.iter().any(|column| column == name) || extras.contains(&name)
    });
    comparison.extras(root.get_fields(), extras);
    if comparison.out.problems.is_empty() {
        comparison.out.problems = check_nulls(metadata, schema, partition_columns);
    }
    comparison.out.problems.truncate(PROBLEMS_MAX);
    comparison.out
}

#[derive(Default)]
struct Comparison {
    out: FooterCheck,
}

impl Comparison {
    fn problem(
        &mut self,
        class: &'static str,
        column: &str,
        types: (Option<String>, Option<String>),
        text: (String, &'static str),
    ) {
        self.out.problems.push(SchemaProblem {
            class,
            column: column.to_owned(),
            expected: types.0,
            found: types.1,
            message: text.0,
            advice: text.1,
        });
    }

    /// Extra columns hold row ids or commit versions, but for the one that tells the kind of a change.
    fn extras(&mut self, found: &[std::sync::Arc<Type>], extras: &[&str]) {
        for one in found.iter().filter(|one| extras.contains(&one.name()) && one.name() != "_change_type") {
            if !one.is_primitive() || one.get_physical_type() != parquet::basic::Type::INT64 {
                let text = format!("`{}` holds row ids or commit versions, and is no 64-bit integer", one.name());
                let types = (Some("long".to_owned()), None);
                self.problem(MISMATCH, one.name(), types, (text, "write row ids as INT64"));
            }
        }
    }

    /// Fields of one struct; `may_differ` names columns that need not be in the file, or not in the table.
    fn fields(
        &mut self,
        above: &str,
        found: &[std::sync::Arc<Type>],
        expected: &[Field],
        may_differ: &dyn Fn(&str) -> bool,
    ) {
        for (index, one) in found.iter().enumerate() {
            let path = join(above, one.name());
            let twin = found.iter().take(index).find(|other| same_but_for_case(other.name(), one.name()));
            if let Some(twin) = twin {
                self.problem(
                    DUPLICATES,
                    &path,
                    (None, None),
                    (
                        format!(
                            "the file has the columns `{}` and `{}`, which differ at most by case",
                            twin.name(),
                            one.name()
                        ),
                        "write each column once",
                    ),
                );
                continue;
            }
            match expected.iter().find(|field| field.name == one.name()) {
                Some(field) => self.data_type(&path, one, &field.data_type),
                None if may_differ(one.name()) => {}
                None => self.unknown_column(&path, one, expected),
            }
        }
        for field in expected.iter().filter(|field| !field.nullable && !may_differ(&field.name)) {
            let is_there = found.iter().any(|one| same_but_for_case(one.name(), &field.name));
            if !is_there {
                let path = join(above, &field.name);
                let expected = Some(format!("{} not null", field.data_type));
                let text = format!("the file lacks `{path}`, which must not be null");
                self.problem(MISSING_NOT_NULL, &path, (expected, None), (text, "write the column with its values"));
            }
        }
    }

    fn unknown_column(&mut self, path: &str, one: &Type, expected: &[Field]) {
        let found = Some(describe(one));
        match expected.iter().find(|field| same_but_for_case(&field.name, one.name())) {
            Some(field) => self.problem(
                MISMATCH,
                path,
                (Some(field.name.clone()), Some(one.name().to_owned())),
                (
                    format!(
                        "the file spells `{}` where the table has `{}`: readers would see nulls",
                        one.name(),
                        field.name
                    ),
                    "rename the column to the table's spelling",
                ),
            ),
            None => self.problem(
                MISMATCH,
                path,
                (None, found),
                (
                    format!("the table has no column `{path}`"),
                    "drop the column, or commit the new schema (a metaData action) together with the file",
                ),
            ),
        }
    }

    fn data_type(&mut self, path: &str, found: &Type, expected: &DataType) {
        match expected {
            DataType::Primitive(primitive) => self.primitive(path, found, primitive),
            DataType::Struct(fields) => match plain_group(found) {
                Some(inner) => self.fields(path, inner, fields, &|_| false),
                None => self.types_differ(path, found, expected),
            },
            DataType::Array { element, .. } => match list_element(found) {
                Some(inner) => self.element(&join(path, "element"), inner, element),
                None => self.types_differ(path, found, expected),
            },
            DataType::Map { key, value, .. } => match map_parts(found) {
                Some((found_key, found_value)) => {
                    self.data_type(&join(path, "key"), found_key, key);
                    self.data_type(&join(path, "value"), found_value, value);
                }
                None => self.types_differ(path, found, expected),
            },
        }
    }

    /// Elements of a list of two levels are the repeated node itself.
    fn element(&mut self, path: &str, found: &Type, expected: &DataType) {
        match expected {
            DataType::Primitive(primitive) if is_repeated(found) => self.leaf(path, found, primitive),
            DataType::Struct(fields) if is_repeated(found) && !found.is_primitive() => {
                self.fields(path, found.get_fields(), fields, &|_| false);
            }
            _ => self.data_type(path, found, expected),
        }
    }

    fn primitive(&mut self, path: &str, found: &Type, expected: &Primitive) {
        if is_repeated(found) {
            return self.types_differ(path, found, &DataType::Primitive(expected.clone()));
        }
        self.leaf(path, found, expected);
    }

    fn leaf(&mut self, path: &str, found: &Type, expected: &Primitive) {
        match fit(expected, &kind_of(found)) {
            Fit::Equal => {}
            Fit::Readable(warning) => self.out.warnings.push(format!("column {path}: {warning}")),
            Fit::Mismatch => self.types_differ(path, found, &DataType::Primitive(expected.clone())),
        }
    }

    fn types_differ(&mut self, path: &str, found: &Type, expected: &DataType) {
        let both_decimal = matches!(expected, DataType::Primitive(Primitive::Decimal { .. }))
            && matches!(kind_of(found), super::kind::Kind::Decimal { .. });
        let class = if both_decimal { MERGE_DECIMALS } else { MERGE_TYPES };
        let (wanted, got) = (expected.to_string(), describe(found));
        let text = format!("column `{path}` is {wanted} in the table and {got} in the file");
        self.problem(
            class,
            path,
            (Some(wanted), Some(got)),
            (text, "cast the column to the table's type before writing"),
        );
    }
}

fn same_but_for_case(a: &str, b: &str) -> bool {
    a == b || a.to_lowercase() == b.to_lowercase()
}

fn is_repeated(one: &Type) -> bool {
    let info = one.get_basic_info();
    info.has_repetition() && info.repetition() == Repetition::REPEATED
}

fn is_list(group: &Type) -> bool {
    let info = group.get_basic_info();
    matches!(info.logical_type_ref(), Some(LogicalType::List)) || info.converted_type() == ConvertedType::LIST
}

fn is_map(group: &Type) -> bool {
    let info = group.get_basic_info();
    matches!(info.logical_type_ref(), Some(LogicalType::Map))
        || matches!(info.converted_type(), ConvertedType::MAP | ConvertedType::MAP_KEY_VALUE)
}

/// Fields of a group that is a struct.
pub(super) fn plain_group(one: &Type) -> Option<&[std::sync::Arc<Type>]> {
    let info = one.get_basic_info();
    let plain = !one.is_primitive()
        && !is_list(one)
        && !is_map(one)
        && !is_repeated(one)
        && info.logical_type_ref().is_none()
        && info.converted_type() == ConvertedType::NONE;
    plain.then(|| one.get_fields())
}

/// The element of a list: three levels, or two as older writers made them.
fn list_element(one: &Type) -> Option<&Type> {
    if one.is_primitive() || !is_list(one) {
        return None;
    }
    let [repeated] = one.get_fields() else { return None };
    if !is_repeated(repeated) {
        return None;
    }
    if repeated.is_primitive() {
        return Some(repeated);
    }
    match repeated.get_fields() {
        [element] if repeated.name() != "array" && repeated.name() != format!("{}_tuple", one.name()) => Some(element),
        _ => Some(repeated),
    }
}

fn map_parts(one: &Type) -> Option<(&Type, &Type)> {
    if one.is_primitive() || !is_map(one) {
        return None;
    }
    match one.get_fields() {
        [entries] if is_repeated(entries) && !entries.is_primitive() => match entries.get_fields() {
            [key, value] => Some((key, value)),
            _ => None,
        },
        _ => None,
    }
}

/// A Parquet type in the words of a Delta schema.
fn describe(one: &Type) -> String {
    if one.is_primitive() {
        let kind = kind_of(one).to_string();
        return if is_repeated(one) { format!("repeated {kind}") } else { kind };
    }
    if let Some(element) = list_element(one) {
        return format!("array<{}>", describe(element));
    }
    if let Some((key, value)) = map_parts(one) {
        return format!("map<{},{}>", describe(key), describe(value));
    }
    let fields: Vec<String> =
        one.get_fields().iter().map(|field| format!("{}:{}", field.name(), describe(field))).collect();
    format!("struct<{}>", fields.join(","))
}

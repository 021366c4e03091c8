use std::collections::{HashMap, HashSet};

use super::kind::{Fit, Kind, fit};
use super::nulls::check_nulls;
use super::tree::{FileField, Node, Presence, file_fields};
use crate::delta::schema::{DataType, Field, MappingMode, Primitive, Schema, TypeHistory, join};
use parquet::file::metadata::ParquetMetaData;

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
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FooterCheck {
    pub problems: Vec<SchemaProblem>,
    pub warnings: Vec<String>,
    /// Columns that must not be null, which the footer neither proves nor refutes.
    pub unproved: Vec<UnprovedNotNull>,
}

/// A column that must not be null, and whose null counts do not tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnprovedNotNull {
    /// Logical names from the root.
    pub steps: Vec<String>,
    pub expected: String,
}

/// The table that a file is compared with.
#[derive(Clone, Copy, Debug)]
pub struct TableColumns<'a> {
    pub schema: &'a Schema,
    pub mode: MappingMode,
    /// By their names in files.
    pub partition_columns: &'a [String],
    pub has_change_feed: bool,
    /// Columns that hold row ids and row commit versions, if the table has such.
    pub row_tracking: &'a [String],
}

impl TableColumns<'_> {
    pub(super) fn is_partition(&self, field: &Field) -> bool {
        self.partition_columns.iter().any(|column| column == field.physical_name(self.mode))
    }
}

const MISMATCH: &str = "DELTA_METADATA_MISMATCH.SCHEMA_MISMATCH";
const MERGE_TYPES: &str = "DELTA_MERGE_INCOMPATIBLE_DATATYPE";
const MERGE_DECIMALS: &str = "DELTA_MERGE_INCOMPATIBLE_DECIMAL_TYPE";
const MISSING_NOT_NULL: &str = "DELTA_MISSING_NOT_NULL_COLUMN_VALUE";
const DUPLICATES: &str = "DELTA_DUPLICATE_COLUMNS_FOUND.DUPLICATE_COLUMNS";
const NULL_TYPE: &str = "DELTA_COMPLEX_TYPE_COLUMN_CONTAINS_NULL_TYPE";

/// Problems named of one file; a file that is wrong altogether would name hundreds.
const PROBLEMS_MAX: usize = 20;

/// Compares a file's schema and null counts with the table's schema. Partition columns may be in the file or not.
pub fn check_footer(metadata: &ParquetMetaData, table: TableColumns<'_>) -> FooterCheck {
    let found = file_fields(metadata);
    let mut comparison = Comparison { out: FooterCheck::default(), table };
    comparison.fields(&At::root(), &found, &table.schema.fields);
    let mut out = comparison.out;
    if out.problems.is_empty() {
        check_nulls(metadata, &found, table, &mut out);
    }
    out.problems.truncate(PROBLEMS_MAX);
    out
}

/// The field of a file that holds a column of the table.
pub fn find<'f>(found: &'f [FileField], field: &Field, mode: MappingMode) -> Option<&'f FileField> {
    found.iter().find(|one| key_of_file(one, mode).is_some_and(|key| Some(key) == key_of(field, mode)))
}

/// The same for many columns of one struct; files can have very many.
#[derive(Debug)]
pub struct FileIndex<'f> {
    fields: HashMap<Key<'f>, &'f FileField>,
    mode: MappingMode,
}

impl<'f> FileIndex<'f> {
    pub fn of(found: &'f [FileField], mode: MappingMode) -> FileIndex<'f> {
        let mut fields = HashMap::new();
        for one in found {
            if let Some(key) = key_of_file(one, mode) {
                fields.entry(key).or_insert(one);
            }
        }
        FileIndex { fields, mode }
    }

    pub fn find(&self, field: &Field) -> Option<&'f FileField> {
        self.fields.get(&key_of(field, self.mode)?).copied()
    }
}

/// Fields as the table reads them: bytes without an annotation are texts where their column is one.
pub fn read_as(mut found: Vec<FileField>, expected: &[Field], mode: MappingMode) -> Vec<FileField> {
    let columns: HashMap<Key<'_>, &Field> =
        expected.iter().filter_map(|field| Some((key_of(field, mode)?, field))).collect();
    for one in &mut found {
        let field = key_of_file(one, mode).and_then(|key| columns.get(&key).copied());
        if let Some(field) = field {
            read_node_as(&mut one.node, &field.data_type, mode);
        }
    }
    found
}

fn read_node_as(node: &mut Node, expected: &DataType, mode: MappingMode) {
    match (node, expected) {
        (Node::Leaf { kind: kind @ Kind::Bytes, .. }, DataType::Primitive(Primitive::String)) => *kind = Kind::Text,
        (Node::Struct(fields), DataType::Struct(expected)) => {
            *fields = read_as(std::mem::take(fields), expected, mode);
        }
        (Node::List(inner), DataType::Array { element, .. }) => read_node_as(&mut inner.node, element, mode),
        (Node::Map { key, value }, DataType::Map { key: expected_key, value: expected, .. }) => {
            read_node_as(&mut key.node, expected_key, mode);
            read_node_as(&mut value.node, expected, mode);
        }
        _ => {}
    }
}

/// What a column is found by.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Key<'a> {
    Name(&'a str),
    Id(i64),
}

fn key_of_file(one: &FileField, mode: MappingMode) -> Option<Key<'_>> {
    match mode {
        MappingMode::None | MappingMode::Name => Some(Key::Name(&one.name)),
        MappingMode::Id => one.id.map(Key::Id),
    }
}

fn key_of(field: &Field, mode: MappingMode) -> Option<Key<'_>> {
    match mode {
        MappingMode::None | MappingMode::Name => Some(Key::Name(field.physical_name(mode))),
        MappingMode::Id => field.column_id().map(Key::Id),
    }
}

/// Where a comparison is.
#[derive(Clone)]
struct At<'a> {
    path: &'a str,
    /// Below an array or a map.
    is_inside: bool,
    history: TypeHistory<'a>,
}

impl<'a> At<'a> {
    fn root() -> At<'a> {
        At { path: "", is_inside: false, history: TypeHistory::default() }
    }
}

struct Comparison<'a> {
    out: FooterCheck,
    table: TableColumns<'a>,
}

impl Comparison<'_> {
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

    /// Fields of one struct.
    fn fields(&mut self, at: &At<'_>, found: &[FileField], expected: &[Field]) {
        let mode = self.table.mode;
        let columns: HashMap<Key<'_>, &Field> =
            expected.iter().filter_map(|field| Some((key_of(field, mode)?, field))).collect();
        let spellings: HashMap<String, &Field> = match mode {
            MappingMode::Id => HashMap::new(),
            _ => expected.iter().map(|field| (field.physical_name(mode).to_lowercase(), field)).collect(),
        };
        let mut seen: HashMap<String, &FileField> = HashMap::new();
        let mut seen_ids = HashSet::new();
        for one in found {
            // A file that is wrong altogether is wrong soon.
            if self.out.problems.len() >= PROBLEMS_MAX {
                return;
            }
            let path = join(at.path, &one.name);
            if let Some(twin) = seen.insert(one.name.to_lowercase(), one) {
                let text = format!(
                    "the file has the columns `{}` and `{}`, which differ at most by case",
                    twin.name, one.name
                );
                self.problem(DUPLICATES, &path, (None, None), (text, "write each column once"));
                continue;
            }
            if let Some(id) = one.id.filter(|id| mode == MappingMode::Id && !seen_ids.insert(*id)) {
                let text = format!("the file has two columns with the field id {id}, of which `{path}` is one");
                self.problem(DUPLICATES, &path, (None, None), (text, "give each column the field id of its own"));
                continue;
            }
            match key_of_file(one, mode).and_then(|key| columns.get(&key)) {
                Some(field) => self.field(at, one, field),
                None if at.path.is_empty() && self.may_be_extra(one) => {}
                None => {
                    let misspelled = spellings.get(&one.name.to_lowercase()).copied();
                    self.unknown_column(&path, one, expected, misspelled);
                }
            }
        }
        let index = FileIndex::of(found, mode);
        for field in expected {
            let is_misspelled = mode != MappingMode::Id && seen.contains_key(&field.physical_name(mode).to_lowercase());
            let is_elsewhere = at.path.is_empty() && self.table.is_partition(field);
            if index.find(field).is_none() && !is_misspelled && !is_elsewhere {
                self.missing(&join(at.path, &field.name), field);
            }
        }
    }

    /// Columns of a file that a table does not list.
    fn may_be_extra(&self, one: &FileField) -> bool {
        let is_change_type = self.table.has_change_feed
            && one.name == "_change_type"
            && matches!(&one.node, Node::Leaf { kind: Kind::Text | Kind::Bytes | Kind::Null, .. });
        let is_row_tracking = self.table.row_tracking.contains(&one.name)
            && matches!(&one.node, Node::Leaf { kind: Kind::Integer { bits: 64, signed: true }, .. });
        is_change_type || is_row_tracking
    }

    fn missing(&mut self, path: &str, field: &Field) {
        if !field.nullable {
            let expected = Some(format!("{} not null", field.data_type));
            let text = format!("the file lacks `{path}`, which must not be null");
            self.problem(MISSING_NOT_NULL, path, (expected, None), (text, "write the column with its values"));
        } else if field.metadata.contains_key("CURRENT_DEFAULT") {
            self.out.warnings.push(format!("column {path}: the file lacks it, so its default is not filled in"));
        }
    }

    fn unknown_column(&mut self, path: &str, one: &FileField, expected: &[Field], misspelled: Option<&Field>) {
        let mode = self.table.mode;
        if let Some(field) = misspelled {
            let name = field.physical_name(mode);
            let text = format!("the file spells `{}` where the table has `{name}`: readers would see nulls", one.name);
            let types = (Some(name.to_owned()), Some(one.name.clone()));
            return self.problem(MISMATCH, path, types, (text, "rename the column to the table's spelling"));
        }
        let (text, advice) = match mode {
            MappingMode::Name if expected.iter().any(|field| field.name == one.name) => (
                format!("the file has `{path}` under its name instead of its physical name"),
                "write columns under their physical names (column mapping is on)",
            ),
            MappingMode::Id => (
                match one.id {
                    Some(id) => format!("the table has no column with the id {id} (`{path}` in the file)"),
                    None => format!("the column `{path}` of the file has no field id"),
                },
                "write columns with the field ids of the table's schema (column mapping is on)",
            ),
            _ if one.name.starts_with("__index_level_") => (
                format!("the table has no column `{path}`"),
                "leave out the index of the data frame, or commit the new schema together with the file",
            ),
            _ => (
                format!("the table has no column `{path}`"),
                "drop the column, or commit the new schema (a metaData action) together with the file",
            ),
        };
        let types = (Some("no such column".to_owned()), Some(one.describe()));
        self.problem(MISMATCH, path, types, (text, advice));
    }

    fn field(&mut self, at: &At<'_>, found: &FileField, field: &Field) {
        let path = join(at.path, &field.name);
        match (self.table.mode, found.id, field.column_id()) {
            (MappingMode::Name, Some(id), Some(expected)) if id != expected => {
                let types = (Some(format!("field id {expected}")), Some(format!("field id {id}")));
                let text = format!("column `{path}` has the field id {id} in the file, the table says {expected}");
                return self.problem(MISMATCH, &path, types, (text, "write columns with the table's field ids"));
            }
            (MappingMode::Name, None, Some(_)) => {
                self.out.warnings.push(format!("column {path}: the file has no field id for it"));
            }
            _ => {}
        }
        let at = At { path: &path, is_inside: at.is_inside, history: TypeHistory::of(field) };
        self.data_type(&at, found, &field.data_type);
    }

    fn data_type(&mut self, at: &At<'_>, found: &FileField, expected: &DataType) {
        if let Node::Leaf { kind: Kind::Null, .. } = found.node {
            return self.null_type(at, expected);
        }
        if found.presence == Presence::Repeated {
            return self.types_differ(at.path, found, expected);
        }
        match (expected, &found.node) {
            (DataType::Primitive(primitive), Node::Leaf { kind, .. }) => self.leaf(at, found, kind, primitive),
            (DataType::Struct(fields), Node::Struct(inner)) => self.fields(at, inner, fields),
            (DataType::Array { element, .. }, Node::List(inner)) => {
                let history = at.history.below("element");
                self.data_type(&At { path: &join(at.path, "element"), is_inside: true, history }, inner, element);
            }
            (DataType::Map { key, value, .. }, Node::Map { key: found_key, value: found_value }) => {
                for (step, inner, found) in [("key", key, found_key), ("value", value, found_value)] {
                    let history = at.history.below(step);
                    self.data_type(&At { path: &join(at.path, step), is_inside: true, history }, found, inner);
                }
            }
            (DataType::Variant, Node::Variant(fields) | Node::Struct(fields)) if is_variant(fields) => {}
            _ => self.types_differ(at.path, found, expected),
        }
    }

    /// A column that is always null fits everything that may be null, but not inside of arrays and maps.
    fn null_type(&mut self, at: &At<'_>, expected: &DataType) {
        if at.is_inside {
            let text = format!("`{}` has the type void, which arrays and maps cannot hold", at.path);
            let types = (Some(expected.to_string()), Some("void".to_owned()));
            self.problem(NULL_TYPE, at.path, types, (text, "cast the column to the table's type before writing"));
        } else if *expected != DataType::Void {
            let path = at.path;
            self.out.warnings.push(format!("column {path}: always null, of no type; leave it out of the file instead"));
        }
    }

    fn leaf(&mut self, at: &At<'_>, found: &FileField, kind: &Kind, expected: &Primitive) {
        match fit(expected, &at.history.before(), kind) {
            Fit::Equal => {}
            Fit::Readable(warning) => self.out.warnings.push(format!("column {}: {warning}", at.path)),
            Fit::Mismatch => self.types_differ(at.path, found, &DataType::Primitive(expected.clone())),
        }
    }

    fn types_differ(&mut self, path: &str, found: &FileField, expected: &DataType) {
        let is_decimal = matches!(&found.node, Node::Leaf { kind: Kind::Decimal { .. }, .. });
        let both_decimal = is_decimal && matches!(expected, DataType::Primitive(Primitive::Decimal { .. }));
        let class = if both_decimal { MERGE_DECIMALS } else { MERGE_TYPES };
        let (wanted, got) = (expected.to_string(), found.describe());
        let text = format!("column `{path}` is {wanted} in the table and {got} in the file");
        let advice = match &found.node {
            Node::Leaf { kind: Kind::Timestamp { .. }, .. } => {
                "write timestamps in microseconds, with or without a zone as the table has them"
            }
            _ => "cast the column to the table's type before writing",
        };
        self.problem(class, path, (Some(wanted), Some(got)), (text, advice));
    }
}

/// Two binaries; shredded ones (`typed_value`) need a feature that is not known here.
fn is_variant(fields: &[FileField]) -> bool {
    let is_binary = |name: &str| {
        fields.iter().any(|field| field.name == name && matches!(&field.node, Node::Leaf { kind: Kind::Bytes, .. }))
    };
    fields.len() == 2 && is_binary("metadata") && is_binary("value")
}

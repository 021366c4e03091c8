//! A file's schema as a tree that reads like a table's: lists and maps without the groups that Parquet wraps them in.

use parquet::basic::{ConvertedType, LogicalType, Repetition};
use parquet::file::metadata::ParquetMetaData;
use parquet::schema::types::Type;
use serde_json::{Map, Value};

use super::kind::{Kind, annotation, kind_of};
use crate::delta::schema::{DataType, Field, Schema};

/// Member of a field's metadata: Parquet's id of it.
pub const PARQUET_FIELD_ID: &str = "parquet.field.id";

/// Whether a value must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    Required,
    Optional,
    /// Any number of times, without being a list.
    Repeated,
}

/// A column of a file, or a part of one.
#[derive(Clone, Debug, PartialEq)]
pub struct FileField {
    pub name: String,
    pub id: Option<i64>,
    pub presence: Presence,
    pub node: Node,
}

/// What a part of a file's schema is.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// `leaf` is the index of its column chunk in every row group.
    Leaf {
        kind: Kind,
        leaf: usize,
    },
    Struct(Vec<FileField>),
    List(Box<FileField>),
    Map {
        key: Box<FileField>,
        value: Box<FileField>,
    },
    /// Annotated as such.
    Variant(Vec<FileField>),
    /// A group that is none of these.
    Other {
        text: String,
        fields: Vec<FileField>,
    },
}

/// The columns of a file.
pub fn file_fields(metadata: &ParquetMetaData) -> Vec<FileField> {
    let mut next_leaf = 0;
    metadata.file_metadata().schema().get_fields().iter().map(|one| field(one, &mut next_leaf)).collect()
}

/// The schema of a table that has exactly the columns of the file; the path of the column where there is none.
pub fn table_schema(metadata: &ParquetMetaData) -> Result<Schema, String> {
    let fields = file_fields(metadata);
    let fields = fields.iter().map(FileField::to_delta).collect::<Result<Vec<_>, _>>()?;
    Ok(Schema::of(fields))
}

impl FileField {
    fn to_delta(&self) -> Result<Field, String> {
        let mut metadata = Map::new();
        if let Some(id) = self.id {
            metadata.insert(PARQUET_FIELD_ID.to_owned(), Value::from(id));
        }
        let data_type = self.delta_type()?;
        Ok(Field { name: self.name.clone(), data_type, nullable: self.is_nullable(), metadata })
    }

    fn delta_type(&self) -> Result<DataType, String> {
        let below = |error: String| format!("{}.{error}", self.name);
        match &self.node {
            Node::Leaf { kind, .. } => kind.to_delta().ok_or_else(|| format!("{} ({kind})", self.name)),
            Node::Struct(fields) => {
                let fields = fields.iter().map(FileField::to_delta).collect::<Result<Vec<_>, _>>();
                Ok(DataType::Struct(fields.map_err(below)?))
            }
            Node::List(element) => Ok(DataType::Array {
                element: Box::new(element.delta_type().map_err(below)?),
                contains_null: element.is_nullable(),
            }),
            Node::Map { key, value } => Ok(DataType::Map {
                key: Box::new(key.delta_type().map_err(below)?),
                value: Box::new(value.delta_type().map_err(below)?),
                value_contains_null: value.is_nullable(),
            }),
            Node::Variant(_) => Ok(DataType::Variant),
            Node::Other { text, .. } => Err(format!("{} ({text})", self.name)),
        }
    }

    pub fn is_nullable(&self) -> bool {
        self.presence == Presence::Optional
    }

    /// Column chunks below.
    pub fn leaves(&self) -> Vec<usize> {
        match &self.node {
            Node::Leaf { leaf, .. } => vec![*leaf],
            Node::Struct(fields) | Node::Variant(fields) | Node::Other { fields, .. } => {
                fields.iter().flat_map(FileField::leaves).collect()
            }
            Node::List(element) => element.leaves(),
            Node::Map { key, value } => key.leaves().into_iter().chain(value.leaves()).collect(),
        }
    }

    /// In the words of a Delta schema.
    pub fn describe(&self) -> String {
        let list = |fields: &[FileField]| {
            let parts: Vec<String> =
                fields.iter().map(|field| format!("{}:{}", field.name, field.describe())).collect();
            parts.join(",")
        };
        let text = match &self.node {
            Node::Leaf { kind, .. } => kind.to_string(),
            Node::Struct(fields) => format!("struct<{}>", list(fields)),
            Node::List(element) => format!("array<{}>", element.describe()),
            Node::Map { key, value } => format!("map<{},{}>", key.describe(), value.describe()),
            Node::Variant(_) => "variant".to_owned(),
            Node::Other { text, fields } => format!("{text}<{}>", list(fields)),
        };
        if self.presence == Presence::Repeated { format!("repeated {text}") } else { text }
    }
}

fn field(one: &Type, next_leaf: &mut usize) -> FileField {
    let info = one.get_basic_info();
    let repetition = if info.has_repetition() { info.repetition() } else { Repetition::REQUIRED };
    let presence = match repetition {
        Repetition::REQUIRED => Presence::Required,
        Repetition::OPTIONAL => Presence::Optional,
        Repetition::REPEATED => Presence::Repeated,
    };
    let id = info.has_id().then(|| i64::from(info.id()));
    FileField { name: one.name().to_owned(), id, presence, node: node(one, next_leaf) }
}

/// Fields are visited in the order of the schema, in which leaves are numbered.
fn node(one: &Type, next_leaf: &mut usize) -> Node {
    if one.is_primitive() {
        let leaf = *next_leaf;
        *next_leaf += 1;
        return Node::Leaf { kind: kind_of(one), leaf };
    }
    let info = one.get_basic_info();
    if let Some(element) = list_element(one) {
        return Node::List(Box::new(element.read(next_leaf)));
    }
    if let Some((key, value)) = map_parts(one) {
        let key = Box::new(field(key, next_leaf));
        return Node::Map { key, value: Box::new(field(value, next_leaf)) };
    }
    let fields = one.get_fields().iter().map(|inner| field(inner, next_leaf)).collect();
    match (info.logical_type_ref(), info.converted_type()) {
        (None, ConvertedType::NONE) => Node::Struct(fields),
        (Some(LogicalType::Variant(_)), _) => Node::Variant(fields),
        (Some(logical), _) => Node::Other { text: format!("group annotated {}", annotation(logical)), fields },
        (None, converted) => Node::Other { text: format!("group annotated {converted}"), fields },
    }
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

fn is_repeated(one: &Type) -> bool {
    let info = one.get_basic_info();
    info.has_repetition() && info.repetition() == Repetition::REPEATED
}

/// Where the elements of a list are.
enum Element<'a> {
    /// Three levels: below the repeated group.
    Inner(&'a Type),
    /// Two levels, as older writers made them: the repeated node itself, never null.
    Repeated(&'a Type),
}

impl Element<'_> {
    fn read(&self, next_leaf: &mut usize) -> FileField {
        match self {
            Element::Inner(one) => field(one, next_leaf),
            Element::Repeated(one) => FileField { presence: Presence::Required, ..field(one, next_leaf) },
        }
    }
}

fn list_element(one: &Type) -> Option<Element<'_>> {
    if !is_list(one) {
        return None;
    }
    let [repeated] = one.get_fields() else { return None };
    if !is_repeated(repeated) {
        return None;
    }
    if repeated.is_primitive() {
        return Some(Element::Repeated(repeated));
    }
    match repeated.get_fields() {
        [element] if !is_element(repeated, element, one.name()) => Some(Element::Inner(element)),
        _ => Some(Element::Repeated(repeated)),
    }
}

/// Whether the repeated group of a list, which has one field, is the element itself: a list or map of its own, or by the
/// names that older writers gave it.
fn is_element(repeated: &Type, inner: &Type, list: &str) -> bool {
    let is_collection = is_list(repeated) || is_map(repeated) || is_repeated(inner);
    is_collection || repeated.name() == "array" || repeated.name() == format!("{list}_tuple")
}

fn map_parts(one: &Type) -> Option<(&Type, &Type)> {
    if !is_map(one) {
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

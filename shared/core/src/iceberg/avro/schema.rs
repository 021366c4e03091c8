use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::cursor::{Block, Cursor};
use super::{AvroError, AvroLimits, Captured};

/// How a value of the writer's schema is laid out.
#[derive(Clone, Debug)]
enum Node {
    Null,
    Boolean,
    Long,
    Float,
    Double,
    Bytes,
    Text,
    Fixed(usize),
    Enum(usize),
    Array(Box<Node>),
    Map(Box<Node>),
    Union(Vec<Node>),
    /// Index into [`Program::records`]: records may contain themselves.
    Record(usize),
}

#[derive(Clone, Debug)]
struct Field {
    /// Where the value goes; `None` skips it.
    slot: Option<usize>,
    node: Node,
}

/// A compiled writer's schema: what to keep and how to get past the rest.
#[derive(Clone, Debug)]
pub(super) struct Program {
    records: Vec<Vec<Field>>,
    root: Node,
    present: Vec<bool>,
    depth_max: usize,
}

impl Program {
    /// Whether the schema has the wanted field of that index.
    pub(super) fn has(&self, index: usize) -> bool {
        self.present.get(index).copied().unwrap_or(false)
    }

    pub(super) fn slots(&self) -> usize {
        self.present.len()
    }

    /// Walks one datum; captured fields are put into `slots`.
    pub(super) fn run<'a>(&self, cursor: &mut Cursor<'a>, slots: &mut [Captured<'a>]) -> Result<(), AvroError> {
        self.walk(&self.root, cursor, slots, 0)
    }

    fn walk<'a>(
        &self,
        node: &Node,
        cursor: &mut Cursor<'a>,
        slots: &mut [Captured<'a>],
        depth: usize,
    ) -> Result<(), AvroError> {
        if depth > self.depth_max {
            return Err(AvroError::TooDeep(self.depth_max));
        }
        cursor.step()?;
        match node {
            Node::Union(branches) => self.walk(branch(branches, cursor)?, cursor, slots, depth + 1),
            Node::Record(index) => {
                for field in self.fields(*index) {
                    match field.slot.and_then(|slot| slots.get_mut(slot)) {
                        Some(slot) => *slot = capture(&field.node, cursor)?,
                        None => self.walk(&field.node, cursor, slots, depth + 1)?,
                    }
                }
                Ok(())
            }
            other => self.skip(other, cursor, depth),
        }
    }

    fn fields(&self, index: usize) -> &[Field] {
        self.records.get(index).map(Vec::as_slice).unwrap_or_default()
    }

    /// Gets past a value in which nothing is wanted: in wide manifests this is nearly all there is to do.
    fn skip(&self, node: &Node, cursor: &mut Cursor<'_>, depth: usize) -> Result<(), AvroError> {
        if depth > self.depth_max {
            return Err(AvroError::TooDeep(self.depth_max));
        }
        match node {
            // These take bytes, so there cannot be more of them than the block has.
            Node::Long => return cursor.skip_long(),
            Node::Bytes => return cursor.bytes("bytes").map(|_| ()),
            _ => cursor.step()?,
        }
        match node {
            Node::Array(item) => self.skip_blocks(item, false, cursor, depth),
            Node::Map(item) => self.skip_blocks(item, true, cursor, depth),
            Node::Union(branches) => self.skip(branch(branches, cursor)?, cursor, depth + 1),
            Node::Record(index) => {
                self.fields(*index).iter().try_for_each(|field| self.skip(&field.node, cursor, depth + 1))
            }
            plain => capture(plain, cursor).map(|_| ()),
        }
    }

    fn skip_blocks(&self, item: &Node, keyed: bool, cursor: &mut Cursor<'_>, depth: usize) -> Result<(), AvroError> {
        loop {
            let count = match cursor.block()? {
                Block::End => return Ok(()),
                Block::Sized { bytes, .. } => {
                    cursor.take(bytes, "a block of a collection")?;
                    continue;
                }
                Block::Items(count) => count,
            };
            if count > u64::try_from(cursor.left()).unwrap_or(u64::MAX) {
                return Err(AvroError::Corrupt(format!("a collection of {count} items in fewer bytes")));
            }
            for _ in 0..count {
                if keyed {
                    cursor.bytes("a map's key")?;
                }
                self.skip(item, cursor, depth + 1)?;
            }
        }
    }
}

fn branch<'n>(branches: &'n [Node], cursor: &mut Cursor<'_>) -> Result<&'n Node, AvroError> {
    let index = cursor.long()?;
    usize::try_from(index)
        .ok()
        .and_then(|index| branches.get(index))
        .ok_or_else(|| AvroError::Corrupt(format!("a union has no branch {index}")))
}

/// Reads a value that is not made of others (or a union of such).
fn capture<'a>(node: &Node, cursor: &mut Cursor<'a>) -> Result<Captured<'a>, AvroError> {
    cursor.step()?;
    Ok(match node {
        Node::Null => Captured::Null,
        Node::Boolean => Captured::Int(i64::from(cursor.take(1, "a boolean")?.first() == Some(&1))),
        Node::Long => Captured::Int(cursor.long()?),
        Node::Float => Captured::Bytes(cursor.take(4, "a float")?),
        Node::Double => Captured::Bytes(cursor.take(8, "a double")?),
        Node::Bytes => Captured::Bytes(cursor.bytes("bytes")?),
        Node::Text => Captured::Text(cursor.text()?),
        Node::Fixed(size) => Captured::Bytes(cursor.take(*size, "a fixed value")?),
        Node::Enum(symbols) => {
            let index = cursor.long()?;
            if usize::try_from(index).is_ok_and(|index| index < *symbols) {
                Captured::Int(index)
            } else {
                return Err(AvroError::Corrupt(format!("an enum has no symbol {index}")));
            }
        }
        // Compilation lets unions of plain types through only, so this recursion is one level deep.
        Node::Union(branches) => capture(branch(branches, cursor)?, cursor)?,
        Node::Array(_) | Node::Map(_) | Node::Record(_) => {
            return Err(AvroError::Schema("a wanted field is made of others".to_owned()));
        }
    })
}

fn is_plain(node: &Node) -> bool {
    match node {
        Node::Array(_) | Node::Map(_) | Node::Record(_) => false,
        Node::Union(branches) => branches.iter().all(|branch| !matches!(branch, Node::Union(_)) && is_plain(branch)),
        _ => true,
    }
}

/// Compiles the writer's schema for the wanted field ids. Fields inside arrays and maps are never captured: they have
/// no single value per record.
pub(super) fn compile(schema: &[u8], wanted: &[i32], limits: &AvroLimits) -> Result<Program, AvroError> {
    if schema.len() > limits.schema_max_bytes {
        let as_u64 = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        return Err(AvroError::TooLarge {
            what: "a schema",
            found: as_u64(schema.len()),
            most: as_u64(limits.schema_max_bytes),
        });
    }
    let json: Value = serde_json::from_slice(schema).map_err(|error| AvroError::Schema(error.to_string()))?;
    let mut compiler = Compiler {
        wanted,
        depth_max: limits.depth_max,
        named: BTreeMap::new(),
        records: Vec::new(),
        captures: Vec::new(),
        reused: Vec::new(),
        open: Vec::new(),
        present: vec![false; wanted.len()],
    };
    let root = compiler.node(&json, "", 0, 0)?;
    let ambiguous = compiler.reused.iter().any(|index| compiler.captures.get(*index).copied().unwrap_or(false));
    if ambiguous {
        return Err(AvroError::Schema("a record with a wanted field is used twice".to_owned()));
    }
    Ok(Program { records: compiler.records, root, present: compiler.present, depth_max: limits.depth_max })
}

#[derive(Debug)]
struct Compiler<'w> {
    wanted: &'w [i32],
    depth_max: usize,
    named: BTreeMap<String, Node>,
    records: Vec<Vec<Field>>,
    /// Per record: whether it or a record inside it captures something.
    captures: Vec<bool>,
    /// Records that are referred to by name.
    reused: Vec<usize>,
    /// Records being compiled, outermost first.
    open: Vec<usize>,
    present: Vec<bool>,
}

impl Compiler<'_> {
    /// `repeated` counts the arrays and maps around.
    fn node(&mut self, json: &Value, namespace: &str, depth: usize, repeated: usize) -> Result<Node, AvroError> {
        if depth > self.depth_max {
            return Err(AvroError::TooDeep(self.depth_max));
        }
        match json {
            Value::String(name) => self.by_name(name, namespace),
            Value::Array(branches) => branches
                .iter()
                .map(|branch| self.node(branch, namespace, depth + 1, repeated))
                .collect::<Result<_, _>>()
                .map(Node::Union),
            Value::Object(object) => match object.get("type") {
                Some(Value::String(kind)) => self.object(kind, object, namespace, depth, repeated),
                Some(inner) => self.node(inner, namespace, depth + 1, repeated),
                None => Err(AvroError::Schema("a type without `type`".to_owned())),
            },
            _ => Err(AvroError::Schema("a type is neither name, object nor list".to_owned())),
        }
    }

    fn by_name(&mut self, name: &str, namespace: &str) -> Result<Node, AvroError> {
        if let Some(node) = primitive(name) {
            return Ok(node);
        }
        let node = self
            .named
            .get(&full_name(name, namespace))
            .or_else(|| self.named.get(name))
            .cloned()
            .ok_or_else(|| AvroError::Schema(format!("unknown type `{name}`")))?;
        if let Node::Record(index) = node {
            self.reused.push(index);
        }
        Ok(node)
    }

    fn object(
        &mut self,
        kind: &str,
        object: &Map<String, Value>,
        namespace: &str,
        depth: usize,
        repeated: usize,
    ) -> Result<Node, AvroError> {
        let part = |name: &'static str| {
            object.get(name).ok_or_else(|| AvroError::Schema(format!("a type `{kind}` without `{name}`")))
        };
        match kind {
            "array" => Ok(Node::Array(Box::new(self.node(part("items")?, namespace, depth + 1, repeated + 1)?))),
            "map" => Ok(Node::Map(Box::new(self.node(part("values")?, namespace, depth + 1, repeated + 1)?))),
            "fixed" => {
                let size = part("size")?.as_u64().and_then(|size| usize::try_from(size).ok());
                let node = Node::Fixed(size.ok_or_else(|| AvroError::Schema("a fixed type without size".to_owned()))?);
                self.define(object, namespace, node.clone())?;
                Ok(node)
            }
            "enum" => {
                let symbols = part("symbols")?.as_array().map(Vec::len);
                let node = Node::Enum(symbols.ok_or_else(|| AvroError::Schema("an enum without symbols".to_owned()))?);
                self.define(object, namespace, node.clone())?;
                Ok(node)
            }
            "record" | "error" => self.record(object, part("fields")?, namespace, depth, repeated),
            other => self.by_name(other, namespace),
        }
    }

    fn define(&mut self, object: &Map<String, Value>, namespace: &str, node: Node) -> Result<String, AvroError> {
        let name = object
            .get("name")
            .and_then(Value::as_str)
            .ok_or_else(|| AvroError::Schema("a named type without name".to_owned()))?;
        let own = object.get("namespace").and_then(Value::as_str).unwrap_or(namespace);
        let full = full_name(name, own);
        let inside = full.rsplit_once('.').map_or(String::new(), |(inside, _)| inside.to_owned());
        if self.named.insert(full.clone(), node).is_some() {
            return Err(AvroError::Schema(format!("type `{full}` is defined twice")));
        }
        Ok(inside)
    }

    fn record(
        &mut self,
        object: &Map<String, Value>,
        fields: &Value,
        namespace: &str,
        depth: usize,
        repeated: usize,
    ) -> Result<Node, AvroError> {
        let index = self.records.len();
        self.records.push(Vec::new());
        self.captures.push(false);
        let inside = self.define(object, namespace, Node::Record(index))?;
        self.open.push(index);
        let fields = fields.as_array().ok_or_else(|| AvroError::Schema("fields are not a list".to_owned()))?;
        let mut compiled = Vec::with_capacity(fields.len());
        for field in fields {
            let kind = field.get("type").ok_or_else(|| AvroError::Schema("a field without type".to_owned()))?;
            let node = self.node(kind, &inside, depth + 1, repeated)?;
            let slot = if repeated == 0 { self.slot(field, &node)? } else { None };
            compiled.push(Field { slot, node });
        }
        self.open.pop();
        if let Some(place) = self.records.get_mut(index) {
            *place = compiled;
        }
        Ok(Node::Record(index))
    }

    fn slot(&mut self, field: &Value, node: &Node) -> Result<Option<usize>, AvroError> {
        let Some(id) = field.get("field-id").and_then(Value::as_i64) else { return Ok(None) };
        let Some(index) = self.wanted.iter().position(|wanted| i64::from(*wanted) == id) else { return Ok(None) };
        if !is_plain(node) {
            return Err(AvroError::Schema(format!("the field with id {id} is made of others")));
        }
        match self.present.get_mut(index) {
            Some(present) if !*present => *present = true,
            _ => return Err(AvroError::Schema(format!("two fields have the id {id}"))),
        }
        for open in &self.open {
            if let Some(captures) = self.captures.get_mut(*open) {
                *captures = true;
            }
        }
        Ok(Some(index))
    }
}

fn full_name(name: &str, namespace: &str) -> String {
    if name.contains('.') || namespace.is_empty() { name.to_owned() } else { format!("{namespace}.{name}") }
}

fn primitive(name: &str) -> Option<Node> {
    Some(match name {
        "null" => Node::Null,
        "boolean" => Node::Boolean,
        "int" | "long" => Node::Long,
        "float" => Node::Float,
        "double" => Node::Double,
        "bytes" => Node::Bytes,
        "string" => Node::Text,
        _ => return None,
    })
}

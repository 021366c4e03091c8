//! Predicates ready to be evaluated.

use super::StoredValueError;
use super::domain::{Domain, Reading};
use super::error::shown;
use super::like::Pattern;
use super::quick::Quick;
use crate::partition::KeyType;

/// What the Hive default marker is on a typed key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// NULL.
    #[default]
    Lenient,
    /// A value that cannot be read, as in the service: an error as a literal and, where the answer hangs on it, as a stored
    /// value. No value is NULL.
    Strict,
}

/// A key that an expression names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedKey {
    /// Among the table's keys.
    pub position: usize,
    pub name: String,
    pub key_type: KeyType,
}

impl NamedKey {
    /// Whether stored values may be unreadable.
    pub fn is_typed(&self) -> bool {
        !matches!(self.key_type, KeyType::Text | KeyType::Other)
    }
}

/// A compiled expression; see [`super::compile`].
#[derive(Clone, Debug)]
pub struct Compiled {
    pub(super) root: Node,
    pub(super) mode: Mode,
    pub(super) key_count: usize,
    /// By position.
    pub(super) named: Vec<NamedKey>,
    pub(super) gate: Gate,
}

/// What a row has to pass first: fast tests of single keys that the predicate demands, side by side, so that most rows are
/// judged without going through the tree.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    tests: Box<[(usize, Quick)]>,
    /// Whether the predicate demands nothing else.
    is_whole: bool,
}

impl Gate {
    pub(super) fn of(root: &Node) -> Self {
        let demanded = match root {
            Node::All(nodes) => nodes.as_slice(),
            other => std::slice::from_ref(other),
        };
        let test = |node: &Node| match node {
            Node::Leaf(leaf) if !matches!(leaf.quick, Quick::None) => Some((leaf.position, leaf.quick.clone())),
            _ => None,
        };
        let tests: Box<[_]> = demanded.iter().filter_map(test).collect();
        Self { is_whole: tests.len() == demanded.len(), tests }
    }
}

/// A predicate without NOT: it is in the leaves. Therefore NULL, which makes a leaf neither true nor false, can count as
/// false: true is true either way.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Constant(bool),
    Leaf(Leaf),
    All(Vec<Node>),
    Any(Vec<Node>),
}

/// A predicate on one key.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    pub position: usize,
    pub key_type: KeyType,
    pub test: LeafTest,
    /// The same test in a faster form, if there is one.
    pub quick: Quick,
}

#[derive(Clone, Debug)]
pub(super) enum LeafTest {
    In(Domain),
    /// Text only.
    Like {
        pattern: Pattern,
        is_negated: bool,
    },
}

/// What a predicate says of a row. Unreadable: it hangs on the value at this position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    No,
    Yes,
    Unreadable(usize),
}

impl From<bool> for Answer {
    fn from(is_true: bool) -> Self {
        if is_true { Self::Yes } else { Self::No }
    }
}

impl Compiled {
    /// Whether the row with these values, in the order of the table's keys, is asked for. A row of another number of values
    /// is not.
    ///
    /// # Errors
    /// [`StoredValueError`] if that hangs on a value that its key's type cannot read.
    #[inline]
    pub fn evaluate<V: AsRef<str>>(&self, values: &[V]) -> Result<bool, StoredValueError> {
        if values.len() != self.key_count {
            return Ok(false);
        }
        let mut is_told = self.gate.is_whole;
        for (position, test) in &self.gate.tests {
            match values.get(*position).and_then(|value| test.test(value.as_ref())) {
                Some(true) => {}
                // One that does not hold decides, whatever the others say.
                Some(false) => return Ok(false),
                None => is_told = false,
            }
        }
        if is_told { Ok(true) } else { self.evaluate_tree(values) }
    }

    #[inline(never)]
    fn evaluate_tree<V: AsRef<str>>(&self, values: &[V]) -> Result<bool, StoredValueError> {
        match answer(&self.root, self.mode, values) {
            Answer::No => Ok(false),
            Answer::Yes => Ok(true),
            Answer::Unreadable(position) => Err(self.unreadable(position, values)),
        }
    }

    #[cold]
    fn unreadable<V: AsRef<str>>(&self, position: usize, values: &[V]) -> StoredValueError {
        let text = values.get(position).map(|value| shown(value.as_ref())).unwrap_or_default();
        let key = self.named.iter().find(|key| key.position == position);
        StoredValueError {
            text,
            key: key.map(|key| key.name.clone()).unwrap_or_default(),
            key_type: key.map_or(KeyType::Other, |key| key.key_type),
        }
    }

    /// The keys that the expression names, by position.
    pub fn named_keys(&self) -> &[NamedKey] {
        &self.named
    }

    /// How many keys the table has.
    pub fn key_count(&self) -> usize {
        self.key_count
    }
}

#[inline]
fn answer<V: AsRef<str>>(node: &Node, mode: Mode, values: &[V]) -> Answer {
    match node {
        Node::Constant(is_true) => Answer::from(*is_true),
        Node::Leaf(leaf) => match values.get(leaf.position) {
            Some(value) => leaf.answer(mode, value.as_ref()),
            None => Answer::No,
        },
        Node::All(nodes) => answer_of_all(nodes, mode, values),
        Node::Any(nodes) => answer_of_any(nodes, mode, values),
    }
}

fn answer_of_all<V: AsRef<str>>(nodes: &[Node], mode: Mode, values: &[V]) -> Answer {
    let mut all = Answer::Yes;
    for node in nodes {
        match answer(node, mode, values) {
            Answer::Yes => {}
            Answer::No => return Answer::No,
            unreadable => all = first_unreadable(all, unreadable),
        }
    }
    all
}

fn answer_of_any<V: AsRef<str>>(nodes: &[Node], mode: Mode, values: &[V]) -> Answer {
    let mut any = Answer::No;
    for node in nodes {
        match answer(node, mode, values) {
            Answer::No => {}
            Answer::Yes => return Answer::Yes,
            unreadable => any = first_unreadable(any, unreadable),
        }
    }
    any
}

/// Of two keys the error names the first, so that the order of the expression does not matter.
fn first_unreadable(one: Answer, other: Answer) -> Answer {
    match (one, other) {
        (Answer::Unreadable(one), Answer::Unreadable(other)) => Answer::Unreadable(one.min(other)),
        (_, other) => other,
    }
}

impl Node {
    /// Gives every leaf its fast form.
    pub(super) fn with_quick_tests(self) -> Self {
        let each = |nodes: Vec<Self>| nodes.into_iter().map(Self::with_quick_tests).collect();
        match self {
            Self::Constant(constant) => Self::Constant(constant),
            Self::All(nodes) => Self::All(each(nodes)),
            Self::Any(nodes) => Self::Any(each(nodes)),
            Self::Leaf(mut leaf) => {
                if let LeafTest::In(domain) = &leaf.test {
                    leaf.quick = Quick::of(leaf.key_type, domain);
                }
                Self::Leaf(leaf)
            }
        }
    }
}

impl Leaf {
    /// With its slow form only.
    pub(super) fn new(position: usize, key_type: KeyType, test: LeafTest) -> Self {
        Self { position, key_type, test, quick: Quick::None }
    }

    #[inline]
    pub(super) fn answer(&self, mode: Mode, value: &str) -> Answer {
        match self.quick.test(value) {
            Some(is_true) => Answer::from(is_true),
            None => self.slow_answer(mode, value),
        }
    }

    fn slow_answer(&self, mode: Mode, value: &str) -> Answer {
        match &self.test {
            LeafTest::Like { pattern, is_negated } => Answer::from(pattern.matches(value) != *is_negated),
            LeafTest::In(domain) => match Reading::of(self.key_type, mode, value) {
                Reading::Unreadable => Answer::Unreadable(self.position),
                Reading::Null => Answer::from(domain.has_null),
                reading => Answer::from(domain.values.contains(|other| reading.compare(other))),
            },
        }
    }
}

//! Syntax to predicates: names to keys, literals to values, NOT into the leaves, leaves on one key to one.

use std::collections::BTreeMap;

use super::PredicateError;
use super::compiled::{Compiled, Gate, Leaf, LeafTest, Mode, NamedKey, Node};
use super::domain::{Domain, Scalar};
use super::error::shown;
use super::lexer::position;
use super::like::Pattern;
use super::set::{Cut, Set};
use super::syntax::{Comparison, Operand, OperandKind, Syntax, Test, TestKind};
use crate::catalog::{KeyColumn, fold};
use crate::partition::{HIVE_DEFAULT_PARTITION, KeyType};

/// Binds `syntax`, which was read from `text`, to these keys.
pub(super) fn bind(text: &str, syntax: &Syntax, keys: &[KeyColumn], mode: Mode) -> Result<Compiled, PredicateError> {
    let mut binder = Binder { text, keys, mode, named: BTreeMap::new() };
    let root = binder.node(syntax, false)?.with_quick_tests();
    let gate = Gate::of(&root);
    Ok(Compiled { root, mode, key_count: keys.len(), named: binder.named.into_values().collect(), gate })
}

struct Binder<'a> {
    text: &'a str,
    keys: &'a [KeyColumn],
    mode: Mode,
    named: BTreeMap<usize, NamedKey>,
}

/// A literal read by a key's type.
enum Literal {
    Value(Scalar),
    Null,
}

/// An operand whose names are resolved.
enum Resolved<'o> {
    Key(usize),
    Literal(&'o str),
    Null,
}

impl Binder<'_> {
    fn node(&mut self, syntax: &Syntax, is_negated: bool) -> Result<Node, PredicateError> {
        let mut all = |operands: &[Syntax]| -> Result<Vec<Node>, PredicateError> {
            operands.iter().map(|operand| self.node(operand, is_negated)).collect()
        };
        Ok(match (syntax, is_negated) {
            (Syntax::All(operands), false) | (Syntax::Any(operands), true) => conjunction(all(operands)?),
            (Syntax::Any(operands), false) | (Syntax::All(operands), true) => disjunction(all(operands)?),
            (Syntax::Not(operand), _) => self.node(operand, !is_negated)?,
            (Syntax::Test(test), _) => self.test(test, test.is_negated != is_negated)?,
        })
    }

    fn test(&mut self, test: &Test, is_negated: bool) -> Result<Node, PredicateError> {
        if let TestKind::Compare(comparison, other) = &test.kind {
            return self.comparison(test, *comparison, other, is_negated);
        }
        let position = self.subject(test)?;
        let key_type = self.name_key(position, &test.subject)?;
        let leaf = |test| Leaf::new(position, key_type, test);
        let within = |domain| Ok(in_domain(leaf(LeafTest::In(domain))));
        match &test.kind {
            TestKind::IsNull => {
                let is_typed = key_type != KeyType::Text;
                let has_null = is_typed && self.mode == Mode::Lenient && !is_negated;
                within(Domain { values: if is_negated { Set::all() } else { Set::none() }, has_null })
            }
            TestKind::In(list) => {
                let mut domains = Vec::with_capacity(list.len());
                for operand in list {
                    domains.push(compare(Comparison::Equal, &self.literal(position, key_type, operand, test)?));
                }
                let listed = Domain::union(domains);
                within(if is_negated { excluded(listed) } else { listed })
            }
            TestKind::Between(low, high) => {
                let low = self.literal(position, key_type, low, test)?;
                let high = self.literal(position, key_type, high, test)?;
                within(if is_negated {
                    Domain::union(vec![compare(Comparison::Less, &low), compare(Comparison::Greater, &high)])
                } else {
                    Domain::intersection(vec![compare(Comparison::AtLeast, &low), compare(Comparison::AtMost, &high)])
                })
            }
            TestKind::Like { pattern, escape } => {
                let pattern = self.pattern(position, key_type, test, pattern, escape.as_ref())?;
                match pattern.as_set() {
                    Some(values) => {
                        let values = if is_negated { values.complement() } else { values };
                        within(Domain { values, has_null: false })
                    }
                    None => Ok(Node::Leaf(leaf(LeafTest::Like { pattern, is_negated }))),
                }
            }
            TestKind::Compare(..) => Ok(Node::Constant(false)),
        }
    }

    fn comparison(
        &mut self,
        test: &Test,
        comparison: Comparison,
        other: &Operand,
        is_negated: bool,
    ) -> Result<Node, PredicateError> {
        let (subject, object) = (self.resolve(&test.subject)?, self.resolve(other)?);
        let (position, key, literal, comparison) = match (subject, object) {
            (Resolved::Key(_), Resolved::Key(_)) => {
                return Err(self.unsupported(test, "a key is compared with a literal, not with another key"));
            }
            (Resolved::Key(position), _) => (position, &test.subject, other, comparison),
            (_, Resolved::Key(position)) => (position, other, &test.subject, comparison.mirrored()),
            _ => return Err(self.no_key(test)),
        };
        let key_type = self.name_key(position, key)?;
        let literal = self.literal(position, key_type, literal, test)?;
        let comparison = if is_negated { comparison.negated() } else { comparison };
        Ok(in_domain(Leaf::new(position, key_type, LeafTest::In(compare(comparison, &literal)))))
    }

    fn pattern(
        &self,
        position: usize,
        key_type: KeyType,
        test: &Test,
        pattern: &Operand,
        escape: Option<&Operand>,
    ) -> Result<Pattern, PredicateError> {
        if key_type != KeyType::Text {
            return Err(PredicateError::NoLike {
                key: self.name_of(position),
                key_type,
                position: self.position(&test.subject),
            });
        }
        let pattern = self.text_of(pattern, test)?;
        let escape = match escape {
            None => None,
            Some(operand) => {
                let mut chars = self.text_of(operand, test)?.chars();
                match (chars.next(), chars.next(), chars.next()) {
                    // Two backslashes are one where backslashes need escaping.
                    (Some(escape), None, _) | (Some(escape @ '\\'), Some('\\'), None) => Some(escape),
                    _ => return Err(self.unsupported(test, "ESCAPE takes one character")),
                }
            }
        };
        Pattern::new(pattern, escape).ok_or_else(|| self.unsupported(test, "the pattern ends in its escape character"))
    }

    // Operands.

    fn find(&self, name: &str) -> Option<usize> {
        let name = fold(name);
        self.keys.iter().position(|key| fold(&key.name) == name)
    }

    fn resolve<'o>(&self, operand: &'o Operand) -> Result<Resolved<'o>, PredicateError> {
        match &operand.kind {
            OperandKind::Name(name) => self.find(name).map(Resolved::Key).ok_or_else(|| self.unknown(name, operand)),
            OperandKind::Quoted(text) | OperandKind::Boolean(text) => {
                Ok(self.find(text).map_or(Resolved::Literal(text), Resolved::Key))
            }
            OperandKind::Literal(text) => Ok(Resolved::Literal(text)),
            OperandKind::Null(word) => Ok(self.find(word).map_or(Resolved::Null, Resolved::Key)),
        }
    }

    /// The key that a test other than a comparison is about.
    fn subject(&self, test: &Test) -> Result<usize, PredicateError> {
        match self.resolve(&test.subject)? {
            Resolved::Key(position) => Ok(position),
            Resolved::Literal(_) | Resolved::Null => Err(self.no_key(test)),
        }
    }

    /// Notes that the expression names this key.
    fn name_key(&mut self, position: usize, operand: &Operand) -> Result<KeyType, PredicateError> {
        let Some(key) = self.keys.get(position) else { return Ok(KeyType::Other) };
        let key_type = KeyType::of(&key.type_name);
        if key_type == KeyType::Other {
            return Err(PredicateError::UnknownType {
                type_name: shown(&key.type_name),
                key: key.name.clone(),
                position: self.position(operand),
            });
        }
        let named = NamedKey { position, name: key.name.clone(), key_type };
        self.named.entry(position).or_insert(named);
        Ok(key_type)
    }

    fn text_of<'o>(&self, operand: &'o Operand, test: &Test) -> Result<&'o str, PredicateError> {
        match self.resolve(operand)? {
            Resolved::Literal(text) => Ok(text),
            Resolved::Key(_) => Err(self.unsupported(test, "a key is compared with a literal, not with another key")),
            Resolved::Null => Err(self.unsupported(test, "nothing equals NULL; ask for IS NULL or IS NOT NULL")),
        }
    }

    fn literal(
        &self,
        position: usize,
        key_type: KeyType,
        operand: &Operand,
        test: &Test,
    ) -> Result<Literal, PredicateError> {
        let text = self.text_of(operand, test)?;
        let lower;
        // A key of type text has booleans as they are usually written.
        let text = match &operand.kind {
            OperandKind::Boolean(word) => {
                lower = word.to_ascii_lowercase();
                lower.as_str()
            }
            _ => text,
        };
        match Scalar::read(key_type, text) {
            Some(value) => Ok(Literal::Value(value)),
            None if self.mode == Mode::Lenient && text == HIVE_DEFAULT_PARTITION => Ok(Literal::Null),
            None => Err(PredicateError::Literal {
                text: shown(text),
                key: self.name_of(position),
                key_type,
                position: self.position(operand),
            }),
        }
    }

    // Errors.

    fn position(&self, operand: &Operand) -> usize {
        position(self.text, operand.start)
    }

    fn name_of(&self, position: usize) -> String {
        self.keys.get(position).map(|key| key.name.clone()).unwrap_or_default()
    }

    fn unknown(&self, name: &str, operand: &Operand) -> PredicateError {
        PredicateError::UnknownKey {
            name: shown(name),
            position: self.position(operand),
            keys: self.keys.iter().map(|key| key.name.clone()).collect(),
        }
    }

    /// Two literals. In double quotes the first was meant as a name.
    fn no_key(&self, test: &Test) -> PredicateError {
        match &test.subject.kind {
            OperandKind::Quoted(name) => self.unknown(name, &test.subject),
            _ => self.unsupported(test, "it names no partition key"),
        }
    }

    fn unsupported(&self, test: &Test, reason: &str) -> PredicateError {
        PredicateError::Unsupported {
            shown: test.shown.clone(),
            position: self.position(&test.subject),
            reason: reason.to_owned(),
        }
    }
}

/// Values that compare so with a literal. Nothing is less or more than NULL; to equal it is to be it.
fn compare(comparison: Comparison, literal: &Literal) -> Domain {
    let value = match literal {
        Literal::Value(value) => value.clone(),
        Literal::Null => {
            return match comparison {
                Comparison::Equal => Domain { values: Set::none(), has_null: true },
                Comparison::NotEqual => Domain { values: Set::all(), has_null: false },
                _ => Domain::none(),
            };
        }
    };
    let values = match comparison {
        Comparison::Equal => Set::point(value),
        Comparison::NotEqual => Set::point(value).complement(),
        Comparison::Less => Set::between(Cut::Start, Cut::Before(value)),
        Comparison::AtMost => Set::between(Cut::Start, Cut::After(value)),
        Comparison::Greater => Set::between(Cut::After(value), Cut::End),
        Comparison::AtLeast => Set::between(Cut::Before(value), Cut::End),
    };
    Domain { values, has_null: false }
}

/// NOT IN: NULL is neither in a list nor outside.
fn excluded(listed: Domain) -> Domain {
    Domain { values: listed.values.complement(), has_null: false }
}

/// On text a set of everything or nothing is decided here. On a typed key it is not: the value must be readable.
fn in_domain(leaf: Leaf) -> Node {
    match &leaf.test {
        LeafTest::In(domain) if leaf.key_type == KeyType::Text && domain.values.is_all() => Node::Constant(true),
        LeafTest::In(domain) if leaf.key_type == KeyType::Text && domain.values.is_none() => Node::Constant(false),
        _ => Node::Leaf(leaf),
    }
}

fn conjunction(nodes: Vec<Node>) -> Node {
    join(nodes, false, Domain::intersection, Node::All)
}

fn disjunction(nodes: Vec<Node>) -> Node {
    join(nodes, true, Domain::union, Node::Any)
}

/// Joins operands: `decisive` decides all by itself, its opposite says nothing, sets of values of one key become one.
fn join(nodes: Vec<Node>, decisive: bool, merge: fn(Vec<Domain>) -> Domain, whole: fn(Vec<Node>) -> Node) -> Node {
    let mut flat = Vec::with_capacity(nodes.len());
    for node in nodes {
        match node {
            Node::Constant(constant) if constant == decisive => return Node::Constant(decisive),
            Node::Constant(_) => {}
            Node::All(inner) if !decisive => flat.extend(inner),
            Node::Any(inner) if decisive => flat.extend(inner),
            node => flat.push(node),
        }
    }
    let mut sets: BTreeMap<usize, (KeyType, Vec<Domain>)> = BTreeMap::new();
    let mut others = Vec::new();
    for node in flat {
        match node {
            Node::Leaf(Leaf { position, key_type, test: LeafTest::In(domain), .. }) => {
                sets.entry(position).or_insert((key_type, Vec::new())).1.push(domain);
            }
            node => others.push(node),
        }
    }
    let mut joined = Vec::with_capacity(sets.len() + others.len());
    for (position, (key_type, mut domains)) in sets {
        let domain = match (domains.len(), domains.pop()) {
            (1, Some(only)) => only,
            (_, last) => {
                domains.extend(last);
                merge(domains)
            }
        };
        match in_domain(Leaf::new(position, key_type, LeafTest::In(domain))) {
            Node::Constant(constant) if constant == decisive => return Node::Constant(decisive),
            Node::Constant(_) => {}
            leaf => joined.push(leaf),
        }
    }
    joined.extend(others);
    match (joined.len(), joined.pop()) {
        (1, Some(only)) => only,
        (0, _) => Node::Constant(!decisive),
        (_, last) => {
            joined.extend(last);
            whole(joined)
        }
    }
}

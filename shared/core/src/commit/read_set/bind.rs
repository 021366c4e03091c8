//! Predicates on the columns of a table, and what they say of a file.

use std::cmp::Ordering;

use super::domain::{Domain, FLOAT_DIGITS, Stats, decimal_bound};
use super::predicate::{Column, Literal, Origin, Predicate, ReadPredicate, Zone};
use crate::commit::sql::Comparison;
use crate::commit::sql::value::{Span, Value, flag};
use crate::commit::sql::{Instant, parse_day};
use crate::commit::table_facts::{FileValues, TableFacts};
use crate::delta::Metadata;
use crate::delta::schema::{DataType, Field, Primitive};
use crate::partition::Number;

/// Zones lie at most so far from UTC.
const ZONE_MAX_NANOS: i128 = 18 * 3_600 * 1_000_000_000;
/// Integers up to here survive a float.
const FLOAT_INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

const NULL: Outcomes = Outcomes { null: true, ..Outcomes::NEVER };

/// The outcomes that a predicate may have for the rows of a file; a row matches if it is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcomes {
    pub truth: bool,
    pub falsehood: bool,
    pub null: bool,
}

impl Outcomes {
    const ANY: Outcomes = Outcomes { truth: true, falsehood: true, null: true };
    const NEVER: Outcomes = Outcomes { truth: false, falsehood: false, null: false };

    fn negated(self) -> Outcomes {
        Outcomes { truth: self.falsehood, falsehood: self.truth, null: self.null }
    }

    /// Of both sides, each of which may have any of its outcomes.
    fn and(self, other: Outcomes) -> Outcomes {
        let (mine, theirs) = (self.null && (other.null || other.truth), other.null && self.truth);
        Outcomes {
            truth: self.truth && other.truth,
            falsehood: self.falsehood || other.falsehood,
            null: mine || theirs,
        }
    }

    fn or(self, other: Outcomes) -> Outcomes {
        self.negated().and(other.negated()).negated()
    }
}

/// A predicate whose columns were found in a table.
#[derive(Debug)]
pub struct Bound {
    root: Node,
    pub has_partition_column: bool,
    pub has_column: bool,
    /// Holds for every row by what it says.
    pub is_always: bool,
}

#[derive(Debug)]
enum Node {
    Always,
    Unknown,
    And(Vec<Node>),
    Or(Vec<Node>),
    Not(Box<Node>),
    Compare(Comparison, Place, Option<Span>),
    /// Null for every row.
    Null,
    In(OneOf),
    IsNull(Place),
}

/// A column that predicates need of every row; its place in the list of [`BoundReads::columns`] is its slot in a row.
///
/// [`BoundReads::columns`]: super::BoundReads::columns
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadColumn {
    /// Names in the table's schema, from the outside to the inside.
    pub path: Vec<String>,
    pub kind: Primitive,
}

/// A list of constants.
#[derive(Debug)]
struct OneOf {
    at: Place,
    /// Ascending, where all are points.
    spans: Vec<Span>,
    are_points: bool,
    has_null: bool,
    has_unusable: bool,
}

/// Where a column's values are told.
#[derive(Clone, Debug)]
struct Place {
    at: Source,
    kind: Primitive,
    slot: usize,
}

#[derive(Clone, Debug)]
enum Source {
    /// Key of `partitionValues`.
    Partition(String),
    /// Path in the statistics.
    Data(Vec<String>),
}

/// Finds the columns of `predicate`; what cannot be found or compared is unknown.
///
/// Columns get slots, which predicates of one set share.
pub fn bind(predicate: &ReadPredicate, table: TableFacts<'_>, columns: &mut Vec<ReadColumn>) -> Bound {
    let mut binder = Binder { table, has_partition_column: false, has_column: false, columns };
    let names_are_plain = || table.schema.walk().into_iter().all(|(_, field)| has_plain_name(field));
    let is_readable = predicate.origin != Origin::UnquotedSql || names_are_plain();
    let root = if is_readable { binder.node(&predicate.predicate) } else { Node::Unknown };
    Bound {
        root,
        has_partition_column: binder.has_partition_column,
        has_column: binder.has_column,
        is_always: predicate.predicate == Predicate::Always,
    }
}

/// Whether a name cannot be mistaken for SQL where it lost its quotes.
fn has_plain_name(field: &Field) -> bool {
    field.name.chars().all(|letter| letter.is_alphanumeric() || "_-$.".contains(letter))
}

struct Binder<'a, 'c> {
    table: TableFacts<'a>,
    has_partition_column: bool,
    has_column: bool,
    columns: &'c mut Vec<ReadColumn>,
}

impl<'a> Binder<'a, '_> {
    fn node(&mut self, predicate: &Predicate) -> Node {
        match predicate {
            Predicate::Always => Node::Always,
            Predicate::Unknown => Node::Unknown,
            Predicate::And(parts) => Node::And(parts.iter().map(|part| self.node(part)).collect()),
            Predicate::Or(parts) => Node::Or(parts.iter().map(|part| self.node(part)).collect()),
            Predicate::Not(part) => Node::Not(Box::new(self.node(part))),
            Predicate::Compare(comparison, column, literal) => match self.comparable(column) {
                None => Node::Unknown,
                Some(_) if self.may_be_column(literal) => Node::Unknown,
                Some(at) if *literal == Literal::Null && *comparison == Comparison::NullSafeEqual => Node::IsNull(at),
                Some(_) if *literal == Literal::Null => Node::Null,
                Some(at) => Node::Compare(*comparison, at.clone(), span_of(literal, &at.kind)),
            },
            Predicate::In(column, literals) => {
                let Some(at) = self.comparable(column) else { return Node::Unknown };
                if literals.iter().any(|literal| self.may_be_column(literal)) {
                    return Node::Unknown;
                }
                Node::In(OneOf::new(at, literals))
            }
            Predicate::IsNull(column) => {
                let field = self.field(column).filter(|_| column.cast.is_none());
                field.and_then(|found| self.place(&found)).map_or(Node::Unknown, Node::IsNull)
            }
        }
    }

    fn comparable(&mut self, column: &Column) -> Option<Place> {
        let found = self.field(column)?;
        let last = found.last()?;
        // Equal texts of a collation, or of a padded type, need not be equal by code point.
        if last.metadata.keys().any(|name| name.contains("COLLATION") || name.contains("CHAR_VARCHAR")) {
            return None;
        }
        let place = self.place(&found)?;
        match &column.cast {
            Some(cast) if !keeps_values(&place.kind, cast) => None,
            _ => Some(place),
        }
    }

    fn may_be_column(&self, literal: &Literal) -> bool {
        match literal {
            Literal::Quoted(text) => walk(&self.table.schema.fields, std::slice::from_ref(text)).is_some(),
            _ => false,
        }
    }

    fn place(&mut self, fields: &[&Field]) -> Option<Place> {
        let DataType::Primitive(kind) = &fields.last()?.data_type else { return None };
        self.has_column = true;
        let metadata = self.table.metadata;
        let partition = match fields {
            [one] if metadata.partition_columns.contains(&one.name) => Some(physical_name(metadata, one).to_owned()),
            _ => None,
        };
        self.has_partition_column |= partition.is_some();
        let at = match partition {
            Some(name) => Source::Partition(name),
            None => Source::Data(fields.iter().map(|field| physical_name(metadata, field).to_owned()).collect()),
        };
        let path = fields.iter().map(|field| field.name.clone()).collect();
        let column = ReadColumn { path, kind: kind.clone() };
        let slot = self.columns.iter().position(|known| *known == column).unwrap_or_else(|| {
            self.columns.push(column);
            self.columns.len() - 1
        });
        Some(Place { at, kind: kind.clone(), slot })
    }

    /// The one way to read the name as a column of the table; engines ignore case.
    fn field(&self, column: &Column) -> Option<Vec<&'a Field>> {
        let table = self.table;
        let longest = if column.may_be_qualified { column.path.len() } else { 1 };
        let mut found = (0..longest).filter_map(|from| walk(&table.schema.fields, column.path.get(from..)?));
        let first = found.next()?;
        found.next().is_none().then_some(first)
    }
}

/// The name of a column in files, statistics and partition values.
pub fn physical_name<'a>(metadata: &Metadata, field: &'a Field) -> &'a str {
    let is_mapped = metadata.property("delta.columnMapping.mode").is_some_and(|mode| mode != "none");
    let mapped = field.metadata.get("delta.columnMapping.physicalName").and_then(serde_json::Value::as_str);
    mapped.filter(|_| is_mapped).unwrap_or(&field.name)
}

fn walk<'a>(fields: &'a [Field], path: &[String]) -> Option<Vec<&'a Field>> {
    let (name, rest) = path.split_first()?;
    let exact = fields.iter().find(|field| field.name == *name);
    let folded = || fields.iter().find(|field| field.name.to_lowercase() == name.to_lowercase());
    let field = exact.or_else(folded)?;
    let mut found = vec![field];
    if !rest.is_empty() {
        let DataType::Struct(inner) = &field.data_type else { return None };
        found.extend(walk(inner, rest)?);
    }
    Some(found)
}

/// Whether a cast leaves every value what it was.
fn keeps_values(kind: &Primitive, cast: &str) -> bool {
    let rank = |name: &str| ["tinyint", "smallint", "int", "bigint"].iter().position(|known| *known == name);
    let cast = match cast.to_ascii_lowercase().as_str() {
        "byte" => "tinyint".to_owned(),
        "short" => "smallint".to_owned(),
        "integer" => "int".to_owned(),
        "long" => "bigint".to_owned(),
        "varchar" | "text" | "utf8" => "string".to_owned(),
        other => other.to_owned(),
    };
    let own = match kind {
        Primitive::Byte => rank("tinyint"),
        Primitive::Short => rank("smallint"),
        Primitive::Integer => rank("int"),
        Primitive::Long => rank("bigint"),
        Primitive::Float => return cast == "double",
        Primitive::String | Primitive::Double | Primitive::Date | Primitive::Boolean => {
            return cast == kind.to_string();
        }
        Primitive::Decimal { .. } => return cast == kind.to_string(),
        _ => None,
    };
    matches!((own, rank(&cast)), (Some(own), Some(wider)) if own <= wider)
}

/// Where the value of a constant lies, read as a type; nothing if it cannot be compared with such a column.
fn span_of(literal: &Literal, kind: &Primitive) -> Option<Span> {
    let (text, zone) = match literal {
        Literal::Null | Literal::Unusable => return None,
        Literal::Flag(flag) => return (*kind == Primitive::Boolean).then(|| Span::at(Value::Flag(*flag))),
        Literal::EitherNumber(one, other) => {
            let (one, other) = (number(one, kind)?, number(other, kind)?);
            let (low, high) =
                if one.low.compare(&other.low)?.is_le() { (one.low, other.high) } else { (other.low, one.high) };
            return Some(Span { low, high });
        }
        Literal::Number(text) => return number(text, kind),
        Literal::Date(text) if *kind == Primitive::Date => {
            return parse_day(text).map(|day| Span::at(Value::Day(day)));
        }
        Literal::Timestamp(..) if *kind == Primitive::Date => return None,
        Literal::Date(text) => (text, Zone::Session),
        Literal::Timestamp(text, zone) | Literal::Text(text, zone) => (text, *zone),
        Literal::Raw(text) | Literal::Quoted(text) => (text, Zone::Session),
    };
    let is_time = matches!(literal, Literal::Date(_) | Literal::Timestamp(..));
    match kind {
        Primitive::Timestamp | Primitive::TimestampNtz => instant(text, zone, kind),
        _ if is_time => None,
        Primitive::String => Some(Span::at(Value::Text(text.clone()))),
        Primitive::Boolean => flag(text).map(|flag| Span::at(Value::Flag(flag))),
        Primitive::Date => parse_day(text).map(|day| Span::at(Value::Day(day))),
        _ => number(text, kind),
    }
}

fn instant(text: &str, zone: Zone, kind: &Primitive) -> Option<Span> {
    let instant = Instant::parse(text)?;
    let nanos = instant.utc_nanos();
    match (kind, instant.offset_seconds, zone) {
        (Primitive::TimestampNtz, Some(_), _) => None,
        (Primitive::TimestampNtz, None, _) | (_, Some(_), _) | (_, None, Zone::Utc) => {
            Some(Span::at(Value::Instant(nanos)))
        }
        (_, None, Zone::Session) => {
            Some(Span { low: Value::Instant(nanos - ZONE_MAX_NANOS), high: Value::Instant(nanos + ZONE_MAX_NANOS) })
        }
    }
}

fn number(text: &str, kind: &Primitive) -> Option<Span> {
    let is_integer = Number::parse_integer(text).is_some();
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    let digits = u8::try_from(digits).unwrap_or(u8::MAX);
    match kind {
        Primitive::Byte | Primitive::Short | Primitive::Integer | Primitive::Long => {
            // Engines that compare as floats take neighbours for equal.
            let is_coarse = digits > FLOAT_DIGITS || text.parse::<f64>().ok()?.abs() >= FLOAT_INTEGER_MAX;
            if !is_integer && is_coarse {
                return None;
            }
            Number::parse_decimal(text).map(|number| Span::at(Value::Exact(number)))
        }
        Primitive::Decimal { precision, .. } => decimal_bound(text, digits.max(*precision)),
        Primitive::Double => finite(text).map(|value| Span::at(Value::Float(value))),
        Primitive::Float => {
            let wide = finite(text)?;
            // Engines compare in 32 or in 64 bits.
            let narrow = f64::from(text.parse::<f32>().ok()?);
            if wide == narrow {
                return Some(Span::at(Value::Float(wide)));
            }
            Some(Span { low: Value::Float(wide.min(narrow)), high: Value::Float(wide.max(narrow)) })
        }
        _ => None,
    }
}

fn finite(text: &str) -> Option<f64> {
    Number::parse_decimal(text)?;
    text.parse::<f64>().ok().filter(|value| value.is_finite())
}

impl OneOf {
    fn new(at: Place, literals: &[Literal]) -> OneOf {
        let usable: Vec<Option<Span>> = literals
            .iter()
            .filter(|literal| **literal != Literal::Null)
            .map(|literal| span_of(literal, &at.kind))
            .collect();
        let has_null = usable.len() < literals.len();
        let has_unusable = usable.iter().any(Option::is_none) || literals.is_empty();
        let mut spans: Vec<Span> = usable.into_iter().flatten().collect();
        spans.sort_by(|a, b| a.low.compare(&b.low).unwrap_or(Ordering::Equal));
        OneOf { are_points: spans.iter().all(Span::is_point), at, spans, has_null, has_unusable }
    }

    fn outcomes(&self, domain: &Domain) -> Outcomes {
        let found = match (&domain.low, &domain.high) {
            _ if self.has_unusable => Outcomes::ANY,
            (Some(low), Some(high)) if self.are_points => self.between(domain, low, high),
            _ => {
                let spans = self.spans.iter().map(|span| compare(Comparison::Equal, domain, span));
                spans.fold(Outcomes { falsehood: true, ..Outcomes::NEVER }, Outcomes::or)
            }
        };
        // A value that is not in a list with a null may be that null.
        if self.has_null { Outcomes { falsehood: false, null: true, ..found } } else { found }
    }

    /// The outcomes of the one constant that lies in the domain, or of none: the others say no more.
    fn between(&self, domain: &Domain, low: &Value, high: &Value) -> Outcomes {
        let from = self.spans.partition_point(|span| span.low.compare(low) == Some(Ordering::Less));
        match self.spans.get(from) {
            Some(first) if first.low.compare(high).is_none_or(Ordering::is_le) => {
                compare(Comparison::Equal, domain, first)
            }
            _ => {
                let falsehood = domain.may_be_value;
                Outcomes { truth: false, falsehood, null: domain.may_be_null }
            }
        }
    }
}

impl Bound {
    /// The outcomes for the rows of a file; statistics are parsed when first needed.
    pub fn outcomes(&self, file: FileValues<'_>) -> Outcomes {
        let view = FileView { file, stats: std::cell::OnceCell::new() };
        self.root.outcomes(&|place| view.domain(place))
    }

    /// Whether it is understood in all its parts, and looks at plain columns of the row alone: then rows can be asked one
    /// by one.
    pub fn is_by_row(&self) -> bool {
        self.root.is_by_row()
    }

    /// The outcomes where every column has one of the values in its slot; a missing slot has any.
    pub fn outcomes_within(&self, slots: &[Domain]) -> Outcomes {
        self.root.outcomes(&|place| slots.get(place.slot).cloned().unwrap_or_else(|| Domain::any(&place.kind)))
    }
}

struct FileView<'a> {
    file: FileValues<'a>,
    stats: std::cell::OnceCell<Option<Stats>>,
}

impl Node {
    fn is_by_row(&self) -> bool {
        let is_plain = |place: &Place| match &place.at {
            Source::Partition(_) => true,
            Source::Data(path) => path.len() == 1,
        };
        match self {
            Node::Always | Node::Null => true,
            Node::Unknown | Node::Compare(_, _, None) => false,
            Node::And(parts) | Node::Or(parts) => parts.iter().all(Node::is_by_row),
            Node::Not(part) => part.is_by_row(),
            Node::Compare(_, place, Some(_)) | Node::IsNull(place) => is_plain(place),
            Node::In(list) => !list.has_unusable && is_plain(&list.at),
        }
    }

    fn outcomes(&self, domain_of: &dyn Fn(&Place) -> Domain) -> Outcomes {
        let truth = |truth: bool| Outcomes { truth, falsehood: !truth, null: false };
        match self {
            Node::Always => truth(true),
            Node::Unknown => Outcomes::ANY,
            Node::And(parts) => parts.iter().fold(truth(true), |all, part| all.and(part.outcomes(domain_of))),
            Node::Or(parts) => parts.iter().fold(truth(false), |all, part| all.or(part.outcomes(domain_of))),
            Node::Not(part) => part.outcomes(domain_of).negated(),
            Node::Compare(comparison, at, None) => match domain_of(at) {
                // Nothing but null safely equals null.
                domain if !domain.may_be_value && *comparison != Comparison::NullSafeEqual => NULL,
                _ => Outcomes::ANY,
            },
            Node::Compare(comparison, at, Some(span)) => compare(*comparison, &domain_of(at), span),
            Node::Null => NULL,
            Node::In(list) => list.outcomes(&domain_of(&list.at)),
            Node::IsNull(at) => {
                let domain = domain_of(at);
                Outcomes { truth: domain.may_be_null, falsehood: domain.may_be_value, null: false }
            }
        }
    }
}

impl FileView<'_> {
    fn domain(&self, place: &Place) -> Domain {
        match &place.at {
            Source::Partition(name) => Domain::of_partition(self.file.partition_values, name, &place.kind),
            Source::Data(path) => {
                let stats = self.stats.get_or_init(|| self.file.stats.and_then(Stats::parse));
                Domain::of_stats(stats.as_ref(), path, &place.kind)
            }
        }
    }
}

/// The outcomes of comparing the values of a domain with a constant in `span`.
fn compare(comparison: Comparison, domain: &Domain, span: &Span) -> Outcomes {
    let may_be_below = |bound: &Value, or_equal: bool| match domain.low.as_ref().map(|low| low.compare(bound)) {
        None | Some(None | Some(Ordering::Less)) => true,
        Some(Some(Ordering::Equal)) => or_equal,
        Some(Some(Ordering::Greater)) => false,
    };
    let may_be_above = |bound: &Value, or_equal: bool| match domain.high.as_ref().map(|high| high.compare(bound)) {
        None | Some(None | Some(Ordering::Greater)) => true,
        Some(Some(Ordering::Equal)) => or_equal,
        Some(Some(Ordering::Less)) => false,
    };
    let values = match comparison {
        Comparison::Equal | Comparison::NullSafeEqual => equals(domain, span, &may_be_below, &may_be_above),
        Comparison::NotEqual => equals(domain, span, &may_be_below, &may_be_above).negated(),
        Comparison::Less => {
            Outcomes { truth: may_be_below(&span.high, false), falsehood: may_be_above(&span.low, true), null: false }
        }
        Comparison::GreaterOrEqual => {
            Outcomes { truth: may_be_above(&span.low, true), falsehood: may_be_below(&span.high, false), null: false }
        }
        Comparison::LessOrEqual => {
            Outcomes { truth: may_be_below(&span.high, true), falsehood: may_be_above(&span.low, false), null: false }
        }
        Comparison::Greater => {
            Outcomes { truth: may_be_above(&span.low, false), falsehood: may_be_below(&span.high, true), null: false }
        }
    };
    let mut found = if domain.may_be_value { values } else { Outcomes::NEVER };
    if domain.may_be_nan && domain.may_be_value {
        // Above all numbers for some engines, incomparable for others; never below, never equal to a number.
        let is_truth = matches!(comparison, Comparison::Greater | Comparison::GreaterOrEqual | Comparison::NotEqual);
        found = Outcomes { truth: found.truth || is_truth, falsehood: true, null: false };
    }
    if domain.may_be_null && comparison == Comparison::NullSafeEqual {
        found.falsehood = true;
    } else if domain.may_be_null {
        found.null = true;
    }
    found
}

fn equals(
    domain: &Domain,
    span: &Span,
    may_be_below: &dyn Fn(&Value, bool) -> bool,
    may_be_above: &dyn Fn(&Value, bool) -> bool,
) -> Outcomes {
    let is_one = match (&domain.low, &domain.high) {
        (Some(low), Some(high)) => {
            let own = Span { low: low.clone(), high: high.clone() };
            own.is_point() && span.is_point() && low.compare(&span.low) == Some(Ordering::Equal)
        }
        _ => false,
    };
    Outcomes { truth: may_be_below(&span.high, true) && may_be_above(&span.low, true), falsehood: !is_one, null: false }
}

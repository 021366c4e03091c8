//! Where the rows that a predicate asks for lie: a predicate on values to ranges of encoded keys.
//!
//! Positions of the key are taken in order. What the predicate accepts of the first is a set of values; each single value
//! leaves a simpler predicate for the positions behind it, so ORs of conjuncts, products of lists and prefixes all come out
//! as a union of disjoint ranges. The first position that is not down to single values ends the descent: an interval is one
//! range, a position that is not narrowed at all is everything with the prefix so far.
//!
//! The same values written otherwise (`1`, `01`) have keys with the same beginning, so they lie in the same range. Keys that
//! were cut still have their beginning; bounds longer than that are cut as well and hold a little more.
//!
//! Unreadable values, if there may be some, lie in a region of their own in every position. Where a predicate narrows a typed position, a [`Probe`]
//! covers the rows whose answer hangs on an unreadable value there. All other such rows are in the ranges.

use std::borrow::Cow;

use super::compiled::{Answer, Compiled, Leaf, LeafTest, Mode, Node};
use super::domain::{Domain, Scalar};
use super::range::{KeyRange, Piece, PieceKind, join_neighbours, successor};
use super::set::{Cut, Overlap, Span};
use crate::limits::SORT_KEY_MAX_BYTES;
use crate::partition::{
    ARITY_OPEN_END, CUT_TAIL_BYTES, HIVE_DEFAULT_PARTITION, Irregular, IrregularKind, KeyType, encode_position, region,
};

/// Positions are taken up until there are about so many ranges, or so many times more than asked for; then neighbours are
/// joined.
const DETAIL_MIN: usize = 1024;
const DETAIL_FACTOR: usize = 4;
/// A position that has more intervals than this for each range that is left becomes one range. So whatever the lists of a
/// predicate multiply to, a plan looks at about `budget * INTERVALS_FACTOR` prefixes.
const INTERVALS_FACTOR: usize = 8;

/// How the keys of rows are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Position in the table and type, by position in the key.
    positions: Vec<(usize, KeyType)>,
    /// Bytes before the hash of a cut key.
    whole_bytes: usize,
    /// Which irregular values there may be.
    irregular: Irregular,
}

impl Layout {
    /// Partitions of a table: `types` are those of the epoch, positions beyond are text.
    pub fn of_table(types: &[KeyType], key_count: usize) -> Self {
        Self::reordered(types, &(0..key_count).collect::<Vec<_>>())
    }

    /// Entries of an index: `order` has the positions of the table's keys in the order of the index. Those it lacks are not
    /// narrowed by.
    pub fn reordered(types: &[KeyType], order: &[usize]) -> Self {
        let type_of = |at: &usize| types.get(*at).copied().unwrap_or(KeyType::Text);
        let positions = order.iter().map(|at| (*at, type_of(at))).collect();
        Self { positions, whole_bytes: SORT_KEY_MAX_BYTES - CUT_TAIL_BYTES, irregular: Irregular::ANY }
    }

    /// No other irregular values are there. Without this anything is possible.
    #[must_use]
    pub fn with_at_most(mut self, irregular: Irregular) -> Self {
        self.irregular = irregular;
        self
    }

    fn may_be_unreadable(&self, mode: Mode) -> bool {
        let is_marked = mode == Mode::Strict && self.irregular.has(IrregularKind::NullMarker);
        is_marked || self.irregular.has(IrregularKind::Unreadable)
    }

    /// Keys that are cut at `max_bytes`, since something follows them.
    #[must_use]
    pub fn cut_at(mut self, max_bytes: usize) -> Self {
        self.whole_bytes = max_bytes.saturating_sub(CUT_TAIL_BYTES).max(1);
        self
    }

    /// Rows whose first values are equal to these by their types, in the order of the layout: every key in this range and
    /// no other. None where that cannot be told from a key, because it would be cut.
    ///
    /// With it a listing steps over a leading key that is not narrowed: read the first row, list those with its value by
    /// [`plan_within`], continue at the end of the range.
    pub fn range_of(&self, key_count: usize, leading: &[&str]) -> Option<KeyRange> {
        let prefix = self.prefix_of(key_count, leading)?;
        (prefix.len() <= self.whole_bytes).then(|| KeyRange::with_prefix(prefix))
    }

    fn prefix_of(&self, key_count: usize, leading: &[&str]) -> Option<Vec<u8>> {
        let mut prefix = vec![u8::try_from(key_count).ok().filter(|arity| *arity < ARITY_OPEN_END)?];
        for (at, value) in leading.iter().enumerate() {
            let (_, key_type) = self.positions.get(at)?;
            encode_position(*key_type, value, &mut prefix);
        }
        Some(prefix)
    }
}

/// Where to look, and what to expect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Disjoint, in order. Every row that is asked for lies in one of them.
    pub ranges: Vec<KeyRange>,
    /// Whether every row in the ranges is asked for, so that none needs [`Compiled::evaluate`].
    pub is_exact: bool,
    /// The rows themselves, where the predicate says all their values.
    pub keys: Option<KeyList>,
    /// Disjoint, in order, and disjoint from the ranges.
    pub probes: Vec<Probe>,
    /// What planning took: prefixes of keys that were looked at.
    pub steps: usize,
}

/// Values of rows, in the order of the table's keys; all that are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyList {
    pub values: Vec<Vec<String>>,
    pub completeness: Completeness,
}

/// Whether a list of values has every row that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completeness {
    /// It has: no value is written in another way, or can be.
    Every,
    /// It has those whose values are written in the shortest way. The ranges have all.
    Canonical,
}

/// Rows whose answer may hang on an unreadable value. Where nothing is in the range, nothing is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    pub range: KeyRange,
    /// Position of the unreadable key in the table.
    pub position: usize,
    /// Whether [`Compiled::evaluate`] is an error for every row in the range, so that one row tells. If not, other keys
    /// exclude some.
    pub is_certain: bool,
}

/// Plans the reading of all rows that `predicate` asks for, with at most `max_ranges` ranges and probes together (at least
/// one). Where there would be more, neighbours are joined; rows between them are then read in vain.
pub fn plan(predicate: &Compiled, layout: &Layout, max_ranges: usize) -> Plan {
    let budget = max_ranges.saturating_mul(DETAIL_FACTOR).max(DETAIL_MIN);
    plan_in_detail(predicate, layout, &[], (max_ranges, budget))
}

/// [`plan`] for the rows whose first values, in the order of the layout, are equal to `leading` by their types. In no more
/// detail than `max_ranges` need, as it is asked for again and again during one listing.
pub fn plan_within(predicate: &Compiled, layout: &Layout, leading: &[&str], max_ranges: usize) -> Plan {
    plan_in_detail(predicate, layout, leading, (max_ranges, max_ranges))
}

fn plan_in_detail(
    predicate: &Compiled,
    layout: &Layout,
    leading: &[&str],
    (max_ranges, budget): (usize, usize),
) -> Plan {
    let mut planner = Planner { layout, mode: predicate.mode, pieces: Vec::new(), lists: Some(Vec::new()), steps: 0 };
    match layout.prefix_of(predicate.key_count, leading) {
        Some(prefix) => {
            let leaves = View::of(&predicate.root).restrict(&|leaf: &Leaf| {
                let at = layout.positions.iter().position(|(position, _)| *position == leaf.position)?;
                match leaf.answer(predicate.mode, leading.get(at)?) {
                    Answer::No => Some(false),
                    Answer::Yes => Some(true),
                    // Undecided: its rows are read and judged one by one.
                    Answer::Unreadable(_) => None,
                }
            });
            // Rows are only listed by all their values.
            if !leading.is_empty() {
                planner.lists = None;
            }
            planner.descend(&leaves, Prefix { bytes: prefix, scalars: Vec::new() }, leading.len(), budget);
        }
        None => {
            planner.lists = None;
            let arity = u8::try_from(predicate.key_count).unwrap_or(ARITY_OPEN_END);
            let range = KeyRange { low: vec![arity], high: vec![u8::MAX; SORT_KEY_MAX_BYTES] };
            planner.pieces.push(Piece { range, kind: PieceKind::Read { is_exact: false } });
        }
    }
    planner.finish(predicate, max_ranges)
}

/// What is left of a predicate where some keys are known.
#[derive(Clone, Debug)]
enum View<'p> {
    Constant(bool),
    Leaf(&'p Leaf),
    All(Vec<View<'p>>),
    Any(Vec<View<'p>>),
}

impl<'p> View<'p> {
    fn of(node: &'p Node) -> Self {
        match node {
            Node::Constant(constant) => Self::Constant(*constant),
            Node::Leaf(leaf) => Self::Leaf(leaf),
            Node::All(nodes) => Self::All(nodes.iter().map(Self::of).collect()),
            Node::Any(nodes) => Self::Any(nodes.iter().map(Self::of).collect()),
        }
    }

    /// What is left when `decide` says what some leaves are.
    fn restrict(&self, decide: &impl Fn(&Leaf) -> Option<bool>) -> Self {
        let (views, decisive) = match self {
            Self::Constant(constant) => return Self::Constant(*constant),
            Self::Leaf(leaf) => return decide(leaf).map_or(Self::Leaf(leaf), Self::Constant),
            Self::All(views) => (views, false),
            Self::Any(views) => (views, true),
        };
        let mut left = Vec::new();
        for view in views {
            match view.restrict(decide) {
                Self::Constant(constant) if constant == decisive => return Self::Constant(decisive),
                Self::Constant(_) => {}
                view => left.push(view),
            }
        }
        match (left.len(), left.pop()) {
            (_, None) => Self::Constant(!decisive),
            (1, Some(only)) => only,
            (_, Some(last)) => {
                left.push(last);
                if decisive { Self::Any(left) } else { Self::All(left) }
            }
        }
    }

    /// What the predicate accepts at most of a key; none if it does not narrow it.
    fn domain_of(&self, position: usize) -> Option<Cow<'p, Domain>> {
        match self {
            Self::Constant(true) => None,
            Self::Constant(false) => Some(Cow::Owned(Domain::none())),
            Self::Leaf(leaf) if leaf.position != position => None,
            Self::Leaf(leaf) => match &leaf.test {
                LeafTest::In(domain) => Some(Cow::Borrowed(domain)),
                LeafTest::Like { is_negated: true, .. } => None,
                LeafTest::Like { pattern, .. } => {
                    let values = pattern.cover();
                    (!values.is_all()).then_some(Cow::Owned(Domain { values, has_null: false }))
                }
            },
            Self::All(views) => {
                let mut domains: Vec<_> = views.iter().filter_map(|view| view.domain_of(position)).collect();
                match (domains.len(), domains.pop()) {
                    (1, only) => only,
                    (_, None) => None,
                    (_, Some(last)) => {
                        domains.push(last);
                        let domains = domains.into_iter().map(Cow::into_owned).collect();
                        Some(Cow::Owned(Domain::intersection(domains)))
                    }
                }
            }
            Self::Any(views) => {
                let domains: Option<Vec<Domain>> =
                    views.iter().map(|view| view.domain_of(position).map(Cow::into_owned)).collect();
                domains.map(|domains| Cow::Owned(Domain::union(domains)))
            }
        }
    }
}

/// The beginning of a key.
#[derive(Clone)]
struct Prefix {
    bytes: Vec<u8>,
    /// What it was made of; none for NULL.
    scalars: Vec<Option<Scalar>>,
}

impl Prefix {
    fn with(&self, value: Option<&Scalar>) -> Self {
        let mut longer = self.clone();
        match value {
            Some(scalar) => scalar.encode(&mut longer.bytes),
            None => longer.bytes.push(region::NULL),
        }
        longer.scalars.push(value.cloned());
        longer
    }

    /// The place of a cut behind it.
    fn at(&self, cut: &Cut<Scalar>, key_type: KeyType) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        match (cut, is_text(key_type)) {
            (Cut::Start, true) => {}
            (Cut::Start, false) => bytes.push(region::PARSED),
            // No UTF-8 begins like this.
            (Cut::End, true) => bytes.push(u8::MAX),
            (Cut::End, false) => bytes.push(region::PARSED + 1),
            (Cut::Before(value), _) => value.encode(&mut bytes),
            (Cut::After(value), _) => {
                value.encode(&mut bytes);
                bytes = successor(bytes);
            }
        }
        bytes
    }
}

fn is_text(key_type: KeyType) -> bool {
    matches!(key_type, KeyType::Text | KeyType::Other)
}

struct Planner<'l> {
    layout: &'l Layout,
    mode: Mode,
    pieces: Vec<Piece>,
    /// Values of the rows that are asked for, in the order of the layout, as long as all are known.
    lists: Option<Vec<Vec<Option<Scalar>>>>,
    steps: usize,
}

impl Planner<'_> {
    /// Plans what has this prefix, which ends before position `at`. A position is taken up as long as there is a `budget`,
    /// which the values of one share.
    fn descend(&mut self, view: &View<'_>, prefix: Prefix, at: usize, budget: usize) {
        self.steps += 1;
        let is_known = match view {
            View::Constant(false) => return,
            View::Constant(true) => true,
            _ => false,
        };
        let ends = at >= self.layout.positions.len();
        let whole = |planner: &mut Self, prefix: Prefix| {
            let is_exact = is_known;
            match &mut planner.lists {
                Some(lists) if is_known && ends => lists.push(prefix.scalars),
                lists => *lists = None,
            }
            planner.read(prefix.bytes.clone(), successor(prefix.bytes), is_exact);
        };
        let Some(&(position, key_type)) = self.layout.positions.get(at) else { return whole(self, prefix) };
        if is_known || budget == 0 || prefix.bytes.len() > self.layout.whole_bytes {
            return whole(self, prefix);
        }
        match view.domain_of(position) {
            // A leaf reads a key by its type of today, the layout by the one it was made with.
            Some(domain) if reads_alike(view, position, key_type) => {
                self.narrow(view, &prefix, at, &domain, budget);
            }
            _ => whole(self, prefix),
        }
    }

    /// Plans a position of which only `domain` is asked for.
    fn narrow(&mut self, view: &View<'_>, prefix: &Prefix, at: usize, domain: &Domain, budget: usize) {
        let Some(&(position, key_type)) = self.layout.positions.get(at) else { return };
        let spans = domain.values.spans();
        if spans.len() > budget.saturating_mul(INTERVALS_FACTOR) {
            self.lists = None;
            if let (Some(first), Some(last)) = (spans.first(), spans.last()) {
                self.read(prefix.at(&first.low, key_type), prefix.at(&last.high, key_type), false);
            }
        } else {
            for span in spans {
                self.plan_span(view, prefix, at, span, budget / spans.len().max(1));
            }
        }
        if is_text(key_type) {
            return;
        }
        if domain.has_null {
            let left = restrict_to(view, position, |leaf| match &leaf.test {
                LeafTest::In(domain) => Some(domain.has_null),
                LeafTest::Like { .. } => Some(false),
            });
            self.descend(&left, prefix.with(None), at + 1, budget / 2);
        }
        if !self.layout.may_be_unreadable(self.mode) {
            return;
        }
        let left = restrict_to(view, position, |_| Some(true));
        let is_certain = match left {
            View::Constant(false) => return,
            View::Constant(true) => true,
            _ => false,
        };
        let first = if self.mode == Mode::Strict { region::NULL } else { region::UNPARSABLE };
        let [mut low, mut high] = [prefix.bytes.clone(), prefix.bytes.clone()];
        low.push(first);
        high.push(region::UNPARSABLE + 1);
        self.push(low, high, PieceKind::Probe { position, is_certain });
    }

    fn plan_span(&mut self, view: &View<'_>, prefix: &Prefix, at: usize, span: &Span<Scalar>, budget: usize) {
        let Some(&(position, key_type)) = self.layout.positions.get(at) else { return };
        if let Some(point) = span.as_point() {
            let left = restrict_to(view, position, |leaf| Some(accepts(leaf, point)));
            return self.descend(&left, prefix.with(Some(point)), at + 1, budget);
        }
        let left = restrict_to(view, position, |leaf| match &leaf.test {
            LeafTest::In(domain) => match domain.values.overlap(span) {
                Overlap::None => Some(false),
                Overlap::Whole => Some(true),
                Overlap::Partial => None,
            },
            LeafTest::Like { .. } => None,
        });
        let is_exact = match left {
            View::Constant(false) => return,
            View::Constant(true) => true,
            _ => false,
        };
        self.lists = None;
        self.read(prefix.at(&span.low, key_type), prefix.at(&span.high, key_type), is_exact);
    }

    fn read(&mut self, low: Vec<u8>, high: Vec<u8>, is_exact: bool) {
        self.push(low, high, PieceKind::Read { is_exact });
    }

    /// Bounds longer than what a cut key keeps of its beginning are cut, too.
    fn push(&mut self, mut low: Vec<u8>, mut high: Vec<u8>, kind: PieceKind) {
        let max = self.layout.whole_bytes;
        // Nothing is between two neighbouring days.
        if low >= high {
            return;
        }
        let is_cut = low.len() > max || high.len() > max;
        low.truncate(max);
        if high.len() > max {
            high.truncate(max);
            high = successor(high);
        }
        let kind = match kind {
            PieceKind::Read { is_exact } => PieceKind::Read { is_exact: is_exact && !is_cut },
            PieceKind::Probe { position, is_certain } => {
                PieceKind::Probe { position, is_certain: is_certain && !is_cut }
            }
        };
        match self.pieces.last_mut() {
            // Only bounds that were cut meet.
            Some(last) if last.range.high > low => {
                last.range.high = high.max(std::mem::take(&mut last.range.high));
                last.kind = PieceKind::Read { is_exact: false };
            }
            _ => self.pieces.push(Piece { range: KeyRange { low, high }, kind }),
        }
    }

    fn finish(self, predicate: &Compiled, max_ranges: usize) -> Plan {
        let keys = self.lists.and_then(|lists| list_keys(lists, self.layout, predicate.key_count));
        let mut plan = Plan { ranges: Vec::new(), is_exact: true, keys, probes: Vec::new(), steps: self.steps };
        for Piece { range, kind } in join_neighbours(self.pieces, max_ranges) {
            match kind {
                PieceKind::Read { is_exact } => {
                    plan.is_exact &= is_exact;
                    plan.ranges.push(range);
                }
                PieceKind::Probe { position, is_certain } => plan.probes.push(Probe { range, position, is_certain }),
            }
        }
        plan
    }
}

/// What is left when the leaves on one key are decided.
fn restrict_to<'p>(view: &View<'p>, position: usize, decide: impl Fn(&Leaf) -> Option<bool>) -> View<'p> {
    view.restrict(&|leaf: &Leaf| if leaf.position == position { decide(leaf) } else { None })
}

fn accepts(leaf: &Leaf, value: &Scalar) -> bool {
    match (&leaf.test, value) {
        (LeafTest::In(domain), value) => domain.values.contains(|other| value.cmp(other)),
        (LeafTest::Like { pattern, is_negated }, Scalar::Text(text)) => {
            std::str::from_utf8(text).is_ok_and(|text| pattern.matches(text) != *is_negated)
        }
        (LeafTest::Like { .. }, _) => false,
    }
}

/// Whether all leaves on a key order its values like the layout does.
fn reads_alike(view: &View<'_>, position: usize, key_type: KeyType) -> bool {
    match view {
        View::Constant(_) => true,
        View::Leaf(leaf) => {
            leaf.position != position || leaf.key_type == key_type || (is_text(leaf.key_type) && is_text(key_type))
        }
        View::All(views) | View::Any(views) => views.iter().all(|view| reads_alike(view, position, key_type)),
    }
}

/// Values in the order of the layout to values in the order of the table; none if some cannot be written.
fn list_keys(lists: Vec<Vec<Option<Scalar>>>, layout: &Layout, key_count: usize) -> Option<KeyList> {
    let mut completeness = Completeness::Every;
    let mut values = Vec::with_capacity(lists.len());
    for list in lists {
        let mut row = vec![None; key_count];
        for (scalar, (position, _)) in list.iter().zip(&layout.positions) {
            let has_spellings = matches!(scalar, Some(Scalar::Number(_) | Scalar::Timestamp(_)));
            if has_spellings && layout.irregular.has(IrregularKind::OtherSpelling) {
                completeness = Completeness::Canonical;
            }
            let text = match scalar {
                Some(scalar) => scalar.canonical()?,
                None => HIVE_DEFAULT_PARTITION.to_owned(),
            };
            *row.get_mut(*position)? = Some(text);
        }
        values.push(row.into_iter().collect::<Option<Vec<String>>>()?);
    }
    Some(KeyList { values, completeness })
}

//! Where in a shard the rows are that a filter asks for.

use super::position::Position;
use super::source::{Reached, Reads, Source, Stretch};
use crate::catalog::CatalogError;
use crate::predicate::{Compiled, KeyRange, Layout, Plan, Probe, plan_within};

/// Ranges of one window of leading values. With more there is hardly ever something to be jumped over that is worth it.
const WINDOW_RANGES_MAX: usize = 32;
/// With so many ranges in a shard it pays to see first whether there are more rows than ranges.
pub(super) const MANY_RANGES: usize = 8;
/// Rows that are read to see that, for each range that they spare: half of what a request is worth.
pub(super) const ROWS_PER_RANGE: usize = 50;

/// How a piece is begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// With an even share of the page.
    Share,
    /// Rows may be unwanted.
    Some,
    /// With one row, whose leading values tell how to go on.
    One,
}

/// A range of keys to go through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub range: KeyRange,
    /// Whether all rows in it are wanted.
    pub is_exact: bool,
    pub step: Step,
}

impl Piece {
    /// Everything, all of which is wanted.
    pub(super) fn whole() -> Self {
        Self { range: KeyRange::all(), is_exact: true, step: Step::Share }
    }
}

/// The pieces of a plan. Certain probes are none: they are made by [`check_probes`].
pub(super) fn pieces_of(plan: &Plan) -> Vec<Piece> {
    let step = if plan.is_exact { Step::Share } else { Step::Some };
    let ranges = plan.ranges.iter().map(|range| Piece { range: range.clone(), is_exact: plan.is_exact, step });
    let uncertain = plan.probes.iter().filter(|probe| !probe.is_certain);
    let probes = uncertain.map(|probe| Piece { range: probe.range.clone(), is_exact: false, step: Step::Some });
    let mut pieces: Vec<Piece> = ranges.chain(probes).collect();
    pieces.sort_by(|left, right| left.range.low.cmp(&right.range.low));
    pieces
}

/// Where to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refined {
    /// What is to be read; the rest is not wanted.
    pub pieces: Vec<Piece>,
    /// So many leading values were enough to tell.
    pub leading: usize,
    /// Where other leading values begin. Rows behind it are all in the last piece.
    pub end: Vec<u8>,
}

/// Knows where rows can be, given the leading values of one.
#[derive(Debug)]
pub(super) struct Guide<'a> {
    pub filter: &'a Compiled,
    pub layout: Layout,
}

impl Guide<'_> {
    /// What is to be read of `within` behind `key`, a row's with these values: where others with the same leading values
    /// can be wanted, and everything behind those. None if that is all of it.
    pub(super) fn refine(&self, key: &[u8], values: &[String], within: &KeyRange) -> Option<Refined> {
        let key_count = self.filter.key_count();
        if values.len() != key_count {
            return None;
        }
        let behind = Position::After(key.to_vec());
        for leading in 1..key_count {
            let fixed: Vec<&str> = values.iter().take(leading).map(String::as_str).collect();
            let alike = self.layout.range_of(key_count, &fixed)?;
            let end = alike.high.clone().min(within.high.clone());
            let plan = plan_within(self.filter, &self.layout, &fixed, WINDOW_RANGES_MAX);
            let mut pieces = Vec::new();
            let probes = plan.probes.iter().map(|probe| (&probe.range, false));
            for (range, is_exact) in plan.ranges.iter().map(|range| (range, plan.is_exact)).chain(probes) {
                let range = KeyRange { low: range.low.clone(), high: range.high.clone().min(end.clone()) };
                let is_left = range.low < range.high && behind.rest(0, 0, &range).is_some();
                if is_left {
                    let step = if is_exact { Step::Share } else { Step::Some };
                    pieces.push(Piece { range, is_exact, step });
                }
            }
            let is_all =
                |piece: &Piece| !piece.is_exact && piece.range.low.as_slice() <= key && piece.range.high == end;
            if pieces.iter().any(is_all) {
                continue;
            }
            pieces.sort_by(|left, right| left.range.low.cmp(&right.range.low));
            if end < within.high {
                let range = KeyRange { low: end.clone(), high: within.high.clone() };
                pieces.push(Piece { range, is_exact: false, step: Step::One });
            }
            return Some(Refined { pieces, leading, end });
        }
        None
    }
}

/// Looks for rows whose answer hangs on a value that cannot be read, where one row tells.
///
/// # Errors
/// [`CatalogError::StoredValue`] if there is one.
pub(super) async fn check_probes(
    reads: &Reads<'_>,
    source: &dyn Source,
    filter: &Compiled,
    (epoch, shards): (u32, &[u16]),
    probes: &[Probe],
) -> Result<(), CatalogError> {
    let certain: Vec<&KeyRange> = probes.iter().filter(|probe| probe.is_certain).map(|probe| &probe.range).collect();
    let check_shard = |shard: &u16| {
        let (shard, certain) = (*shard, &certain);
        async move {
            let from = if certain.len() < MANY_RANGES {
                Position::BEGINNING
            } else {
                match check_first_rows(reads, source, filter, (epoch, shard), certain).await? {
                    Some(from) => from,
                    None => return Ok(()),
                }
            };
            let looks = certain.iter().map(|range| check_range(reads, source, filter, from.rest(epoch, shard, range)));
            futures::future::try_join_all(looks).await.map(drop)
        }
    };
    futures::future::try_join_all(shards.iter().map(check_shard)).await?;
    Ok::<(), CatalogError>(())
}

/// Looks at the first rows of a shard from the first of many ranges on; answers where there may be more, if anywhere.
async fn check_first_rows(
    reads: &Reads<'_>,
    source: &dyn Source,
    filter: &Compiled,
    (epoch, shard): (u32, u16),
    ranges: &[&KeyRange],
) -> Result<Option<Position>, CatalogError> {
    let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else { return Ok(None) };
    let all = KeyRange { low: first.low.clone(), high: last.high.clone() };
    let Some(stretch) = Position::BEGINNING.rest(epoch, shard, &all) else { return Ok(None) };
    let batch = source.open(stretch).read_on(reads, ROWS_PER_RANGE).await?;
    for row in batch.rows.iter().filter(|row| ranges.iter().any(|range| range.contains(&row.key))) {
        filter.evaluate(&row.values()?)?;
    }
    Ok(match batch.reached {
        Reached::End => None,
        Reached::Key(key) => Some(Position::After(key)),
    })
}

/// Looks at the first row of a stretch.
async fn check_range(
    reads: &Reads<'_>,
    source: &dyn Source,
    filter: &Compiled,
    stretch: Option<Stretch>,
) -> Result<(), CatalogError> {
    let Some(mut cursor) = stretch.map(|stretch| source.open(stretch)) else { return Ok(()) };
    loop {
        let batch = cursor.read_on(reads, 1).await?;
        if let Some(row) = batch.rows.first() {
            filter.evaluate(&row.values()?)?;
            return Ok(());
        }
        if batch.reached == Reached::End {
            return Ok(());
        }
    }
}

//! Where in a shard the rows are that a filter asks for.

use super::position::Position;
use super::source::{Reached, Reads, Source};
use crate::catalog::CatalogError;
use crate::partition::index_item::values_of;
use crate::predicate::{Compiled, KeyRange, Layout, Plan, Probe, plan_within};

/// Ranges of one window of leading values.
const WINDOW_RANGES_MAX: usize = 64;

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
    let certain = probes.iter().filter(|probe| probe.is_certain);
    let places = certain.flat_map(|probe| shards.iter().map(move |shard| (probe, *shard)));
    let look = |(probe, shard): (&Probe, u16)| {
        let cursor = Position::BEGINNING.rest(epoch, shard, &probe.range).map(|stretch| source.open(stretch));
        async move {
            let Some(mut cursor) = cursor else { return Ok(()) };
            loop {
                let batch = cursor.read_on(reads, 1).await?;
                if let Some(row) = batch.rows.first() {
                    filter.evaluate(&values_of(&row.item)?)?;
                    return Ok(());
                }
                if batch.reached == Reached::End {
                    return Ok::<(), CatalogError>(());
                }
            }
        }
    };
    futures::future::try_join_all(places.map(look)).await?;
    Ok(())
}

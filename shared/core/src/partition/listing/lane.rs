//! Going through one shard: which stretches of it are read, in which steps, and which of their rows are wanted.
//!
//! A lane works off pieces of the key range, in order. In a piece whose rows are all wanted it reads on. In any other the
//! last row of every step tells, with its leading values fixed, where the next wanted row can be at the earliest
//! ([`Guide::refine`]); what lies between can be jumped over. So a leading key that the filter leaves free costs two
//! requests for each of its values instead of all rows with them, where that is less ([`super::pace`]).
//!
//! A filter may say more ranges than there are rows. So where many are left, a lane first reads as if they were one, and
//! takes them one by one when the rows between them cost more than the requests that they spare.

use std::collections::VecDeque;

use super::guide::{Guide, MANY_RANGES, Piece, ROWS_PER_RANGE, Refined, Step};
use super::pace::{FIRST_STEP_ITEMS, Look, Pace};
use super::position::Position;
use super::source::{Cursor, LateRow, Reached, Reads, Row, Source};
use crate::catalog::CatalogError;
use crate::predicate::KeyRange;

/// Rows of one step from which its values tell how many there are of a kind.
const TELLING_ITEMS: usize = 16;
/// Groups that are looked at within one step, at most.
const LOOKS_PER_STEP: usize = 3;

pub(super) struct Lane<'a> {
    source: &'a dyn Source,
    guide: Option<&'a Guide<'a>>,
    epoch: u32,
    shard: u16,
    /// Of the plan.
    planned: VecDeque<Piece>,
    /// Of those that come first: what a jump has left of one.
    pieces: VecDeque<Piece>,
    gaps: Gaps,
    open: Option<Open>,
    buffer: VecDeque<Row>,
    /// All rows before it are in the buffer or were taken from it.
    frontier: Position,
    /// Read on when fewer rows are at hand, if others read on anyway.
    low_water: usize,
    pace: &'a Pace,
    /// The group that is being read.
    look: Option<Look>,
    /// Whether the next row is the first of its group.
    is_at_group: bool,
    /// Whether the rows, by their values, are followed by many that can be jumped over.
    looks_far: bool,
}

/// Values of the first, the middle and the last row of a step, and how many there were.
struct Ends {
    first: Vec<String>,
    middle: Vec<String>,
    last: Vec<String>,
    rows: usize,
}

impl Ends {
    /// Whether one half of the rows or the other has so many leading values in common.
    fn have_in_common(&self, leading: usize) -> bool {
        let part = |values: &Vec<String>| values.get(..leading).map(<[String]>::to_vec);
        let [first, middle, last] = [&self.first, &self.middle, &self.last].map(part);
        first == middle || middle == last
    }
}

struct Open {
    cursor: Box<dyn Cursor>,
    piece: Piece,
    /// Items of the next step, at most.
    at_once: usize,
    /// Whether it reaches over planned pieces and what lies between.
    is_wide: bool,
}

/// Whether planned pieces are read together with what lies between them.
#[derive(Debug, Default)]
struct Gaps {
    /// Pieces that are taken one by one before that is tried again.
    apart: usize,
    /// How often it did not pay.
    times: u32,
    /// Rows in vain and pieces spared since it was begun.
    in_vain: usize,
    spared: usize,
}

impl Gaps {
    fn begin(&mut self) {
        (self.in_vain, self.spared) = (0, 0);
    }

    /// Rows that may be read until another piece must have been spared.
    fn left(&self) -> usize {
        ((self.spared + 1) * ROWS_PER_RANGE).saturating_sub(self.in_vain)
    }

    /// Counts a step; `false` if it does not pay to go on.
    fn count(&mut self, in_vain: usize, spared: usize) -> bool {
        self.in_vain += in_vain;
        self.spared += spared;
        let pays = spared > 0 && self.in_vain <= self.spared * ROWS_PER_RANGE;
        if !pays {
            self.apart = MANY_RANGES.saturating_mul(4_usize.saturating_pow(self.times));
            self.times = self.times.saturating_add(1);
        }
        pays
    }
}

impl<'a> Lane<'a> {
    pub(super) fn new(
        source: &'a dyn Source,
        guide: Option<&'a Guide<'a>>,
        pace: &'a Pace,
        (epoch, shard): (u32, u16),
        pieces: impl IntoIterator<Item = Piece>,
        start: &Position,
    ) -> Self {
        let planned = pieces.into_iter().collect();
        let (pieces, buffer, frontier) = (VecDeque::new(), VecDeque::new(), start.clone());
        let is_at_group = *start == Position::BEGINNING;
        Self {
            source,
            guide,
            epoch,
            shard,
            planned,
            pieces,
            gaps: Gaps::default(),
            open: None,
            buffer,
            frontier,
            low_water: 0,
            pace,
            look: None,
            is_at_group,
            looks_far: false,
        }
    }

    fn is_done(&self) -> bool {
        self.open.is_none() && self.pieces.is_empty() && self.planned.is_empty()
    }

    fn lacks(&self, rows: usize) -> bool {
        self.buffer.len() < rows && !self.is_done()
    }

    /// Up to where it is known which rows there are; none if up to its end.
    fn horizon(&self) -> Option<&Position> {
        self.lacks(1).then_some(&self.frontier)
    }

    /// Reads until a row is at hand or the budget is spent; at least one step.
    async fn fill(&mut self, reads: &Reads<'_>, share: usize) -> Result<(), CatalogError> {
        let rows = self.low_water.max(1);
        while self.lacks(rows) {
            self.step(reads, share).await?;
            if reads.is_spent() {
                break;
            }
        }
        Ok(())
    }

    async fn step(&mut self, reads: &Reads<'_>, share: usize) -> Result<(), CatalogError> {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => match self.open_next(share) {
                Some(open) => open,
                None => return Ok(()),
            },
        };
        let (is_exact, is_wide) = (open.piece.is_exact, open.is_wide);
        let at_once = match is_exact {
            true => share,
            false => self.pace.items_for(share.saturating_sub(self.buffer.len()).max(1)).min(open.at_once),
        };
        let batch = open.cursor.read_on(reads, at_once).await?;
        let (before, read) = (self.buffer.len(), batch.rows.len());
        let ends = self.take(&open, batch.rows)?;
        let wanted = self.buffer.len() - before;
        self.low_water = if at_once > share { wanted.min(share) / 2 } else { 0 };
        match batch.reached {
            Reached::End => {
                self.look = None;
                if is_wide {
                    self.planned.clear();
                }
                self.frontier = Position::From(open.piece.range.high);
            }
            Reached::Key(key) => {
                self.frontier = Position::After(key.clone());
                if is_wide {
                    self.go_on_over_gaps(open, read - wanted);
                    return Ok(());
                }
                self.open = Some(open);
                if !is_exact {
                    self.go_on(&key, ends);
                }
            }
        }
        Ok(())
    }

    fn open_next(&mut self, share: usize) -> Option<Open> {
        loop {
            let Some(piece) = self.pieces.pop_front() else {
                self.drop_passed();
                if let Some(open) = self.open_over_gaps() {
                    return Some(open);
                }
                self.gaps.apart = self.gaps.apart.saturating_sub(1);
                self.pieces.push_back(self.planned.pop_front()?);
                continue;
            };
            let Some(stretch) = self.frontier.rest(self.epoch, self.shard, &piece.range) else { continue };
            let at_once = match piece.step {
                Step::Share => share,
                Step::Some => FIRST_STEP_ITEMS,
                Step::One => 1,
            };
            // Also one that a jump has left.
            self.is_at_group |= piece.step == Step::One;
            return Some(Open { cursor: self.source.open(stretch), piece, at_once, is_wide: false });
        }
    }

    /// Planned pieces that lie before the frontier; answers how many.
    fn drop_passed(&mut self) -> usize {
        let before = self.planned.len();
        while self.planned.front().is_some_and(|piece| self.frontier.rest(0, 0, &piece.range).is_none()) {
            self.planned.pop_front();
        }
        before - self.planned.len()
    }

    /// All planned pieces as one, if they are many and it is not known that there are more rows between them.
    fn open_over_gaps(&mut self) -> Option<Open> {
        if self.planned.len() < MANY_RANGES || self.gaps.apart > 0 || self.guide.is_none() {
            return None;
        }
        let (first, last) = (self.planned.front()?, self.planned.back()?);
        let range = KeyRange { low: first.range.low.clone(), high: last.range.high.clone() };
        let stretch = self.frontier.rest(self.epoch, self.shard, &range)?;
        self.gaps.begin();
        let piece = Piece { range, is_exact: false, step: Step::Some };
        Some(Open { cursor: self.source.open(stretch), piece, at_once: self.gaps.left(), is_wide: true })
    }

    /// Decides whether to read on over the gaps between planned pieces.
    fn go_on_over_gaps(&mut self, mut open: Open, in_vain: usize) {
        let spared = self.drop_passed();
        if self.gaps.count(in_vain, spared) && !self.planned.is_empty() {
            open.at_once = self.gaps.left().max(FIRST_STEP_ITEMS);
            self.open = Some(open);
        }
    }

    /// Keeps the rows that are wanted. Where they had to be judged, answers what the first and the last of them say.
    fn take(&mut self, Open { piece, is_wide, .. }: &Open, rows: Vec<LateRow>) -> Result<Option<Ends>, CatalogError> {
        let Some(guide) = self.guide.filter(|_| !piece.is_exact) else {
            for row in rows {
                self.buffer.push_back(row.decode()?);
            }
            return Ok(None);
        };
        let (judged, before) = (rows.len(), self.buffer.len());
        let mut looks = if *is_wide { 0 } else { LOOKS_PER_STEP };
        let mut ends: Option<Ends> = None;
        for (at, row) in rows.into_iter().enumerate() {
            let texts = row.values()?;
            let is_wanted = guide.filter.evaluate(&texts)?;
            let values = || -> Vec<String> { texts.iter().map(|text| (*text).to_owned()).collect() };
            if self.look.as_mut().is_some_and(|look| !look.count(&row.key)) {
                self.end_look();
            }
            if self.look.is_none() && looks > 0 {
                looks -= 1;
                let refined = guide.refine(&row.key, &values(), &piece.range);
                self.look = refined.map(|refined| Look::new(refined, self.is_at_group));
            }
            self.is_at_group = false;
            match &mut ends {
                None => {
                    ends = Some(Ends { first: values(), middle: values(), last: values(), rows: judged });
                }
                Some(ends) if at == judged / 2 => (ends.middle, ends.last) = (values(), values()),
                Some(ends) if at + 1 == judged => ends.last = values(),
                Some(_) => {}
            }
            if is_wanted {
                self.buffer.push_back(row.decode()?);
            }
        }
        self.pace.judged(judged, self.buffer.len() - before);
        Ok(ends)
    }

    fn end_look(&mut self) {
        if let Some(look) = self.look.take() {
            self.pace.group_ended(&look);
        }
        self.is_at_group = true;
    }

    /// Decides how to read behind `key`.
    fn go_on(&mut self, key: &[u8], ends: Option<Ends>) {
        let Some(open) = &mut self.open else { return };
        let refined = match (self.guide, &ends) {
            (Some(guide), Some(ends)) => guide.refine(key, &ends.last, &open.piece.range),
            _ => None,
        };
        if let (Some(Refined { leading, .. }), Some(ends)) = (&refined, ends.filter(|ends| ends.rows >= TELLING_ITEMS))
        {
            // Many of them in one of those parts of the group of which a jump skips several.
            self.looks_far = ends.have_in_common(leading + 1);
        }
        let can_jump = refined.is_some();
        match refined {
            Some(refined) if self.pace.jumps(self.look.as_mut(), self.looks_far) => {
                self.open = None;
                refined.pieces.into_iter().rev().for_each(|piece| self.pieces.push_front(piece));
                self.look = None;
            }
            _ => {
                let look = self.look.as_ref().filter(|_| can_jump);
                open.at_once = self.pace.next_step(look, open.at_once);
            }
        }
    }
}

/// Several lanes as one, in order of their keys.
pub(super) struct Merge<'a> {
    lanes: Vec<Lane<'a>>,
}

impl<'a> Merge<'a> {
    pub(super) fn new(lanes: Vec<Lane<'a>>) -> Self {
        Self { lanes }
    }

    /// Makes the next row known to [`Merge::peek`], unless the budget ends first. `share`: items to read of each lane.
    pub(super) async fn fill(&mut self, reads: &Reads<'_>, share: usize) -> Result<(), CatalogError> {
        if self.lanes.iter().any(|lane| lane.lacks(1)) {
            let lanes = self.lanes.iter_mut().filter(|lane| lane.lacks(lane.low_water.max(1)));
            futures::future::try_join_all(lanes.map(|lane| lane.fill(reads, share))).await?;
        }
        Ok(())
    }

    /// Up to where all rows are known; none if there is nothing left to read before the next one.
    pub(super) fn horizon(&self) -> Option<&Position> {
        self.lanes.iter().filter_map(Lane::horizon).min()
    }

    fn first(&self) -> Option<usize> {
        let fronts = self.lanes.iter().enumerate().filter_map(|(at, lane)| Some((&lane.buffer.front()?.key, at)));
        fronts.min().map(|(_, at)| at)
    }

    pub(super) fn peek(&self) -> Option<&Row> {
        self.lanes.get(self.first()?)?.buffer.front()
    }

    pub(super) fn pop(&mut self) -> Option<Row> {
        let at = self.first()?;
        self.lanes.get_mut(at)?.buffer.pop_front()
    }
}

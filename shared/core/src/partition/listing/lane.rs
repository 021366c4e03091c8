//! Going through one shard: which stretches of it are read, in which steps, and which of their rows are wanted.
//!
//! A lane works off pieces of the key range, in order. In a piece whose rows are all wanted it reads on. In any other the
//! last row of every step tells, with its leading values fixed, where the next wanted row can be at the earliest
//! ([`Guide::refine`]); what lies between is jumped over. So a leading key that the filter leaves free costs two requests
//! for each of its values instead of all rows with them. A page that has jumped often enough reads large steps instead.

use std::collections::VecDeque;

use super::guide::{Guide, Piece, Step};
use super::position::Position;
use super::source::{Cursor, Reached, Reads, Row, Source};
use crate::catalog::CatalogError;
use crate::partition::index_item::values_of;

/// Items of the largest steps. A request also ends at 1 MB.
const STEP_MAX_ITEMS: usize = 2000;
/// Items of the first step of a piece of which some rows are not wanted.
const FIRST_STEP_ITEMS: usize = 24;
/// Requests of one page after which it jumps no more.
const JUMPS_END_AT_QUERIES: u64 = 512;
/// How much larger a step may be than the one before.
const GROWTH: usize = 4;

pub(super) struct Lane<'a> {
    source: &'a dyn Source,
    guide: Option<&'a Guide<'a>>,
    epoch: u32,
    shard: u16,
    pieces: VecDeque<Piece>,
    open: Option<Open>,
    buffer: VecDeque<Row>,
    /// All rows before it are in the buffer or were taken from it.
    frontier: Position,
    /// Read on when fewer rows are at hand, if others read on anyway.
    low_water: usize,
    /// Rows judged so far, and how many of them were wanted.
    judged: (usize, usize),
}

struct Open {
    cursor: Box<dyn Cursor>,
    piece: Piece,
    /// Items of the next step, at most.
    at_once: usize,
}

impl<'a> Lane<'a> {
    pub(super) fn new(
        source: &'a dyn Source,
        guide: Option<&'a Guide<'a>>,
        (epoch, shard): (u32, u16),
        pieces: impl IntoIterator<Item = Piece>,
        start: &Position,
    ) -> Self {
        let pieces = pieces.into_iter().collect();
        let (buffer, frontier) = (VecDeque::new(), start.clone());
        Self { source, guide, epoch, shard, pieces, open: None, buffer, frontier, low_water: 0, judged: (0, 0) }
    }

    fn is_done(&self) -> bool {
        self.open.is_none() && self.pieces.is_empty()
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
        let is_exact = open.piece.is_exact;
        let at_once = if is_exact { share } else { self.items_for(share).min(open.at_once) };
        let batch = open.cursor.read_on(reads, at_once).await?;
        let before = self.buffer.len();
        let last = self.take(&open.piece, batch.rows)?;
        self.low_water = if at_once > share { (self.buffer.len() - before).min(share) / 2 } else { 0 };
        match batch.reached {
            Reached::End => self.frontier = Position::From(open.piece.range.high),
            Reached::Key(key) => {
                self.frontier = Position::After(key.clone());
                self.open = Some(open);
                if !is_exact {
                    self.go_on(reads, &key, last.as_deref());
                }
            }
        }
        Ok(())
    }

    /// Items that have so many wanted rows among them, as far as can be told from those before.
    fn items_for(&self, rows: usize) -> usize {
        match self.judged {
            (_, 0) => usize::MAX,
            (judged, wanted) => rows.saturating_mul(judged).div_ceil(wanted),
        }
    }

    fn open_next(&mut self, share: usize) -> Option<Open> {
        loop {
            let piece = self.pieces.pop_front()?;
            let Some(stretch) = self.frontier.rest(self.epoch, self.shard, &piece.range) else { continue };
            let at_once = match piece.step {
                Step::Share => share,
                Step::Some => share.min(FIRST_STEP_ITEMS),
                Step::One => 1,
            };
            return Some(Open { cursor: self.source.open(stretch), piece, at_once });
        }
    }

    /// Keeps the rows that are wanted; answers the values of the last row.
    fn take(&mut self, piece: &Piece, rows: Vec<Row>) -> Result<Option<Vec<String>>, CatalogError> {
        let Some(guide) = self.guide.filter(|_| !piece.is_exact) else {
            self.buffer.extend(rows);
            return Ok(None);
        };
        let mut last = None;
        self.judged.0 += rows.len();
        for row in rows {
            let values = values_of(&row.item)?;
            if guide.filter.evaluate(&values)? {
                self.buffer.push_back(row);
                self.judged.1 += 1;
            }
            last = Some(values);
        }
        Ok(last)
    }

    /// Decides how to read behind `key`.
    fn go_on(&mut self, reads: &Reads<'_>, key: &[u8], last: Option<&[String]>) {
        let Some(open) = &mut self.open else { return };
        let refined = match (self.guide, last) {
            (Some(guide), Some(values)) => guide.refine(key, values, &open.piece.range),
            _ => None,
        };
        let may_jump = reads.queries() < JUMPS_END_AT_QUERIES;
        match refined {
            None => open.at_once = open.at_once.saturating_mul(GROWTH).min(STEP_MAX_ITEMS),
            Some(pieces) if may_jump => {
                self.open = None;
                pieces.into_iter().rev().for_each(|piece| self.pieces.push_front(piece));
            }
            Some(pieces) => {
                open.at_once = STEP_MAX_ITEMS;
                match pieces.first() {
                    Some(first) if first.range.low.as_slice() > key => open.cursor.seek(&first.range.low),
                    Some(_) => {}
                    None => self.open = None,
                }
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

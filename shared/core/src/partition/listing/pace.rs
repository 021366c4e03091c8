//! Whether the lanes of a page read on or jump, where rows that are not wanted follow.
//!
//! A jump goes to the end of a group of rows with the same leading values, by way of what is wanted of it. It costs a
//! request for each of those pieces and one for the first row behind the group; to read the group costs its rows, in large
//! requests. So the number of rows that would be skipped decides, and nobody knows that before they have been read. Lanes
//! therefore [look](Look): they read a group until as many rows were read in vain as the jump is worth, and jump when it
//! goes on. No group costs much more than twice what it had to. What one lane learns all use, as partitions are dealt
//! to shards at random:
//!
//! - A group that was read as a whole and is small ([`Regime::Near`]): all read on, in large steps.
//! - Large groups ([`Regime::Far`]): all jump at once, four times as often with every large group in a row, up to
//!   [`FREE_MAX`]; then one of them looks again.
//! - As long as nothing is known, rows tell by their values whether there are many of what would be skipped (months,
//!   where the month is narrowed). If so each lane may jump a few times before it looks.
//!
//! So a page reads and asks at most about twice of what would have been enough, reading everything in its ranges or
//! jumping wherever it can, whichever is less, and some requests for each shard.

use std::sync::Mutex;

use super::guide::Refined;
use crate::catalog::lock;
use crate::predicate::KeyRange;

/// Rows that cost about as much as a request.
pub(super) const REQUEST_ITEMS: usize = 100;
/// Jumps between two looks.
const FREE_MAX: u32 = 32;
/// Jumps of each lane before anything is known.
const GRACE_PER_LANE: u32 = 2;
/// Items of the first step where rows may not be wanted: about what a query reads for the price of one.
pub(super) const FIRST_STEP_ITEMS: usize = 24;
/// Items of the largest steps. A request also ends at 1 MB.
const STEP_MAX_ITEMS: usize = 2000;
/// How much larger a step may be than the one before, as long as too few rows were wanted to tell how many are.
const GROWTH: usize = 4;
const WANTED_TO_TELL: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Regime {
    Unknown,
    Near,
    Far {
        /// Large groups in a row.
        times: u32,
        /// Jumps until the next look.
        free: u32,
    },
}

impl Regime {
    fn after_large_group(self) -> Self {
        let times = if let Self::Far { times, .. } = self { times.saturating_add(1) } else { 1 };
        Self::Far { times, free: 4_u32.saturating_pow(times - 1).min(FREE_MAX) }
    }
}

/// A group that is read although it could be jumped over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Look {
    end: Vec<u8>,
    /// What a jump would read of it.
    pieces: Vec<KeyRange>,
    /// Rows that a jump would skip, of those read so far.
    skipped: usize,
    is_whole: bool,
    /// Whether others rely on what it finds.
    is_relied_on: bool,
}

impl Look {
    /// `is_whole`: nothing of the group lies before.
    pub(super) fn new(refined: Refined, is_whole: bool) -> Self {
        let pieces = refined.pieces.into_iter().map(|piece| piece.range).filter(|range| range.low < refined.end);
        Self { pieces: pieces.collect(), end: refined.end, skipped: 0, is_whole, is_relied_on: false }
    }

    /// Rows that a jump is worth: it asks for each piece, and for what comes behind the group.
    fn worth_items(&self) -> usize {
        (self.pieces.len() + 1) * REQUEST_ITEMS
    }

    fn is_large(&self) -> bool {
        self.skipped >= self.worth_items()
    }

    /// Counts a row of the group; `false` if it lies behind.
    pub(super) fn count(&mut self, key: &[u8]) -> bool {
        let is_in = key < self.end.as_slice();
        if is_in && !self.pieces.iter().any(|piece| piece.contains(key)) {
            self.skipped += 1;
        }
        is_in
    }
}

#[derive(Debug)]
struct State {
    regime: Regime,
    /// Jumps before anything is known.
    grace: u32,
    judged: usize,
    wanted: usize,
    /// Lanes that may jump while one looks.
    others: u32,
}

/// What all lanes of a page know.
#[derive(Debug)]
pub(super) struct Pace(Mutex<State>);

impl Pace {
    pub(super) fn new(lanes: usize) -> Self {
        let lanes = u32::try_from(lanes).unwrap_or(u32::MAX);
        let (grace, others) = (GRACE_PER_LANE.saturating_mul(lanes), lanes.saturating_sub(1));
        Self(Mutex::new(State { regime: Regime::Unknown, grace, judged: 0, wanted: 0, others }))
    }

    /// So many rows were judged, and so many of them wanted.
    pub(super) fn judged(&self, rows: usize, wanted: usize) {
        let mut state = lock(&self.0);
        state.judged += rows;
        state.wanted += wanted;
    }

    /// A group was read to its end.
    pub(super) fn group_ended(&self, look: &Look) {
        let mut state = lock(&self.0);
        if look.is_large() {
            state.regime = state.regime.after_large_group();
        } else if look.is_whole {
            state.regime = Regime::Near;
        }
    }

    /// Items that have so many wanted ones among them, as far as can be told.
    pub(super) fn items_for(&self, rows: usize) -> usize {
        let State { judged, wanted, .. } = *lock(&self.0);
        if wanted == 0 { usize::MAX } else { rows.saturating_mul(judged).div_ceil(wanted) }
    }

    /// Whether a lane that can jump here does so. `looks_far`: by the values of the rows. If none of its jumps is left
    /// this one goes on looking, and each of the others may jump once more meanwhile.
    pub(super) fn jumps(&self, look: Option<&mut Look>, looks_far: bool) -> bool {
        let mut state = lock(&self.0);
        let Some(look) = look else { return false };
        if look.is_large() {
            state.regime = state.regime.after_large_group();
            return true;
        }
        if look.is_relied_on {
            return false;
        }
        let others = state.others;
        let left = match &mut state.regime {
            Regime::Far { free, .. } => free,
            Regime::Unknown if looks_far => &mut state.grace,
            _ => return false,
        };
        look.is_relied_on = *left == 0;
        *left = left.checked_sub(1).unwrap_or(others);
        !look.is_relied_on
    }

    /// Items of the next step of a lane that reads on after one of `before` items, at a group that it could jump over.
    pub(super) fn next_step(&self, look: Option<&Look>, before: usize) -> usize {
        let state = lock(&self.0);
        match look {
            Some(look) if state.regime != Regime::Near => {
                // Some of them are wanted.
                (look.worth_items().saturating_sub(look.skipped) + FIRST_STEP_ITEMS).min(STEP_MAX_ITEMS)
            }
            _ if state.wanted >= WANTED_TO_TELL => STEP_MAX_ITEMS,
            _ => before.max(FIRST_STEP_ITEMS).saturating_mul(GROWTH).min(STEP_MAX_ITEMS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::listing::guide::{Piece, Step};

    /// At a group of keys below 200, of which those from 50 to 59 are wanted.
    fn look(is_whole: bool) -> Look {
        let piece = |low: u8, high: u8| Piece {
            range: KeyRange { low: vec![low], high: vec![high] },
            is_exact: true,
            step: Step::Share,
        };
        let refined = Refined { pieces: vec![piece(50, 60), piece(200, 255)], leading: 1, end: vec![200] };
        Look::new(refined, is_whole)
    }

    fn large() -> Look {
        Look { skipped: 2 * REQUEST_ITEMS, ..look(false) }
    }

    #[test]
    fn what_a_jump_would_skip_is_counted() {
        let mut look = look(true);
        let read = (0..=255).take_while(|key| look.count(&[*key])).count();
        assert_eq!((read, look.skipped, look.worth_items()), (200, 190, 200));
        assert!(!look.is_large() && large().is_large());
    }

    /// Whether one lane after the other jumps that cannot tell how large the group is.
    fn jumps(pace: &Pace, looks_far: bool) -> bool {
        pace.jumps(Some(&mut look(true)), looks_far)
    }

    #[test]
    fn large_groups_are_jumped_over_without_a_look_more_and_more_often() {
        let pace = Pace::new(1);
        let mut looks = Vec::new();
        for jump in 0..120 {
            if !jumps(&pace, false) {
                looks.push(jump);
                assert_eq!(pace.next_step(Some(&look(false)), 1), 2 * REQUEST_ITEMS + FIRST_STEP_ITEMS);
                assert!(pace.jumps(Some(&mut large()), false));
            }
        }
        assert_eq!(looks, [0, 2, 7, 24, 57, 90]);
        pace.group_ended(&look(false));
        assert!(jumps(&pace, false), "a part of a group tells nothing if it is small");
        pace.group_ended(&look(true));
        assert!(!jumps(&pace, true));
        pace.group_ended(&large());
        assert!(jumps(&pace, false) && !jumps(&pace, false), "as if it were the first");
    }

    #[test]
    fn where_it_looks_far_each_lane_has_some_jumps_for_free() {
        let pace = Pace::new(4);
        assert!(!jumps(&pace, false));
        assert_eq!((0..20).filter(|_| jumps(&pace, true)).count(), 8 + 3 + 3 + 3, "one of four looks");
    }

    #[test]
    fn a_lane_on_which_others_rely_looks_to_the_end() {
        let pace = Pace::new(4);
        let mut relied_on = look(true);
        assert_eq!((0..9).filter(|_| pace.jumps(Some(&mut relied_on), true)).count(), 8);
        assert!(!pace.jumps(Some(&mut relied_on), true) && jumps(&pace, true));
        relied_on.skipped = 2 * REQUEST_ITEMS;
        assert!(pace.jumps(Some(&mut relied_on), true));
    }

    #[test]
    fn steps_are_as_large_as_the_page_needs() {
        let pace = Pace::new(1);
        assert_eq!(pace.items_for(10), usize::MAX);
        assert_eq!(pace.next_step(None, 24), 96);
        pace.judged(96, 8);
        pace.group_ended(&look(true));
        assert_eq!((pace.next_step(Some(&look(true)), 24), pace.items_for(10)), (STEP_MAX_ITEMS, 120));
    }
}

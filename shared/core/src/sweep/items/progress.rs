//! How far a run has come: what the next worker goes on from.

use serde::{Deserialize, Serialize};

use crate::sweep::items::Tally;
use crate::sweep::ranges::KeyRange;

/// What a run is at. Each stage needs all that came before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Reads what the tables need.
    #[default]
    Loading,
    /// Lists the table's location for the first time.
    Surveying,
    /// Lists the scope and decides on every object.
    Judging,
    Deleting,
}

impl Stage {
    pub fn as_str(self) -> &'static str {
        match self {
            Stage::Loading => "loading",
            Stage::Surveying => "surveying",
            Stage::Judging => "judging",
            Stage::Deleting => "deleting",
        }
    }
}

/// Parts on S3 that one attempt wrote, numbered from 0. Only those that a saved record counts are read: what a worker
/// wrote after that is written again by the next one, under its own number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    pub attempt: i64,
    pub parts: i64,
}

/// Parts of several attempts, in the order in which they were written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Segments(Vec<Segment>);

impl Segments {
    /// Number of the next part of an attempt, which counts from now on.
    pub fn add(&mut self, attempt: i64) -> i64 {
        match self.0.last_mut() {
            Some(last) if last.attempt == attempt => {
                let number = last.parts;
                last.parts = number.saturating_add(1);
                number
            }
            _ => {
                self.0.push(Segment { attempt, parts: 1 });
                0
            }
        }
    }

    /// Takes over what an earlier layout said: one attempt with so many parts.
    pub fn of(attempt: i64, parts: i64) -> Self {
        Self(if parts > 0 { vec![Segment { attempt, parts }] } else { Vec::new() })
    }

    pub fn total(&self) -> i64 {
        self.0.iter().map(|segment| segment.parts).fold(0, i64::saturating_add)
    }

    /// Attempt and number of a part, counted over all attempts.
    pub fn find(&self, index: i64) -> Option<(i64, i64)> {
        let mut left = index;
        for segment in &self.0 {
            if (0..segment.parts).contains(&left) {
                return Some((segment.attempt, left));
            }
            left = left.saturating_sub(segment.parts);
        }
        None
    }
}

/// How far a run is, to be looked at. Nothing goes on from this.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Live {
    pub stage: Stage,
    pub at_ms: i64,
    /// Objects of this stage that are done with, and how many there will be, where that is known.
    pub done: u64,
    pub total: Option<u64>,
    pub listed: u64,
    pub referenced: u64,
    /// Objects that nothing needs, and their bytes.
    pub candidates: u64,
    pub candidates_bytes: u64,
}

/// Objects below one folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Folder {
    pub kept: Tally,
    pub not_needed: Tally,
}

/// What a later attempt needs in order to go on. Names are those of objects below the run's folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    pub stage: Stage,
    /// Ages are counted to this moment in every slice of the run: waiting makes no file older.
    pub began_ms: i64,
    /// When the listing began that what is known rests on.
    pub surveyed_ms: i64,
    /// The reference filter, and what every table said that it was built from. Nothing to go on from without it.
    pub filter: Option<String>,
    /// What the first listing showed.
    pub notes: Option<String>,
    /// What was seen of files so far, for later runs.
    pub seen: Option<String>,
    /// Objects by folder so far, for the page.
    pub folders: Option<String>,
    /// Objects of the first listing so far, or all of them.
    pub surveyed: u64,
    /// The ranges of this stage's listing, and how far each is listed.
    pub ranges: Vec<KeyRange>,
    pub listed: u64,
    /// Orphans, also those that are seen for the first time.
    pub found: u64,
    pub found_bytes: u64,
    /// Orphans that are to be deleted, in parts.
    pub orphans: Segments,
    /// Parts that are done with, and lines of the next one.
    pub parts_done: i64,
    pub lines_done: i64,
    /// Of a run that was never stored: the attempt that wrote down which orphans are to go. `lines_done` counts in that list.
    pub intended: Option<i64>,
    /// How often everything was gathered anew since something was last deleted.
    pub restarts: i64,
    /// The last file in quarantine that was looked at.
    pub tended: Option<String>,
    /// Of a run that restores: how far it is.
    pub restoring: Option<RestoreCursor>,
}

/// How far a run that restores is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RestoreCursor {
    /// The run whose report is being read, the part of it, and the lines of that which are done with.
    pub run: Option<String>,
    pub part: i64,
    pub lines: i64,
    /// What no report names is left, from behind this file in quarantine.
    pub are_reports_done: bool,
    pub listed: Option<String>,
    /// What is behind delete markers that no report names is left, from behind this version of this file.
    pub is_quarantine_done: bool,
    pub version: Option<(String, Option<String>)>,
}

impl Progress {
    /// Whether there is anything to go on from.
    pub fn is_stored(&self) -> bool {
        self.filter.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found_over_all_attempts() {
        let mut segments = Segments::of(2, 2);
        assert_eq!((segments.add(3), segments.add(3), segments.add(7)), (0, 1, 0));
        assert_eq!(segments.total(), 5);
        let found: Vec<_> = (-1..6).map(|index| segments.find(index)).collect();
        let expected = [None, Some((2, 0)), Some((2, 1)), Some((3, 0)), Some((3, 1)), Some((7, 0)), None];
        assert_eq!(found, expected);
        assert_eq!(Segments::of(1, 0), Segments::default());
        let text = serde_json::to_string(&segments).unwrap();
        assert_eq!(serde_json::from_str::<Segments>(&text).unwrap(), segments);
    }
}

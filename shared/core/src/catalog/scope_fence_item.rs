//! Item: sweeps are about to delete batches of files in a bucket. `catalog`, pk `location-fence#<bucket>`, sk `fence`; one
//! for all sweeps of the bucket, since whoever is about to lie there asks for it by the bucket alone. There only while a
//! batch is on its way.

use serde::{Deserialize, Serialize};

use super::Revision;
use crate::location::Location;
use crate::store::{DecodeError, Fields, Item, Key, Table, Value};

const SCHEMA_VERSION: i64 = 1;

/// Attributes that conditions look at: when the last fence runs out, and the run that has the only one.
pub(super) const EXPIRES_AT_MS: &str = "expires_at_ms";
pub(super) const ONLY_RUN: &str = "only_run";

/// A run deletes a batch of files inside `scope`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeFence {
    pub scope: Location,
    pub run_id: String,
    /// From then on it counts no more, whether it was taken away or not.
    pub expires_at_ms: i64,
}

impl ScopeFence {
    /// Whether files at `place` may be among those that go.
    pub(super) fn concerns(&self, place: &Location) -> bool {
        self.scope.contains(place) || place.contains(&self.scope)
    }
}

/// All fences of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ScopeFences {
    pub(super) fences: Vec<ScopeFence>,
    pub(super) revision: Revision,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    prefix: String,
    run_id: String,
    expires_at_ms: i64,
}

pub(super) fn key(bucket: &str) -> Key {
    Key::new(Table::Catalog, format!("location-fence#{bucket}"), "fence")
}

pub(super) fn encode(all: &ScopeFences) -> Result<Item, serde_json::Error> {
    let stored = |fence: &ScopeFence| Stored {
        prefix: fence.scope.prefix.clone(),
        run_id: fence.run_id.clone(),
        expires_at_ms: fence.expires_at_ms,
    };
    let fences: Vec<Stored> = all.fences.iter().map(stored).collect();
    let last_ms = all.fences.iter().map(|fence| fence.expires_at_ms).max().unwrap_or(0);
    let mut item = Item::from([
        ("schema_version".to_owned(), Value::Int(SCHEMA_VERSION)),
        (EXPIRES_AT_MS.to_owned(), Value::Int(last_ms)),
        ("fences".to_owned(), serde_json::to_string(&fences)?.into()),
        ("revision".to_owned(), (&all.revision).into()),
    ]);
    if let [only] = all.fences.as_slice() {
        item.insert(ONLY_RUN.to_owned(), only.run_id.as_str().into());
    }
    Ok(item)
}

pub(super) fn decode(bucket: &str, item: &Item) -> Result<ScopeFences, DecodeError> {
    item.check_layout(SCHEMA_VERSION)?;
    let stored: Vec<Stored> = serde_json::from_str(item.text("fences")?)
        .map_err(|error| DecodeError::Invalid { field: "fences".to_owned(), message: error.to_string() })?;
    let fence = |stored: Stored| ScopeFence {
        scope: Location { bucket: bucket.to_owned(), prefix: stored.prefix },
        run_id: stored.run_id,
        expires_at_ms: stored.expires_at_ms,
    };
    Ok(ScopeFences {
        fences: stored.into_iter().map(fence).collect(),
        revision: Revision::from_text(item.text("revision")?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fence(prefix: &str, run_id: &str, expires_at_ms: i64) -> ScopeFence {
        ScopeFence { scope: Location::new("b", prefix), run_id: run_id.to_owned(), expires_at_ms }
    }

    #[test]
    fn fences_come_back_and_name_the_only_one() {
        let one = ScopeFences { fences: vec![fence("wh/ü", "r1", 5)], revision: Revision::from_text("x") };
        let two = ScopeFences { fences: vec![fence("", "r1", 5), fence("a", "r2", 9)], ..one.clone() };
        for (all, last_ms, only) in [(one, 5, Some("r1")), (two, 9, None)] {
            let item = encode(&all).unwrap();
            assert_eq!(decode("b", &item).unwrap(), all);
            assert_eq!((item.int(EXPIRES_AT_MS), item.opt_text(ONLY_RUN)), (Ok(last_ms), Ok(only)));
        }
        assert!(decode("b", &Item::from([("schema_version".to_owned(), Value::Int(1))])).is_err());
    }

    #[test]
    fn what_lies_inside_and_around_is_concerned() {
        let fence = fence("wh/t", "r", 1);
        for (prefix, concerned) in [("wh/t", true), ("wh/t/data", true), ("wh", true), ("", true), ("wh/t2", false)] {
            assert_eq!(fence.concerns(&Location::new("b", prefix)), concerned, "{prefix}");
        }
        assert!(!fence.concerns(&Location::new("c", "wh/t")));
    }
}

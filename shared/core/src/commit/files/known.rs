//! Files that a commit adds although the table has them: under another deletion vector, or with other statistics.
//!
//! Their rows were judged when they came. What the commit says of them is new: readers go by the statistics of the last
//! add, so these must be as true as those of a new file.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::commit::candidate::Candidate;
use crate::commit::facts::{AtRead, FileFacts};
use crate::delta::AddFile;
use crate::delta::json::parse_strict;
use crate::store::ObjectKey;

/// What a commit says of a file that the table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing that the log does not say already.
    Unchanged,
    /// Statistics that only the file itself can prove.
    Restated,
}

/// The added files that are live, or were when the table was read.
pub fn known_files(candidate: &Candidate, files: Option<&FileFacts>) -> BTreeMap<ObjectKey, Standing> {
    let Some(files) = files else { return BTreeMap::new() };
    let adds = candidate.actions.adds.iter().zip(&candidate.add_keys);
    adds.filter_map(|(add, key)| {
        let mut live: Vec<&AddFile> = files.live(key).into_iter().map(|(_, live)| live).collect();
        if let (true, AtRead::Live(at_read)) = (live.is_empty(), files.at_read(key)) {
            live = at_read;
        }
        let (first, _) = live.split_first()?;
        let standing = if says_more(first.stats.as_deref(), add.stats.as_deref()) {
            Standing::Restated
        } else {
            Standing::Unchanged
        };
        Some((key.clone(), standing))
    })
    .collect()
}

/// Whether statistics say anything that they did not say before. What is left out, or only called wide, is nothing new.
fn says_more(before: Option<&str>, now: Option<&str>) -> bool {
    let Some(now) = now.filter(|text| !text.trim().is_empty()) else { return false };
    let members = |text: &str| match parse_strict(text) {
        Ok(Value::Object(members)) => Some(members),
        _ => None,
    };
    let Some(now) = members(now) else { return true };
    let before = before.and_then(members).unwrap_or_default();
    let is_wide = |members: &Map<String, Value>| members.get("tightBounds") == Some(&Value::Bool(false));
    if is_wide(&before) && !is_wide(&now) {
        return true;
    }
    ["numRecords", "nullCount", "minValues", "maxValues"]
        .iter()
        .any(|name| now.get(*name).is_some_and(|value| !is_said(value, before.get(*name))))
}

fn is_said(now: &Value, before: Option<&Value>) -> bool {
    match (now, before) {
        (Value::Null, _) => true,
        (Value::Object(now), Some(Value::Object(before))) => {
            now.iter().all(|(name, value)| is_said(value, before.get(name)))
        }
        (now, before) => before == Some(now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn statistics_that_were_there_are_nothing_new() {
        let before = json!({"numRecords": 3, "minValues": {"a": 1, "s": {"x": "b"}}, "nullCount": {"a": 0}});
        let wide = json!({"numRecords": 3, "minValues": {"a": 1}, "tightBounds": false});
        for (before, now, expected) in [
            (&before, json!({}), false),
            (&before, before.clone(), false),
            (&before, json!({"numRecords": 3, "minValues": {"s": {"x": "b"}}, "tightBounds": false}), false),
            (&before, json!({"maxValues": null, "minValues": {"a": null}}), false),
            (&before, json!({"minValues": {"a": 2}}), true),
            (&before, json!({"maxValues": {"a": 2}}), true),
            (&before, json!({"minValues": {"s": {"x": "a"}}}), true),
            (&before, json!({"minValues": {"s": 1}}), true),
            (&before, json!({"nullCount": {"a": 3}}), true),
            (&before, json!([]), true),
            (&wide, json!({"minValues": {"a": 1}}), true),
            (&wide, wide.clone(), false),
        ] {
            assert_eq!(says_more(Some(&before.to_string()), Some(&now.to_string())), expected, "{before} {now}");
        }
        assert!(!says_more(None, None));
        assert!(!says_more(None, Some(" ")));
        assert!(says_more(None, Some("{\"numRecords\":1}")));
        assert!(says_more(Some("rubbish"), Some("{\"numRecords\":1}")));
        assert!(says_more(None, Some("{")));
    }
}

//! Logs that real writers wrote, commit by commit: as they are, they pass every check that needs no file; damaged in any
//! way, they are refused by name or still name nothing outside the table.

use std::sync::LazyLock;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::Value;

use crate::commit::candidate::Candidate;
use crate::commit::facts::FileFacts;
use crate::commit::sanity;
use crate::commit::table_facts::{FileValues, TableFacts};
use crate::commit::verdict::Refusal;
use crate::delta::schema::Schema;
use crate::delta::snapshot::{self, Snapshot};
use crate::delta::testkit::TableKit;
use crate::delta::{Version, features};
use crate::location::Location;

/// Created, appended to, deleted from, updated, merged into, compacted: deltalake 1.6.6 without and pysail 0.7.2 with
/// deletion vectors.
const LOGS: [&str; 2] = [include_str!("real/delta-rs.jsonl"), include_str!("real/sail.jsonl")];

/// A commit and the table before it.
struct Recorded {
    version: Version,
    text: &'static str,
    before: Option<Snapshot>,
}

static RECORDED: LazyLock<Vec<Recorded>> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LOGS.iter().flat_map(|log| runtime.block_on(replay(log))).collect()
});

async fn replay(log: &'static str) -> Vec<Recorded> {
    let kit = TableKit::new().await;
    let mut found = Vec::new();
    for (text, version) in log.split("\n\n").zip(0..) {
        let before = match version {
            0 => None,
            _ => Some(snapshot::load(&*kit.world.ports.objects, &kit.root, None).await.unwrap()),
        };
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        kit.log(version, &lines).await;
        found.push(Recorded { version: Version(version), text, before });
    }
    found
}

fn root() -> Location {
    Location::new("lake", "wh/t")
}

/// Every check that reads nothing.
fn check(recorded: &Recorded, bytes: Bytes) -> Result<Candidate, Refusal> {
    let candidate = Candidate::parse(&root(), recorded.version, bytes)?;
    let before = recorded.before.as_ref();
    let metadata = candidate.actions.metadata.as_ref().or(before.map(|before| &before.metadata));
    let protocol = candidate.actions.protocol.as_ref().or(before.map(|before| &before.protocol));
    let (Some(metadata), Some(protocol)) = (metadata, protocol) else {
        return Err(Refusal::invalid("NO_TABLE", "no table"));
    };
    let schema =
        Schema::parse(&metadata.schema_string).map_err(|error| crate::commit::evolution::bad_schema(&error))?;
    sanity::check_append_only(&candidate, metadata)?;
    sanity::check_added_files(&candidate, metadata, &schema)?;
    let files =
        before.map(|before| FileFacts::of_snapshots(sanity::needed_files(&candidate, None), Some(before), before));
    if let Some(files) = &files {
        sanity::check_live_files(&candidate, files, &Default::default())?;
    }
    let vectors_on = features::has_deletion_vectors_on(protocol, metadata);
    sanity::check_deletion_vectors(&candidate, vectors_on, files.as_ref())?;
    let root = root();
    let table = TableFacts { root: &root, metadata, schema: &schema, has_deletion_vectors: vectors_on };
    for add in before.into_iter().flat_map(|before| before.live.values()).chain(&candidate.actions.adds) {
        let values = FileValues { partition_values: Some(&add.partition_values), stats: add.stats.as_deref() };
        let _ = candidate.reads.touches(table, values);
    }
    Ok(candidate)
}

#[test]
fn what_real_writers_write_passes_and_what_they_removed_counts_as_read() {
    assert_eq!(RECORDED.len(), 11);
    for recorded in RECORDED.iter() {
        let candidate = check(recorded, Bytes::from_static(recorded.text.as_bytes())).unwrap();
        let Some(before) = &recorded.before else { continue };
        let schema = Schema::parse(&before.metadata.schema_string).unwrap();
        let root = root();
        let table =
            TableFacts { root: &root, metadata: &before.metadata, schema: &schema, has_deletion_vectors: false };
        for (key, add) in &before.live {
            let values = FileValues { partition_values: Some(&add.partition_values), stats: add.stats.as_deref() };
            let removed = candidate.removed.contains(&key.at) && !candidate.is_rearrangement();
            assert!(!removed || candidate.reads.touches(table, values).is_some(), "{}: {}", recorded.text, add.path);
        }
    }
}

#[derive(Clone, Debug)]
enum Damage {
    Flip(usize, u8),
    Cut(usize),
    Lose(usize, usize),
    Insert(usize, &'static str),
    RepeatLine(usize),
    LoseLine(usize),
    /// A line of some other commit.
    Foreign(usize),
}

const TOKENS: [&str; 26] = [
    "\"",
    "{",
    "}",
    "[",
    "]",
    ",",
    "null",
    "-1",
    "0",
    "9999999999999999999999",
    "1e999",
    "\\u0000",
    "\\ud800",
    "../",
    "%2e%2e/",
    "%00",
    "s3://x/",
    "/",
    " AND ",
    " OR 1 = 1 OR ",
    "NOT (",
    "::decimal(38,38)",
    "\u{0}",
    "\u{10ffff}",
    "\\\"",
    "''",
];

fn damages() -> impl Strategy<Value = Vec<Damage>> {
    let at = 0_usize..4_000;
    let one = prop_oneof![
        2 => (at.clone(), any::<u8>()).prop_map(|(at, byte)| Damage::Flip(at, byte)),
        1 => at.clone().prop_map(Damage::Cut),
        1 => (at.clone(), 1_usize..40).prop_map(|(at, length)| Damage::Lose(at, length)),
        4 => (at.clone(), prop::sample::select(&TOKENS[..])).prop_map(|(at, token)| Damage::Insert(at, token)),
        1 => at.clone().prop_map(Damage::RepeatLine),
        1 => at.clone().prop_map(Damage::LoseLine),
        1 => at.prop_map(Damage::Foreign),
    ];
    prop::collection::vec(one, 1..4)
}

fn damage(mut bytes: Vec<u8>, damage: &Damage) -> Vec<u8> {
    let within = |at: usize| at % bytes.len().max(1);
    let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    let line = |at: usize| at % lines.len();
    match damage {
        Damage::Flip(at, value) => {
            let at = within(*at);
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= value;
            }
            return bytes;
        }
        Damage::Cut(at) => {
            let at = within(*at);
            bytes.truncate(at);
            return bytes;
        }
        Damage::Lose(at, length) => {
            let at = within(*at);
            let end = (at + length).min(bytes.len());
            bytes.drain(at..end);
            return bytes;
        }
        Damage::Insert(at, token) => {
            let at = within(*at);
            drop(bytes.splice(at..at, token.bytes()));
            return bytes;
        }
        Damage::RepeatLine(at) => lines.push(lines[line(*at)]),
        Damage::LoseLine(at) => {
            lines.remove(line(*at));
        }
        Damage::Foreign(at) => {
            let other = RECORDED[at % RECORDED.len()].text.lines();
            lines.extend(other.skip(at % 3).take(1).map(str::as_bytes));
        }
    }
    lines.join(&b'\n')
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_commits_are_refused_or_stay_inside(index in 0_usize..11, damages in damages()) {
        let recorded = &RECORDED[index];
        let bytes = damages.iter().fold(recorded.text.as_bytes().to_vec(), damage);
        match check(recorded, Bytes::from(bytes)) {
            Err(refusal) => {
                prop_assert!(refusal.reason.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_'));
                prop_assert!(!refusal.message.is_empty() && refusal.message.len() < 10_000);
            }
            Ok(candidate) => {
                for key in candidate.add_keys.iter().chain(&candidate.remove_keys).chain(&candidate.cdc_keys) {
                    let relative = root().relative(key);
                    prop_assert!(relative.is_some_and(|inside| !inside.starts_with("_delta_log/")), "{key}");
                }
            }
        }
    }
}

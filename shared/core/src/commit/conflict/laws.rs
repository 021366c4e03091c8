//! What holds of every fold, whatever was committed.

use std::future::Future;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::Conflict;
use crate::commit::isolation::Isolation;
use crate::commit::tests::judging::{Scene, add, append, domain, info, metadata, moved, remove, txn, under};

/// Files that exist: two in each partition; the number is the first of three ids.
const FILES: [(&str, i64); 4] = [("p=x/a", 0), ("p=x/b", 10), ("p=y/c", 20), ("p=y/d", 30)];

/// What a commit does.
#[derive(Clone, Debug)]
enum Does {
    Append {
        at: usize,
    },
    /// Copy on write, or with a deletion vector.
    Change {
        at: usize,
        vector: bool,
        reads: Vec<Reads>,
    },
    Delete {
        at: usize,
        reads: Vec<Reads>,
    },
    /// Reads and appends.
    Derive {
        at: usize,
        reads: Vec<Reads>,
    },
    Move {
        at: usize,
        sorts: bool,
    },
    Refresh {
        at: usize,
    },
    Txn {
        app: u8,
        version: i64,
    },
    Domain {
        name: u8,
    },
    Property,
    Nothing,
}

#[derive(Clone, Copy, Debug)]
enum Reads {
    Partition(usize),
    Id(usize),
    /// Not understood.
    Odd,
}

impl Reads {
    fn to_json(self) -> Value {
        match self {
            Reads::Partition(at) => json!({"op": "=", "col": ["p"], "value": &FILES[at].0[2..3]}),
            Reads::Id(at) => json!({"op": "=", "col": ["id"], "value": FILES[at].1 + 1}),
            Reads::Odd => json!({"op": "rand"}),
        }
    }
}

fn declared(reads: &[Reads]) -> Value {
    let predicates: Vec<Value> = reads.iter().map(|reads| reads.to_json()).collect();
    json!({"readSet": {"v": 1, "predicates": predicates}})
}

impl Does {
    /// `tag` keeps new files and commits apart.
    fn lines(&self, scene: &Scene, tag: &str) -> Vec<Value> {
        let file = |at: usize| FILES[at];
        let new = |at: usize| add(&format!("{}/{tag}", &FILES[at].0[..3]), FILES[at].1);
        let info = |operation: &str, mut more: Value| {
            more["engineInfo"] = json!(tag);
            info(operation, more)
        };
        match self {
            Does::Append { at } => vec![new(*at), append(tag)],
            Does::Change { at, vector: false, reads } => {
                vec![remove(file(*at).0), new(*at), info("UPDATE", declared(reads))]
            }
            Does::Change { at, vector: true, reads } => {
                let (path, first) = file(*at);
                let pair = under(add(path, first), &format!("{tag:A<20}"), 1);
                vec![remove(path), pair, new(*at), info("UPDATE", declared(reads))]
            }
            Does::Delete { at, reads } => vec![remove(file(*at).0), info("DELETE", declared(reads))],
            Does::Derive { at, reads } => vec![new(*at), info("MERGE", declared(reads))],
            Does::Move { at, sorts } => {
                let by = if *sorts { "[\"id\"]" } else { "[]" };
                let info = info("OPTIMIZE", json!({"operationParameters": {"zOrderBy": by}}));
                vec![moved(remove(file(*at).0)), moved(new(*at)), info]
            }
            Does::Refresh { at } => {
                let (path, first) = file(*at);
                vec![moved(add(path, first)), info("COMPUTE STATS", json!({}))]
            }
            Does::Txn { app, version } => vec![txn(&app.to_string(), *version), new(0), append(tag)],
            Does::Domain { name } => vec![domain(&name.to_string(), tag), info("X", json!({}))],
            Does::Property => vec![metadata(scene, json!({"mine": tag})), info("SET TBLPROPERTIES", json!({}))],
            Does::Nothing => vec![info("X", json!({}))],
        }
    }

    /// The existing file that it takes away or adds once more.
    fn touched(&self) -> Option<usize> {
        match self {
            Does::Change { at, .. } | Does::Delete { at, .. } | Does::Move { at, .. } | Does::Refresh { at } => {
                Some(*at)
            }
            _ => None,
        }
    }
}

fn at() -> impl Strategy<Value = usize> {
    0..FILES.len()
}

fn reads() -> impl Strategy<Value = Vec<Reads>> {
    let one = prop_oneof![4 => at().prop_map(Reads::Partition), 6 => at().prop_map(Reads::Id), 1 => Just(Reads::Odd)];
    prop::collection::vec(one, 1..3)
}

fn does() -> impl Strategy<Value = Does> {
    prop_oneof![
        3 => data(),
        1 => (0..2_u8, 0..2_i64).prop_map(|(app, version)| Does::Txn { app, version }),
        1 => (0..2_u8).prop_map(|name| Does::Domain { name }),
        1 => Just(Does::Nothing),
        1 => at().prop_map(|at| Does::Refresh { at }),
    ]
}

/// Commits that change or move rows and nothing else.
fn data() -> impl Strategy<Value = Does> {
    prop_oneof![
        at().prop_map(|at| Does::Append { at }),
        (at(), any::<bool>(), reads()).prop_map(|(at, vector, reads)| Does::Change { at, vector, reads }),
        (at(), reads()).prop_map(|(at, reads)| Does::Delete { at, reads }),
        (at(), reads()).prop_map(|(at, reads)| Does::Derive { at, reads }),
        (at(), any::<bool>()).prop_map(|(at, sorts)| Does::Move { at, sorts }),
    ]
}

/// Winners that can follow each other: no file is taken away twice.
fn winners(each: impl Strategy<Value = Does>) -> impl Strategy<Value = Vec<Does>> {
    prop::collection::vec(each, 0..4).prop_map(|mut all| {
        let mut touched = std::collections::BTreeSet::new();
        all.retain(|does| does.touched().is_none_or(|at| touched.insert(at)));
        all
    })
}

fn scene(vectors: bool, winners: &[Does], candidate: &Does) -> Scene {
    let properties = if vectors { json!({"delta.enableDeletionVectors": "true"}) } else { json!({}) };
    let features = ["appendOnly", "deletionVectors", "domainMetadata", "invariants"];
    let mut scene = Scene::table(&["p"], &features, properties).with_files(FILES.map(|(path, first)| add(path, first)));
    for (index, winner) in winners.iter().enumerate() {
        let lines = winner.lines(&scene, &format!("w{index}"));
        scene = scene.won_by(lines);
    }
    let lines = candidate.lines(&scene, "candidate");
    scene.candidate(lines)
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

fn admits(scene: &Scene, isolation: Isolation) -> bool {
    run(scene.fold(isolation)).is_ok()
}

/// A commit that touches a file, perhaps with a deletion vector, and read something.
type Form = fn(usize, bool, Vec<Reads>) -> Does;

const LEVELS: [Isolation; 3] = [Isolation::Serializable, Isolation::WriteSerializable, Isolation::Snapshot];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn more_winners_never_admit_what_fewer_refused(
        vectors: bool, winners in winners(does()), candidate in does(), property in prop::option::of(0..4_usize),
    ) {
        let mut winners = winners;
        if let Some(place) = property {
            winners.insert(place.min(winners.len()), Does::Property);
        }
        for isolation in LEVELS {
            let mut refused = false;
            for count in 0..=winners.len() {
                let admitted = admits(&scene(vectors, &winners[..count], &candidate), isolation);
                prop_assert!(!(refused && admitted), "{count} winners under {isolation:?}");
                refused |= !admitted;
            }
        }
    }

    #[test]
    fn each_level_admits_what_a_stricter_one_admits(
        vectors: bool, winners in winners(does()), candidate in does(),
    ) {
        let scene = scene(vectors, &winners, &candidate);
        let [strict, middle, mild] = LEVELS.map(|isolation| admits(&scene, isolation));
        prop_assert!((!strict || middle) && (!middle || mild), "{strict} {middle} {mild}");
    }

    #[test]
    fn blind_appends_never_conflict_with_changes_of_data(
        vectors: bool, winners in winners(data()), at in at(),
    ) {
        let scene = scene(vectors, &winners, &Does::Append { at });
        for isolation in LEVELS {
            prop_assert_eq!(run(scene.fold(isolation)), Ok(()));
        }
    }

    #[test]
    fn reading_more_never_admits_more(
        vectors: bool, winners in winners(does()), at in at(), reads in reads(), more in reads(), whole: bool, vector: bool,
    ) {
        let forms: [Form; 3] = [
            |at, vector, reads| Does::Change { at, vector, reads },
            |at, _, reads| Does::Delete { at, reads },
            |at, _, reads| Does::Derive { at, reads },
        ];
        for form in forms {
            let narrow = scene(vectors, &winners, &form(at, vector, reads.clone()));
            let mut wide = scene(vectors, &winners, &form(at, vector, [reads.clone(), more.clone()].concat()));
            if whole {
                wide.candidate.last_mut().unwrap()["commitInfo"]["readSet"]["wholeTable"] = json!(true);
            }
            for isolation in LEVELS {
                prop_assert!(admits(&narrow, isolation) || !admits(&wide, isolation), "{isolation:?}");
            }
        }
    }

    #[test]
    fn winners_that_have_nothing_in_common_may_come_in_any_order(
        vectors: bool, winners in winners(data()), candidate in does(), turn in 0..4_usize,
    ) {
        let mut turned = winners.clone();
        turned.rotate_left(turn % winners.len().max(1));
        for isolation in LEVELS {
            let found = [&winners, &turned].map(|winners| {
                match run(scene(vectors, winners, &candidate).fold(isolation)) {
                    Ok(()) => "admitted",
                    Err(Conflict::Refused(_) | Conflict::Superseded(_)) => "not admitted",
                }
            });
            prop_assert_eq!(found[0], found[1], "{:?}", isolation);
        }
    }
}

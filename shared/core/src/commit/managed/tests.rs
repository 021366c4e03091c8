//! Commit calls of a catalog, case by case, and what crashes and other writers do to them.

use serde_json::{Value, json};

use super::{Asked, Ratification, UNPUBLISHED_MAX, publish_pending, ratify, unpublished};
use crate::commit::alarm::{self, AlarmKind};
use crate::commit::audit::{Audited, LogFile, Logged, audit};
use crate::commit::head::{self, Fence};
use crate::commit::housekeeping::keep_house;
use crate::commit::keys::ProposalId;
use crate::commit::proposals::{self, NamedFiles};
use crate::commit::tests::kit::{Kit, short};
use crate::commit::verdict::Verdict;
use crate::delta::Version;
use crate::delta::log::commit_key;
use crate::delta::testkit::{add_line, creation_of, remove_line, text};
use crate::store::memory::Fault;
use crate::store::{ObjectKey, Objects, PutOptions, ReadObjects, StoreErrorKind};

const ID: &str = "1d1ca986-4d21-43cc-af34-e5017f3a8f1c";

/// In-commit timestamps of the commits that the tests make: 1,000 for version 0, 1,001 for version 1, …
fn stamp(version: i64) -> i64 {
    1_000 + version
}

fn info(version: i64, txn: u128) -> Value {
    json!({"commitInfo": {"operation": "WRITE", "operationParameters": {"mode": "Append"}, "isBlindAppend": true,
        "inCommitTimestamp": stamp(version), "txnId": format!("txn-{txn}")}})
}

/// A catalog-managed table at version 0, written by its client.
async fn table() -> Kit {
    let kit = Kit::empty().await;
    let features = ["catalogManaged", "vacuumProtocolCheck"];
    let configuration = json!({"delta.enableInCommitTimestamps": "true", "io.unitycatalog.tableId": ID});
    let mut lines = creation_of("m", &[], configuration);
    lines[0] = json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features,
        "writerFeatures": ["catalogManaged", "vacuumProtocolCheck", "inCommitTimestamp"]}});
    kit.table.log(0, &[info(0, 0), lines[0].clone(), lines[1].clone()]).await;
    kit
}

async fn asked(kit: &Kit, version: i64, id: u128, lines: &[Value]) -> Asked {
    kit.stage(version, id, lines).await;
    let stamp_ms = lines.iter().find_map(|line| line["commitInfo"]["inCommitTimestamp"].as_i64());
    Asked {
        root: kit.table.root.clone(),
        table_id: ID.into(),
        version: Version(version),
        id: ProposalId(uuid::Uuid::from_u128(id)),
        size_bytes: text(lines).len() as u64,
        modified_ms: 7,
        timestamp_ms: stamp_ms.unwrap_or(0),
    }
}

/// An append of one file, staged.
async fn append(kit: &Kit, version: i64, id: u128) -> Asked {
    let file = kit.file(&format!("{id}.parquet")).await;
    asked(kit, version, id, &[info(version, id), file]).await
}

async fn call(kit: &Kit, asked: &Asked) -> String {
    said(ratify(kit.ctx(), asked).await.unwrap())
}

fn said(ratification: Ratification) -> String {
    match ratification {
        Ratification::Ratified(proposal) => short(&Verdict { proposal: *proposal }),
        Ratification::Refused(proposal) => short(&Verdict { proposal: *proposal }),
        Ratification::Invalid(text) => format!("invalid {text}"),
        Ratification::TooMany(count) => format!("{count} unpublished"),
        Ratification::Unreadable(refusal) => format!("unreadable {}", refusal.reason),
    }
}

async fn alarms(kit: &Kit) -> Vec<(AlarmKind, i64)> {
    let page = alarm::of_table(&*kit.table.world.items, &kit.table.root, 10, None).await.unwrap();
    page.alarms.into_iter().map(|alarm| (alarm.kind, alarm.version.0)).collect()
}

async fn waiting(kit: &Kit) -> (Vec<i64>, i64) {
    let found = unpublished(&kit.app.ports, &kit.table.root, Version(0), None).await.unwrap();
    (found.commits.iter().map(|one| one.version.0).collect(), found.latest.0)
}

#[tokio::test]
async fn what_was_staged_is_ratified_as_it_is_and_published_unchanged() {
    let kit = table().await;
    assert_eq!(waiting(&kit).await, (vec![], 0));
    for version in 1..=3 {
        let asked = append(&kit, version, version as u128).await;
        assert_eq!(call(&kit, &asked).await, format!("committed {version}"));
        assert_eq!(call(&kit, &asked).await, format!("committed {version}"), "the same call again");
        assert_eq!(call(&kit.cold(), &asked).await, format!("committed {version}"));
    }
    assert_eq!((waiting(&kit).await, kit.versions()), ((vec![1, 2, 3], 3), vec![0]));
    assert_eq!(publish_pending(kit.ctx(), &kit.table.root, Some(Version(2))).await.unwrap(), [Version(1), Version(2)]);
    assert_eq!(waiting(&kit).await, (vec![3], 3));
    assert_eq!(keep_house(kit.ctx(), &kit.table.root).await.unwrap().published, 1);
    assert_eq!((waiting(&kit).await, kit.versions()), ((vec![], 3), vec![0, 1, 2, 3]));
    // Who asks for certain versions is told of them, published or not.
    let asked = append(&kit, 4, 4).await;
    assert_eq!(call(&kit, &asked).await, "committed 4");
    let between = async |from, to| {
        let found = unpublished(&kit.app.ports, &kit.table.root, Version(from), Some(Version(to))).await.unwrap();
        found.commits.iter().map(|one| (one.version.0, one.timestamp_ms, one.id.0.as_u128())).collect::<Vec<_>>()
    };
    assert_eq!(between(2, 2).await, [(2, stamp(2), 2)]);
    assert_eq!(between(0, 9).await, (1..=4).map(|n| (n, stamp(n), n as u128)).collect::<Vec<_>>());
    publish_pending(kit.ctx(), &kit.table.root, None).await.unwrap();
    for version in 1..=4 {
        let asked = append(&kit, version, version as u128).await;
        let staged = commit_key(&kit.table.root, Version(version));
        assert_eq!(kit.table.get(&staged).await, kit.table.get(&staged_key(&asked)).await);
    }
    assert_eq!(alarms(&kit).await, []);
}

#[tokio::test]
async fn nothing_is_ratified_upon_a_log_with_a_gap() {
    let kit = table().await;
    for version in 1..=3 {
        let asked = append(&kit, version, version as u128).await;
        assert_eq!(call(&kit, &asked).await, format!("committed {version}"));
    }
    publish_pending(kit.ctx(), &kit.table.root, None).await.unwrap();
    let bytes = kit.table.version(1).await.unwrap();
    kit.table.delete_log(1).await;
    let asked = append(&kit, 4, 4).await;
    assert_eq!(call(&kit, &asked).await, "unreadable LOG_GAP");
    assert_eq!(alarms(&kit).await, [(AlarmKind::LogGap, 3)]);
    kit.table.put("_delta_log/00000000000000000001.json", &bytes).await;
    assert_eq!(call(&kit, &asked).await, "committed 4");
}

fn staged_key(asked: &Asked) -> ObjectKey {
    crate::delta::log::StagedKey { root: asked.root.clone(), version: asked.version, id: asked.id.0 }.key()
}

#[tokio::test]
async fn only_the_next_version_is_taken_and_a_refusal_is_final() {
    let kit = table().await;
    let (first, second) = (append(&kit, 1, 1).await, append(&kit, 1, 2).await);
    let ahead = append(&kit, 3, 3).await;
    assert_eq!(call(&kit, &ahead).await, "rejected ConcurrentWriteException VERSION_AHEAD");
    assert_eq!(call(&kit, &first).await, "committed 1");
    assert_eq!(call(&kit, &second).await, "rejected ConcurrentWriteException VERSION_TAKEN");
    assert_eq!(call(&kit, &append(&kit, 2, 4).await).await, "committed 2");
    // Version 3 is next by now, and this file was refused.
    assert_eq!(call(&kit, &ahead).await, "rejected ConcurrentWriteException VERSION_AHEAD");
    assert_eq!(call(&kit, &append(&kit, 3, 5).await).await, "committed 3");
    // The same id for another version is another file.
    assert_eq!(call(&kit, &append(&kit, 4, 5).await).await, "rejected ProposalReusedException PROPOSAL_REUSED");
}

#[tokio::test]
async fn a_commit_leaves_the_tables_id_alone_and_is_a_transaction_of_its_own() {
    let kit = table().await;
    let metadata = |configuration: Value| creation_of("m", &[], configuration)[1].clone();
    for (id, configuration) in [
        (1, json!({"delta.enableInCommitTimestamps": "true", "io.unitycatalog.tableId": "another"})),
        (2, json!({"delta.enableInCommitTimestamps": "true"})),
        (3, json!({"delta.enableInCommitTimestamps": "true", "io.unitycatalog.tableId": ID, "ucTableId": "another"})),
    ] {
        let asked = asked(&kit, 1, id, &[info(1, id), metadata(configuration)]).await;
        assert_eq!(call(&kit, &asked).await, "rejected InvalidCommitException TABLE_ID");
    }
    let kept = json!({"delta.enableInCommitTimestamps": "true", "io.unitycatalog.tableId": ID, "owner": "us"});
    let first = asked(&kit, 1, 4, &[info(1, 4), metadata(kept)]).await;
    assert_eq!(call(&kit, &first).await, "committed 1");
    // The same transaction in another file: its client does not know that it was ratified.
    let file = kit.file("5.parquet").await;
    let again = asked(&kit, 2, 5, &[info(2, 4), file]).await;
    assert_eq!(call(&kit, &again).await, "rejected ConcurrentTransactionException ALREADY_APPLIED");
    assert_eq!(call(&kit, &append(&kit, 2, 6).await).await, "committed 2");
}

#[tokio::test]
async fn a_loser_is_told_what_was_in_its_way() {
    let kit = table().await;
    let file = kit.file("a.parquet").await;
    let added = asked(&kit, 1, 1, &[info(1, 1), file]).await;
    assert_eq!(call(&kit, &added).await, "committed 1");
    let delete = |txn: u128| {
        let mut info = info(2, txn);
        info["commitInfo"]["operation"] = json!("DELETE");
        info["commitInfo"]["isBlindAppend"] = json!(false);
        vec![info, remove_line("a.parquet", 1)]
    };
    let (winner, loser) = (asked(&kit, 2, 2, &delete(2)).await, asked(&kit, 2, 3, &delete(3)).await);
    assert_eq!(call(&kit, &winner).await, "committed 2");
    assert!(call(&kit, &loser).await.starts_with("rejected ConcurrentDelete"), "{}", call(&kit, &loser).await);
    // A file that is gone is not removed again, whoever says so.
    let late = asked(&kit, 3, 4, &[info(3, 4), remove_line("a.parquet", 1)]).await;
    assert_eq!(call(&kit, &late).await, "rejected InvalidCommitException REMOVE_OF_UNKNOWN_FILE");
}

#[tokio::test]
async fn what_the_protocol_demands_of_a_commit_is_checked() {
    let kit = table().await;
    let file = kit.file("f.parquet").await;
    let with = |name: &str, value: Value| {
        let mut info = info(1, 1);
        info["commitInfo"][name] = value;
        info
    };
    let protocol =
        json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"]}});
    let wrong = kit
        .table
        .data_of(
            "w.parquet",
            None,
            "message m { required int64 id; optional int64 name; }",
            &[json!({"id": 1, "name": 1})],
        )
        .await;
    let mut wrong = wrong;
    wrong["add"]["partitionValues"] = json!({});
    for (at, (lines, expected)) in [
        (
            vec![with("inCommitTimestamp", json!(stamp(0))), file.clone()],
            "rejected InvalidCommitException IN_COMMIT_TIMESTAMP",
        ),
        (
            vec![with("inCommitTimestamp", Value::Null), file.clone()],
            "rejected InvalidCommitException IN_COMMIT_TIMESTAMP",
        ),
        (vec![with("txnId", Value::Null), file.clone()], "rejected InvalidCommitException TXN_ID_MISSING"),
        (vec![file.clone(), info(1, 1)], "rejected InvalidCommitException COMMIT_INFO_FIRST"),
        (vec![file.clone()], "rejected InvalidCommitException COMMIT_INFO_FIRST"),
        (vec![info(1, 1), json!({"add": {}})], "rejected InvalidCommitException MALFORMED_COMMIT"),
        (vec![info(1, 1), add_line("gone.parquet", 9)], "rejected SchemaMismatchException PARTITION_VALUES"),
        (vec![info(1, 1), wrong], "rejected SchemaMismatchException"),
        (vec![info(1, 1), protocol], "rejected"),
    ]
    .into_iter()
    .enumerate()
    {
        let asked = asked(&kit, 1, 100 + at as u128, &lines).await;
        let said = call(&kit, &asked).await;
        assert!(said.starts_with(expected), "{lines:?}: {said}");
        assert_eq!(call(&kit, &asked).await, said, "a refusal stays");
    }
    assert_eq!((waiting(&kit).await, kit.versions()), ((vec![], 0), vec![0]));
}

#[tokio::test]
async fn a_call_that_contradicts_its_file_decides_nothing() {
    let kit = table().await;
    let good = append(&kit, 1, 1).await;
    for (bad, text) in [
        (Asked { size_bytes: 1, ..good.clone() }, "file_size"),
        (Asked { timestamp_ms: 5, ..good.clone() }, "inCommitTimestamp"),
        (Asked { table_id: "other".into(), ..good.clone() }, "has the id"),
        (Asked { id: ProposalId(uuid::Uuid::from_u128(9)), ..good.clone() }, "no staged file"),
        (Asked { root: crate::location::Location::new("lake", "wh/none"), ..good.clone() }, "no table"),
    ] {
        if bad.root != good.root {
            kit.table.world.objects.copy(&staged_key(&good), &staged_key(&bad), &Default::default()).await.unwrap();
        }
        let said = call(&kit, &bad).await;
        assert!(said.starts_with("invalid ") && said.contains(text), "{said}");
    }
    assert_eq!(call(&kit, &good).await, "committed 1");
    let plain = Kit::unpartitioned(json!({})).await;
    assert!(call(&plain, &append(&plain, 1, 1).await).await.contains("not catalog-managed"));
}

#[tokio::test]
async fn so_many_commits_may_wait_for_their_publication() {
    let kit = table().await;
    let most = UNPUBLISHED_MAX as i64;
    for version in 1..=most {
        assert_eq!(call(&kit, &append(&kit, version, version as u128).await).await, format!("committed {version}"));
    }
    let next = append(&kit, most + 1, 99).await;
    assert_eq!(call(&kit, &next).await, "10 unpublished");
    assert_eq!(call(&kit, &append(&kit, 1, 1).await).await, "committed 1", "what is in is in");
    publish_pending(kit.ctx(), &kit.table.root, Some(Version(1))).await.unwrap();
    assert_eq!(call(&kit, &next).await, format!("committed {}", most + 1), "nothing was decided on it");
}

#[tokio::test]
async fn events_of_staged_files_never_judge() {
    let kit = table().await;
    let file = kit.file("1.parquet").await;
    let staged = kit.stage(1, 1, &[info(1, 1), file.clone()]).await;
    assert_eq!(short(&kit.judge(&staged).await), "received");
    let asked = asked(&kit, 1, 1, &[info(1, 1), file]).await;
    assert_eq!(call(&kit, &asked).await, "committed 1");
    assert_eq!(short(&kit.judge(&staged).await), "committed 1", "a late event finds the verdict");
    // One for the next version, while the first is not in the log yet.
    let other = kit.stage(2, 2, &[info(2, 2)]).await;
    assert_eq!(short(&kit.judge(&other).await), "received");
    // A log that is damaged is no reason either.
    kit.table.delete_log(0).await;
    let third = kit.stage(2, 3, &[info(2, 3)]).await;
    assert_eq!(short(&kit.judge(&third).await), "received");
}

#[tokio::test]
async fn calls_at_once_make_one_version() {
    let kit = table().await;
    let rivals = futures::future::join_all((1..=4).map(|id| append(&kit, 1, id))).await;
    let mut twice = rivals.clone();
    twice.extend(rivals);
    let said = futures::future::join_all(twice.iter().map(|asked| call(&kit, asked))).await;
    let (first, again) = said.split_at(4);
    assert_eq!(first, again, "twice the same call, twice the same answer");
    assert_eq!(first.iter().filter(|said| *said == "committed 1").count(), 1, "{first:?}");
    assert_eq!(first.iter().filter(|said| said.ends_with("VERSION_TAKEN")).count(), 3, "{first:?}");
    assert_eq!(waiting(&kit).await, (vec![1], 1));
}

#[tokio::test]
async fn a_call_that_dies_anywhere_is_made_again() {
    let calls = {
        let kit = table().await;
        let asked = append(&kit, 1, 1).await;
        kit.table.world.faults.forget_calls();
        call(&kit, &asked).await;
        kit.table.world.faults.calls().len()
    };
    for after in [false, true] {
        for at in 0..calls {
            let kit = table().await;
            let asked = append(&kit, 1, 1).await;
            let kind = StoreErrorKind::AccessDenied;
            let fault = if after { Fault::After(kind) } else { Fault::Before(kind) };
            kit.table.world.faults.inject("", at as u64, fault);
            let _ = ratify(kit.ctx(), &asked).await;
            assert_eq!(call(&kit.cold(), &asked).await, "committed 1", "call {at}, {after}");
            assert_eq!(call(&kit.cold(), &append(&kit, 2, 2).await).await, "committed 2");
            publish_pending(kit.ctx(), &kit.table.root, None).await.unwrap();
            assert_eq!((waiting(&kit).await, kit.versions()), ((vec![], 2), vec![0, 1, 2]));
        }
    }
}

#[tokio::test]
async fn a_publication_that_dies_is_finished() {
    for (at, after) in (0..8u64).flat_map(|at| [(at, false), (at, true)]) {
        let kit = table().await;
        for version in 1..=2 {
            call(&kit, &append(&kit, version, version as u128).await).await;
        }
        let kind = StoreErrorKind::AccessDenied;
        kit.table.world.faults.inject("", at, if after { Fault::After(kind) } else { Fault::Before(kind) });
        let _ = publish_pending(kit.ctx(), &kit.table.root, None).await;
        publish_pending(kit.ctx(), &kit.table.root, None).await.unwrap();
        assert_eq!((waiting(&kit).await, kit.versions()), ((vec![], 2), vec![0, 1, 2]), "{at} {after}");
        assert_eq!(alarms(&kit).await, []);
    }
}

async fn see(kit: &Kit, version: i64) -> Audited {
    let mut logged =
        Logged { root: kit.table.root.clone(), version: Version(version), file: LogFile::Commit, etag: None };
    logged.etag = kit.table.world.objects.head(&logged.key()).await.ok().map(|meta| meta.etag);
    audit(kit.ctx(), &[logged]).await.remove(0).unwrap()
}

#[tokio::test]
async fn the_clients_copy_is_recognised_and_other_bytes_are_told_of() {
    let kit = table().await;
    let first = append(&kit, 1, 1).await;
    call(&kit, &first).await;
    call(&kit, &append(&kit, 2, 2).await).await;
    let log = |version| commit_key(&kit.table.root, Version(version));
    kit.table.world.objects.copy(&staged_key(&first), &log(1), &Default::default()).await.unwrap();
    assert_eq!(see(&kit, 1).await, Audited::Published(first.id));
    assert_eq!(see(&kit, 1).await, Audited::AsRecorded);
    assert_eq!(waiting(&kit).await, (vec![2], 2));
    // Somebody writes to the log by other means: at a ratified version, and beyond.
    kit.table.log(2, &[info(2, 9)]).await;
    kit.table.log(3, &[info(3, 9)]).await;
    assert_eq!(see(&kit, 2).await, Audited::Alarmed(AlarmKind::PublishedOtherwise));
    assert_eq!(see(&kit, 3).await, Audited::Alarmed(AlarmKind::NotRatified));
    assert_eq!(publish_pending(kit.ctx(), &kit.table.root, None).await.unwrap(), []);
    assert_eq!(waiting(&kit).await, (vec![2], 2), "what is ratified stays");
    let next = append(&kit, 3, 3).await;
    assert_eq!(call(&kit, &next).await, "unreadable NOT_RATIFIED");
    for version in [2, 3] {
        kit.table.delete_log(version).await;
    }
    assert_eq!(call(&kit, &next).await, "committed 3");
    publish_pending(kit.ctx(), &kit.table.root, None).await.unwrap();
    assert_eq!(waiting(&kit).await, (vec![], 3));
    // A published version that changes is the alarm that it is for every table.
    kit.table.log(1, &[info(1, 9)]).await;
    assert_eq!(see(&kit, 1).await, Audited::Alarmed(AlarmKind::VersionRewritten));
    assert_eq!(alarms(&kit).await.len(), 3);
}

#[tokio::test]
async fn a_ratified_commit_that_is_deleted_stops_the_table() {
    let kit = table().await;
    let first = append(&kit, 1, 1).await;
    let bytes = kit.table.get(&staged_key(&first)).await.unwrap();
    call(&kit, &first).await;
    kit.table.world.objects.delete(&staged_key(&first), None).await.unwrap();
    let next = append(&kit, 2, 2).await;
    assert_eq!(call(&kit, &next).await, "unreadable RATIFIED_BYTES_MISSING");
    assert_eq!(alarms(&kit).await, [(AlarmKind::RatifiedBytesMissing, 1)]);
    kit.table.world.objects.put(&staged_key(&first), bytes, &PutOptions::default()).await.unwrap();
    assert_eq!(call(&kit, &next).await, "committed 2");
}

#[tokio::test]
async fn sweeps_keep_the_files_of_what_is_ratified() {
    let kit = table().await;
    let first = append(&kit, 1, 1).await;
    call(&kit, &first).await;
    let open = async || {
        let ports = &kit.app.ports;
        proposals::open(&*ports.items, &*ports.objects, &*ports.clock, &kit.table.root).await.unwrap()
    };
    let found = open().await;
    let NamedFiles::Known(files) = &found[0].files else { panic!("{found:?}") };
    assert!(files.contains(&ObjectKey::new("lake", "wh/t/1.parquet")), "{files:?}");
    publish_pending(kit.ctx(), &kit.table.root, None).await.unwrap();
    assert_eq!(open().await, [], "the log has it");
    // A fence is waited for.
    let (items, ids, root) = (&*kit.table.world.items, &*kit.table.world.ports.ids, &kit.table.root);
    let head = head::load(items, root).await.unwrap();
    let now_ms = kit.ctx().now_ms();
    let fence = Fence { run: "run".into(), expires_ms: now_ms + 1_000 };
    head::set_fence(items, ids, root, head.as_ref(), fence, now_ms).await.unwrap();
    assert_eq!(call(&kit, &append(&kit, 2, 2).await).await, "committed 2");
    assert!(kit.ctx().now_ms() >= now_ms + 1_000);
}

#[tokio::test]
async fn old_staged_files_go_unless_they_were_ratified() {
    let kit = table().await;
    let (first, loser) = (append(&kit, 1, 1).await, append(&kit, 1, 2).await);
    call(&kit, &first).await;
    call(&kit, &loser).await;
    let retention_ms = kit.app.settings.verdict_retention_ms;
    kit.table.world.clock.advance_ms(retention_ms + 3_600_000);
    let unasked = append(&kit, 2, 3).await;
    kit.table.world.clock.advance_ms(retention_ms + 3_600_000);
    keep_house(kit.ctx(), &kit.table.root).await.unwrap();
    for (asked, stays) in [(&first, true), (&loser, false), (&unasked, true)] {
        assert_eq!(kit.table.get(&staged_key(asked)).await.is_some(), stays, "{asked:?}");
    }
    assert_eq!(kit.versions(), [0, 1], "it was published before");
}

#[tokio::test]
async fn the_table_that_its_head_has_no_room_for_is_read_from_the_log() {
    let kit = table().await;
    for version in 1..=3 {
        call(&kit, &append(&kit, version, version as u128).await).await;
    }
    publish_pending(kit.ctx(), &kit.table.root, Some(Version(1))).await.unwrap();
    let (items, root) = (&kit.table.world.items, &kit.table.root);
    let head = head::load(&**items, root).await.unwrap().unwrap();
    let bare = head::Head { state: None, ..head.clone() };
    use crate::store::Items;
    items.put(&crate::commit::keys::head(root), bare.encode().unwrap(), head.unchanged()).await.unwrap();
    assert_eq!(call(&kit.cold(), &append(&kit, 4, 4).await).await, "committed 4");
    let state = head::load(&**items, root).await.unwrap().unwrap().state.unwrap();
    assert_eq!(state.in_commit_timestamp_ms, Some(stamp(4)));
    // What was added before it was published cannot be added again.
    let again = asked(&kit, 5, 5, &[info(5, 5), kit.file("3.parquet").await]).await;
    assert!(call(&kit, &again).await.starts_with("rejected InvalidCommitException"), "{}", call(&kit, &again).await);
}

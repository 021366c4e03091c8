//! Proposals at exactly one version: that one, byte for byte, or none.

use serde_json::json;

use super::kit::{Kit, short};
use crate::commit::exact;
use crate::commit::run::Staged;
use crate::delta::Version;
use crate::delta::testkit::{append_info, creation_of, text};
use crate::store::{Objects, PutOptions};

async fn stage(kit: &Kit, version: i64, lines: &[serde_json::Value], nth: u32) -> Staged {
    let content = text(lines);
    let id = exact::proposal_id(&kit.table.root, Version(version), content.as_ref(), nth);
    kit.stage(version, id.0.as_u128(), lines).await
}

#[tokio::test]
async fn the_version_is_next_or_it_is_refused() {
    let kit = Kit::unpartitioned(json!({})).await;
    let first = [kit.file("a.parquet").await, append_info()];
    for (version, expected) in [
        (0, "rejected ConcurrentWriteException VERSION_TAKEN"),
        (2, "rejected ConcurrentWriteException VERSION_AHEAD"),
        (1, "committed 1"),
    ] {
        let staged = stage(&kit, version, &first, 0).await;
        assert_eq!(short(&kit.judge(&staged).await), expected);
    }
    assert_eq!(kit.table.version(1).await.unwrap(), text(&first));
    // An ordinary proposal would become version 2.
    let late = [kit.file("b.parquet").await, append_info()];
    let staged = stage(&kit, 1, &late, 0).await;
    assert_eq!(short(&kit.judge(&staged).await), "rejected ConcurrentWriteException VERSION_TAKEN");
    assert_eq!(short(&kit.propose(1, 5, &late).await), "committed 2");
    assert_eq!(kit.versions(), [0, 1, 2]);
}

#[tokio::test]
async fn of_several_at_one_version_one_is_taken() {
    let kit = Kit::unpartitioned(json!({})).await;
    let mut staged = Vec::new();
    for name in ["a", "b", "c", "d"] {
        let lines = [kit.file(&format!("{name}.parquet")).await, append_info()];
        staged.push(stage(&kit, 1, &lines, 0).await);
    }
    let outcomes = kit.judge_all(staged).await;
    let mut short: Vec<String> =
        outcomes.into_iter().map(|(_, outcome)| short(&super::kit::verdict(outcome))).collect();
    short.sort();
    let taken = "rejected ConcurrentWriteException VERSION_TAKEN";
    assert_eq!(short, ["committed 1", taken, taken, taken]);
    assert_eq!(kit.versions(), [0, 1]);
}

#[tokio::test]
async fn a_table_is_created_at_version_0() {
    let kit = Kit::empty().await;
    let creation = creation_of("22222222-2222-4222-8222-222222222222", &[], json!({}));
    let staged = stage(&kit, 0, &creation, 0).await;
    assert_eq!(short(&kit.judge(&staged).await), "committed 0");
    let other = creation_of("33333333-3333-4333-8333-333333333333", &[], json!({}));
    let staged = stage(&kit, 0, &other, 0).await;
    assert_eq!(short(&kit.judge(&staged).await), "rejected ConcurrentWriteException VERSION_TAKEN");
}

#[tokio::test]
async fn nothing_is_changed_for_it() {
    let kit = Kit::empty().await;
    let mut creation = creation_of("m", &[], json!({"delta.enableInCommitTimestamps": "true"}));
    creation[0] =
        json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"]}});
    creation[2]["commitInfo"]["inCommitTimestamp"] = json!(1_000);
    let staged = stage(&kit, 0, &creation, 0).await;
    assert_eq!(short(&kit.judge(&staged).await), "committed 0");
    assert_eq!(kit.table.version(0).await.unwrap(), text(&creation), "with the timestamp of its writer");
    let with = |add: &serde_json::Value, stamp: serde_json::Value| {
        let mut info = append_info();
        info["commitInfo"]["inCommitTimestamp"] = stamp;
        [info, add.clone()]
    };
    let add = kit.file("a.parquet").await;
    for stamp in [json!(null), json!(999), json!(1_000)] {
        let staged = stage(&kit, 1, &with(&add, stamp), 0).await;
        assert_eq!(short(&kit.judge(&staged).await), "rejected InvalidCommitException IN_COMMIT_TIMESTAMP");
    }
    let good = with(&add, json!(1_001));
    let staged = stage(&kit, 1, &good, 0).await;
    assert_eq!(short(&kit.judge(&staged).await), "committed 1");
    assert_eq!(kit.table.version(1).await.unwrap(), text(&good));
    // What is there already by another number is not taken again.
    let again = stage(&kit, 2, &good, 0).await;
    let verdict = short(&kit.judge(&again).await);
    assert!(verdict.starts_with("rejected "), "{verdict}");
    assert_eq!(kit.versions(), [0, 1]);
}

#[tokio::test]
async fn a_verdict_stays_and_the_next_proposal_of_the_same_content_is_judged_anew() {
    let kit = Kit::unpartitioned(json!({})).await;
    let lines = [kit.file("a.parquet").await, append_info()];
    let at = kit.table.root.object("a.parquet");
    let bytes =
        crate::store::ReadObjects::get(&*kit.table.world.objects, &at, &Default::default()).await.unwrap().bytes;
    kit.table.world.objects.delete(&at, None).await.unwrap();
    let staged = stage(&kit, 1, &lines, 0).await;
    let refused = short(&kit.judge(&staged).await);
    assert!(refused.starts_with("rejected ") && refused.ends_with(" FILE_MISSING"), "{refused}");
    kit.table.world.objects.put(&at, bytes, &PutOptions::default()).await.unwrap();
    assert_eq!(short(&kit.judge(&staged).await), refused);
    let again = stage(&kit, 1, &lines, 1).await;
    assert_eq!(short(&kit.judge(&again).await), "committed 1");
}

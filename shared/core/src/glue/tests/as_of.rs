//! The past through the wire: `QueryAsOfTime` and `TransactionId`.

use serde_json::{Value, json};

use super::{NOW_MS, Wire, in_table, partition_input, table_input, values_of};
use crate::commit::keys::{Generation, ProposalId};
use crate::commit::lookup::Lookup;
use crate::commit::proposal::{Proposal, Status, SyncState};
use crate::delta::Version;
use crate::location::Location;
use crate::store::{Condition, ETag, ReadItems};

const INVALID: &str = "InvalidInputException";
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

fn seconds(ms: i64) -> Value {
    json!(ms as f64 / 1000.0)
}

/// Three days of a table: `1` stays, `2` is changed on the second day, `3` is deleted then, `4` is new then.
async fn lake() -> Wire {
    lake_of("int").await
}

async fn lake_of(key_type: &str) -> Wire {
    let wire = Wire::with_table(&[("n", key_type)]).await;
    for value in ["1", "2", "3"] {
        wire.create(&[value]).await;
    }
    wire.world.clock.advance_ms(DAY_MS);
    let mut changed = partition_input(&["2"]);
    changed["Parameters"]["rows"] = json!("2");
    let update = in_table(json!({ "PartitionValueList": ["2"], "PartitionInput": changed }));
    wire.ok("UpdatePartition", update).await;
    wire.ok("DeletePartition", in_table(json!({ "PartitionValues": ["3"] }))).await;
    wire.create(&["4"]).await;
    wire.world.clock.advance_ms(DAY_MS);
    wire
}

impl Wire {
    /// All pages of what `extra` asks for, as values and `rows`.
    async fn past(&self, extra: Value, page: usize) -> Vec<(String, String)> {
        let (mut all, mut token) = (Vec::new(), Value::Null);
        loop {
            let mut input = in_table(extra.clone());
            input["MaxResults"] = json!(page);
            input["NextToken"] = token;
            let answer = self.ok("GetPartitions", input).await;
            for (partition, values) in
                answer["Partitions"].as_array().unwrap().iter().zip(values_of(&answer["Partitions"]))
            {
                let rows = partition["Parameters"]["rows"].as_str().unwrap().to_owned();
                all.push((values.join("/"), rows));
            }
            token = answer["NextToken"].clone();
            if token.is_null() {
                return all;
            }
        }
    }

    async fn put_proposal(
        &self,
        id: u128,
        root: &str,
        status: Status,
        sync: SyncState,
        synced_ms: Option<i64>,
    ) -> String {
        let id = ProposalId(uuid::Uuid::from_u128(id));
        let staged = ("k".into(), ETag("e".into()));
        let proposal = Proposal {
            read_version: Version(0),
            status,
            attempts: 1,
            sync,
            synced_ms,
            revision: "r".into(),
            ..Proposal::received(&Location::new("lake", root), Generation(1), id, staged, NOW_MS)
        };
        let lookup = Lookup { id, root: proposal.root.clone(), generation: proposal.generation };
        let items = &self.world.ports.items;
        items.put(&proposal.key(), proposal.encode().unwrap(), Condition::Always).await.unwrap();
        items.transact(&[lookup.write()], &id.to_string()).await.unwrap();
        id.to_string()
    }
}

fn rows(rows: &[(&str, &str)]) -> Vec<(String, String)> {
    rows.iter().map(|(value, rows)| ((*value).to_owned(), (*rows).to_owned())).collect()
}

#[tokio::test]
async fn partitions_as_they_stood() {
    let wire = lake().await;
    let before = rows(&[("1", "1"), ("2", "1"), ("3", "1")]);
    let after = rows(&[("1", "1"), ("2", "2"), ("4", "1")]);
    for page in [1, 2, 1000] {
        for (at_ms, expected) in [
            (NOW_MS, &before),
            (NOW_MS + DAY_MS - 1, &before),
            (NOW_MS + DAY_MS, &after),
            (NOW_MS + 2 * DAY_MS - 1, &after),
            (NOW_MS + 2 * DAY_MS, &after),
            (NOW_MS + 99 * DAY_MS, &after),
        ] {
            let asked = json!({ "QueryAsOfTime": seconds(at_ms) });
            assert_eq!(wire.past(asked, page).await, *expected, "{at_ms} {page}");
        }
    }
}

#[tokio::test]
async fn filters_segments_and_columns_work_in_the_past() {
    let at = seconds(NOW_MS);
    // Texts are got by their values where a filter says them.
    for key_type in ["int", "string"] {
        let wire = lake_of(key_type).await;
        for (filter, expected) in [
            ("n >= '2'", rows(&[("2", "1"), ("3", "1")])),
            ("n = '3'", rows(&[("3", "1")])),
            ("n = '4'", rows(&[])),
            ("n in ('1', '3', '4')", rows(&[("1", "1"), ("3", "1")])),
        ] {
            let asked = json!({ "QueryAsOfTime": at, "Expression": filter });
            assert_eq!(wire.past(asked, 1).await, expected, "{key_type} {filter}");
        }
    }
    let wire = lake().await;
    let mut all = Vec::new();
    for number in 0..3 {
        let segment = json!({ "SegmentNumber": number, "TotalSegments": 3 });
        all.extend(wire.past(json!({ "QueryAsOfTime": at, "Segment": segment }), 1).await);
    }
    all.sort();
    assert_eq!(all, rows(&[("1", "1"), ("2", "1"), ("3", "1")]));
    let lean = in_table(json!({ "QueryAsOfTime": at, "ExcludeColumnSchema": true }));
    let answer = wire.ok("GetPartitions", lean).await;
    assert!(answer["Partitions"][2]["StorageDescriptor"].get("Columns").is_none(), "{answer}");
    assert_eq!(answer["Partitions"][2]["StorageDescriptor"]["Location"], "s3://lake/d/t/3");
}

#[tokio::test]
async fn the_first_page_fixes_the_moment() {
    let wire = lake().await;
    let now_ms = NOW_MS + 2 * DAY_MS;
    let page = |at_ms: i64, token: &Value| {
        in_table(json!({ "QueryAsOfTime": seconds(at_ms), "MaxResults": 1, "NextToken": token }))
    };
    // Latest, and stays so though it is the past by the time of the second page.
    let first = wire.ok("GetPartitions", page(now_ms - 1_000, &Value::Null)).await;
    wire.world.clock.advance_ms(60_000);
    wire.ok("DeletePartition", in_table(json!({ "PartitionValues": ["2"] }))).await;
    wire.world.clock.advance_ms(60_000);
    let second = wire.ok("GetPartitions", page(now_ms - 1_000, &first["NextToken"])).await;
    assert_eq!(values_of(&second["Partitions"]), [["4"]]);
    // A token of one moment is none of another.
    let first = wire.ok("GetPartitions", page(NOW_MS, &Value::Null)).await;
    for other in [in_table(json!({ "NextToken": first["NextToken"] })), page(NOW_MS + 1, &first["NextToken"])] {
        let (name, text) = wire.fails("GetPartitions", other).await;
        assert_eq!((name.as_str(), text.contains("NextToken")), (INVALID, true), "{text}");
    }
}

#[tokio::test]
async fn moments_that_are_not_kept_are_refused() {
    let mut wire = lake().await;
    let at = |at_ms: i64| in_table(json!({ "QueryAsOfTime": seconds(at_ms), "MaxResults": 1 }));
    let (name, text) = wire.fails("GetPartitions", at(NOW_MS - 1)).await;
    assert_eq!(name, INVALID);
    assert_eq!(text, "Table t cannot be read as of 1700000000.122: it was created at 1700000000.123.");
    let first = wire.ok("GetPartitions", at(NOW_MS)).await;
    wire.world.clock.advance_ms(5 * DAY_MS + 1);
    let mut second = at(NOW_MS);
    second["NextToken"] = first["NextToken"].clone();
    for asked in [at(NOW_MS), second] {
        let (name, text) = wire.fails("GetPartitions", asked).await;
        assert_eq!((name.as_str(), text.contains("changes are kept for 604800 seconds")), (INVALID, true), "{text}");
    }
    wire.ok("GetPartitions", at(NOW_MS + 1)).await;
    wire.app.settings.history_retention_ms = 0;
    let now_ms = wire.world.ports.clock.now_ms();
    assert_eq!(wire.fails("GetPartitions", at(now_ms - 5_001)).await.0, INVALID);
    wire.ok("GetPartitions", at(now_ms - 5_000)).await;
}

/// What was changed while the setting was lower is gone sooner, whatever the setting says now.
#[tokio::test]
async fn after_the_retention_was_raised_what_was_thrown_away_before_is_not_asked_for() {
    const HOUR_MS: i64 = 60 * 60 * 1000;
    let mut wire = Wire::with_table(&[("n", "int")]).await;
    let create = wire.app.settings.history_retention_ms;
    assert_eq!(create, 7 * DAY_MS);
    for value in ["1", "2", "3", "4"] {
        wire.create(&[value]).await;
    }
    let delete = async |wire: &Wire, value: &str| {
        wire.ok("DeletePartition", in_table(json!({ "PartitionValues": [value] }))).await;
    };
    let at = |at_ms: i64| in_table(json!({ "QueryAsOfTime": seconds(at_ms) }));
    // Lowered: the first change notes it.
    wire.world.clock.advance_ms(DAY_MS);
    wire.app.settings.history_retention_ms = HOUR_MS;
    delete(&wire, "1").await;
    wire.world.clock.advance_ms(DAY_MS);
    delete(&wire, "2").await;
    // Raised again. The moment before the second deletion is within the new time, and what it said is gone.
    wire.app.settings.history_retention_ms = 30 * DAY_MS;
    wire.world.clock.advance_ms(2 * HOUR_MS);
    let now_ms = wire.world.ports.clock.now_ms();
    let before = now_ms - 3 * HOUR_MS;
    let (name, text) = wire.fails("GetPartitions", at(before)).await;
    assert_eq!((name.as_str(), text.contains("was kept for less than")), (INVALID, true), "{text}");
    // Also when the first change under the new setting has been made, until what came before no longer counts.
    delete(&wire, "3").await;
    assert_eq!(wire.fails("GetPartitions", at(before)).await.0, INVALID);
    wire.world.clock.advance_ms(DAY_MS);
    delete(&wire, "4").await;
    wire.world.clock.advance_ms(20 * DAY_MS);
    assert_eq!(wire.fails("GetPartitions", at(now_ms)).await.0, INVALID);
    let left = wire.ok("GetPartitions", at(now_ms + HOUR_MS)).await;
    assert_eq!(values_of(&left["Partitions"]), [["4"]]);
}

#[tokio::test]
async fn partitions_as_a_commit_left_them() {
    let wire = lake().await;
    let committed = Status::Committed { version: Version(1) };
    let done = SyncState::Done("2 partitions created".into());
    let early = wire.put_proposal(1, "d/t", committed, done.clone(), Some(NOW_MS + 7)).await;
    let late = wire.put_proposal(2, "d/t", committed, SyncState::None, Some(NOW_MS + DAY_MS + 7)).await;
    let get = |id: &str| json!({ "TransactionId": id });
    assert_eq!(wire.past(get(&early), 1).await, rows(&[("1", "1"), ("2", "1"), ("3", "1")]));
    assert_eq!(wire.past(get(&late), 2).await, rows(&[("1", "1"), ("2", "2"), ("4", "1")]));
    let pending = wire.put_proposal(3, "d/t", committed, SyncState::Pending, None).await;
    let failed = wire.put_proposal(4, "d/t", committed, SyncState::Failed("x".into()), None).await;
    let judged = wire.put_proposal(5, "d/t", Status::Judged, SyncState::None, None).await;
    let rejected = wire.put_proposal(6, "d/t", Status::Rejected, SyncState::None, None).await;
    let elsewhere = wire.put_proposal(7, "d/other", committed, done.clone(), Some(NOW_MS + 7)).await;
    let replaced = wire.put_proposal(8, "d/t", committed, done, None).await;
    let unknown = uuid::Uuid::from_u128(99).to_string();
    for (id, expected) in [
        (pending.as_str(), "ResourceNotReadyException"),
        (&failed, "ResourceNotReadyException"),
        (&judged, "ResourceNotReadyException"),
        (&rejected, "EntityNotFoundException"),
        (&elsewhere, "EntityNotFoundException"),
        (&unknown, "EntityNotFoundException"),
        ("no-uuid", "EntityNotFoundException"),
        (&replaced, INVALID),
    ] {
        let (name, text) = wire.fails("GetPartitions", in_table(get(id))).await;
        assert_eq!(name, expected, "{text}");
        assert!(text.contains(id), "{text}");
        let table = json!({ "DatabaseName": "d", "Name": "t", "TransactionId": id });
        assert_eq!(wire.fails("GetTable", table).await.0, expected);
    }
}

#[tokio::test]
async fn a_table_as_it_stood() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    let update = |owner: &str, skip: bool| {
        let mut input = table_input("t", &[("n", "int")]);
        input["Owner"] = json!(owner);
        json!({ "DatabaseName": "d", "TableInput": input, "SkipArchive": skip })
    };
    for (owner, skip) in [("a", false), ("b", false), ("c", true), ("d", false)] {
        wire.world.clock.advance_ms(DAY_MS);
        wire.ok("UpdateTable", update(owner, skip)).await;
    }
    wire.world.clock.advance_ms(DAY_MS);
    let at = |at_ms: i64| json!({ "DatabaseName": "d", "Name": "t", "QueryAsOfTime": seconds(at_ms) });
    // Version 2 was replaced without being kept, so nobody knows when it began.
    for (days, owner) in [(0, None), (1, Some("")), (2, None), (3, Some("c")), (4, Some("d")), (5, Some("d"))] {
        let at_ms = NOW_MS + days * DAY_MS;
        match (days, owner) {
            (1 | 2, _) => {
                let (name, text) = wire.fails("GetTable", at(at_ms)).await;
                assert_eq!((name.as_str(), text.contains("GetTableVersions")), (INVALID, true), "{text}");
            }
            (0, _) => {
                let (name, _) = wire.fails("GetTable", at(at_ms)).await;
                assert_eq!(name, INVALID);
            }
            (_, owner) => assert_eq!(wire.ok("GetTable", at(at_ms)).await["Table"]["Owner"], json!(owner)),
        }
    }
    assert_eq!(wire.fails("GetTable", at(NOW_MS - 1)).await.0, INVALID);
}

#[tokio::test]
async fn a_table_whose_versions_are_all_kept() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    for owner in ["a", "b"] {
        wire.world.clock.advance_ms(DAY_MS);
        let mut input = table_input("t", &[("n", "int")]);
        input["Owner"] = json!(owner);
        wire.ok("UpdateTable", json!({ "DatabaseName": "d", "TableInput": input })).await;
    }
    wire.world.clock.advance_ms(30 * DAY_MS);
    for (ms, owner) in [
        (0, None),
        (DAY_MS - 1, None),
        (DAY_MS, Some("a")),
        (2 * DAY_MS - 1, Some("a")),
        (2 * DAY_MS, Some("b")),
        (32 * DAY_MS, Some("b")),
    ] {
        let asked = json!({ "DatabaseName": "d", "Name": "t", "QueryAsOfTime": seconds(NOW_MS + ms) });
        assert_eq!(wire.ok("GetTable", asked).await["Table"].get("Owner").and_then(Value::as_str), owner, "{ms}");
    }
}

#[tokio::test]
async fn what_the_past_costs() {
    let wire = lake().await;
    let cost = async |extra: Value| {
        let before = wire.world.items.item_usage();
        wire.ok("GetPartitions", in_table(extra)).await;
        let usage = wire.world.items.item_usage().since(&before);
        (usage.batch_gets, usage.gets, usage.queries, usage.items_read)
    };
    // Both heads; the present of 16 shards with its three rows and the history with its two images.
    assert_eq!(cost(json!({ "QueryAsOfTime": seconds(NOW_MS) })).await, (1, 0, 32, 2 + 3 + 2));
    assert_eq!(cost(json!({ "QueryAsOfTime": seconds(NOW_MS + DAY_MS) })).await, (1, 0, 32, 2 + 3 + 2));
    let now = seconds(NOW_MS + 2 * DAY_MS);
    assert_eq!(cost(json!({ "QueryAsOfTime": now })).await, (1, 0, 16, 2 + 3), "the latest state has no history");
    // The definition says where the table lies; the proposal is looked up by its id; no cursor: nothing follows its log.
    let committed = Status::Committed { version: Version(1) };
    let id = wire.put_proposal(1, "d/t", committed, SyncState::None, Some(NOW_MS)).await;
    assert_eq!(cost(json!({ "TransactionId": id })).await, (1, 3, 33, 2 + 1 + 2 + 3 + 2));
}

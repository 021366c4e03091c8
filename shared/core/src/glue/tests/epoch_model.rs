//! Random sequences of changes against a plain model: what is listed and got is what the model holds, at every step,
//! wherever the worker is.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Wire, in_table, table_input};
use crate::catalog::purge;
use crate::partition::{KeyType, encode_key};
use crate::predicate::{Mode, compile};

const KEYS: [&[(&str, &str)]; 7] = [
    &[("a", "int")],
    &[("a", "string")],
    &[("a", "int"), ("b", "string")],
    &[("b", "string"), ("a", "int")],
    &[("a", "int"), ("b", "date")],
    &[("x", "int"), ("y", "string")],
    &[("a", "string"), ("b", "decimal"), ("c", "string")],
];

#[derive(Clone, Debug)]
enum Action {
    Keys(usize),
    Create(Vec<String>, u32),
    Update(Vec<String>, u32),
    Move(Vec<String>, Vec<String>),
    Delete(Vec<String>),
    Get(Vec<String>),
    List(usize, u16),
    CreateIndex(usize),
    DeleteIndex(usize),
    /// Does what is recorded until so many calls were made, if it does not end before.
    Work(u64),
    Advance(i64),
}

const INDEXES: [(&str, &[&str]); 4] = [("i0", &["a"]), ("i1", &["b"]), ("i2", &["b", "a"]), ("i3", &["x"])];

fn row() -> impl Strategy<Value = Vec<String>> {
    let value = prop::sample::select(vec!["1", "01", "2", "10", "2024-01-01", "z"]);
    prop::collection::vec(value.prop_map(str::to_owned), 1..=3)
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        3 => (0..KEYS.len()).prop_map(Action::Keys),
        9 => (row(), any::<u32>()).prop_map(|(row, stamp)| Action::Create(row, stamp)),
        2 => (row(), any::<u32>()).prop_map(|(row, stamp)| Action::Update(row, stamp)),
        2 => (row(), row()).prop_map(|(from, to)| Action::Move(from, to)),
        3 => row().prop_map(Action::Delete),
        2 => row().prop_map(Action::Get),
        4 => (1_usize..6, 0_u16..4).prop_map(|(page, total)| Action::List(page, total)),
        1 => (0..INDEXES.len()).prop_map(Action::CreateIndex),
        1 => (0..INDEXES.len()).prop_map(Action::DeleteIndex),
        5 => (0_u64..80).prop_map(Action::Work),
        3 => prop::sample::select(vec![60_000, 16 * 60_000]).prop_map(Action::Advance),
    ]
}

/// Values of every partition, with what was last written to it.
struct Model {
    keys: usize,
    rows: BTreeMap<Vec<String>, u32>,
}

fn input(values: &[String], stamp: u32) -> Value {
    json!({ "Values": values, "Parameters": { "stamp": stamp.to_string() } })
}

impl Model {
    fn types(&self) -> Vec<KeyType> {
        KEYS[self.keys].iter().map(|(_, kind)| KeyType::of(kind)).collect()
    }

    fn fits(&self, values: &[String]) -> bool {
        values.len() == KEYS[self.keys].len()
    }

    fn in_order(&self) -> Vec<(Vec<String>, u32)> {
        let types = self.types();
        let mut rows: Vec<(Vec<String>, u32)> = self.rows.clone().into_iter().collect();
        rows.sort_by_key(|(values, _)| encode_key(&types, values));
        rows
    }

    async fn keys(&mut self, wire: &Wire, keys: usize) {
        let update = json!({ "DatabaseName": "d", "TableInput": table_input("t", KEYS[keys]) });
        let (status, body) = wire.send("UpdateTable", update).await;
        if status == 200 {
            self.keys = keys;
        } else {
            assert_eq!(body["__type"], "ResourceNotReadyException", "{body}");
        }
    }

    async fn create(&mut self, wire: &Wire, values: &[String], stamp: u32) {
        let sent = in_table(json!({ "PartitionInput": input(values, stamp) }));
        let expected = if !self.fits(values) {
            json!("InvalidInputException")
        } else if self.rows.contains_key(values) {
            json!("AlreadyExistsException")
        } else {
            self.rows.insert(values.to_vec(), stamp);
            Value::Null
        };
        assert_eq!(wire.send("CreatePartition", sent).await.1["__type"], expected, "{values:?}");
    }

    async fn update(&mut self, wire: &Wire, from: &[String], to: &[String], stamp: u32) {
        let sent = in_table(json!({ "PartitionValueList": from, "PartitionInput": input(to, stamp) }));
        let body = wire.send("UpdatePartition", sent).await.1;
        if body.get("__type").is_none() {
            assert!(self.rows.remove(from).is_some(), "{from:?}");
            assert!(self.rows.insert(to.to_vec(), stamp).is_none());
        } else if self.rows.contains_key(from) {
            assert!(from != to, "{body}");
            assert!(!self.fits(to) || self.rows.contains_key(to), "{from:?} {to:?} {body}");
        }
    }

    async fn delete(&mut self, wire: &Wire, values: &[String]) {
        let answer = wire.send("DeletePartition", in_table(json!({ "PartitionValues": values }))).await;
        assert_eq!(answer.0 == 200, self.rows.remove(values).is_some(), "{values:?} {}", answer.1);
    }

    async fn get(&self, wire: &Wire, values: &[String]) {
        let (_, body) = wire.send("GetPartition", in_table(json!({ "PartitionValues": values }))).await;
        let stamp = body["Partition"]["Parameters"]["stamp"].as_str().map(str::to_owned);
        assert_eq!(stamp, self.rows.get(values).map(u32::to_string), "{values:?}");
        let keys = json!([{ "Values": values }]);
        let batch = wire.ok("BatchGetPartition", in_table(json!({ "PartitionsToGet": keys }))).await;
        let found = batch["Partitions"].as_array().unwrap().len();
        assert_eq!(found, usize::from(self.rows.contains_key(values)), "{values:?}");
    }

    async fn list(&self, wire: &Wire, page: usize, total: u16) {
        let shown = |partition: &Value| {
            let values = partition["Values"].as_array().unwrap().iter();
            let values: Vec<String> = values.map(|value| value.as_str().unwrap().to_owned()).collect();
            (values, partition["Parameters"]["stamp"].as_str().unwrap().parse::<u32>().unwrap())
        };
        let mut all = Vec::new();
        for number in 0..total.max(1) {
            let segment =
                if total == 0 { Value::Null } else { json!({ "SegmentNumber": number, "TotalSegments": total }) };
            let mut token = Value::Null;
            loop {
                let sent = in_table(json!({ "MaxResults": page, "NextToken": token, "Segment": segment }));
                let answer = wire.ok("GetPartitions", sent).await;
                all.extend(answer["Partitions"].as_array().unwrap().iter().map(shown));
                token = answer["NextToken"].clone();
                if token.is_null() {
                    break;
                }
            }
        }
        let mut expected = self.in_order();
        if total > 1 {
            all.sort();
            expected.sort();
        }
        assert_eq!(all, expected);
    }

    /// One value of every key, as literals that each type takes: by evaluation over all rows, or the refusal.
    async fn filter(&self, wire: &Wire, value: &str) {
        let literal = |kind: &str| match kind {
            "string" => format!("'{value}'"),
            "date" => "'2024-01-01'".to_owned(),
            _ => value.to_owned(),
        };
        let terms: Vec<String> =
            KEYS[self.keys].iter().map(|(name, kind)| format!("{name} = {}", literal(kind))).collect();
        let expression = terms.join(" and ");
        let head = wire.head().await;
        let filter = compile(&expression, &head.keys, Mode::Lenient).unwrap();
        let rows = self.in_order().into_iter().filter(|(values, _)| self.fits(values));
        let judged: Result<Vec<_>, _> =
            rows.map(|(values, _)| filter.evaluate(&values).map(|is| (values, is))).collect();
        let expected =
            judged.ok().map(|rows| rows.into_iter().filter(|(_, is)| *is).map(|(values, _)| values).collect());
        let (_, body) = wire.send("GetPartitions", in_table(json!({ "Expression": expression }))).await;
        let found: Option<Vec<Vec<String>>> = body.get("Partitions").map(super::values_of);
        assert!(found.is_some() || body["__type"] == "InvalidStateException", "{body}");
        assert_eq!(found, expected, "{expression}");
    }

    async fn act(&mut self, wire: &Wire, action: Action) {
        match action {
            Action::Keys(keys) => self.keys(wire, keys).await,
            Action::Create(values, stamp) => self.create(wire, &values, stamp).await,
            Action::Update(values, stamp) => self.update(wire, &values, &values, stamp).await,
            Action::Move(from, to) => self.update(wire, &from, &to, 7).await,
            Action::Delete(values) => self.delete(wire, &values).await,
            Action::Get(values) => self.get(wire, &values).await,
            Action::List(page, total) => self.list(wire, page, total).await,
            Action::CreateIndex(at) => {
                let (name, keys) = INDEXES[at];
                let sent = in_table(json!({ "PartitionIndex": super::indexes::index(name, keys) }));
                let status = wire.send("CreatePartitionIndex", sent).await.0;
                assert!(status == 200 || status == 400);
            }
            Action::DeleteIndex(at) => {
                let status = wire.send("DeletePartitionIndex", in_table(json!({ "IndexName": INDEXES[at].0 }))).await.0;
                assert!(status == 200 || status == 400);
            }
            Action::Work(calls) => {
                let work = crate::catalog::CatalogWork::SettleTable(wire.head().await.table_id);
                wire.world.faults.crash_after(calls);
                let _ = purge::carry_out(&wire.app.ports, &work, wire.soon()).await;
                wire.world.faults.revive();
            }
            Action::Advance(ms) => wire.world.clock.advance_ms(ms),
        }
    }

    /// When the worker is through, everything is in one epoch and every index points to every partition it can.
    async fn settled(&self, wire: &Wire) {
        wire.settle().await;
        let head = wire.head().await;
        assert!(head.older_epochs.is_empty() && wire.open_work() == 0);
        let mut expected = BTreeMap::from([(format!("{}#p", head.epoch), self.rows.len())]);
        let with_entries = self.rows.keys().filter(|values| self.fits(values)).count();
        for index in &head.indexes {
            assert!(index.is_complete, "{index:?}");
            expected.insert(format!("{}#i{}", head.epoch, index.number), with_entries);
        }
        expected.retain(|_, count| *count > 0);
        let kinds: BTreeSet<String> = wire.kinds().into_iter().filter(|kind| !kind.ends_with("#h")).collect();
        let found = kinds.into_iter().map(|kind| (kind.clone(), wire.count(&kind))).collect::<BTreeMap<_, _>>();
        assert_eq!(found, expected);
        assert!(wire.kinds().iter().all(|kind| kind.starts_with(&format!("{}#", head.epoch))));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn listings_and_gets_agree_with_the_model(actions in prop::collection::vec(action(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let wire = Wire::with_table(KEYS[0]).await;
            let mut model = Model { keys: 0, rows: BTreeMap::new() };
            for action in actions {
                model.act(&wire, action).await;
                model.list(&wire, 1000, 0).await;
                model.filter(&wire, "1").await;
            }
            model.settled(&wire).await;
            model.list(&wire, 3, 0).await;
            for value in ["1", "2", "10"] {
                model.filter(&wire, value).await;
            }
        });
    }
}

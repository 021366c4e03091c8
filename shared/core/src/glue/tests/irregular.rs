//! What a table's head says of irregular values, what that saves, and that nothing is missed for it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::{Wire, in_table, partition_input, values_of};
use crate::catalog::{CatalogError, TableRef};
use crate::partition::tests::store::Unsteady;
use crate::partition::{self, HIVE_DEFAULT_PARTITION, Irregular, IrregularKind, PartitionInput, PartitionUpdate};
use crate::ports::{App, Ports};
use crate::predicate::{Mode, compile};
use crate::store::{Condition, ItemUsage, ReadItems, Table};

use IrregularKind::{NullMarker, OtherSpelling, Unreadable};

const INTEGERS: &[(&str, &str)] = &[("a", "int"), ("b", "int"), ("c", "int"), ("d", "int")];

fn filtered(expression: &str) -> Value {
    in_table(json!({ "Expression": expression }))
}

/// Values found, and the cost beside the two heads: gets, batch gets, queries, puts.
async fn found(wire: &Wire, expression: &str) -> (Vec<String>, [u64; 4]) {
    let before = wire.world.items.item_usage();
    let answer = wire.ok("GetPartitions", filtered(expression)).await;
    let ItemUsage { gets, batch_gets, queries, puts, .. } = wire.world.items.item_usage().since(&before);
    let values = values_of(&answer["Partitions"]).into_iter().map(|values| values.join("/")).collect();
    (values, [gets, batch_gets - 1, queries, puts])
}

async fn irregular(wire: &Wire) -> Irregular {
    wire.head().await.irregular
}

impl Wire {
    /// The head as a version that knew nothing of all this wrote it.
    async fn forget_irregular(&self) {
        let dump = self.world.items.dump();
        let (key, item) =
            dump.iter().find(|(key, item)| key.table == Table::Catalog && item.contains_key("epoch")).unwrap();
        let mut item = item.clone();
        item.remove("irregular").unwrap();
        self.world.ports.items.put(key, item, Condition::Always).await.unwrap();
    }

    async fn delete_partition(&self, values: &[&str]) {
        self.ok("DeletePartition", in_table(json!({ "PartitionValues": values }))).await;
    }
}

#[tokio::test]
async fn a_full_key_is_one_get_as_long_as_all_values_are_regular() {
    let wire = Wire::with_table(INTEGERS).await;
    wire.create(&["2015", "3", "5", "7"]).await;
    wire.create(&["2015", "3", "5", "8"]).await;
    let one = "a = 2015 and b = 3 and c = 5 and d = 7";
    assert_eq!(found(&wire, one).await, (vec!["2015/3/5/7".to_owned()], [1, 0, 0, 0]));
    let several = "a = 2015 and b = 3 and c = 5 and d in (6, 7, 8)";
    let both = || vec!["2015/3/5/7".to_owned(), "2015/3/5/8".to_owned()];
    assert_eq!(found(&wire, several).await, (both(), [0, 1, 0, 0]));
    assert_eq!(found(&wire, "a = 2015 and b = 3").await, (both(), [0, 0, 16, 0]), "no probes");
    let marked = format!("a = 2015 and b = 3 and c = 5 and d = '{HIVE_DEFAULT_PARTITION}'");
    wire.create(&["2015", "3", "5", HIVE_DEFAULT_PARTITION]).await;
    let null = vec![format!("2015/3/5/{HIVE_DEFAULT_PARTITION}")];
    assert_eq!(found(&wire, &marked).await, (null, [1, 0, 0, 0]), "NULL is regular");
    assert_eq!(irregular(&wire).await, Irregular::NONE.with(NullMarker));
    wire.create(&["2015", "3", "5", "07"]).await;
    let spellings = vec!["2015/3/5/7".to_owned(), "2015/3/5/07".to_owned()];
    assert_eq!(found(&wire, one).await, (spellings, [0, 0, 16, 0]));
    wire.create(&["2015", "3", "x", "7"]).await;
    let (name, _) = wire.fails("GetPartitions", filtered(one)).await;
    assert_eq!(name, "InvalidStateException");
}

#[tokio::test]
async fn days_and_moments_are_one_get_too() {
    let wire = Wire::with_table(&[("day", "date"), ("at", "timestamp"), ("price", "decimal(10,2)")]).await;
    wire.create(&["2024-02-29", "2024-02-29 10:00:00.5", "1.5"]).await;
    let found_one = (vec!["2024-02-29/2024-02-29 10:00:00.5/1.5".to_owned()], [1, 0, 0, 0]);
    for at in ["2024-02-29 10:00:00.5", "2024-02-29 10:00:00.500"] {
        let expression = format!("day = '2024-02-29' and at = '{at}' and price = 1.50");
        assert_eq!(found(&wire, &expression).await, found_one);
    }
    assert_eq!(irregular(&wire).await, Irregular::NONE);
    wire.create(&["2024-02-29", "2024-02-29 10:00:00.50", "1.50"]).await;
    assert_eq!(irregular(&wire).await, Irregular::NONE.with(OtherSpelling));
    let both = found(&wire, "day = '2024-02-29' and at = '2024-02-29 10:00:00.5' and price = 1.5").await;
    assert_eq!((both.0.len(), both.1), (2, [0, 0, 16, 0]), "still no probes");
}

#[tokio::test]
async fn a_kind_is_noted_once_before_it_is_written() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    let cost = |operation: &'static str, input: Value| {
        let wire = &wire;
        async move {
            let before = wire.world.items.item_usage();
            wire.ok(operation, input).await;
            let usage = wire.world.items.item_usage().since(&before);
            (usage.puts, usage.transactions)
        }
    };
    let create = |value: &str| in_table(json!({ "PartitionInput": { "Values": [value] } }));
    assert_eq!(cost("CreatePartition", create("1")).await, (1, 0));
    assert_eq!(cost("CreatePartition", create("01")).await, (2, 0));
    assert_eq!(cost("CreatePartition", create("02")).await, (1, 0));
    let batch = |values: Vec<String>| {
        let inputs: Vec<Value> = values.iter().map(|value| json!({ "Values": [value] })).collect();
        in_table(json!({ "PartitionInputList": inputs }))
    };
    let regular = batch((100..150).map(|n| n.to_string()).collect());
    assert_eq!(cost("BatchCreatePartition", regular).await, (50, 0));
    assert_eq!(irregular(&wire).await, Irregular::NONE.with(OtherSpelling));
    let unreadable = batch((0..50).map(|n| format!("x{n}")).collect());
    assert_eq!(cost("BatchCreatePartition", unreadable).await, (51, 0), "one note for all");
    let update =
        |from: &str, to: &str| in_table(json!({ "PartitionValueList": [from], "PartitionInput": { "Values": [to] } }));
    assert_eq!(cost("UpdatePartition", update("100", "100")).await, (0, 1));
    assert_eq!(cost("UpdatePartition", update("100", HIVE_DEFAULT_PARTITION)).await, (1, 1));
    assert_eq!(irregular(&wire).await, Irregular::ANY);
    assert_eq!(wire.head().await.version, 0, "a note is no version");
}

#[tokio::test]
async fn in_strict_mode_the_marker_is_looked_for() {
    let mut wire = Wire::with_table(&[("a", "int"), ("b", "int")]).await;
    wire.app.settings.default_partition = Mode::Strict;
    wire.create(&["1", "1"]).await;
    assert_eq!(found(&wire, "a = 1 and b = 1").await.1, [1, 0, 0, 0]);
    wire.create(&["1", HIVE_DEFAULT_PARTITION]).await;
    assert_eq!(wire.fails("GetPartitions", filtered("a = 1 and b = 1")).await.0, "InvalidStateException");
    assert_eq!(found(&wire, "a = 2").await, (vec![], [0, 0, 32, 0]));
}

#[tokio::test]
async fn a_head_that_says_nothing_leaves_everything_possible() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    wire.create(&["1"]).await;
    wire.forget_irregular().await;
    assert_eq!(irregular(&wire).await, Irregular::ANY);
    assert_eq!(found(&wire, "n = 1").await, (vec!["1".to_owned()], [0, 0, 32, 0]));
    let before = wire.world.items.item_usage();
    wire.create(&["01"]).await;
    assert_eq!(wire.world.items.item_usage().since(&before).puts, 1, "nothing to note");
    assert_eq!(found(&wire, "n = 1").await.0, ["1", "01"]);
    // What it was stays unknown, also when others change the head; another epoch begins with a clean sheet.
    wire.ok("UpdateTable", json!({ "DatabaseName": "d", "TableInput": super::table_input("t", &[("m", "int")]) }))
        .await;
    assert_eq!(irregular(&wire).await, Irregular::ANY);
    wire.change_keys(&[("n", "decimal")]).await;
    assert_eq!(irregular(&wire).await, Irregular::NONE);
    assert_eq!(found(&wire, "n = 1").await.0, ["1", "01"]);
    wire.settle().await;
    assert_eq!(irregular(&wire).await, Irregular::NONE.with(OtherSpelling));
    assert_eq!(found(&wire, "n = 1").await.0, ["1", "01"]);
}

#[tokio::test]
async fn what_the_worker_brings_from_an_earlier_epoch_is_noted() {
    for (value, kind) in [("01", OtherSpelling), ("x", Unreadable), (HIVE_DEFAULT_PARTITION, NullMarker)] {
        let wire = Wire::with_table(&[("n", "string")]).await;
        wire.create(&["1"]).await;
        wire.create(&[value]).await;
        assert_eq!(irregular(&wire).await, Irregular::NONE, "texts are regular");
        wire.change_keys(&[("n", "int")]).await;
        let answer = |wire: &Wire| {
            let wire = wire.clone();
            async move { wire.send("GetPartitions", filtered("n = 1")).await.1 }
        };
        let before = answer(&wire).await;
        wire.settle().await;
        assert_eq!(irregular(&wire).await, Irregular::NONE.with(kind));
        assert_eq!(answer(&wire).await, before, "{value}");
        assert_eq!(
            before["Partitions"].as_array().map(Vec::len),
            match kind {
                OtherSpelling => Some(2),
                Unreadable => None,
                NullMarker => Some(1),
            }
        );
    }
}

/// Also of what is only history by then.
#[tokio::test]
async fn the_past_of_an_earlier_epoch_is_noted_and_found() {
    for changed_before in [true, false] {
        for (value, kind) in [("01", OtherSpelling), ("x", Unreadable)] {
            let wire = Wire::with_table(&[("n", "string")]).await;
            wire.create(&[value]).await;
            wire.world.clock.advance_ms(1_000);
            let at = wire.world.ports.clock.now_ms();
            wire.world.clock.advance_ms(1_000);
            if changed_before {
                wire.delete_partition(&[value]).await;
            }
            wire.change_keys(&[("n", "int")]).await;
            if !changed_before {
                // Its image goes to the history of the new epoch.
                wire.delete_partition(&[value]).await;
                assert_eq!(irregular(&wire).await, Irregular::NONE.with(kind));
            }
            wire.settle().await;
            assert_eq!(irregular(&wire).await, Irregular::NONE.with(kind));
            let input = in_table(json!({ "Expression": "n = 1", "QueryAsOfTime": at as f64 / 1000.0 }));
            let (status, body) = wire.send("GetPartitions", input).await;
            match kind {
                OtherSpelling => assert_eq!(values_of(&body["Partitions"]), [["01"]], "{body}"),
                _ => assert_eq!((status, &body["__type"]), (400, &json!("InvalidStateException"))),
            }
        }
    }
}

/// A writer that read the head before its keys changed writes to the earlier epoch and notes nothing.
#[tokio::test]
async fn a_writer_that_knows_an_earlier_epoch_only() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    let ports = &wire.app.ports;
    let earlier = wire.head().await;
    wire.change_keys(&[("n", "decimal")]).await;
    let create = |table: TableRef, value: &'static str| {
        let input = PartitionInput::from_json(json!({ "Values": [value] }).as_object().unwrap().clone());
        let settings = &wire.app.settings;
        async move { partition::create(ports, settings, &table, input).await }
    };
    create(earlier.clone(), "01").await.unwrap();
    assert_eq!(irregular(&wire).await, Irregular::NONE);
    assert_eq!(found(&wire, "n = 1").await.0, ["01"]);
    wire.settle().await;
    assert_eq!(irregular(&wire).await, Irregular::NONE.with(OtherSpelling));
    assert_eq!(found(&wire, "n = 1").await.0, ["01"]);
    wire.ok("DeleteTable", json!({ "DatabaseName": "d", "Name": "t" })).await;
    let gone = create(earlier, "02").await.unwrap_err();
    assert!(matches!(gone, CatalogError::TableNotFound(_)), "{gone}");
}

/// Readers and writers take turns at random on a store that loses answers: whoever begins to read after a writer was told
/// that its partition is there sees it.
#[tokio::test]
async fn a_reader_that_begins_after_an_irregular_write_sees_it() {
    for seed in 1..=100_u64 {
        let wire = Wire::with_table(&[("a", "int"), ("b", "int")]).await;
        wire.create(&["1", "1"]).await;
        let items = Arc::new(Unsteady::new(wire.world.items.clone(), seed, 25));
        let ports = Ports { items, ..wire.world.ports.clone() };
        let wire = Wire { world: wire.world.clone(), app: App::new(ports, wire.app.settings.clone()) };
        let value = if seed % 2 == 0 { "01" } else { "x" };
        let is_told = Arc::new(AtomicBool::new(false));
        let writer = {
            let (wire, is_told) = (wire.clone(), is_told.clone());
            tokio::spawn(async move {
                for _ in 0..(seed % 7) * 3 {
                    tokio::task::yield_now().await;
                }
                let input = in_table(json!({ "PartitionInput": partition_input(&["1", value]) }));
                loop {
                    let (status, body) = wire.send("CreatePartition", input.clone()).await;
                    if status == 200 || body["__type"] == "AlreadyExistsException" {
                        break;
                    }
                }
                is_told.store(true, Ordering::SeqCst);
            })
        };
        let mut after = 0;
        while after < 3 {
            let was_told = is_told.load(Ordering::SeqCst);
            let (status, body) = wire.send("GetPartitions", filtered("a = 1 and b = 1")).await;
            let is_busy = status >= 500 || body["__type"] == "ThrottlingException";
            if is_busy || !was_told {
                tokio::task::yield_now().await;
                continue;
            }
            after += 1;
            match value {
                "01" => assert_eq!(values_of(&body["Partitions"]).len(), 2, "seed {seed}: {body}"),
                _ => assert_eq!(body["__type"], "InvalidStateException", "seed {seed}: {body}"),
            }
        }
        writer.await.unwrap();
    }
}

#[tokio::test]
async fn a_table_that_is_created_again_begins_anew() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    wire.create(&["01"]).await;
    wire.ok("DeleteTable", json!({ "DatabaseName": "d", "Name": "t" })).await;
    let again = json!({ "DatabaseName": "d", "TableInput": super::table_input("t", &[("n", "int")]) });
    wire.ok("CreateTable", again).await;
    assert_eq!(irregular(&wire).await, Irregular::NONE);
    wire.create(&["1"]).await;
    assert_eq!(found(&wire, "n = 1").await, (vec!["1".to_owned()], [1, 0, 0, 0]));
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % end.max(1)
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

const KEY_TYPES: &[&str] = &["int", "bigint", "decimal(10,2)", "date", "timestamp", "string"];
const VALUES: &[&str] = &[
    "1",
    "1",
    "2",
    "01",
    "1.0",
    "1.5",
    "1.50",
    "1e0",
    "-0",
    "0",
    "x",
    HIVE_DEFAULT_PARTITION,
    "2024-01-01",
    "2024-02-30",
    "2024-01-01 00:00:00",
    "2024-01-01 00:00:00.0",
];

/// A wire with what should be in its table.
struct Modelled {
    wire: Wire,
    rows: BTreeSet<Vec<String>>,
    random: Random,
}

impl Modelled {
    fn row(&mut self) -> Vec<String> {
        // Most tables are regular by most of their keys.
        let few = &VALUES[..if self.random.below(2) == 0 { 4 } else { VALUES.len() }];
        [self.random.one(few).to_owned(), self.random.one(&["1", "1", "2", "02"]).to_owned()].to_vec()
    }

    fn known(&mut self) -> Option<Vec<String>> {
        let at = self.random.below(self.rows.len());
        self.rows.iter().nth(at).cloned()
    }

    /// Writes with what it knows of the table, which may be old.
    async fn change(&mut self, table: &TableRef) {
        let (ports, settings) = (self.wire.app.ports.clone(), self.wire.app.settings.clone());
        let input = |values: &[String]| PartitionInput { values: values.to_vec(), ..PartitionInput::default() };
        let row = self.row();
        match (self.random.below(5), self.known()) {
            (0 | 1, _) | (_, None) => {
                let answer = partition::create(&ports, &settings, table, input(&row)).await;
                assert_eq!(answer.is_ok(), self.rows.insert(row), "{answer:?}");
            }
            (2, _) => {
                let batch: Vec<Vec<String>> = vec![row, self.row(), self.row()];
                let inputs = batch.iter().map(|values| input(values)).collect();
                let answers = partition::create_many(&ports, &settings, table, inputs).await;
                for (answer, row) in answers.into_iter().zip(batch) {
                    assert_eq!(answer.is_ok(), self.rows.insert(row), "{answer:?}");
                }
            }
            (3, Some(from)) => {
                let update = PartitionUpdate { values: from.clone(), input: input(&row) };
                let is_free = row == from || !self.rows.contains(&row);
                let answer = partition::update(&ports, &settings, table, update, None).await;
                assert_eq!(answer.is_ok(), is_free, "{answer:?}");
                if is_free {
                    self.rows.remove(&from);
                    self.rows.insert(row);
                }
            }
            (_, Some(gone)) => {
                partition::delete(&ports, &settings, table, &gone, None).await.unwrap();
                self.rows.remove(&gone);
            }
        }
    }

    fn expression(&mut self, head: &TableRef) -> String {
        let mut leaf = |at: usize| {
            let key = &head.keys[at];
            let literal = |random: &mut Random| match key.type_name.as_str() {
                "int" | "bigint" => random.one(&["1", "2", "0"]).to_owned(),
                "decimal(10,2)" => random.one(&["1", "1.5", "0"]).to_owned(),
                "date" => "'2024-01-01'".to_owned(),
                "timestamp" => "'2024-01-01 00:00:00'".to_owned(),
                _ => format!("'{}'", random.one(VALUES)),
            };
            match self.random.below(6) {
                0 => format!("{} in ({}, {})", key.name, literal(&mut self.random), literal(&mut self.random)),
                1 => format!("{} is null", key.name),
                _ => format!("{} = {}", key.name, literal(&mut self.random)),
            }
        };
        let (a, b, c, d) = (leaf(0), leaf(1), leaf(0), leaf(1));
        match self.random.below(5) {
            0 => a,
            1 => format!("{a} or {b}"),
            2 => format!("({a} and {b}) or ({c} and {d})"),
            _ => format!("{a} and {b}"),
        }
    }

    async fn check(&mut self, rows: &BTreeSet<Vec<String>>, at_ms: Option<i64>, what: &str) {
        let head = self.wire.head().await;
        for _ in 0..4 {
            let expression = self.expression(&head);
            let mode = self.wire.app.settings.default_partition;
            let filter = compile(&expression, &head.keys, mode).unwrap();
            let wanted: Result<BTreeSet<Vec<String>>, _> = rows
                .iter()
                .filter_map(|row| filter.evaluate(row).map(|is_wanted| is_wanted.then(|| row.clone())).transpose())
                .collect();
            let mut input = filtered(&expression);
            if let Some(at_ms) = at_ms {
                input["QueryAsOfTime"] = json!(at_ms as f64 / 1000.0);
            }
            let mut found = BTreeSet::new();
            let answer = loop {
                let (status, body) = self.wire.send("GetPartitions", input.clone()).await;
                if status != 200 {
                    break Err(body["__type"].clone());
                }
                for values in values_of(&body["Partitions"]) {
                    assert!(found.insert(values), "{what} {expression}: twice");
                }
                match body.get("NextToken") {
                    Some(token) => input["NextToken"] = token.clone(),
                    None => break Ok(found),
                }
            };
            match (&answer, &wanted) {
                (Ok(found), Ok(wanted)) => assert_eq!(found, wanted, "{what} {expression} {at_ms:?}"),
                (Err(name), Err(_)) => assert_eq!(name, "InvalidStateException"),
                _ => panic!("{what} {expression} {at_ms:?}: {answer:?} instead of {wanted:?} of {rows:?}"),
            }
        }
    }
}

/// Whatever is written, by whoever knows the present or an earlier state of the table, while its keys change types and come
/// back, and its partitions are re-keyed: filters answer what evaluation over all rows does, of now and of the past.
#[tokio::test]
async fn nothing_is_missed_whatever_was_written() {
    for seed in 1..=10_u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut types = [random.one(KEY_TYPES), random.one(KEY_TYPES)];
        let mut wire = Wire::with_table(&[("a", types[0]), ("b", types[1])]).await;
        if seed % 3 == 0 {
            wire.app.settings.default_partition = Mode::Strict;
        }
        let mut heads = vec![wire.head().await];
        let mut past = Vec::new();
        let mut model = Modelled { wire, rows: BTreeSet::new(), random };
        for step in 0..24 {
            let what = format!("seed {seed} step {step}");
            match model.random.below(12) {
                0 | 1 => {
                    types[model.random.below(2)] = model.random.one(KEY_TYPES);
                    // The worker has to come after some changes.
                    if model.wire.head().await.older_epochs.len() < 4 {
                        model.wire.change_keys(&[("a", types[0]), ("b", types[1])]).await;
                        heads.push(model.wire.head().await);
                    } else {
                        types = [0, 1].map(|at| {
                            let name = &heads.last().unwrap().keys[at].type_name;
                            KEY_TYPES.iter().copied().find(|known| known == name).unwrap()
                        });
                    }
                }
                2 => {
                    model.wire.settle().await;
                    heads = vec![model.wire.head().await];
                }
                3 => {
                    model.wire.world.clock.advance_ms(2_000);
                    past.push((model.wire.world.ports.clock.now_ms(), model.rows.clone()));
                    model.wire.world.clock.advance_ms(8_000);
                }
                _ => {
                    let known = heads[heads.len() - 1 - model.random.below(heads.len().min(2))].clone();
                    let now = model.wire.head().await;
                    // Whoever knows an earlier epoch only may create what another has created since.
                    let table = if model.random.below(3) == 0 && known.epoch == now.epoch { known } else { now };
                    model.change(&table).await;
                }
            }
            let rows = model.rows.clone();
            model.check(&rows, None, &what).await;
            for (at_ms, rows) in past.clone() {
                model.check(&rows, Some(at_ms), &what).await;
            }
        }
    }
}

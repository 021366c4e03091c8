//! Whether a file has a row that was read: only the columns of the predicates are read, and only where it is open.

use parquet::file::properties::WriterProperties;
use serde_json::{Value, json};

use super::kit::Kit;
use crate::commit::files::{Budget, FoundRow, RowQuestion, find_row};
use crate::commit::read_set::{declared, reads_of};
use crate::commit::table_facts::TableFacts;
use crate::delta::schema::Schema;
use crate::delta::testkit::parquet_pages;
use crate::delta::{Metadata, Strictness, parse_commit};

/// Three row groups of four rows: id 0 to 11, name a to l, price missing in every other row.
const MESSAGE: &str = "message m { required int64 id; optional binary name (STRING); optional double price;
    optional group at { optional int32 day (DATE); } }";

struct World {
    kit: Kit,
    metadata: Metadata,
    schema: Schema,
    lines: Vec<Value>,
}

async fn world() -> World {
    let kit = Kit::empty().await;
    let rows: Vec<Value> = (0..12_u8)
        .map(|at| {
            let price = if at % 2 == 0 { json!(f64::from(at) / 2.0) } else { Value::Null };
            let name = char::from(b'a' + at).to_string();
            json!({"id": at, "name": name, "price": price, "at": {"day": 19_000 + u32::from(at)}})
        })
        .collect();
    let bytes = parquet_pages(MESSAGE, &rows, 4, WriterProperties::default());
    kit.table.put("f.parquet", &bytes).await;
    let field = |name: &str, kind: Value| json!({"name": name, "type": kind, "nullable": true, "metadata": {}});
    let inner = json!({"type": "struct", "fields": [field("day", json!("date"))]});
    let fields = [
        field("id", json!("long")),
        field("name", json!("string")),
        field("price", json!("double")),
        field("at", inner),
        field("p", json!("string")),
        field("late", json!("string")),
    ];
    let schema = Schema::parse(&json!({"type": "struct", "fields": fields}).to_string()).unwrap();
    let metadata = Metadata { partition_columns: vec!["p".to_owned()], ..Metadata::default() };
    let add = json!({"add": {"path": "f.parquet", "partitionValues": {"p": "x"}, "size": bytes.len(),
        "modificationTime": 1, "dataChange": true}});
    World { kit, metadata, schema, lines: vec![add] }
}

impl World {
    /// What is found for a condition, and how many reads that took.
    async fn find(&self, predicate: Value, is_deleted: &(dyn Fn(u64) -> bool + Sync)) -> (FoundRow, u64) {
        let info = json!({"commitInfo": {"readSet": {"v": 1, "predicates": [predicate]}}});
        let remove = json!({"remove": {"path": "b", "dataChange": true}});
        let lines = [self.lines.clone(), vec![remove, info]].concat();
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let actions = parse_commit(text.as_bytes(), Strictness::Proposal).unwrap();
        let declared = declared(&actions).unwrap();
        let root = &self.kit.table.root;
        let (metadata, schema) = (&self.metadata, &self.schema);
        let table = TableFacts { root, metadata, schema, has_deletion_vectors: false };
        let reads = reads_of(&actions, declared.as_ref()).bind(table);
        let key = root.object("f.parquet");
        let question = RowQuestion { table, reads: &reads, add: &actions.adds[0], key: &key };
        let before = self.kit.table.world.ports.objects.object_usage();
        let found = find_row(self.kit.ctx(), &Budget::default(), question, is_deleted).await.unwrap();
        (found, self.kit.table.world.ports.objects.object_usage().since(&before).gets)
    }

    async fn row(&self, predicate: Value) -> (Option<u64>, u64) {
        match self.find(predicate, &|_| false).await {
            (FoundRow::None, gets) => (None, gets),
            (FoundRow::Some { row, .. }, gets) => (Some(row), gets),
            (other, _) => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_row_is_found_by_the_columns_of_the_predicate_alone() {
    let world = world().await;
    let compare = |op: &str, col: Value, value: Value| json!({"op": op, "col": col, "value": value});
    let id = |op: &str, value: i64| compare(op, json!("id"), json!(value));
    // The footer, and the columns of one row group.
    let (found, gets) = world.find(id("=", 6), &|_| false).await;
    assert_eq!((found, gets), (FoundRow::Some { row: 6, values: "id=6".to_owned() }, 2));
    // From here on the footer is remembered.
    for (predicate, expected) in [
        (id("=", 6), (Some(6), 1)),
        // Statistics exclude all row groups.
        (id("=", 12), (None, 0)),
        (id(">=", 9), (Some(9), 1)),
        // Between the values of a row group: statistics do not tell, the rows do.
        (compare("=", json!("price"), json!(2.5)), (None, 1)),
        (compare("=", json!("price"), json!(3.0)), (Some(6), 1)),
        (json!({"op": "isNull", "col": "price"}), (Some(1), 1)),
        (json!({"op": "and", "args": [id(">", 3), compare("<", json!("name"), json!("f"))]}), (Some(4), 2)),
        (json!({"op": "and", "args": [id(">", 4), compare("<", json!("name"), json!("f"))]}), (None, 2)),
        (json!({"op": "not", "args": [id("<=", 10)]}), (Some(11), 1)),
        (compare("=", json!(["at", "day"]), json!("2022-01-15")), (Some(7), 1)),
        // The same in every row: nothing is read.
        (compare("=", json!("p"), json!("y")), (None, 0)),
        (json!({"op": "isNull", "col": "late"}), (Some(0), 0)),
        (compare("=", json!("late"), json!("v")), (None, 0)),
        (json!({"op": "and", "args": [compare("=", json!("p"), json!("x")), id("=", 5)]}), (Some(5), 1)),
        // Not understood: any row may match.
        (json!({"op": "odd"}), (Some(0), 0)),
    ] {
        assert_eq!(world.row(predicate.clone()).await, expected, "{predicate}");
    }
}

#[tokio::test]
async fn deleted_rows_do_not_count_and_what_cannot_be_read_is_said() {
    let world = world().await;
    let predicate = json!({"op": "in", "col": "id", "values": [2, 7, 11]});
    let found = async |deleted: &'static [u64]| world.find(predicate.clone(), &|row| deleted.contains(&row)).await.0;
    assert!(matches!(found(&[2, 7]).await, FoundRow::Some { row: 11, .. }));
    assert_eq!(found(&[2, 7, 11]).await, FoundRow::None);
    world.kit.table.put("f.parquet", b"not parquet").await;
    // The remembered footer is that of another object.
    assert!(matches!(found(&[]).await, FoundRow::Unknown(_)));
}

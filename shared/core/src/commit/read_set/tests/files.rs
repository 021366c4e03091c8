//! Which files a read set touches, as a table.

use serde_json::{Value, json};

use crate::commit::read_set::{Reads, declared, reads_of};
use crate::commit::table_facts::{FileValues, TableFacts};
use crate::delta::schema::Schema;
use crate::delta::{Actions, Metadata, PartitionValues, Strictness, parse_commit};
use crate::location::Location;

pub(super) struct Table {
    root: Location,
    metadata: Metadata,
    schema: Schema,
}

impl Table {
    /// Columns with their types (JSON of the schema string); `partitioned` by some of them.
    pub fn new(columns: &[(&str, Value)], partitioned: &[&str]) -> Table {
        let fields: Vec<Value> = columns
            .iter()
            .map(|(name, kind)| {
                json!({"name": name, "type": kind, "nullable": true,
                    "metadata": {"delta.columnMapping.physicalName": format!("col-{name}")}})
            })
            .collect();
        let schema = Schema::parse(&json!({"type": "struct", "fields": fields}).to_string()).unwrap();
        let partition_columns = partitioned.iter().map(|name| (*name).to_owned()).collect();
        Table { root: Location::new("b", "t"), metadata: Metadata { partition_columns, ..Metadata::default() }, schema }
    }

    pub fn mapped(mut self) -> Table {
        self.metadata.configuration.insert("delta.columnMapping.mode".to_owned(), Some("name".to_owned()));
        self
    }

    pub fn facts(&self) -> TableFacts<'_> {
        TableFacts { root: &self.root, metadata: &self.metadata, schema: &self.schema, has_deletion_vectors: false }
    }

    pub fn touches(&self, reads: &Reads, partition: &Value, stats: &Value) -> Option<&'static str> {
        let values: Option<PartitionValues> = partition.as_object().map(|members| {
            members.iter().map(|(name, value)| (name.clone(), value.as_str().map(str::to_owned))).collect()
        });
        let stats = (!stats.is_null()).then(|| stats.to_string());
        let file = FileValues { partition_values: values.as_ref(), stats: stats.as_deref() };
        reads.touches(self.facts(), file)
    }
}

fn commit(info: Value) -> Actions {
    let lines = [
        json!({"add": {"path": "a", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": true}}),
        json!({"remove": {"path": "b", "dataChange": true}}),
        json!({ "commitInfo": info }),
    ];
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    parse_commit(text.as_bytes(), Strictness::Proposal).unwrap()
}

/// What a declared predicate reads.
pub(super) fn declaring(predicates: Value) -> Reads {
    let actions = commit(json!({"operation": "MERGE", "readSet": {"v": 1, "predicates": predicates}}));
    reads_of(&actions, declared(&actions).unwrap().as_ref())
}

/// What a DELETE of delta-rs reads.
pub(super) fn deleting(text: &str) -> Reads {
    deleting_as("delta-rs:py-1.6.6", text)
}

pub(super) fn deleting_as(engine: &str, text: &str) -> Reads {
    let info = json!({"engineInfo": engine, "operation": "DELETE", "operationParameters": {"predicate": text}});
    reads_of(&commit(info), None)
}

fn table() -> Table {
    let nested = json!({"type": "struct", "fields": [{"name": "x", "type": "long"}, {"name": "id", "type": "long"}]});
    let columns = [
        ("id", json!("long")),
        ("name", json!("string")),
        ("f", json!("double")),
        ("ts", json!("timestamp")),
        ("d", json!("date")),
        ("dec", json!("decimal(12,2)")),
        ("b", json!("boolean")),
        ("s", nested),
        ("list", json!({"type": "array", "elementType": "long", "containsNull": true})),
        ("p", json!("string")),
        ("n", json!("integer")),
        ("at", json!("timestamp")),
        ("bin", json!("binary")),
        ("pf", json!("double")),
    ];
    Table::new(&columns, &["p", "n", "at", "bin", "pf"])
}

const HINT: Option<&str> = Some("WITH_PARTITION_HINT");
const WIDE: Option<&str> = Some("WITHOUT_HINT");
const ODD: Option<&str> = Some("PREDICATES_NEED_REWRITE");

#[test]
fn partition_values_exclude_files() {
    let table = table();
    let values = json!({"p": "x", "n": "07", "at": "2024-01-02T03:04:05.000000Z", "bin": "q", "pf": "0.0"});
    let nulls = json!({"p": null, "n": "", "at": null, "bin": null, "pf": "NaN"});
    for (text, here, at_nulls) in [
        ("p = 'x'", HINT, None),
        ("p = 'y'", None, None),
        ("p <> 'x'", None, None),
        ("p > 'w'", HINT, None),
        ("p = 1", HINT, None),
        ("NOT (p = 'y')", HINT, None),
        ("p IS NULL", None, HINT),
        ("p IS NOT NULL", HINT, None),
        ("p IS NOT DISTINCT FROM NULL", None, HINT),
        ("p IS DISTINCT FROM 'x'", None, HINT),
        ("NOT (p IN ('y', NULL))", None, None),
        ("p IN ('y', NULL)", None, None),
        ("p = NULL", None, None),
        ("n = 7", HINT, None),
        ("n = '7'", HINT, None),
        ("n = 7.0", HINT, None),
        ("n > 6.5 AND n < 7.5", HINT, None),
        ("n = 8", None, None),
        ("n IN (1, 2)", None, None),
        ("n IN (1, 7)", HINT, None),
        ("P = 'y'", None, None),
        ("t.p = 'y'", None, None),
        ("at = arrow_cast('2024-01-02T03:04:05', 'Timestamp(Microsecond, Some(\"UTC\"))')", HINT, None),
        ("at = arrow_cast('2024-01-02T03:04:06', 'Timestamp(Microsecond, Some(\"UTC\"))')", None, None),
        ("at = '2024-01-02 13:04:05'", HINT, None),
        ("at = '2024-01-04'", None, None),
        ("bin = 'z'", HINT, None),
        ("pf = -0.0", HINT, HINT),
        ("pf <> 0", HINT, HINT),
        ("pf > 5", None, HINT),
        ("pf < 5", HINT, HINT),
        ("NOT (pf > 5)", HINT, HINT),
        ("id = 1", WIDE, WIDE),
        ("id = 1 AND p = 'y'", None, None),
        ("id = 1 OR p = 'y'", HINT, HINT),
        ("nope = 1", ODD, ODD),
        ("nope = 1 AND p = 'y'", None, None),
        ("rand() > 1", ODD, ODD),
        ("true", Some("EMPTY_READ_PREDICATES"), Some("EMPTY_READ_PREDICATES")),
        ("false", None, None),
        ("list = 1", ODD, ODD),
    ] {
        let reads = deleting(text);
        assert_eq!(table.touches(&reads, &values, &json!(null)), here, "{text}");
        assert_eq!(table.touches(&reads, &nulls, &json!(null)), at_nulls, "{text} (nulls)");
        let anywhere = table.touches(&reads, &json!(null), &json!(null));
        assert_eq!(
            anywhere.is_none(),
            text == "false" || text == "p = NULL" || text.starts_with("NOT (p IN"),
            "{text}"
        );
    }
}

#[test]
fn partition_values_are_taken_as_they_stand() {
    let table = table();
    for (value, text, found) in [
        ("a b", "p = 'a b'", HINT),
        ("a b", "p = 'a%20b'", None),
        ("a%20b", "p = 'a%20b'", HINT),
        ("b's \"x\"", "p = 'b''s \"x\"'", HINT),
        ("x\\y", "p = 'x\\y'", HINT),
        ("ü", "p = 'u'", None),
        (" ", "p IS NULL", None),
        ("__HIVE_DEFAULT_PARTITION__", "p IS NULL", HINT),
        ("__HIVE_DEFAULT_PARTITION__", "p = 'x'", HINT),
    ] {
        assert_eq!(table.touches(&deleting(text), &json!({"p": value}), &json!(null)), found, "{value}: {text}");
    }
}

#[test]
fn statistics_exclude_files() {
    let table = table();
    let stats = json!({"numRecords": 3,
        "minValues": {"id": 3, "name": "b", "f": 1.5, "ts": "2024-01-01T00:00:00.123Z", "d": "2024-01-05", "dec": 2.2,
            "b": true, "s": {"x": 4}},
        "maxValues": {"id": 9, "name": "d", "f": 2.5, "ts": "2024-01-01T00:00:00.123Z", "d": "2024-01-07", "dec": 6.6,
            "b": true, "s": {"x": 8}},
        "nullCount": {"id": 0, "name": 1, "f": 0, "ts": 0, "d": 3, "dec": 0, "b": 0, "s": {"x": 0}}});
    for (text, expected) in [
        ("id = 3", WIDE),
        ("id = 2", None),
        ("id < 3", None),
        ("id <= 3", WIDE),
        ("id > 9", None),
        ("id <> 5", WIDE),
        ("NOT (id >= 3)", None),
        ("NOT (id = 5)", WIDE),
        ("id IN (1, 2, 10)", None),
        ("id IN (1, 9)", WIDE),
        ("id BETWEEN 10 AND 20", None),
        ("id IS NULL", None),
        ("id = 99999999999999999999", None),
        ("id = '2'", None),
        ("id = 'x'", WIDE),
        ("name = 'a'", None),
        ("name = 'bb'", WIDE),
        ("name = 'da'", None),
        ("name IS NULL", WIDE),
        ("f > 2.5", WIDE),
        ("f = 3", None),
        ("f < 1.5", None),
        ("ts = arrow_cast('2024-01-01T00:00:00.123456', 'Timestamp(Microsecond, Some(\"UTC\"))')", WIDE),
        ("ts = arrow_cast('2024-01-01T00:00:00.124', 'Timestamp(Microsecond, Some(\"UTC\"))')", None),
        ("ts > '2024-01-03'", None),
        ("ts > '2024-01-01 10:00:00'", WIDE),
        // All null.
        ("d = '2024-01-06'", None),
        ("d IS NULL", WIDE),
        ("d IS NOT NULL", None),
        ("NOT (d = '2024-01-06')", None),
        // 2.20, or 220: delta-rs leaves out the point.
        ("dec = '220'::decimal(12, 2)", WIDE),
        ("dec = '800'::decimal(12, 2)", None),
        ("dec > '800'::decimal(12, 2)", None),
        ("dec < '800'::decimal(12, 2)", WIDE),
        ("dec = 2.21", WIDE),
        ("dec = 2.19", None),
        ("dec = 6.6000000000000000000001", WIDE),
        ("dec = 6.7000000000000000000001", None),
        ("id = 9.0000000000000000000001", WIDE),
        ("id = 9.5", None),
        ("b", WIDE),
        ("NOT b", None),
        ("b IS NOT TRUE", None),
        ("get_field(s, 'x') = 3", None),
        ("s.x = 5", WIDE),
        ("s.x = 9", None),
        ("S.X = 9", None),
        // Column `id` of an alias, or field `id` of column `s`.
        ("s.id = 1", ODD),
        ("cast(n AS bigint) = 1 AND id = 2", None),
        ("cast(id AS int) = 2", WIDE),
    ] {
        let found = table.touches(&deleting(text), &json!(null), &stats);
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn statistics_that_are_garbage_exclude_nothing() {
    let table = table();
    let reads = deleting("id = 5");
    for stats in [
        json!(null),
        json!([]),
        json!({}),
        json!({"minValues": 1, "maxValues": []}),
        json!({"minValues": {"id": 9}, "maxValues": {"id": 7}}),
        json!({"minValues": {"id": "a"}, "maxValues": {"id": "b"}}),
        json!({"minValues": {"id": 7.5}, "maxValues": {"id": 8.5}}),
        json!({"minValues": {"id": {"x": 7}}, "maxValues": {"id": {"x": 8}}}),
        json!({"minValues": {"ID": 7}, "maxValues": {"ID": 8}}),
        json!({"numRecords": 1, "nullCount": {"id": 2}, "minValues": {"id": 7}, "maxValues": {"id": 8}}),
        json!({"numRecords": 0, "nullCount": {"id": 0}}),
    ] {
        assert_eq!(table.touches(&reads, &json!({}), &stats), WIDE, "{stats}");
    }
    let torn = FileValues { partition_values: None, stats: Some("{\"minValues\":{\"id\":7},\"maxV") };
    assert_eq!(reads.touches(table.facts(), torn), WIDE);
    // Wide bounds enclose the rows all the same.
    let wide = json!({"numRecords": 9, "tightBounds": false, "minValues": {"id": 7}, "maxValues": {"id": "8"}});
    assert_eq!(table.touches(&reads, &json!({}), &wide), None);
}

#[test]
fn mapped_columns_are_found_by_their_physical_names() {
    let table = table().mapped();
    let reads = deleting("p = 'y' OR id = 5");
    let logical = json!({"minValues": {"id": 7}, "maxValues": {"id": 8}});
    let physical = json!({"minValues": {"col-id": 7}, "maxValues": {"col-id": 8}});
    assert_eq!(table.touches(&reads, &json!({"col-p": "x"}), &physical), None);
    assert_eq!(table.touches(&reads, &json!({"p": "x"}), &physical), HINT);
    assert_eq!(table.touches(&reads, &json!({"col-p": "x"}), &logical), HINT);
    assert_eq!(table.touches(&deleting("s.x = 1"), &json!({}), &json!({"minValues": {"col-s": {"x": 7}}})), None);
}

#[test]
fn texts_that_lost_their_quotes_are_trusted_only_where_names_are_plain() {
    let odd = Table::new(&[("x AND id", json!("long")), ("id", json!("long"))], &[]);
    let stats = json!({"minValues": {"id": 7}, "maxValues": {"id": 8}});
    assert_eq!(odd.touches(&deleting_as("sail-delta-lake:0.7.2", "id = 3 "), &json!({}), &stats), ODD);
    assert_eq!(odd.touches(&deleting("id = 3"), &json!({}), &stats), None);
    let plain = Table::new(&[("id", json!("long")), ("a", json!("string"))], &[]);
    assert_eq!(plain.touches(&deleting_as("sail-delta-lake:0.7.2", "id = 3 "), &json!({}), &stats), None);
    // In double quotes there is a text, unless a column has that name.
    let stats = json!({"minValues": {"a": "x"}, "maxValues": {"a": "y"}});
    assert_eq!(plain.touches(&deleting_as("sail-delta-lake:0.7.2", "a = \"b\" "), &json!({}), &stats), None);
    assert_eq!(plain.touches(&deleting_as("sail-delta-lake:0.7.2", "a = \"id\" "), &json!({}), &stats), WIDE);
}

#[test]
fn several_predicates_are_alternatives() {
    let table = table();
    let eq = |value: &str| json!({"op": "=", "col": "p", "value": value});
    let reads = declaring(json!([eq("x"), eq("y")]));
    assert_eq!(table.touches(&reads, &json!({"p": "x"}), &json!(null)), HINT);
    assert_eq!(table.touches(&reads, &json!({"p": "z"}), &json!(null)), None);
    assert_eq!(table.touches(&declaring(json!([])), &json!({"p": "z"}), &json!(null)), None);
    assert_eq!(table.touches(&Reads::WholeTable, &json!({"p": "z"}), &json!(null)), Some("WHOLE_TABLE_READ"));
    assert_eq!(table.touches(&Reads::Nothing, &json!({"p": "z"}), &json!(null)), None);
    let whole = |reads: &Reads| reads.bind(table.facts()).is_whole_table();
    assert!(whole(&Reads::WholeTable) && whole(&deleting("rand() > 1")) && whole(&deleting("true")));
    assert!(!whole(&reads) && !whole(&deleting("rand() > 1 AND p = 'x'")) && !whole(&Reads::Nothing));
}

#[test]
fn padded_and_collated_texts_are_not_compared() {
    let fields = |metadata: Value| json!({"type": "struct", "fields": [{"name": "a", "type": "string", "nullable": true, "metadata": metadata}]});
    let stats = json!({"numRecords": 1, "nullCount": {"a": 0}, "minValues": {"a": "x"}, "maxValues": {"a": "y"}});
    for (metadata, excluded) in [
        (json!({}), true),
        (json!({"__CHAR_VARCHAR_TYPE_STRING": "char(5)"}), false),
        (json!({"__COLLATIONS": {"a": "spark.UTF8_LCASE"}}), false),
    ] {
        let schema = Schema::parse(&fields(metadata.clone()).to_string()).unwrap();
        let table = Table { schema, ..Table::new(&[], &[]) };
        assert_eq!(table.touches(&deleting("a = 'b'"), &json!({}), &stats).is_none(), excluded, "{metadata}");
        assert_eq!(table.touches(&deleting("a IS NULL"), &json!({}), &stats), None, "{metadata}");
    }
}

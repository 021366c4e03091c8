//! Statements about the table, and the rules for rows that their metaData has.

use serde_json::{Value, json};

use crate::commit::read_set::{Reads, reads_of};
use crate::commit::table_facts::TableFacts;
use crate::delta::schema::Schema;
use crate::delta::{Actions, Strictness, parse_commit};
use crate::location::Location;

fn commit(lines: &[Value]) -> Actions {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    parse_commit(text.as_bytes(), Strictness::Proposal).unwrap()
}

fn metadata(configuration: Value, more: &str) -> Value {
    let field = format!(r#"{{"name":"id","type":"long","nullable":true,"metadata":{{{more}}}}}"#);
    let schema = format!(r#"{{"type":"struct","fields":[{field}]}}"#);
    json!({"metaData": {"id": "t", "format": {"provider": "parquet", "options": {}}, "schemaString": schema,
        "partitionColumns": [], "configuration": configuration}})
}

#[test]
fn a_statement_reads_rows_for_rules_that_the_table_does_not_have() {
    let plain = || metadata(json!({"delta.appendOnly": "false"}), "");
    let constrained = || metadata(json!({"delta.constraints.pos": "id > 0"}), "");
    let invariant = || metadata(json!({}), r#""delta.invariants":"{}""#);
    // What is added may be what the table has already.
    let named = |configuration: Value| metadata(configuration, "");
    let required = || {
        let mut line = plain();
        let schema =
            line["metaData"]["schemaString"].as_str().unwrap().replace(r#""nullable":true"#, r#""nullable":false"#);
        line["metaData"]["schemaString"] = json!(schema);
        line
    };
    let generated = || metadata(json!({}), r#""delta.generationExpression":"1""#);
    for (action, table, reads_rows) in [
        (plain(), plain(), false),
        (constrained(), plain(), true),
        (constrained(), constrained(), false),
        (named(json!({"delta.constraints.pos": "id > 1"})), constrained(), true),
        (named(json!({"delta.constraints.other": "id > 0"})), constrained(), true),
        (named(json!({"delta.constraints.pos": "id > 0", "delta.appendOnly": "true"})), constrained(), false),
        (named(json!({"delta.constraints.pos": "id > 0", "Delta.Constraints.b": "id > 0"})), constrained(), true),
        (plain(), constrained(), false),
        (invariant(), plain(), true),
        (invariant(), invariant(), false),
        (plain(), invariant(), false),
        (generated(), plain(), true),
        (generated(), generated(), false),
        (required(), plain(), true),
        (required(), required(), false),
        (plain(), required(), false),
    ] {
        let info = json!({"commitInfo": {"operation": "SET TBLPROPERTIES"}});
        let reads = reads_of(&commit(&[action.clone(), info]), None);
        let before = commit(std::slice::from_ref(&table)).metadata.unwrap();
        let schema = Schema::parse(&before.schema_string).unwrap();
        let root = Location::new("b", "t");
        let facts = TableFacts { root: &root, metadata: &before, schema: &schema, has_deletion_vectors: false };
        assert_eq!(reads.bind(facts).is_whole_table(), reads_rows, "{action} upon {table}");
    }
    let unreadable = metadata(json!({}), "").to_string().replace("struct", "strict");
    let lines = [serde_json::from_str(&unreadable).unwrap(), json!({"commitInfo": {"operation": "SET TBLPROPERTIES"}})];
    assert_eq!(reads_of(&commit(&lines), None), Reads::WholeTable);
}

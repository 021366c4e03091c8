use super::*;
use crate::delta::Protocol;
use serde_json::{Value, json};

fn protocol(writer: i64, features: &[&str]) -> Protocol {
    let names = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
    Protocol {
        min_reader_version: 3,
        min_writer_version: writer,
        reader_features: names(features),
        writer_features: names(features),
    }
}

fn change(
    (old, old_schema): (&Metadata, &Schema),
    (new, new_schema): (&Metadata, &Schema),
    mode: Mode,
) -> Result<Evolution, Refusal> {
    let protocol = protocol(7, &["typeWidening", "columnMapping"]);
    let change = TableChange { old: (old, old_schema), new: (new, new_schema), protocol: &protocol, mode };
    check_metadata_change(change, None)
}

fn reason<T: std::fmt::Debug>(found: Result<T, Refusal>) -> String {
    found.err().map_or(String::new(), |refusal| refusal.reason.clone())
}

fn schema(fields: &[(&str, Value, bool)]) -> Schema {
    let fields: Vec<Value> =
        fields.iter().map(|(name, kind, nullable)| json!({"name": name, "type": kind, "nullable": nullable})).collect();
    Schema::parse(&json!({"type": "struct", "fields": fields}).to_string()).unwrap()
}

#[test]
fn new_columns_come_last_and_nothing_else_moves() {
    let nested = |names: &[&str]| {
        let fields: Vec<Value> = names.iter().map(|name| json!({"name": name, "type": "long"})).collect();
        json!({"type": "array", "elementType": {"type": "struct", "fields": fields}, "containsNull": true})
    };
    let old = schema(&[("a", json!("long"), false), ("s", nested(&["x"]), true)]);
    let metadata = Metadata { id: "m".into(), ..Metadata::default() };
    let cases = [
        (vec![("a", json!("long"), false), ("s", nested(&["x"]), true)], ""),
        (vec![("a", json!("long"), true), ("s", nested(&["x", "y"]), true), ("b", json!("date"), true)], ""),
        (vec![("a", json!("long"), false), ("s", nested(&["y", "x"]), true)], "COLUMN_ORDER"),
        (vec![("s", nested(&["x"]), true), ("a", json!("long"), false)], "COLUMN_ORDER"),
        (vec![("a", json!("long"), false)], "COLUMN_DROPPED"),
        (vec![("a", json!("integer"), false), ("s", nested(&["x"]), true)], "COLUMN_TYPE"),
        (vec![("a", json!("long"), false), ("s", nested(&["x"]), false)], "NULLABILITY"),
        (vec![("a", json!("long"), false), ("s", nested(&["x"]), true), ("b", json!("date"), false)], "NULLABILITY"),
    ];
    for (fields, reason) in cases {
        let new = schema(&fields);
        assert_eq!(self::reason(change((&metadata, &old), (&metadata, &new), Mode::Merge)), reason, "{fields:?}");
    }
}

#[test]
fn ids_partitions_and_properties_are_guarded() {
    let one = schema(&[("a", json!("long"), true)]);
    let old = Metadata { id: "m".into(), partition_columns: vec!["a".into()], ..Metadata::default() };
    let with = |name: &str| Metadata { configuration: [(name.to_owned(), Some("1".to_owned()))].into(), ..old.clone() };
    for (new, reason) in [
        (Metadata { id: "n".into(), ..old.clone() }, "METADATA_ID"),
        (Metadata { partition_columns: vec![], ..old.clone() }, "PARTITIONING"),
        (with("delta.enableRowTracking"), "PROPERTY_CHANGE"),
        (with("delta.columnMapping.mode"), "COLUMN_MAPPING"),
        (with("delta.constraints.c"), ""),
        (with("delta.appendOnly"), ""),
        (with("delta.enableDeletionVectors"), ""),
        (with("delta.enableInCommitTimestamps"), "PROPERTY_CHANGE"),
        (with("delta.inCommitTimestampEnablementVersion"), "PROPERTY_CHANGE"),
        (with("mine"), ""),
    ] {
        let alter = Mode::Alter { is_positioned: false };
        assert_eq!(self::reason(change((&old, &one), (&new, &one), alter)), reason, "{new:?}");
    }
    let stamped = |more: &str| Metadata {
        configuration: [("delta.enableInCommitTimestamps", "true"), (more, "7")]
            .map(|(name, value)| (name.to_owned(), Some(value.to_owned())))
            .into(),
        ..old.clone()
    };
    let alter = Mode::Alter { is_positioned: false };
    let since = stamped("delta.inCommitTimestampEnablementVersion");
    assert_eq!(reason(change((&old, &one), (&since, &one), alter)), "");
    let later = stamped("delta.inCommitTimestampEnablementTimestamp");
    assert_eq!(reason(change((&since, &one), (&later, &one), alter)), "PROPERTY_CHANGE");
    let odd = schema(&[("a b", json!("long"), true)]);
    assert_eq!(check_new_metadata(&old, &one, None), Ok(()));
    let refusal = check_new_metadata(&Metadata { partition_columns: vec![], ..old.clone() }, &odd, None).unwrap_err();
    assert_eq!(refusal.error_class, "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAME");
    assert_eq!(check_new_metadata(&old, &odd, None).unwrap_err().reason, "PARTITION_COLUMN");
}

#[tokio::test]
async fn a_feature_goes_if_the_head_shows_nothing_of_it_whoever_left_it_there() {
    use crate::commit::tests::judging::{Scene, domain, info, metadata, protocol};
    const ALL: [&str; 4] = ["appendOnly", "checkConstraints", "deletionVectors", "domainMetadata"];
    let table = |properties: Value| Scene::table(&[], &ALL, properties);
    let without = |feature: &str| {
        let rest: Vec<&str> = ALL.into_iter().filter(|name| *name != feature).collect();
        vec![protocol(&rest), info("DROP FEATURE", json!({}))]
    };
    let refused = "UnsupportedTableException PROTOCOL_DOWNGRADE";
    for feature in ["appendOnly", "checkConstraints", "domainMetadata"] {
        assert_eq!(table(json!({})).candidate(without(feature)).outcome().await, "admitted", "{feature}");
    }
    assert_eq!(table(json!({})).candidate(without("deletionVectors")).outcome().await, refused);
    let append_only = table(json!({"delta.appendOnly": "true"}));
    assert_eq!(append_only.clone().candidate(without("appendOnly")).outcome().await, refused);
    // In the same commit.
    let mut off = without("appendOnly");
    off.push(metadata(&append_only, json!({"delta.appendOnly": "false"})));
    assert_eq!(append_only.candidate(off).outcome().await, "admitted");
    let constrained = table(json!({"delta.constraints.c": "id > 0"}));
    assert_eq!(constrained.candidate(without("checkConstraints")).outcome().await, refused);
    // By a winner, whom the commit has not seen.
    let winner = vec![domain("mine", "{}"), info("X", json!({}))];
    let outcome = table(json!({})).won_by(winner).candidate(without("domainMetadata")).outcome().await;
    assert_eq!(outcome, refused);
    let there = table(json!({})).with_files([domain("mine", "{}")]);
    assert_eq!(there.candidate(without("domainMetadata")).outcome().await, refused);
}

#[test]
fn widening_needs_its_feature_and_its_history() {
    let one = |kind: &str, changes: Value| {
        let metadata = if changes.is_null() { json!({}) } else { json!({"delta.typeChanges": changes}) };
        let field = json!({"name": "a", "type": kind, "nullable": true, "metadata": metadata});
        Schema::parse(&json!({"type": "struct", "fields": [field]}).to_string()).unwrap()
    };
    let entry = |from: &str, to: &str| json!({"fromType": from, "toType": to});
    let off = Metadata { id: "m".into(), ..Metadata::default() };
    let on = Metadata {
        configuration: [("delta.enableTypeWidening".to_owned(), Some("true".to_owned()))].into(),
        ..off.clone()
    };
    let alter = Mode::Alter { is_positioned: false };
    for (metadata, mode, from, to, history, expected) in [
        (&off, Mode::Merge, "byte", "integer", json!(null), ""),
        (&off, Mode::Merge, "integer", "long", json!([entry("integer", "long")]), "COLUMN_TYPE"),
        (&on, Mode::Merge, "integer", "long", json!([entry("integer", "long")]), ""),
        (&on, Mode::Merge, "integer", "long", json!(null), "TYPE_CHANGE_HISTORY"),
        (&on, Mode::Merge, "byte", "long", json!([entry("byte", "short"), entry("short", "long")]), ""),
        (&on, Mode::Merge, "integer", "double", json!([entry("integer", "double")]), "COLUMN_TYPE"),
        (&on, alter, "integer", "double", json!([entry("integer", "double")]), ""),
        (&on, alter, "long", "integer", json!([entry("long", "integer")]), "COLUMN_TYPE"),
        (&on, alter, "long", "double", json!([entry("long", "double")]), "COLUMN_TYPE"),
        (&on, alter, "decimal(5,2)", "decimal(5,3)", json!([entry("decimal(5,2)", "decimal(5,3)")]), "COLUMN_TYPE"),
        (&on, alter, "decimal(5,2)", "decimal(7,3)", json!([entry("decimal(5,2)", "decimal(7,3)")]), ""),
        (&on, alter, "decimal(5,2)", "decimal(5,3)", json!(null), "COLUMN_TYPE"),
        (&on, alter, "date", "timestamp_ntz", json!([entry("date", "timestamp_ntz")]), ""),
        (&on, alter, "string", "binary", json!(null), "COLUMN_TYPE"),
        (&on, alter, "integer", "integer", json!([entry("short", "integer")]), "TYPE_CHANGE_HISTORY"),
        (&off, Mode::Replace, "string", "integer", json!(null), ""),
    ] {
        let found = change((metadata, &one(from, json!(null))), (metadata, &one(to, history.clone())), mode);
        if mode == Mode::Replace {
            assert!(found.as_ref().unwrap().needs_full_overwrite);
        }
        assert_eq!(reason(found), expected, "{mode:?} {from} {to} {history}");
    }
    // A truthful history does not make a change better.
    let found =
        change((&on, &one("long", json!(null))), (&on, &one("double", json!([entry("long", "double")]))), alter);
    let refusal = found.unwrap_err();
    let place = &refusal.place;
    assert_eq!((place.expected.as_deref(), place.found.as_deref()), (Some("long"), Some("double")));
    assert_eq!(refusal.error_class, "DELTA_MERGE_INCOMPATIBLE_DATATYPE");
    let found = change((&on, &one("integer", json!(null))), (&on, &one("long", json!(null))), alter);
    assert_eq!(found.unwrap_err().place.column.as_deref(), Some("a"));
    let widened = one("long", json!([entry("integer", "long")]));
    assert_eq!(reason(change((&on, &widened), (&on, &one("long", json!(null))), alter)), "TYPE_CHANGE_HISTORY");
    for bad in [
        json!("x"),
        json!([{"fromType": "integer"}]),
        json!([entry("short", "integer")]),
        json!([entry("string", "long")]),
    ] {
        assert_eq!(reason(check_new_metadata(&on, &one("long", bad.clone()), None)), "TYPE_CHANGE_HISTORY", "{bad}");
    }
}

#[test]
fn column_ids_are_given_once() {
    let field = |name: &str, id: i64, physical: &str| {
        json!({"name": name, "type": "long", "nullable": true,
            "metadata": {"delta.columnMapping.id": id, "delta.columnMapping.physicalName": physical}})
    };
    let schema = |fields: &[Value]| Schema::parse(&json!({"type": "struct", "fields": fields}).to_string()).unwrap();
    let metadata = |mode: &str, max: &str| Metadata {
        id: "m".into(),
        configuration: [("delta.columnMapping.mode", mode), ("delta.columnMapping.maxColumnId", max)]
            .map(|(name, value)| (name.to_owned(), Some(value.to_owned())))
            .into(),
        ..Metadata::default()
    };
    let (a, b) = (field("a", 1, "p1"), field("b", 2, "p2"));
    let old = schema(&[a.clone(), b.clone()]);
    let alter = Mode::Alter { is_positioned: false };
    let cases = [
        (vec![a.clone(), b.clone(), field("c", 3, "p3")], "3", ""),
        (vec![a.clone(), b.clone(), field("c", 2, "p3")], "3", "own"),
        (vec![a.clone(), b.clone(), field("c", 3, "p2")], "3", "own"),
        (vec![a.clone(), b.clone(), field("c", 3, "p3")], "2", "own"),
        (vec![a.clone(), b.clone()], "1", "own"),
        (vec![a.clone(), field("z", 2, "p2")], "2", ""),
        (vec![a.clone(), field("b", 2, "p9")], "2", "COLUMN_MAPPING"),
        (vec![a.clone()], "2", ""),
        (vec![a.clone(), field("c", 3, "p3")], "3", "AMBIGUOUS_CHANGE"),
        (vec![b.clone(), a.clone()], "2", "COLUMN_ORDER"),
        (vec![a, b], "5", ""),
    ];
    for (fields, max, expected) in cases {
        let (new, new_schema) = (metadata("name", max), schema(&fields));
        let own = check_new_metadata(&new, &new_schema, None);
        assert_eq!(own.is_err(), expected == "own", "{fields:?}: {own:?}");
        if expected != "own" {
            let found = change((&metadata("name", "2"), &old), (&new, &new_schema), alter);
            assert_eq!(reason(found), expected, "{fields:?}");
        }
    }
    // An id that was given away and dropped comes back as another column.
    let found = change(
        (&metadata("name", "4"), &old),
        (&metadata("name", "4"), &schema(&[field("a", 1, "p1"), field("b", 2, "p2"), field("c", 3, "p3")])),
        alter,
    );
    assert_eq!(reason(found), "COLUMN_MAPPING");
    let plain = schema(&[json!({"name": "a", "type": "long", "nullable": true, "metadata": {}})]);
    let off = Metadata { id: "m".into(), ..Metadata::default() };
    for (mode, physical, expected) in
        [("name", "a", ""), ("name", "p1", "COLUMN_MAPPING"), ("id", "a", "COLUMN_MAPPING")]
    {
        let found = change((&off, &plain), (&metadata(mode, "1"), &schema(&[field("a", 1, physical)])), alter);
        assert_eq!(reason(found), expected, "{mode} {physical}");
    }
}

#[test]
fn a_refused_change_is_explained_field_by_field() {
    let metadata = Metadata {
        id: "m".into(),
        configuration: [("delta.constraints.c".to_owned(), Some("s.x > 0".to_owned()))].into(),
        ..Metadata::default()
    };
    let nested = |kind: &str| json!({"type": "struct", "fields": [{"name": "x", "type": kind}]});
    let old = schema(&[("a", json!("long"), true), ("s", nested("byte"), true)]);
    let new = schema(&[("a", json!("string"), true), ("s", nested("integer"), true), ("z", json!("date"), true)]);
    let refusal = change((&metadata, &old), (&metadata, &new), Mode::Merge).unwrap_err();
    assert_eq!(
        (refusal.error_class.as_str(), refusal.place.column.as_deref()),
        ("DELTA_MERGE_INCOMPATIBLE_DATATYPE", Some("a"))
    );
    assert_eq!((refusal.place.expected.as_deref(), refusal.place.found.as_deref()), (Some("long"), Some("string")));
    assert_eq!(refusal.more.len(), 2, "{refusal:?}");
    let new = schema(&[("a", json!("long"), true), ("s", nested("integer"), true)]);
    let refusal = change((&metadata, &old), (&metadata, &new), Mode::Merge).unwrap_err();
    assert_eq!(refusal.error_class, "DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE");
    let added = schema(&[("a", json!("long"), true), ("s", nested("byte"), true), ("z", json!("date"), true)]);
    let evolution = change((&metadata, &old), (&metadata, &added), Mode::Merge).unwrap();
    assert_eq!(evolution.explained, ["column `z` is added as date"]);
}

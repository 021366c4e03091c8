//! Rearrangements on either side of a change, read back from the files.

use serde_json::{Value, json};

use crate::commit::row_level::bins::{Bin, bins};
use crate::commit::table_facts::TableFacts;
use crate::commit::tests::engine::{Engine, Held, Rows, Statement, removed};
use crate::commit::tests::judging::{Scene, add, deleted, info, moved, reads, remove};
use crate::commit::tests::kit::{Kit, short};
use crate::delta::schema::Schema;
use crate::delta::testkit::creation_of;
use crate::delta::{AddFile, Metadata};
use crate::location::Location;
use crate::ports::IsolationLevel::Serializable;
use crate::store::{ObjectKey, Objects};

/// Files `f0` to `f3` with ids 0 to 3, 10 to 13, 20 to 23, 30 to 33, at version 4.
async fn four_files() -> Engine {
    let engine = Engine { kit: Kit::with_vectors(json!({})).await };
    for index in 0..4_i64 {
        let ids = (index * 10..index * 10 + 4).collect();
        let mut lines = engine.execute(&Statement::Append(ids), &[], &format!("f{index}")).await;
        for line in lines.iter_mut().filter(|line| line["add"].is_object()) {
            line["add"]["tags"] = json!({"of": format!("f{index}")});
        }
        engine.kit.propose(index + 1, 100 + index as u128, &lines).await;
    }
    engine
}

fn named(files: &[Held], names: &[&str]) -> Vec<Held> {
    files.iter().filter(|file| names.contains(&file.add.path.trim_end_matches(".parquet"))).cloned().collect()
}

/// Two bins: `f0` and `f1`, `f2` and `f3`.
async fn two_bins(engine: &Engine, files: &[Held], tag: &str) -> Vec<Value> {
    let mut lines = Vec::new();
    for (index, names) in [["f0", "f1"], ["f2", "f3"]].iter().enumerate() {
        lines.extend(engine.execute(&Statement::Optimize, &named(files, names), &format!("{tag}{index}")).await);
    }
    let last = lines.pop().unwrap();
    lines.retain(|line| line["commitInfo"].is_null());
    lines.push(last);
    lines
}

async fn paths(engine: &Engine) -> Vec<String> {
    let latest = engine.kit.versions().last().copied().unwrap();
    let mut paths: Vec<String> = engine.read(latest).await.into_iter().map(|file| file.add.path).collect();
    paths.sort();
    paths
}

#[tokio::test]
async fn a_change_takes_back_the_bin_that_its_file_went_into() {
    let engine = four_files().await;
    let files = engine.read(4).await;
    let optimize = two_bins(&engine, &files, "c").await;
    let update = engine.execute(&Statement::Update(11, 12), &files, "u").await;
    assert_eq!(short(&engine.kit.propose(5, 1, &optimize).await), "committed 5");
    assert_eq!(short(&engine.kit.propose(5, 2, &update).await), "committed 6");
    assert_eq!(paths(&engine).await, ["c1.parquet", "f0.parquet", "f1.parquet", "u.parquet"]);
    let mut expected: Rows = (0..4).flat_map(|file| (file * 10..file * 10 + 4).map(|id| (id, 1))).collect();
    Statement::Update(11, 12).run(&mut expected);
    assert_eq!(engine.rows().await, expected);
    let back = engine.read(6).await;
    assert_eq!(Value::Object(named(&back, &["f0"])[0].add.others.members()), json!({"tags": {"of": "f0"}}));
    // Whoever changed the other bin's files takes that one back; a file of the first one is in nobody's way any more.
    let later = engine.execute(&Statement::Delete(30, 30), &files, "d").await;
    assert_eq!(short(&engine.kit.propose(5, 3, &later).await), "committed 7");
    expected.remove(&30);
    assert_eq!(engine.rows().await, expected);
}

/// The move was taken back by another change that read the same version: nothing is in the way of this one, whether it is
/// about the same file or about another one that was moved with it.
#[tokio::test]
async fn a_move_that_somebody_took_back_already_is_in_nobodys_way() {
    for (first, second, expected) in [
        (Statement::Delete(1, 1), Statement::Delete(12, 12), "committed 7"),
        (Statement::Delete(1, 1), Statement::Update(2, 2), "committed 7"),
        (Statement::Update(1, 1), Statement::Delete(2, 12), "committed 7"),
        (Statement::Delete(1, 1), Statement::Delete(1, 1), "rejected ConcurrentDeleteReadException ROW_LEVEL_CHANGES"),
        (Statement::Update(1, 1), Statement::Delete(0, 2), "rejected ConcurrentAppendException ROW_LEVEL_CHANGES"),
    ] {
        let engine = four_files().await;
        let files = engine.read(4).await;
        let optimize = two_bins(&engine, &files, "c").await;
        let changes = [engine.execute(&first, &files, "u").await, engine.execute(&second, &files, "d").await];
        assert_eq!(short(&engine.kit.propose(5, 1, &optimize).await), "committed 5");
        assert_eq!(short(&engine.kit.propose(5, 2, &changes[0]).await), "committed 6");
        assert_eq!(short(&engine.kit.propose(5, 3, &changes[1]).await), expected, "{first:?} {second:?}");
        let mut rows: Rows = (0..4).flat_map(|file| (file * 10..file * 10 + 4).map(|id| (id, 1))).collect();
        first.run(&mut rows);
        if expected.starts_with("committed") {
            second.run(&mut rows);
        }
        assert_eq!(engine.rows().await, rows, "{first:?} {second:?}");
    }
}

/// What a rearrangement left was moved on by another one, with files that came between.
#[tokio::test]
async fn moves_one_after_the_other_are_taken_back_together() {
    for (change, left) in [
        (Statement::Delete(12, 12), ["c1.parquet", "f0.parquet", "f1.parquet", "n.parquet"]),
        (Statement::Delete(30, 30), ["c0.parquet", "f2.parquet", "f3.parquet", "n.parquet"]),
    ] {
        let engine = four_files().await;
        let files = engine.read(4).await;
        let first = two_bins(&engine, &files, "c").await;
        let delete = engine.execute(&change, &files, "d").await;
        assert_eq!(short(&engine.kit.propose(5, 1, &first).await), "committed 5");
        let append = engine.execute(&Statement::Append((40..44).collect()), &[], "n").await;
        assert_eq!(short(&engine.kit.propose(6, 2, &append).await), "committed 6");
        let all = engine.read(6).await;
        let second = engine.execute(&Statement::Optimize, &all, "o").await;
        assert_eq!(short(&engine.kit.propose(7, 3, &second).await), "committed 7");
        assert_eq!(paths(&engine).await, ["o.parquet"]);
        assert_eq!(short(&engine.kit.propose(5, 4, &delete).await), "committed 8", "{change:?}");
        assert_eq!(paths(&engine).await, left, "{change:?}");
        let mut rows: Rows = (0..5).flat_map(|file| (file * 10..file * 10 + 4).map(|id| (id, 1))).collect();
        change.run(&mut rows);
        assert_eq!(engine.rows().await, rows);
    }
}

#[tokio::test]
async fn a_rewrite_takes_it_back_as_well() {
    let engine = four_files().await;
    let files = engine.read(4).await;
    let optimize = two_bins(&engine, &files, "c").await;
    let file = &named(&files, &["f1"])[0];
    let kept = engine.write("r.parquet", &[(11, 1), (12, 1), (13, 1)]).await;
    let rewrite = vec![removed(&file.add), kept, info("DELETE", reads("id", json!(10)))];
    assert_eq!(short(&engine.kit.propose(5, 1, &optimize).await), "committed 5");
    assert_eq!(short(&engine.kit.propose(5, 2, &rewrite).await), "committed 6");
    assert_eq!(paths(&engine).await, ["c1.parquet", "f0.parquet", "r.parquet"]);
    assert_eq!(engine.rows().await.len(), 15);
}

#[tokio::test]
async fn what_cannot_be_taken_back_conflicts() {
    // The file that would come back is gone.
    let engine = four_files().await;
    let files = engine.read(4).await;
    let optimize = two_bins(&engine, &files, "c").await;
    let update = engine.execute(&Statement::Update(11, 12), &files, "u").await;
    engine.kit.propose(5, 1, &optimize).await;
    let gone = ObjectKey::new("lake", "wh/t/f0.parquet");
    engine.kit.table.world.objects.delete(&gone, None).await.unwrap();
    let verdict = engine.kit.propose(5, 2, &update).await;
    assert_eq!(short(&verdict), "rejected ConcurrentDeleteReadException SAME_FILE");
    assert_eq!(verdict.refusal().unwrap().place.file.as_deref(), Some("f0.parquet"));
    // Somebody changed the output since.
    let engine = four_files().await;
    let files = engine.read(4).await;
    let optimize = two_bins(&engine, &files, "c").await;
    let update = engine.execute(&Statement::Update(11, 12), &files, "u").await;
    engine.kit.propose(5, 1, &optimize).await;
    let output = engine.read(5).await;
    let touched = engine.execute(&Statement::Delete(1, 1), &output, "d").await;
    assert_eq!(short(&engine.kit.propose(6, 2, &touched).await), "committed 6");
    let verdict = engine.kit.propose(5, 3, &update).await;
    assert_eq!(short(&verdict), "rejected ConcurrentDeleteReadException SAME_FILE");
}

#[tokio::test]
async fn a_rearrangement_leaves_out_the_bins_whose_files_others_changed() {
    let engine = four_files().await;
    let files = engine.read(4).await;
    let optimize = two_bins(&engine, &files, "c").await;
    let delete = engine.execute(&Statement::Delete(11, 11), &files, "d").await;
    assert_eq!(short(&engine.kit.propose(5, 1, &delete).await), "committed 5");
    let verdict = engine.kit.propose(5, 2, &optimize).await;
    assert_eq!(short(&verdict), "committed 6");
    assert!(verdict.proposal.warnings.iter().any(|text| text.starts_with("2 files")), "{verdict:?}");
    assert_eq!(paths(&engine).await, ["c1.parquet", "f0.parquet", "f1.parquet"]);
    assert_eq!(engine.rows().await.len(), 15);
    // Two rearrangements: what is left of the second one.
    let engine = four_files().await;
    let files = engine.read(4).await;
    let second = two_bins(&engine, &files, "c").await;
    let first = engine.execute(&Statement::Optimize, &named(&files, &["f2", "f3"]), "o").await;
    engine.kit.propose(5, 1, &first).await;
    assert_eq!(short(&engine.kit.propose(5, 2, &second).await), "committed 6");
    assert_eq!(paths(&engine).await, ["c0.parquet", "o.parquet"]);
    assert_eq!(engine.rows().await.len(), 16);
    // Nothing is left.
    let third = two_bins(&engine, &files, "e").await;
    let verdict = engine.kit.propose(5, 3, &third).await;
    assert_eq!(short(&verdict), "superseded SAME_FILE");
    let json = verdict.to_json();
    assert!(json.get("exception").is_none() && json.get("error_class").is_none(), "{json}");
    assert_eq!((&json["status"], &json["final"]), (&json!("superseded"), &json!(true)));
    assert_eq!(engine.rows().await.len(), 16);
}

/// Bounds that overlap prove nothing: then the commit is one bin.
#[tokio::test]
async fn bins_that_are_not_proved_go_together() {
    let vectors = json!({"delta.enableDeletionVectors": "true"});
    let scene = |winner: Vec<Value>, candidate: Vec<Value>| {
        Scene::table(&[], &["deletionVectors"], vectors.clone())
            .under(Serializable)
            .with_files([add("a", 0), add("b", 1), add("c", 2), add("d", 3)])
            .won_by(winner)
            .candidate(candidate)
    };
    let both = |tag: &str| {
        let mut lines: Vec<Value> = ["a", "b", "c", "d"].iter().map(|path| moved(remove(path))).collect();
        for (index, first) in [0, 2].into_iter().enumerate() {
            let mut line = moved(add(&format!("{tag}{index}"), first));
            let stats = json!({"numRecords": 6, "minValues": {"id": first}, "maxValues": {"id": first + 3}, "nullCount": {"id": 0}});
            line["add"]["stats"] = json!(stats.to_string());
            lines.push(line);
        }
        lines.push(info("OPTIMIZE", json!({})));
        lines
    };
    let change = || vec![remove("a"), deleted(add("a", 0), [0]), info("DELETE", reads("id", json!(0)))];
    let undone = scene(both("o"), change()).admission().await;
    assert_eq!(undone.publication.returning.len(), 3, "all but the file that was changed come back");
    assert_eq!(undone.rebase.appended.len(), 5, "and both outputs go");
    assert_eq!(scene(change(), both("o")).outcome().await, "superseded SAME_FILE");
    // Sorted ones are conflicts, on either side.
    let mut sorted = both("z");
    sorted.last_mut().unwrap()["commitInfo"]["operationParameters"] = json!({"zOrderBy": "[\"id\"]"});
    assert_eq!(scene(sorted.clone(), change()).outcome().await, "ConcurrentDeleteReadException SAME_FILE");
    assert_eq!(scene(change(), sorted).outcome().await, "ConcurrentDeleteReadException SAME_FILE");
}

#[test]
fn bins_are_proved_by_partition_bounds_and_rows() {
    let metadata: Metadata =
        serde_json::from_value(creation_of("x", &["p"], json!({}))[1]["metaData"].clone()).unwrap();
    let schema = Schema::parse(&metadata.schema_string).unwrap();
    let root = Location::new("b", "t");
    let table = TableFacts { root: &root, metadata: &metadata, schema: &schema, has_deletion_vectors: true };
    let file = |partition: &str, ids: (i64, i64), rows: i64| -> AddFile {
        let stats =
            json!({"numRecords": rows, "minValues": {"id": ids.0}, "maxValues": {"id": ids.1}, "nullCount": {"id": 0}});
        let line = json!({"path": "f", "partitionValues": {"p": partition}, "size": 1, "stats": stats.to_string()});
        serde_json::from_value(line).unwrap()
    };
    let bin = |inputs: &[usize], outputs: &[usize]| Bin { inputs: inputs.to_vec(), outputs: outputs.to_vec() };
    let inputs = [file("x", (0, 4), 3), file("x", (5, 9), 2), file("y", (0, 4), 1)];
    // By partition, and by bounds.
    let outputs = [file("y", (0, 4), 1), file("x", (5, 9), 2), file("x", (0, 4), 3)];
    assert_eq!(bins(table, &inputs, &outputs), Some(vec![bin(&[0], &[2]), bin(&[1], &[1]), bin(&[2], &[0])]));
    let outputs = [file("x", (0, 9), 5), file("y", (0, 4), 1)];
    assert_eq!(bins(table, &inputs, &outputs), Some(vec![bin(&[0, 1], &[0]), bin(&[2], &[1])]));
    // Rows that are missing, statistics that are missing.
    assert_eq!(bins(table, &inputs, &[file("x", (0, 9), 4), file("y", (0, 4), 1)]), None);
    let mut blank = file("x", (0, 9), 5);
    blank.stats = None;
    assert_eq!(bins(table, &inputs, &[blank, file("y", (0, 4), 1)]), None);
    // A null may be anywhere.
    let mut nullable = file("x", (5, 9), 2);
    nullable.stats = Some(json!({"numRecords": 2, "minValues": {"id": 5}, "maxValues": {"id": 9}}).to_string());
    let inputs = [file("x", (0, 4), 3), nullable.clone()];
    let mut first = file("x", (0, 4), 3);
    first.stats = Some(json!({"numRecords": 3, "minValues": {"id": 0}, "maxValues": {"id": 4}}).to_string());
    assert_eq!(bins(table, &inputs, &[first, nullable]), Some(vec![bin(&[0, 1], &[0, 1])]));
}

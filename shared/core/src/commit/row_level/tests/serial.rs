//! What is admitted is what the statements leave behind one after the other in the order of the log, read back from the
//! files: for random tables, pairs and triples of statements, in every order.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::json;

use crate::commit::tests::engine::{Engine, Rows, Statement};
use crate::commit::tests::kit::{Kit, short};

/// Two files whose ids lie between each other, so that statistics tell nothing apart.
async fn table(sizes: (usize, usize), isolation: &str) -> Engine {
    let properties = json!({"delta.enableDeletionVectors": "true", "delta.isolationLevel": isolation});
    let kit = Kit::with_vectors(properties).await;
    let engine = Engine { kit };
    let mut id = 0;
    for (index, (size, step)) in [(sizes.0, 2), (sizes.1, 2)].into_iter().enumerate() {
        let ids = (0..size).map(|at| i64::try_from(at * step + index).unwrap()).collect();
        let lines = engine.execute(&Statement::Append(ids), &[], &format!("base{index}")).await;
        id += 1;
        let version = i64::try_from(index).unwrap() + 1;
        assert_eq!(short(&engine.kit.propose(version, 1_000 + id, &lines).await), format!("committed {version}"));
    }
    engine
}

fn statement() -> impl Strategy<Value = Statement> {
    prop_oneof![
        2 => (0..12_i64, 0..3_i64).prop_map(|(from, more)| Statement::Delete(from, from + more)),
        3 => (0..12_i64, 0..3_i64).prop_map(|(from, more)| Statement::Update(from, from + more)),
        2 => (0..16_i64).prop_map(Statement::Merge),
        1 => Just(Statement::Optimize),
        1 => (20..24_i64).prop_map(|id| Statement::Append(vec![id, id + 10])),
    ]
}

fn orders(count: usize) -> Vec<Vec<usize>> {
    match count {
        2 => vec![vec![0, 1], vec![1, 0]],
        _ => vec![vec![0, 1, 2], vec![0, 2, 1], vec![1, 0, 2], vec![1, 2, 0], vec![2, 0, 1], vec![2, 1, 0]],
    }
}

/// Proposes the statements in an order, all of which read version 2; answers how many were admitted beside others.
async fn propose(sizes: (usize, usize), statements: &[Statement], order: &[usize]) -> Result<usize, TestCaseError> {
    let engine = table(sizes, "Serializable").await;
    let files = engine.read(2).await;
    let mut serial = engine.rows().await;
    let mut admitted = 0;
    for (turn, index) in order.iter().enumerate() {
        let statement = &statements[*index];
        // Appends of the same ids would be rows of their own.
        let fresh = match statement {
            Statement::Append(ids) => Statement::Append(ids.iter().map(|id| id + 100 * *index as i64).collect()),
            other => other.clone(),
        };
        let lines = engine.execute(&fresh, &files, &format!("c{index}")).await;
        let verdict = engine.kit.propose(3, *index as u128 + 1, &lines).await;
        let is_nothing = lines.len() == 1;
        match verdict.committed_version() {
            // A statement that found nothing to do has its place where it read.
            Some(_) if is_nothing => {}
            Some(_) => {
                fresh.run(&mut serial);
                admitted += usize::from(turn > 0);
            }
            None => prop_assert!(turn > 0, "{:?}: {}", fresh, short(&verdict)),
        }
        let found: Rows = engine.rows().await;
        prop_assert_eq!(&found, &serial, "{:?} in turn {} of {:?}: {}", fresh, turn, order, short(&verdict));
    }
    Ok(admitted)
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn every_order_of_two_that_is_admitted_is_serial(
        sizes in (1..7_usize, 1..7_usize), statements in prop::collection::vec(statement(), 2),
    ) {
        for order in orders(2) {
            run(propose(sizes, &statements, &order))?;
        }
    }

    #[test]
    fn every_order_of_three_that_is_admitted_is_serial(
        sizes in (1..7_usize, 1..7_usize), statements in prop::collection::vec(statement(), 3),
    ) {
        for order in orders(3) {
            run(propose(sizes, &statements, &order))?;
        }
    }
}

/// Different rows of one file: everything is admitted, in every order.
#[tokio::test]
async fn different_rows_of_one_file_are_all_admitted() {
    let statements = [Statement::Delete(0, 0), Statement::Update(2, 2), Statement::Merge(6)];
    for order in orders(3) {
        assert_eq!(propose((6, 6), &statements, &order).await.unwrap(), 2, "{order:?}");
    }
    // A MERGE that may insert minds what became of the other file, which it only scanned.
    let statements = [Statement::Update(3, 3), Statement::Merge(6)];
    assert_eq!(propose((6, 6), &statements, &[0, 1]).await.unwrap(), 0);
    assert_eq!(propose((6, 6), &statements, &[1, 0]).await.unwrap(), 1);
    let statements = [Statement::Update(4, 4), Statement::Optimize, Statement::Delete(2, 2)];
    for order in [vec![0, 2, 1], vec![2, 0, 1]] {
        assert_eq!(propose((6, 6), &statements, &order).await.unwrap(), 1, "the last only moves what both changed");
    }
    for order in [vec![1, 0, 2], vec![1, 2, 0]] {
        assert_eq!(
            propose((6, 6), &statements, &order).await.unwrap(),
            2,
            "the first that changes takes the move back"
        );
    }
}

/// The properties above would hold of a judge that admits nothing: of what their generators give, much is admitted.
#[test]
fn many_orders_are_admitted() {
    let mut runner = TestRunner::deterministic();
    let cases = ((1..7_usize, 1..7_usize), prop::collection::vec(statement(), 2));
    let mut admitted = 0;
    for _ in 0..10 {
        let (sizes, statements) = cases.new_tree(&mut runner).unwrap().current();
        for order in orders(2) {
            admitted += run(propose(sizes, &statements, &order)).unwrap();
        }
    }
    assert!(admitted >= 6, "{admitted} of 20");
}

/// Each winner asks for vectors and, since the bounds of what it brought tell nothing, for rows: their number ends no judgement
/// without a verdict.
#[tokio::test]
async fn twenty_winners_that_each_ask_for_rows_end_with_a_verdict() {
    let properties = json!({"delta.enableDeletionVectors": "true", "delta.isolationLevel": "Serializable"});
    let engine = Engine { kit: Kit::with_vectors(properties).await };
    let mut version = 0;
    let mut commit = async |lines: Vec<serde_json::Value>| {
        version += 1;
        let verdict = engine.kit.propose(version, version as u128, &lines).await;
        assert_eq!(short(&verdict), format!("committed {version}"));
        version
    };
    for file in 0..8_i64 {
        let ids = (0..4).map(|row| file + 8 * row).collect();
        commit(engine.execute(&Statement::Append(ids), &[], &format!("base{file}")).await).await;
    }
    let late = Statement::Delete(24, 27);
    let files = engine.read(8).await;
    let proposal = engine.execute(&late, &files, "late").await;
    for id in 0..20 {
        let files = engine.read(8 + id).await;
        let mut lines = engine.execute(&Statement::Update(id, id), &files, &format!("winner{id}")).await;
        for line in lines.iter_mut().filter(|line| line["add"]["path"].is_string()) {
            if line["add"]["deletionVector"].is_null() {
                line["add"]["stats"] = json!(json!({"numRecords": 1}).to_string());
            }
        }
        commit(lines).await;
    }
    let mut serial = engine.rows().await;
    late.run(&mut serial);
    let verdict = engine.kit.propose(9, 999, &proposal).await;
    assert_eq!(short(&verdict), "committed 29");
    assert_eq!(engine.rows().await, serial);
}

//! A model of a table with rows: programs run on the version that they read, the judge decides, and what it admits under
//! Serializable must be what the same programs leave behind when they run one after the other in the order of the log.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{TestCaseError, TestRunner};
use serde_json::{Value, json};

use super::judging::{Scene, add, info, moved, remove, under};
use crate::commit::judge::Judgement;
use crate::ports::IsolationLevel;

/// Rows by id: partition and value.
type Rows = BTreeMap<i64, (char, i64)>;

/// What a writer means to do; a function of the rows alone.
#[derive(Clone, Debug)]
enum Program {
    Insert {
        partition: char,
    },
    Update {
        of: Condition,
    },
    Delete {
        of: Condition,
    },
    /// Inserts one row whose value is the sum of those that it read.
    Sum {
        of: Condition,
    },
    Optimize {
        partition: char,
    },
}

#[derive(Clone, Debug)]
enum Condition {
    Partition(char),
    Ids(i64, i64),
    All,
}

impl Condition {
    fn selects(&self, id: i64, partition: char) -> bool {
        match self {
            Condition::Partition(wanted) => partition == *wanted,
            Condition::Ids(from, to) => (*from..=*to).contains(&id),
            Condition::All => true,
        }
    }

    fn declared(&self) -> Value {
        let compare = |op: &str, value: Value| json!({"op": op, "col": ["id"], "value": value});
        match self {
            Condition::Partition(partition) => {
                json!({"v": 1, "predicates": [{"op": "=", "col": ["p"], "value": partition.to_string()}]})
            }
            Condition::Ids(from, to) => {
                json!({"v": 1, "predicates": [{"op": "and", "args": [compare(">=", json!(from)), compare("<=", json!(to))]}]})
            }
            Condition::All => json!({"v": 1, "wholeTable": true}),
        }
    }
}

impl Program {
    /// What it does to rows, on their own.
    fn run(&self, rows: &mut Rows, new_id: i64) {
        match self {
            Program::Insert { partition } => {
                rows.insert(new_id, (*partition, 1));
            }
            Program::Update { of } => {
                for (id, (partition, value)) in rows.iter_mut().filter(|(id, row)| of.selects(**id, row.0)) {
                    *value = *value * 3 + i64::from(*partition == 'x') + id % 2;
                }
            }
            Program::Delete { of } => rows.retain(|id, row| !of.selects(*id, row.0)),
            Program::Sum { of } => {
                let sum = rows.iter().filter(|(id, row)| of.selects(**id, row.0)).map(|(_, row)| row.1).sum();
                rows.insert(new_id, ('y', sum));
            }
            Program::Optimize { .. } => {}
        }
    }
}

/// A live file: its rows, and those of them that a deletion vector hides.
#[derive(Clone, Debug, Default)]
struct File {
    rows: Rows,
    hidden: BTreeSet<i64>,
    vector: Option<String>,
}

impl File {
    fn visible(&self) -> impl Iterator<Item = (&i64, &(char, i64))> {
        self.rows.iter().filter(|(id, _)| !self.hidden.contains(id))
    }
}

/// Live files by path.
type Table = BTreeMap<String, File>;

fn rows_of(table: &Table) -> Rows {
    table.values().flat_map(|file| file.visible().map(|(id, row)| (*id, *row))).collect()
}

fn add_file(path: &str, file: &File) -> Value {
    let (first, last) = (file.rows.keys().next().unwrap(), file.rows.keys().next_back().unwrap());
    let mut line = add(path, 0);
    let stats = json!({"numRecords": file.rows.len(), "minValues": {"id": first}, "maxValues": {"id": last}, "nullCount": {"id": 0}});
    line["add"]["stats"] = json!(stats.to_string());
    match &file.vector {
        None => line,
        Some(vector) => under(line, vector, i64::try_from(file.hidden.len()).unwrap()),
    }
}

fn remove_file(path: &str, file: &File) -> Value {
    match &file.vector {
        None => remove(path),
        Some(vector) => under(remove(path), vector, i64::try_from(file.hidden.len()).unwrap()),
    }
}

/// A commit: what it takes away and adds, and its lines.
#[derive(Clone, Debug, Default)]
struct Commit {
    removed: Vec<String>,
    added: Table,
    lines: Vec<Value>,
}

/// Runs a program on the table that it read.
fn execute(program: &Program, table: &Table, number: usize, vectors: bool) -> Commit {
    let mut commit = Commit::default();
    let new_id = 1_000 + i64::try_from(number).unwrap();
    let path = |partition: char| format!("p={partition}/n{number}");
    let one = |partition: char, value: i64| File { rows: [(new_id, (partition, value))].into(), ..File::default() };
    let info = |operation: &str, mut more: Value| {
        more["engineInfo"] = json!(number.to_string());
        info(operation, more)
    };
    let info = match program {
        Program::Insert { partition } => {
            commit.added.insert(path(*partition), one(*partition, 1));
            info("WRITE", json!({"operationParameters": {"mode": "Append"}}))
        }
        Program::Sum { of } => {
            let mut rows = rows_of(table);
            program.run(&mut rows, new_id);
            commit.added.insert(path('y'), one('y', rows[&new_id].1));
            info("WRITE", json!({"isBlindAppend": false, "readSet": of.declared()}))
        }
        Program::Update { of } | Program::Delete { of } => {
            let updates = matches!(program, Program::Update { .. });
            rewrite(program, of, table, number, vectors, &mut commit);
            info(if updates { "UPDATE" } else { "DELETE" }, json!({"readSet": of.declared()}))
        }
        Program::Optimize { partition } => {
            let mut merged = File::default();
            for (path, file) in table.iter().filter(|(path, _)| path.starts_with(&format!("p={partition}/"))) {
                merged.rows.extend(file.visible().map(|(id, row)| (*id, *row)));
                commit.removed.push(path.clone());
            }
            if !merged.rows.is_empty() {
                commit.added.insert(path(*partition), merged);
            }
            info("OPTIMIZE", json!({}))
        }
    };
    commit.lines = commit.removed.iter().map(|path| remove_file(path, &table[path])).collect();
    commit.lines.extend(commit.added.iter().map(|(path, file)| add_file(path, file)));
    if matches!(program, Program::Optimize { .. }) {
        commit.lines = commit.lines.into_iter().map(moved).collect();
    }
    commit.lines.push(info);
    commit
}

/// Rewrites the files with selected rows, or hides these rows and writes their new images to files of their own.
fn rewrite(program: &Program, of: &Condition, table: &Table, number: usize, vectors: bool, commit: &mut Commit) {
    for (index, (path, file)) in table.iter().enumerate() {
        let selected: BTreeSet<i64> =
            file.visible().filter(|(id, row)| of.selects(**id, row.0)).map(|(id, _)| *id).collect();
        if selected.is_empty() {
            continue;
        }
        commit.removed.push(path.clone());
        let mut rows: Rows = file.visible().map(|(id, row)| (*id, *row)).collect();
        if vectors && selected.len() < rows.len() {
            let hidden = file.hidden.union(&selected).copied().collect();
            let vector = Some(format!("{:A<20}", format!("v{number}x{index}")));
            commit.added.insert(path.clone(), File { rows: file.rows.clone(), hidden, vector });
            rows.retain(|id, _| selected.contains(id));
        }
        program.run(&mut rows, -1);
        if !rows.is_empty() {
            let partition = &path[..3];
            commit.added.insert(format!("{partition}/n{number}x{index}"), File { rows, ..File::default() });
        }
    }
}

fn apply(table: &Table, commit: &Commit) -> Table {
    let mut next = table.clone();
    for path in &commit.removed {
        assert!(next.remove(path).is_some(), "an admitted commit removes a file that is not there: {path}");
    }
    for (path, file) in &commit.added {
        assert!(next.insert(path.clone(), file.clone()).is_none(), "an admitted commit adds a file twice: {path}");
    }
    next
}

fn condition() -> impl Strategy<Value = Condition> {
    prop_oneof![
        prop::sample::select(vec!['x', 'y']).prop_map(Condition::Partition),
        (0..8_i64, 0..3_i64).prop_map(|(from, more)| Condition::Ids(from, from + more)),
        // Rows that programs insert.
        (1_000..1_006_i64).prop_map(|id| Condition::Ids(id, id)),
        Just(Condition::All),
    ]
}

fn program() -> impl Strategy<Value = Program> {
    let partition = || prop::sample::select(vec!['x', 'y']);
    prop_oneof![
        3 => partition().prop_map(|partition| Program::Insert { partition }),
        4 => condition().prop_map(|of| Program::Update { of }),
        3 => condition().prop_map(|of| Program::Delete { of }),
        3 => condition().prop_map(|of| Program::Sum { of }),
        2 => partition().prop_map(|partition| Program::Optimize { partition }),
    ]
}

/// Two files in each partition, two rows in each.
fn first() -> Table {
    (0..4_i64)
        .map(|index| {
            let partition = if index < 2 { 'x' } else { 'y' };
            let rows = [(index * 2, (partition, 1)), (index * 2 + 1, (partition, 2))].into();
            (format!("p={partition}/f{index}"), File { rows, ..File::default() })
        })
        .collect()
}

struct History {
    vectors: bool,
    tables: Vec<Table>,
    commits: Vec<Commit>,
}

impl History {
    /// What the judge says of a commit that read `version`.
    async fn judge(&self, version: usize, commit: &Commit) -> Judgement {
        let properties = json!({
            "delta.isolationLevel": "Serializable",
            "delta.enableDeletionVectors": self.vectors.to_string(),
        });
        let features = ["deletionVectors"];
        let files: Vec<Value> = self.tables[version].iter().map(|(path, file)| add_file(path, file)).collect();
        let mut scene = Scene::table(&["p"], &features, properties).with_files(files);
        for winner in &self.commits[version..] {
            scene = scene.won_by(winner.lines.clone());
        }
        scene.under(IsolationLevel::WriteSerializable).candidate(commit.lines.clone()).judge().await
    }
}

/// Runs programs, each some versions behind; answers how many were admitted although others won meanwhile.
fn check(vectors: bool, programs: &[(Program, usize)]) -> Result<usize, TestCaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut history = History { vectors, tables: vec![first()], commits: Vec::new() };
    let mut serial = rows_of(&first());
    let mut concurrent = 0;
    for (number, (program, behind)) in programs.iter().enumerate() {
        let latest = history.commits.len();
        let read = latest.saturating_sub(*behind);
        let commit = execute(program, &history.tables[read], number, vectors);
        match runtime.block_on(history.judge(read, &commit)) {
            Judgement::Admit(admission) => {
                prop_assert!(admission.rebase.is_empty());
                let next = apply(&history.tables[latest], &commit);
                // A commit that found nothing to do has its place where it read: it changed nothing.
                if commit.lines.len() > 1 {
                    program.run(&mut serial, 1_000 + i64::try_from(number).unwrap());
                    concurrent += usize::from(read < latest);
                }
                prop_assert_eq!(&rows_of(&next), &serial, "{:?} read version {} of {}", program, read, latest);
                history.tables.push(next);
                history.commits.push(commit);
            }
            // Without concurrency nothing is in the way.
            other => prop_assert!(read < latest, "{:?}", other),
        }
    }
    Ok(concurrent)
}

fn programs() -> impl Strategy<Value = Vec<(Program, usize)>> {
    prop::collection::vec((program(), 0..4_usize), 2..9)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]

    #[test]
    fn what_is_admitted_is_serial(vectors: bool, programs in programs()) {
        check(vectors, &programs)?;
    }
}

#[test]
fn much_is_admitted() {
    let mut runner = TestRunner::deterministic();
    let mut concurrent = 0;
    for case in 0..40 {
        let programs = programs().new_tree(&mut runner).unwrap().current();
        concurrent += check(case % 2 == 0, &programs).unwrap();
    }
    assert!(concurrent >= 40, "only {concurrent} commits were admitted beside others");
}

//! A model of a table with rows: programs run on the version that they read, the judge decides, and what it admits under
//! Serializable must be what the same programs leave behind when they run one after the other in the order of the log.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{TestCaseError, TestRunner};
use serde_json::{Value, json};

use super::judging::{Scene, add, info, moved, remove};
use crate::commit::judge::{Admission, Judgement};
use crate::commit::rebase::render;
use crate::commit::row_level::{Match, vector_key};
use crate::delta::DeletionVector;
use crate::delta::deletion_vector::{self, RowSet};
use crate::delta::testkit::text;
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
    /// Changes the row of this id, or inserts it.
    Merge {
        id: i64,
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
            Program::Merge { id } => {
                let row = rows.entry(*id).or_insert(('y', 1));
                row.1 = row.1 * 5 + 2;
            }
            Program::Optimize { .. } => {}
        }
    }
}

/// How far row-level concurrency goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    WithoutVectors,
    /// Partitioned, as these tables are, so that rows count only where they are moved.
    Vectors,
    Rows,
}

/// A live file: its rows by position, and those positions that a deletion vector hides.
#[derive(Clone, Debug, Default)]
struct File {
    rows: Vec<(i64, (char, i64))>,
    hidden: BTreeSet<u64>,
    /// The descriptor as the log has it.
    vector: Option<Value>,
}

impl File {
    fn of(rows: Rows) -> File {
        File { rows: rows.into_iter().collect(), ..File::default() }
    }

    fn visible(&self) -> impl Iterator<Item = (u64, (i64, (char, i64)))> {
        let places = self.rows.iter().enumerate().map(|(at, row)| (u64::try_from(at).unwrap(), *row));
        places.filter(|(at, _)| !self.hidden.contains(at))
    }

    fn visible_rows(&self) -> Rows {
        self.visible().map(|(_, row)| row).collect()
    }
}

/// Live files by path.
type Table = BTreeMap<String, File>;

fn rows_of(table: &Table) -> Rows {
    table.values().flat_map(File::visible_rows).collect()
}

fn add_file(path: &str, file: &File) -> Value {
    let ids = file.rows.iter().map(|(id, _)| *id);
    let (first, last) = (ids.clone().min().unwrap(), ids.max().unwrap());
    let mut line = add(path, 0);
    let mut stats = json!({"numRecords": file.rows.len(), "minValues": {"id": first}, "maxValues": {"id": last}, "nullCount": {"id": 0}});
    if let Some(vector) = &file.vector {
        stats["tightBounds"] = json!(false);
        line["add"]["deletionVector"] = vector.clone();
    }
    line["add"]["stats"] = json!(stats.to_string());
    line
}

fn remove_file(path: &str, file: &File) -> Value {
    let mut line = remove(path);
    if let Some(vector) = &file.vector {
        line["remove"]["deletionVector"] = vector.clone();
    }
    line
}

/// A commit: what it takes away and adds, and its lines.
#[derive(Clone, Debug, Default)]
struct Commit {
    removed: Vec<String>,
    added: Table,
    lines: Vec<Value>,
}

/// Runs a program on the table that it read.
fn execute(program: &Program, table: &Table, number: usize, mode: Mode) -> Commit {
    let mut commit = Commit::default();
    let new_id = 1_000 + i64::try_from(number).unwrap();
    let path = |partition: char| format!("p={partition}/n{number}");
    let one = |partition: char, value: i64| File::of([(new_id, (partition, value))].into());
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
            rewrite(program, of, table, number, mode, &mut commit);
            info(if updates { "UPDATE" } else { "DELETE" }, json!({"readSet": of.declared()}))
        }
        Program::Merge { id } => {
            let of = Condition::Ids(*id, *id);
            rewrite(program, &of, table, number, mode, &mut commit);
            if commit.removed.is_empty() {
                let mut rows = Rows::new();
                program.run(&mut rows, -1);
                commit.added.insert(path('y'), File::of(rows));
            }
            let mut reads = of.declared();
            reads["matchedEqualsWritten"] = json!(true);
            info("MERGE", json!({ "readSet": reads }))
        }
        Program::Optimize { partition } => {
            let mut merged = Rows::new();
            for (path, file) in table.iter().filter(|(path, _)| path.starts_with(&format!("p={partition}/"))) {
                merged.extend(file.visible_rows());
                commit.removed.push(path.clone());
            }
            if !merged.is_empty() {
                commit.added.insert(path(*partition), File::of(merged));
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
fn rewrite(program: &Program, of: &Condition, table: &Table, number: usize, mode: Mode, commit: &mut Commit) {
    for (index, (path, file)) in table.iter().enumerate() {
        let selected: BTreeMap<u64, i64> =
            file.visible().filter(|(_, (id, row))| of.selects(*id, row.0)).map(|(at, (id, _))| (at, id)).collect();
        if selected.is_empty() {
            continue;
        }
        commit.removed.push(path.clone());
        let mut rows = file.visible_rows();
        if mode != Mode::WithoutVectors && selected.len() < rows.len() {
            let hidden: BTreeSet<u64> = file.hidden.iter().chain(selected.keys()).copied().collect();
            let vector = deletion_vector::inline(&hidden.iter().copied().collect());
            let vector = Some(serde_json::to_value(vector).unwrap());
            commit.added.insert(path.clone(), File { rows: file.rows.clone(), hidden, vector });
            rows.retain(|id, _| selected.values().any(|found| found == id));
        }
        program.run(&mut rows, -1);
        if !rows.is_empty() {
            let partition = &path[..3];
            commit.added.insert(format!("{partition}/n{number}x{index}"), File::of(rows));
        }
    }
}

/// What a log's lines make of a table. `files` are rows of files, whoever wrote them.
fn apply(table: &Table, lines: &[Value], files: &Table, vectors: Option<&[u8]>) -> Table {
    let mut next = table.clone();
    let id = |vector: &Value| (!vector.is_null()).then(|| vector.to_string());
    for remove in lines.iter().map(|line| &line["remove"]).filter(|remove| !remove.is_null()) {
        let path = remove["path"].as_str().unwrap();
        let is_it = |file: &File| file.vector.as_ref().map(Value::to_string) == id(&remove["deletionVector"]);
        if next.get(path).is_some_and(is_it) {
            next.remove(path);
        }
    }
    for add in lines.iter().map(|line| &line["add"]).filter(|add| !add.is_null()) {
        let path = add["path"].as_str().unwrap();
        let vector = Some(add["deletionVector"].clone()).filter(|vector| !vector.is_null());
        let hidden = vector.as_ref().map_or(BTreeSet::new(), |vector| {
            let vector = serde_json::from_value(vector.clone()).unwrap();
            deletion_vector::read_held(&vector, vectors.unwrap_or_default()).unwrap().iter().collect()
        });
        let file = File { rows: files[path].rows.clone(), hidden, vector };
        assert!(next.insert(path.to_owned(), file).is_none(), "an admitted commit adds a file twice: {path}");
    }
    next
}

/// Ids that are there in the beginning.
const IDS: i64 = 16;

/// Few rows, most of the time: then different rows of one file are met often.
fn condition() -> impl Strategy<Value = Condition> {
    prop_oneof![
        2 => prop::sample::select(vec!['x', 'y']).prop_map(Condition::Partition),
        16 => (0..IDS, 0..2_i64).prop_map(|(from, more)| Condition::Ids(from, from + more)),
        // Rows that programs insert.
        2 => (1_000..1_006_i64).prop_map(|id| Condition::Ids(id, id)),
        1 => Just(Condition::All),
    ]
}

fn program() -> impl Strategy<Value = Program> {
    let partition = || prop::sample::select(vec!['x', 'y']);
    prop_oneof![
        2 => partition().prop_map(|partition| Program::Insert { partition }),
        6 => condition().prop_map(|of| Program::Update { of }),
        6 => condition().prop_map(|of| Program::Delete { of }),
        2 => condition().prop_map(|of| Program::Sum { of }),
        2 => partition().prop_map(|partition| Program::Optimize { partition }),
        // Ids that are there, and ids that nobody else inserts.
        3 => prop_oneof![4 => 0..IDS, 1 => 2_000..2_003_i64].prop_map(|id| Program::Merge { id }),
    ]
}

/// A file of eight rows in each partition, ids mixed so that bounds overlap.
fn first() -> Table {
    ['x', 'y']
        .into_iter()
        .zip(0..)
        .map(|(partition, first)| {
            let rows = (first..IDS).step_by(2).map(|id| (id, (partition, id + 1)));
            (format!("p={partition}/f{first}"), File::of(rows.collect()))
        })
        .collect()
}

struct History {
    mode: Mode,
    tables: Vec<Table>,
    /// As published, by version less one.
    published: Vec<Vec<Value>>,
    /// Rows of every file there ever was.
    files: Table,
}

impl History {
    /// What the judge says of a commit that read `version`.
    async fn judge(&self, version: usize, program: &Program, commit: &Commit) -> Judgement {
        let rows = if self.mode == Mode::Rows { "partitioned" } else { "" };
        let properties = json!({
            "delta.isolationLevel": "Serializable",
            "delta.enableDeletionVectors": (self.mode != Mode::WithoutVectors).to_string(),
            "lakewarden.rowLevelConcurrency": rows,
        });
        let files: Vec<Value> = self.tables[version].iter().map(|(path, file)| add_file(path, file)).collect();
        let mut scene = Scene::table(&["p"], &["deletionVectors"], properties).with_files(files);
        for winner in &self.published[version..] {
            scene = scene.won_by(winner.clone());
        }
        if let Some(of) = program.condition() {
            for (path, file) in &self.files {
                let row = file.rows.iter().position(|(id, row)| of.selects(*id, row.0));
                let found = row.map_or(Match::No, |row| Match::Row(u64::try_from(row).unwrap(), String::new()));
                scene.matches.insert(format!("wh/t/{path}"), found);
            }
        }
        let ids = |file: &File| file.rows.iter().map(|(id, _)| *id).collect();
        scene.ids = self.files.iter().map(|(path, file)| (format!("wh/t/{path}"), ids(file))).collect();
        scene.held = self.held();
        // A file of its own, as ids are in the service: what is known by one name must be one vector.
        scene.vectors = u128::try_from(self.published.len()).unwrap();
        scene.under(IsolationLevel::WriteSerializable).candidate(commit.lines.clone()).judge().await
    }

    /// Vectors that were written for merged files.
    fn held(&self) -> BTreeMap<String, RowSet> {
        let files = self.tables.iter().flat_map(|table| table.values());
        files
            .filter_map(|file| {
                let vector: DeletionVector = serde_json::from_value(file.vector.clone()?).unwrap();
                Some((vector_key(&vector), file.hidden.iter().copied().collect()))
            })
            .collect()
    }
}

impl Program {
    fn condition(&self) -> Option<Condition> {
        match self {
            Program::Update { of } | Program::Delete { of } | Program::Sum { of } => Some(of.clone()),
            Program::Merge { id } => Some(Condition::Ids(*id, *id)),
            Program::Insert { .. } | Program::Optimize { .. } => None,
        }
    }
}

/// How many commits were admitted although others won meanwhile, and how many of these were changed for it.
#[derive(Clone, Copy, Debug, Default)]
struct Admitted {
    concurrent: usize,
    merged: usize,
    undone: usize,
}

/// Runs programs, each some versions behind.
fn check(mode: Mode, programs: &[(Program, usize)]) -> Result<Admitted, TestCaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut history = History { mode, tables: vec![first()], published: Vec::new(), files: first() };
    let mut serial = rows_of(&first());
    let mut admitted = Admitted::default();
    for (number, (program, behind)) in programs.iter().enumerate() {
        let latest = history.published.len();
        let read = latest.saturating_sub(*behind);
        let commit = execute(program, &history.tables[read], number, mode);
        match runtime.block_on(history.judge(read, program, &commit)) {
            Judgement::Admit(admission) => {
                let new = commit.added.iter().filter(|(_, file)| file.vector.is_none());
                history.files.extend(new.map(|(path, file)| (path.clone(), file.clone())));
                let lines = published(&commit, &admission);
                let vectors = admission.publication.vectors.as_ref().map(|(_, bytes)| bytes.as_ref());
                let next = apply(&history.tables[latest], &lines, &history.files, vectors);
                // A commit that found nothing to do has its place where it read: it changed nothing.
                if commit.lines.len() > 1 {
                    program.run(&mut serial, 1_000 + i64::try_from(number).unwrap());
                    admitted.concurrent += usize::from(read < latest);
                    admitted.merged += usize::from(!admission.rebase.changed_removes.is_empty());
                    admitted.undone += usize::from(!admission.rebase.appended.is_empty());
                }
                prop_assert_eq!(&rows_of(&next), &serial, "{:?} read version {} of {}", program, read, latest);
                history.tables.push(next);
                history.published.push(lines);
            }
            // Without concurrency nothing is in the way.
            other => prop_assert!(read < latest, "{:?}", other),
        }
    }
    Ok(admitted)
}

/// The lines that the log gets.
fn published(commit: &Commit, admission: &Admission) -> Vec<Value> {
    let bytes = render(&text(&commit.lines).into(), &admission.rebase, None);
    let text = std::str::from_utf8(&bytes).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn programs() -> impl Strategy<Value = Vec<(Program, usize)>> {
    prop::collection::vec((program(), 0..4_usize), 2..9)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]

    #[test]
    fn what_is_admitted_is_serial(mode in modes(), programs in programs()) {
        check(mode, &programs)?;
    }
}

fn modes() -> impl Strategy<Value = Mode> {
    prop::sample::select(vec![Mode::WithoutVectors, Mode::Vectors, Mode::Rows, Mode::Rows])
}

#[test]
fn much_is_admitted() {
    let mut runner = TestRunner::deterministic();
    let mut found: BTreeMap<&str, Admitted> = BTreeMap::new();
    let (mut merging, mut undoing) = (0, 0);
    for _ in 0..60 {
        let programs = programs().new_tree(&mut runner).unwrap().current();
        for (name, mode) in [("off", Mode::WithoutVectors), ("vectors", Mode::Vectors), ("rows", Mode::Rows)] {
            let admitted = check(mode, &programs).unwrap();
            let all = found.entry(name).or_default();
            all.concurrent += admitted.concurrent;
            all.merged += admitted.merged;
            all.undone += admitted.undone;
            merging += usize::from(mode == Mode::Rows && admitted.merged > 0);
            undoing += usize::from(mode == Mode::Rows && admitted.undone > 0);
        }
    }
    let (off, vectors, rows) = (found["off"], found["vectors"], found["rows"]);
    assert!(off.concurrent >= 40, "{found:?}");
    assert_eq!((off.merged, off.undone, vectors.merged), (0, 0, 0), "{found:?}");
    assert!(vectors.undone > 0, "{found:?}");
    // Histories in which rows are merged, and in which a move is taken back: without them the property says nothing of these.
    assert!(rows.merged >= 12 && merging >= 10, "{merging} of 60 histories merge: {found:?}");
    assert!(rows.undone >= 3 && undoing >= 3, "{undoing} of 60 histories take back: {found:?}");
    assert!(rows.concurrent > vectors.concurrent, "{found:?}");
}

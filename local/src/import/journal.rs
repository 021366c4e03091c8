//! Where an import stands, so that one that was stopped goes on there. One line of JSON for each step, appended.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The journal cannot be kept.
#[derive(Debug, Error)]
#[error("the journal {path} cannot be {what}: {source}")]
pub struct JournalError {
    path: PathBuf,
    what: &'static str,
    source: std::io::Error,
}

/// Database and table.
pub(super) type TableName = (String, String);

#[derive(Debug, Deserialize, Serialize)]
enum Step {
    /// Everything of the table is there.
    Done(TableName),
    /// Its partitions are there up to the page that this token continues.
    At(TableName, String),
}

/// Steps of this run and of those before it that did not finish.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    /// None in a dry run, which takes no steps.
    file: Option<File>,
    done: HashSet<TableName>,
    at: HashMap<TableName, String>,
}

impl Journal {
    /// Opens the journal and reads the steps that it has.
    pub(super) fn open(path: &Path) -> Result<Self, JournalError> {
        let error = |what| move |source| JournalError { path: path.to_owned(), what, source };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(error("made"))?;
        }
        let mut journal = Self::read(path)?;
        let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(error("opened"))?;
        // A line that was cut off by the end of a run must not swallow the next one.
        file.write_all(b"\n").map_err(error("written"))?;
        journal.file = Some(file);
        Ok(journal)
    }

    /// Reads the steps without taking any.
    pub(super) fn read(path: &Path) -> Result<Self, JournalError> {
        let error = |source| JournalError { path: path.to_owned(), what: "read", source };
        let mut journal = Self { path: path.to_owned(), file: None, done: HashSet::new(), at: HashMap::new() };
        let file = match File::open(path) {
            Ok(file) => file,
            Err(missing) if missing.kind() == std::io::ErrorKind::NotFound => return Ok(journal),
            Err(other) => return Err(error(other)),
        };
        for line in BufReader::new(file).lines() {
            // Steps are a saving: one that cannot be read is taken again.
            match serde_json::from_str(&line.map_err(error)?) {
                Ok(Step::Done(table)) => _ = journal.done.insert(table),
                Ok(Step::At(table, token)) => _ = journal.at.insert(table, token),
                Err(_) => {}
            }
        }
        Ok(journal)
    }

    pub(super) fn is_done(&self, table: &TableName) -> bool {
        self.done.contains(table)
    }

    pub(super) fn done_count(&self) -> usize {
        self.done.len()
    }

    /// The token that continues the listing of a table's partitions.
    pub(super) fn token(&self, table: &TableName) -> Option<&str> {
        self.at.get(table).map(String::as_str)
    }

    pub(super) fn mark_done(&mut self, table: &TableName) -> Result<(), JournalError> {
        self.done.insert(table.clone());
        self.write(&Step::Done(table.clone()))
    }

    pub(super) fn mark_at(&mut self, table: &TableName, token: &str) -> Result<(), JournalError> {
        self.write(&Step::At(table.clone(), token.to_owned()))
    }

    fn write(&mut self, step: &Step) -> Result<(), JournalError> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let written = serde_json::to_string(step).map_err(std::io::Error::other);
        let written = written.and_then(|line| file.write_all(format!("{line}\n").as_bytes()));
        written.map_err(|source| JournalError { path: self.path.clone(), what: "written", source })
    }

    /// All is done: the next run begins anew.
    pub(super) fn remove(self) -> Result<(), JournalError> {
        forget(&self.path)
    }
}

/// Removes a journal, if there is one.
pub(super) fn forget(path: &Path) -> Result<(), JournalError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(JournalError { path: path.to_owned(), what: "removed", source: error })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_goes_on_where_the_last_one_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("imports/x.jsonl");
        let table = |name: &str| ("d".to_owned(), name.to_owned());
        let mut journal = Journal::open(&path).unwrap();
        journal.mark_done(&table("a")).unwrap();
        journal.mark_at(&table("b"), "token 1").unwrap();
        journal.mark_at(&table("b"), "token 2").unwrap();
        drop(journal);
        std::fs::write(&path, [std::fs::read(&path).unwrap(), b"{\"Done\":[\"d\",".to_vec()].concat()).unwrap();
        let mut journal = Journal::open(&path).unwrap();
        assert!(journal.is_done(&table("a")) && !journal.is_done(&table("b")));
        assert_eq!(journal.token(&table("b")), Some("token 2"));
        journal.mark_done(&table("b")).unwrap();
        assert_eq!(Journal::read(&path).unwrap().done_count(), 2);
        journal.remove().unwrap();
        assert_eq!(Journal::read(&path).unwrap().done_count(), 0);
        forget(&path).unwrap();
    }
}

//! `lakewarden import`: copies databases, tables and partitions from a Glue-compatible catalog into a Lakewarden.
//!
//! Nothing that is there already is changed, so a run can be repeated. A run that was stopped goes on where it stood: a
//! journal has the tables that are done and the page of partitions that is next.

mod journal;
mod shapes;
mod source;
mod table;
mod target;

use std::path::PathBuf;

use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::cli::ImportArgs;
use crate::progress::Progress;
use crate::signed::{AwsAccess, CallError};

use journal::{Journal, JournalError, TableName};
use source::Source;
use target::{Made, Target};

/// Refusals that are told one by one; the rest is counted.
const SHOWN_FAILURES: u64 = 50;

/// An import ended before all was copied.
#[derive(Debug, Error)]
pub enum ImportError {
    #[error("{0}")]
    Usage(String),
    #[error("{0}; run the same command again to go on from here")]
    Call(#[from] CallError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("{0} could not be copied (see above); run the same command again to try them once more")]
    Incomplete(u64),
}

/// What a run did, or in a dry run would do.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    databases_created: u64,
    databases_there: u64,
    tables_created: u64,
    tables_there: u64,
    partitions_created: u64,
    partitions_there: u64,
    /// Tables and partitions that are left out for good, with a reason that was told.
    skipped: u64,
    failed: u64,
}

/// One run.
struct Run {
    source: Source,
    target: Target,
    journal: Journal,
    progress: Progress,
    counts: Counts,
    is_dry: bool,
    tables_done: u64,
}

/// Copies what the options name.
///
/// # Errors
/// When an endpoint cannot be reached or the journal cannot be written; and at the end, if something was refused.
pub async fn run(args: &ImportArgs) -> Result<(), ImportError> {
    let access = AwsAccess::load(args.profile.as_deref(), args.region.as_deref()).await;
    let source = Source::open(args, &access).await?;
    let target = Target::open(&args.at.gateway, &access)?;
    if source.base() == target.base() {
        return Err(ImportError::Usage(format!("{} is both source and target.", source.base())));
    }
    let path = args.journal.clone().unwrap_or_else(|| journal_path(args, source.base(), target.base()));
    if args.restart && !args.dry_run {
        journal::forget(&path)?;
    }
    let plan = plan(&source, args).await?;
    let total = plan.iter().map(|(_, tables)| tables.len() as u64).sum();
    let journal = if args.dry_run { Journal::read(&path)? } else { Journal::open(&path)? };
    let progress = Progress::new(Some(total));
    let mut run =
        Run { source, target, journal, progress, counts: Counts::default(), is_dry: args.dry_run, tables_done: 0 };
    run.greet();
    for (database, tables) in plan {
        run.copy_database(&database, tables).await?;
    }
    run.finish()
}

/// Databases and the names of their tables.
async fn plan(source: &Source, args: &ImportArgs) -> Result<Vec<(serde_json::Value, Vec<String>)>, ImportError> {
    let mut plan = Vec::new();
    let mut missing = args.database.clone();
    for database in source.databases().await? {
        let name = name_of(&database);
        let is_wanted = args.database.is_empty() || args.database.iter().any(|wanted| wanted.to_lowercase() == name);
        if !is_wanted {
            continue;
        }
        missing.retain(|wanted| wanted.to_lowercase() != name);
        let mut tables = source.table_names(&name).await?;
        if !args.table.is_empty() {
            let unknown = args.table.iter().find(|wanted| !tables.contains(&wanted.to_lowercase()));
            if let Some(unknown) = unknown {
                return Err(ImportError::Usage(format!("The source has no table `{unknown}` in `{name}`.")));
            }
            tables.retain(|table| args.table.iter().any(|wanted| wanted.to_lowercase() == *table));
        }
        plan.push((database, tables));
    }
    match missing.first() {
        Some(missing) => Err(ImportError::Usage(format!("The source has no database `{missing}`."))),
        None => Ok(plan),
    }
}

fn name_of(entity: &serde_json::Value) -> String {
    entity.get("Name").and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
}

/// One journal for each pair of catalogs.
fn journal_path(args: &ImportArgs, source: &str, target: &str) -> PathBuf {
    let pair = format!("{source}\n{}\n{target}", args.catalog_id.as_deref().unwrap_or_default());
    let name: String = hex::encode(Sha256::digest(pair.as_bytes())).chars().take(16).collect();
    let folder = std::env::var_os("LAKEWARDEN_DATA_DIR").filter(|folder| !folder.is_empty());
    folder.map_or_else(|| PathBuf::from(".lakewarden"), PathBuf::from).join("imports").join(format!("{name}.jsonl"))
}

impl Run {
    fn greet(&mut self) {
        let done = self.journal.done_count();
        if done > 0 {
            let text = format!(
                "An earlier run was stopped after {done} tables; they are taken as done (--restart looks at them again)."
            );
            self.progress.line(&text);
        }
    }

    async fn copy_database(&mut self, database: &serde_json::Value, tables: Vec<String>) -> Result<(), ImportError> {
        let name = name_of(database);
        if database.get("TargetDatabase").is_some_and(|target| !target.is_null()) {
            self.skip(&format!("database {name} is a link to another catalog's: not copied"));
            self.tables_done += tables.len() as u64;
            return Ok(());
        }
        let input = shapes::database_input(database);
        match self.target.make_database(&input, self.is_dry).await {
            Ok(Made::New) => {
                self.counts.databases_created += 1;
                self.say(&format!("database {name}"));
            }
            Ok(Made::There(there)) => {
                self.counts.databases_there += 1;
                let there = shapes::database_input(&there.unwrap_or_default());
                if shapes::canonical(&there) != shapes::canonical(&input) {
                    self.tell_differing(&format!("database {name}"));
                }
            }
            Err(error) => {
                self.tables_done += tables.len() as u64;
                return self.fail(&format!("database {name}"), error);
            }
        }
        for table in tables {
            let table: TableName = (name.clone(), table);
            if !self.journal.is_done(&table) {
                self.copy_table(&table).await?;
            }
            self.tables_done += 1;
            self.show(&table);
        }
        Ok(())
    }

    fn show(&mut self, (database, table): &TableName) {
        let partitions = self.counts.partitions_created + self.counts.partitions_there;
        self.progress.set(self.tables_done, format!("tables, {partitions} partitions  {database}.{table}"));
    }

    /// Something is there that is not like the source's.
    fn tell_differing(&mut self, shown: &str) {
        self.progress.warn(&format!("{shown} is there with another definition, which stays as it is"));
    }

    /// Something new.
    fn say(&mut self, what: &str) {
        let text = format!("{} {what}", if self.is_dry { "would create" } else { "created" });
        self.progress.line(&text);
    }

    fn skip(&mut self, text: &str) {
        self.counts.skipped += 1;
        self.progress.warn(text);
    }

    /// A refusal concerns one thing; what is no refusal concerns everything.
    fn fail(&mut self, what: &str, error: CallError) -> Result<(), ImportError> {
        if !matches!(error, CallError::Refused { .. }) {
            return Err(error.into());
        }
        self.fail_with(&format!("{what}: {error}"));
        Ok(())
    }

    fn fail_with(&mut self, text: &str) {
        self.counts.failed += 1;
        if self.counts.failed <= SHOWN_FAILURES {
            self.progress.warn(&format!("not copied: {text}"));
        }
    }

    fn finish(self) -> Result<(), ImportError> {
        self.progress.finish();
        let Counts { databases_created, databases_there, tables_created, tables_there, .. } = self.counts;
        let Counts { partitions_created, partitions_there, skipped, failed, .. } = self.counts;
        let verb = if self.is_dry { "Would create" } else { "Created" };
        println!("{verb} {databases_created} databases, {tables_created} tables, {partitions_created} partitions.");
        println!("There already: {databases_there} databases, {tables_there} tables, {partitions_there} partitions.");
        println!("Left out: {skipped}. Not copied: {failed}.");
        println!("Table versions, statistics, partition indexes, optimizers, functions and tags are not copied.");
        if failed > 0 {
            return Err(ImportError::Incomplete(failed));
        }
        if !self.is_dry {
            self.journal.remove()?;
        }
        Ok(())
    }
}

//! `lakewarden sweep` and `lakewarden explain`: by the REST interface, of a Lakewarden here or a deployed one.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use thiserror::Error;

use crate::cli::{DroppedArgs, ExplainArgs, RestoreArgs, SweepArgs, SweepOf};
use crate::progress::Progress;
use crate::register::Catalog;
use crate::signed::{AwsAccess, CallError};

const POLL: Duration = Duration::from_millis(500);

/// The command did not come to a good end.
#[derive(Debug, Error)]
pub enum SweepCommandError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("the run was refused: {0}")]
    Failed(String),
    #[error("{key} was not restored: {why}")]
    NotRestored { key: String, why: String },
}

/// Starts a run and follows it to its end, or does what else was asked.
///
/// # Errors
/// An API that does not answer or refuses, or a run that failed.
pub async fn run(args: &SweepArgs) -> Result<(), SweepCommandError> {
    match &args.of {
        Some(SweepOf::Dropped(args)) => return dropped(args).await,
        Some(SweepOf::Restore(args)) => return restore(args).await,
        None => {}
    }
    let access = AwsAccess::load(None, args.region.as_deref()).await;
    let catalog = Catalog::open(&args.at.gateway, &access)?;
    let table = (args.database.as_deref().unwrap_or_default(), args.table.as_deref().unwrap_or_default());
    if args.list {
        return list(&catalog, table, args.json).await;
    }
    if let Some(run) = &args.cancel {
        let run = catalog.sweeps(Method::DELETE, table, &["sweeps", run], None).await?;
        say(args.json, &run, || format!("{} ends at its next step.", text(&run, "run_id")));
        return Ok(());
    }
    let run_id = match &args.run {
        Some(run) => run.clone(),
        None => {
            let mode = if args.delete { "ordinary" } else { "dry_run" };
            let body = json!({ "mode": mode, "sightings": args.sightings });
            let run = catalog.sweeps(Method::POST, table, &["sweeps"], Some(&body)).await?;
            if args.detach {
                say(args.json, &run, || format!("{} is queued.", text(&run, "run_id")));
                return Ok(());
            }
            text(&run, "run_id").to_owned()
        }
    };
    finish(&follow(&catalog, Of::Table(table), &run_id).await?, args.json)
}

fn finish(run: &Value, is_json: bool) -> Result<(), SweepCommandError> {
    say(is_json, run, || closing(run));
    if text(run, "state") == "failed" {
        return Err(SweepCommandError::Failed(text(run, "error").to_owned()));
    }
    Ok(())
}

/// Brings back what runs took away, and follows that to its end.
async fn restore(args: &RestoreArgs) -> Result<(), SweepCommandError> {
    let access = AwsAccess::load(None, args.region.as_deref()).await;
    let catalog = Catalog::open(&args.at.gateway, &access)?;
    let table = (args.database.as_str(), args.table.as_str());
    let mut body = json!({ "run": args.run, "prefix": args.prefix, "key": args.key });
    if let Some(body) = body.as_object_mut() {
        body.retain(|_, value| !value.is_null());
    }
    let queued = catalog.sweeps(Method::POST, table, &["restore-sweep"], Some(&body)).await?;
    if args.detach {
        say(args.json, &queued, || format!("{} is queued.", text(&queued, "run_id")));
        return Ok(());
    }
    let run = follow(&catalog, Of::Table(table), text(&queued, "run_id")).await?;
    finish(&run, args.json)?;
    match args.key.as_deref().filter(|_| !is_back(&run)) {
        Some(key) => Err(SweepCommandError::NotRestored { key: key.to_owned(), why: reasons_of(&run) }),
        None => Ok(()),
    }
}

/// Whether the one file that was asked for is there now.
fn is_back(run: &Value) -> bool {
    let exists = run.get("spared").and_then(|spared| spared.get("exists")).is_some();
    exists || run.get("restored").is_some_and(|tally| count(tally, "count") > 0)
}

fn reasons_of(run: &Value) -> String {
    let spared = run.get("spared").and_then(Value::as_object).into_iter().flatten();
    let names: Vec<&str> = spared.map(|(name, _)| name.as_str()).collect();
    if names.is_empty() { "not_found".to_owned() } else { names.join(", ") }
}

/// Whose runs.
#[derive(Clone, Copy, Debug)]
enum Of<'a> {
    Table((&'a str, &'a str)),
    /// By its id.
    Dropped(&'a str),
}

impl Of<'_> {
    async fn run(self, catalog: &Catalog, run_id: &str) -> Result<Value, CallError> {
        match self {
            Of::Table(table) => catalog.sweeps(Method::GET, table, &["sweeps", run_id], None).await,
            Of::Dropped(id) => catalog.dropped(Method::GET, &[id, "sweeps", run_id], None).await,
        }
    }
}

/// Lists dropped tables, or sweeps one of them.
async fn dropped(args: &DroppedArgs) -> Result<(), SweepCommandError> {
    let access = AwsAccess::load(None, args.region.as_deref()).await;
    let catalog = Catalog::open(&args.at.gateway, &access)?;
    let Some(id) = args.table_id.as_deref() else { return list_dropped(&catalog, args.json).await };
    if args.forget {
        let answer = catalog.dropped(Method::DELETE, &[id], None).await?;
        say(args.json, &answer, || format!("{id} is forgotten; its files stay."));
        return Ok(());
    }
    let mode = if args.delete_after.is_some() { "ordinary" } else { "dry_run" };
    let body = json!({ "mode": mode, "after_dry_run": args.delete_after, "asked_by": args.asked_by, "why": args.why });
    let run = catalog.dropped(Method::POST, &[id, "sweeps"], Some(&body)).await?;
    let run = follow(&catalog, Of::Dropped(id), text(&run, "run_id")).await?;
    finish(&run, args.json)
}

async fn list_dropped(catalog: &Catalog, is_json: bool) -> Result<(), SweepCommandError> {
    let (mut tables, mut token) = (Vec::new(), None::<String>);
    loop {
        let page = catalog.dropped_page(token.as_deref()).await?;
        tables.extend(page.get("dropped_tables").and_then(Value::as_array).cloned().unwrap_or_default());
        token = page.get("next_token").and_then(Value::as_str).map(str::to_owned);
        if token.is_none() {
            break;
        }
    }
    let answer = json!({ "dropped_tables": tables });
    say(is_json, &answer, || {
        let line = |table: &Value| {
            format!(
                "{}  {}.{}  {}  {}",
                text(table, "table_id"),
                text(table, "database"),
                text(table, "table"),
                text(table, "format"),
                text(table, "location")
            )
        };
        tables.iter().map(line).collect::<Vec<_>>().join("\n")
    });
    Ok(())
}

/// Asks about one object.
///
/// # Errors
/// An API that does not answer or refuses.
pub async fn explain(args: &ExplainArgs) -> Result<(), CallError> {
    let access = AwsAccess::load(None, args.region.as_deref()).await;
    let catalog = Catalog::open(&args.at.gateway, &access)?;
    let table = (args.database.as_str(), args.table.as_str());
    let body = json!({ "key": args.key });
    let answer = catalog.sweeps(Method::POST, table, &["explain-sweep"], Some(&body)).await?;
    say(args.json, &answer, || {
        if answer.get("exists") == Some(&Value::Bool(false)) {
            return absent(&args.key, &answer);
        }
        format!(
            "{}: {}, {} ({})\n  {} bytes, {} old, judged by {}",
            text(&answer, "key"),
            text(&answer, "decision"),
            text(&answer, "reason"),
            text(&answer, "because"),
            count(&answer, "size_bytes"),
            duration(count(&answer, "age_ms")),
            text(&answer, "pointer")
        )
    });
    Ok(())
}

/// What is said of an object that is not there.
fn absent(key: &str, answer: &Value) -> String {
    let kept = answer.get("kept").cloned().unwrap_or_default();
    let held = text(answer, "held");
    match text(&kept, "in") {
        "" => format!("{key}: there is no such object (referenced: {held})"),
        "quarantine" => format!(
            "{key}: run {} moved it to quarantine (referenced: {held})\n  it is {} until it is restored or expires there",
            text(&kept, "run_id"),
            text(&kept, "place")
        ),
        "delete_marker" if text(&kept, "note").is_empty() => {
            format!("{key}: run {} hid it behind a delete marker (referenced: {held})", text(&kept, "run_id"))
        }
        _ => format!("{key}: it is not there (referenced: {held})\n  {}", text(&kept, "note")),
    }
}

fn say(is_json: bool, answer: &Value, words: impl FnOnce() -> String) {
    if is_json { println!("{answer}") } else { println!("{}", words()) }
}

async fn list(catalog: &Catalog, table: (&str, &str), is_json: bool) -> Result<(), SweepCommandError> {
    let answer = catalog.sweeps(Method::GET, table, &["sweeps"], None).await?;
    say(is_json, &answer, || {
        let runs = answer.get("runs").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let line = |run: &Value| {
            format!(
                "{}  {:9} {:9} {:>9} deleted  {}",
                text(run, "run_id"),
                text(run, "mode"),
                text(run, "state"),
                run.get("deleted").map_or(0, |deleted| count(deleted, "count")),
                text(run, "reason")
            )
        };
        runs.iter().map(line).collect::<Vec<_>>().join("\n")
    });
    Ok(())
}

/// Waits for the end of a run and draws how far it is.
async fn follow(catalog: &Catalog, of: Of<'_>, run_id: &str) -> Result<Value, CallError> {
    let mut shown: Option<(String, Progress)> = None;
    let mut pace = Pace::default();
    loop {
        let run = of.run(catalog, run_id).await?;
        if matches!(text(&run, "state"), "completed" | "failed") {
            if let Some((_, bar)) = shown {
                bar.finish();
            }
            return Ok(run);
        }
        let live = run.get("progress").cloned().unwrap_or_default();
        let stage = if live.is_null() { text(&run, "state").to_owned() } else { text(&live, "stage").to_owned() };
        if shown.as_ref().is_none_or(|(before, _)| *before != stage) {
            if let Some((_, bar)) = shown.take() {
                bar.finish();
            }
            pace = Pace::default();
            shown = Some((stage.clone(), Progress::new(live.get("total").and_then(Value::as_u64))));
        }
        if let Some((stage, bar)) = &mut shown {
            bar.set(count(&live, "done"), pace.describe(stage, &run, &live));
        }
        tokio::time::sleep(POLL).await;
    }
}

/// How fast a stage goes, from what the run has said since it began.
#[derive(Debug, Default)]
struct Pace {
    first: Option<(u64, u64)>,
}

impl Pace {
    fn describe(&mut self, stage: &str, run: &Value, live: &Value) -> String {
        let (at_ms, done) = (count(live, "at_ms"), count(live, "done"));
        let (first_ms, first) = *self.first.get_or_insert((at_ms, done));
        let mut said = stage.to_owned();
        let (passed_ms, gone) = (at_ms.saturating_sub(first_ms), done.saturating_sub(first));
        if passed_ms > 0 && gone > 0 {
            let rate = gone.saturating_mul(1000) / passed_ms;
            said.push_str(&format!(" {rate}/s"));
            if let Some(total) = live.get("total").and_then(Value::as_u64)
                && rate > 0
            {
                said.push_str(&format!(", {} left", duration(total.saturating_sub(done).saturating_mul(1000) / rate)));
            }
        }
        let deleted = run.get("deleted").cloned().unwrap_or_default();
        if count(&deleted, "count") > 0 {
            said.push_str(&format!(", {} deleted", size(count(&deleted, "size_bytes"))));
        } else if count(live, "candidates") > 0 {
            let (candidates, bytes) = (count(live, "candidates"), count(live, "candidates_bytes"));
            said.push_str(&format!(", {candidates} candidates, {}", size(bytes)));
        } else if count(live, "referenced") > 0 {
            said.push_str(&format!(", {} referenced", count(live, "referenced")));
        }
        said
    }
}

/// What a run came to, as a table.
fn closing(run: &Value) -> String {
    let is_restore = text(run, "mode") == "restore";
    // What restores lists no table.
    let objects = match is_restore {
        true => format!("{} files restored", run.get("restored").map_or(0, |tally| count(tally, "count"))),
        false => format!("{} objects", count(run, "listed")),
    };
    let mut lines = vec![format!(
        "{} {} {}: {objects} under {}",
        text(run, "mode"),
        text(run, "run_id"),
        text(run, "state"),
        text(run, "scope")
    )];
    let row = |name: &str, tally: &Value| {
        format!("  {name:24} {:>12} {:>12}", count(tally, "count"), size(count(tally, "size_bytes")))
    };
    let mut tallies = |member: &str, before: &str| {
        for (name, tally) in run.get(member).and_then(Value::as_object).into_iter().flatten() {
            lines.push(row(&format!("{before}{name}"), tally));
        }
    };
    tallies("by_reason", "");
    tallies("spared", if is_restore { "not restored: " } else { "not deleted: " });
    if let Some(deleted) = run.get("deleted").filter(|_| !matches!(text(run, "mode"), "dry_run" | "restore")) {
        let way = if text(run, "undo") == "quarantine" { "moved to quarantine" } else { "deleted" };
        lines.push(row(way, deleted));
    }
    for member in ["expired", "restored"] {
        if let Some(tally) = run.get(member).filter(|tally| tally.is_object()) {
            lines.push(row(member, tally));
        }
    }
    let reason = text(run, "reason");
    if !reason.is_empty() {
        lines.push(format!("  {reason}"));
    }
    for finding in run.get("findings").and_then(Value::as_array).into_iter().flatten() {
        lines.push(format!("  note: {}", finding.as_str().unwrap_or_default()));
    }
    if !text(run, "page").is_empty() {
        lines.push(format!("  report: {}", text(run, "page")));
    }
    lines.join("\n")
}

fn text<'v>(value: &'v Value, member: &str) -> &'v str {
    value.get(member).and_then(Value::as_str).unwrap_or_default()
}

fn count(value: &Value, member: &str) -> u64 {
    value.get(member).and_then(Value::as_u64).unwrap_or_default()
}

fn size(bytes: u64) -> String {
    let mut left = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if left < 1024.0 {
            return if unit == "B" { format!("{left:.0} B") } else { format!("{left:.1} {unit}") };
        }
        left /= 1024.0;
    }
    format!("{left:.1} TiB")
}

fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_what_is_left_come_from_what_the_run_says() {
        let run = json!({"deleted": {"count": 0}});
        let live = |at_ms: u64, done: u64| {
            json!({"at_ms": at_ms, "done": done, "total": 10_000, "candidates": 3,
            "candidates_bytes": 2048})
        };
        let mut pace = Pace::default();
        assert_eq!(pace.describe("judging", &run, &live(1000, 0)), "judging, 3 candidates, 2.0 KiB");
        assert_eq!(
            pace.describe("judging", &run, &live(3000, 4000)),
            "judging 2000/s, 3 s left, 3 candidates, 2.0 KiB"
        );
    }

    #[test]
    fn the_closing_table_names_every_reason() {
        let run = json!({"mode": "ordinary", "run_id": "r", "state": "completed", "listed": 7, "scope": "s3://b/t",
            "by_reason": {"orphan": {"count": 2, "size_bytes": 10}, "referenced": {"count": 5, "size_bytes": 4096}},
            "spared": {"changed": {"count": 1, "size_bytes": 4}}, "deleted": {"count": 1, "size_bytes": 6},
            "findings": ["look"], "page": "s3://r/report.html"});
        let told = closing(&run);
        for part in [
            "7 objects",
            "orphan",
            "referenced",
            "4.0 KiB",
            "not deleted: changed",
            "deleted",
            "note: look",
            "report.html",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
        let run = json!({"mode": "restore", "run_id": "r", "state": "completed", "listed": 0, "scope": "s3://b/t",
            "restored": {"count": 8, "size_bytes": 80}, "spared": {"gone": {"count": 1, "size_bytes": 4}}});
        let told = closing(&run);
        assert!(told.starts_with("restore r completed: 8 files restored under s3://b/t"), "{told}");
        assert!(told.contains("not restored: gone") && is_back(&run), "{told}");
        let run = json!({"mode": "restore", "restored": null, "spared": {"not_found": {"count": 1}}});
        assert_eq!((is_back(&run), reasons_of(&run).as_str()), (false, "not_found"));
        assert!(is_back(&json!({"spared": {"exists": {"count": 1}}})));
        let place = json!({"held": "no", "kept": {"in": "quarantine", "place": "q/k", "run_id": "r"}});
        assert!(absent("k", &place).contains("it is q/k until"), "{}", absent("k", &place));
        assert!(absent("k", &json!({"held": "no", "kept": null})).contains("no such object"));
        assert_eq!(
            [59_000, 61_000, 7_260_000, 90_000_000].map(duration),
            ["59 s", "1 min 1 s", "2 h 1 min", "1 d 1 h"]
        );
    }
}

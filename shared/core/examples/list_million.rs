//! Lists a table of a million partitions with ten segments at once, in one process on the in-memory stores: what a page
//! takes of time and memory apart from any database.
//!
//! `cargo run --release -p lakewarden-core --example list_million [-- <partitions> [<segments>]]`; about 2 GB for a million.

use std::error::Error;
use std::time::{Duration, Instant};

use lakewarden_core::glue;
use lakewarden_core::ports::{App, Settings};
use lakewarden_core::store::memory::MemoryWorld;
use serde_json::{Value, json};

type Outcome<T> = Result<T, Box<dyn Error>>;

#[allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn now() -> Instant {
    Instant::now()
}

/// Memory of this process in MB: now, and at most since [`forget_peak`].
fn memory_mb() -> Outcome<(u64, u64)> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let of = |name: &str| -> Outcome<u64> {
        let line = status.lines().find(|line| line.starts_with(name)).ok_or("no such line")?;
        Ok(line.split_whitespace().nth(1).ok_or("no number")?.parse::<u64>()? / 1024)
    };
    Ok((of("VmRSS:")?, of("VmHWM:")?))
}

fn forget_peak() -> Outcome<()> {
    Ok(std::fs::write("/proc/self/clear_refs", "5")?)
}

fn partition(n: u32) -> Value {
    let (hour, day, month, year) = (n % 24, n / 24 % 28 + 1, n / 24 / 28 % 12 + 1, 1900 + n / 24 / 28 / 12);
    let location = format!("s3://lake/events/year={year}/month={month}/day={day}/hour={hour}/");
    let columns: Vec<Value> = (0..4).map(|n| json!({ "Name": format!("c{n}"), "Type": "string" })).collect();
    json!({
        "Values": [year.to_string(), month.to_string(), day.to_string(), hour.to_string()],
        "StorageDescriptor": { "Columns": columns, "Location": location, "InputFormat": "in", "OutputFormat": "out" },
    })
}

async fn load(app: &App, count: u32) -> Outcome<()> {
    let keys: Vec<Value> =
        ["year", "month", "day", "hour"].iter().map(|name| json!({ "Name": name, "Type": "int" })).collect();
    glue::call(app, "CreateDatabase", json!({ "DatabaseInput": { "Name": "d" } })).await?;
    let table = json!({ "Name": "t", "PartitionKeys": keys });
    glue::call(app, "CreateTable", json!({ "DatabaseName": "d", "TableInput": table })).await?;
    for first in (0..count).step_by(100) {
        let batch: Vec<Value> = (first..count.min(first + 100)).map(partition).collect();
        let input = json!({ "DatabaseName": "d", "TableName": "t", "PartitionInputList": batch });
        let answer = glue::call(app, "BatchCreatePartition", input).await?;
        if let Some(errors) = answer.get("Errors").and_then(Value::as_array).filter(|errors| !errors.is_empty()) {
            return Err(format!("{errors:?}").into());
        }
    }
    Ok(())
}

/// What the pages of a walk took.
#[derive(Default)]
struct Walk {
    partitions: usize,
    pages: Vec<Duration>,
    bytes: usize,
}

async fn walk(app: &App, segment: Value) -> Result<Walk, String> {
    let (mut walk, mut token) = (Walk::default(), Value::Null);
    loop {
        let input = json!({
            "DatabaseName": "d", "TableName": "t", "Segment": segment, "NextToken": token, "MaxResults": 1000
        });
        let started = now();
        let answer = glue::call(app, "GetPartitions", input).await.map_err(|error| error.message)?;
        let text = serde_json::to_string(&answer).map_err(|error| error.to_string())?;
        walk.pages.push(started.elapsed());
        walk.bytes += text.len();
        walk.partitions += answer.get("Partitions").and_then(Value::as_array).map_or(0, Vec::len);
        token = answer.get("NextToken").cloned().unwrap_or(Value::Null);
        if token.is_null() {
            return Ok(walk);
        }
    }
}

#[tokio::main(flavor = "multi_thread")]
async fn main() -> Outcome<()> {
    let mut given = std::env::args().skip(1);
    let count: u32 = given.next().map_or(Ok(1_000_000), |given| given.parse())?;
    let segments: u16 = given.next().map_or(Ok(10), |given| given.parse())?;
    let world = MemoryWorld::new(1_700_000_000_000);
    let app = App::new(world.ports.clone(), Settings::default());
    let started = now();
    load(&app, count).await?;
    println!("loaded {count} partitions in {:.1} s, {} MB", started.elapsed().as_secs_f64(), memory_mb()?.0);
    for round in 1..=2 {
        forget_peak()?;
        let (before, started) = (memory_mb()?.0, now());
        let mut walks = Vec::new();
        for number in 0..segments {
            let (app, segment) = (app.clone(), json!({ "SegmentNumber": number, "TotalSegments": segments }));
            walks.push(tokio::spawn(async move { walk(&app, segment).await }));
        }
        let (mut partitions, mut pages, mut bytes) = (0, Vec::new(), 0);
        for walk in walks {
            let walk = walk.await??;
            (partitions, bytes) = (partitions + walk.partitions, bytes + walk.bytes);
            pages.extend(walk.pages);
        }
        let took_s = started.elapsed().as_secs_f64();
        pages.sort_unstable();
        let at = |part: usize| pages.get(part.min(pages.len().saturating_sub(1))).map_or(0, Duration::as_millis);
        println!(
            "round {round}: {partitions} partitions on {} pages of {segments} segments, {} MB of answers in {took_s:.1} s; \
             a page: half within {} ms, all within {} ms; memory {before} MB before, at most {} MB",
            pages.len(),
            bytes / 1_000_000,
            at(pages.len() / 2),
            at(pages.len()),
            memory_mb()?.1,
        );
    }
    Ok(())
}

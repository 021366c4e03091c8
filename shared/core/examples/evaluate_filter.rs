//! Evaluates one filter over the values of many partitions in memory and prints the time for a row: the filter alone, without
//! reading or parsing.
//!
//! The values lie one behind the other in one text and a row points into it, so that the time is the filter's and not that of
//! fetching millions of small texts from all over the memory.
//!
//! `evaluate_filter <int|string> <partitions> <expression>`; keys are year, month, day and hour, as `bench/catalog.py` has
//! them. Prints one JSON object.

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use lakewarden_core::catalog::KeyColumn;
use lakewarden_core::predicate::{Mode, compile};
use serde_json::json;

/// Long enough that the clock does not matter.
const MEASURED: Duration = Duration::from_millis(200);
const ROUNDS: usize = 3;

/// Time of the processor that this process has used; by the clock where the system does not tell. So it does not matter what
/// else the machine does.
#[allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn used(since: Instant) -> Duration {
    let told = std::fs::read_to_string("/proc/self/schedstat").ok();
    let nanoseconds = told.and_then(|told| told.split_whitespace().next()?.parse().ok());
    nanoseconds.map_or_else(|| since.elapsed(), Duration::from_nanos)
}

#[allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn now() -> Instant {
    Instant::now()
}

fn values_of(is_typed: bool, n: u32) -> Vec<String> {
    let parts = [2000 + n / 24 / 28 / 12, n / 24 / 28 % 12 + 1, n / 24 % 28 + 1, n % 24];
    parts.iter().map(|part| if is_typed { part.to_string() } else { format!("{part:02}") }).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let [key_type, count, expression] = given.as_slice() else {
        return Err("usage: evaluate_filter <int|string> <partitions> <expression>".into());
    };
    let count: u32 = count.parse()?;
    let column = |name: &str| KeyColumn { name: name.to_owned(), type_name: key_type.clone() };
    let filter = compile(expression, &["year", "month", "day", "hour"].map(column), Mode::Lenient)?;
    let (mut text, mut ends) = (String::new(), Vec::new());
    for value in (0..count).flat_map(|n| values_of(key_type == "int", n)) {
        text.push_str(&value);
        ends.push(text.len());
    }
    let starts = std::iter::once(&0).chain(&ends);
    let values: Vec<&str> = starts.zip(&ends).map(|(start, end)| text.get(*start..*end).unwrap_or_default()).collect();
    let rows: Vec<&[&str]> = values.chunks(4).collect();
    let started = now();
    let mut best = f64::INFINITY;
    let mut kept = 0;
    for _ in 0..ROUNDS {
        let (before, mut passes) = (used(started), 0_u32);
        while used(started).saturating_sub(before) < MEASURED {
            kept = 0;
            for row in rows.iter().copied() {
                kept += usize::from(black_box(&filter).evaluate(black_box(row))?);
            }
            passes += 1;
        }
        let evaluated = f64::from(passes) * f64::from(count);
        best = best.min(used(started).saturating_sub(before).as_secs_f64() * 1e9 / evaluated);
    }
    println!("{}", json!({ "nanoseconds_a_row": best, "kept": kept }));
    Ok(())
}

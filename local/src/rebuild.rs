//! `lakewarden rebuild`: has the partitions of a Delta table made from its log by the worker, and waits for it.

use std::time::Duration;

use serde_json::Value;

use crate::cli::RebuildArgs;
use crate::register::Catalog;
use crate::signed::{AwsAccess, CallError};

const POLL: Duration = Duration::from_millis(500);

/// Begins, or goes on with what was begun, and says how far it is until it is through. Stopped, the worker goes on.
///
/// # Errors
/// No such table, a table that is not to follow its log, or an API that does not answer.
pub async fn run(args: &RebuildArgs) -> Result<(), CallError> {
    let access = AwsAccess::load(None, args.region.as_deref()).await;
    let catalog = Catalog::open(&args.at.gateway, &access)?;
    let begun = catalog.rebuild(&args.database, &args.table, Some(args.exact)).await?;
    println!(
        "The partitions of {}.{} are made from the log of {}.",
        args.database,
        args.table,
        text(&begun, "location")
    );
    let mut shown = Value::Null;
    loop {
        tokio::time::sleep(POLL).await;
        let now = catalog.rebuild(&args.database, &args.table, None).await?;
        if text(&now, "status") != "rebuilding" {
            match now.get("version").filter(|version| !version.is_null()) {
                Some(version) => println!("Done: they are those of version {version}."),
                None => println!("There is no Delta log any more: nothing was changed."),
            }
            return Ok(());
        }
        let at = now.get("written_up_to").cloned().unwrap_or_default();
        if at != shown {
            println!("  up to {at}");
            shown = at;
        }
    }
}

fn text<'v>(value: &'v Value, member: &str) -> &'v str {
    value.get(member).and_then(Value::as_str).unwrap_or_default()
}

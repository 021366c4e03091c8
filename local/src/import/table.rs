//! Copying one table with its partitions.

use serde_json::Value;

use super::journal::TableName;
use super::shapes::{canonical, partition_input, table_input};
use super::source::Page;
use super::target::Made;
use super::{ImportError, Run};
use crate::register::{BatchOutcome, values_of};
use crate::signed::CallError;

/// Types are compared as catalogs fold them.
fn partition_keys(table: &Value) -> Vec<(String, String)> {
    let keys = table.get("PartitionKeys").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let text = |key: &Value, member: &str| key.get(member).and_then(Value::as_str).unwrap_or_default().to_lowercase();
    keys.iter().map(|key| (text(key, "Name"), text(key, "Type"))).collect()
}

impl Run {
    /// Copies a table unless it is there, and those of its partitions that are not.
    pub(super) async fn copy_table(&mut self, name: &TableName) -> Result<(), ImportError> {
        let shown = format!("table {}.{}", name.0, name.1);
        let found = match self.source.table(&name.0, &name.1).await {
            Ok(found) => found,
            Err(error) => return self.fail(&shown, error),
        };
        let Some(found) = found else {
            self.skip(&format!("{shown} has gone from the source meanwhile"));
            return Ok(());
        };
        if found.get("TargetTable").is_some_and(|target| !target.is_null()) {
            self.skip(&format!("{shown} is a link to another catalog's: not copied"));
            return Ok(());
        }
        let input = table_input(&found);
        let is_new = match self.target.make_table(&name.0, &input, self.is_dry).await {
            Ok(Made::New) => {
                self.counts.tables_created += 1;
                self.say(&shown);
                true
            }
            Ok(Made::There(there)) => {
                self.counts.tables_there += 1;
                let there = there.unwrap_or_default();
                if partition_keys(&there) != partition_keys(&input) {
                    self.fail_with(&format!("{shown} has other partition keys here; neither it nor its partitions"));
                    return Ok(());
                }
                if canonical(&table_input(&there)) != canonical(&input) {
                    self.tell_differing(&shown);
                }
                false
            }
            Err(error) => return self.fail(&shown, error),
        };
        let failed_before = self.counts.failed;
        if !partition_keys(&input).is_empty() {
            self.copy_partitions(name, is_new).await?;
        }
        if self.counts.failed == failed_before {
            self.journal.mark_done(name)?;
        }
        Ok(())
    }

    async fn copy_partitions(&mut self, name: &TableName, is_new: bool) -> Result<(), ImportError> {
        let shown = format!("partitions of {}.{}", name.0, name.1);
        // A table that is new has none, whatever an earlier run left behind.
        let resumed = self.journal.token(name).filter(|_| !is_new && !self.is_dry).map(str::to_owned);
        let mut token = resumed.clone();
        let failed_before = self.counts.failed;
        loop {
            let page = match self.source.partitions(&name.0, &name.1, token.as_deref()).await {
                // Tokens end at some time; then the listing begins again.
                Err(CallError::Refused { .. }) if token.is_some() && token == resumed => {
                    token = None;
                    continue;
                }
                Err(error) => return self.fail(&shown, error),
                Ok(page) => page,
            };
            let next = page.next_token.clone();
            if let Err(error) = self.copy_page(name, page, is_new).await {
                return self.fail(&shown, error);
            }
            self.show(name);
            match next {
                None => return Ok(()),
                Some(next) => {
                    // The next run begins at the first page with failures.
                    if self.counts.failed == failed_before {
                        self.journal.mark_at(name, &next)?;
                    }
                    token = Some(next);
                }
            }
        }
    }

    async fn copy_page(&mut self, (database, table): &TableName, page: Page, is_new: bool) -> Result<(), CallError> {
        let inputs: Vec<Value> = page.partitions.iter().map(partition_input).collect();
        let catalog = self.target.catalog();
        if self.is_dry {
            let values: Vec<Vec<String>> = inputs.iter().map(values_of).collect();
            let there = if is_new { 0 } else { catalog.count_existing(database, table, &values).await? };
            self.counts.partitions_there += there;
            self.counts.partitions_created += (values.len() as u64).saturating_sub(there);
            return Ok(());
        }
        let BatchOutcome { created, there, failed } = catalog.create_partitions(database, table, inputs).await?;
        self.counts.partitions_created += created;
        self.counts.partitions_there += there;
        for failure in failed {
            self.fail_with(&format!("partition {failure} of {database}.{table}"));
        }
        Ok(())
    }
}

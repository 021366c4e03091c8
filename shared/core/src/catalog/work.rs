//! Messages to the catalog's worker.

use serde::{Deserialize, Serialize};

use super::{DatabaseId, TableId};
use crate::ports::Ports;
use crate::store::QueueName;

const SCHEMA_VERSION: i64 = 1;

/// What the worker is asked to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatalogWork {
    /// Remove everything that hangs on the id of a dropped table.
    PurgeTable(TableId),
    /// Drop all tables of a dropped database, then forget it.
    PurgeDatabase(DatabaseId),
    /// Make the items of a table what its head says: re-key partitions of earlier epochs, write and remove index entries.
    SettleTable(TableId),
}

#[derive(Serialize, Deserialize)]
struct Message {
    schema_version: i64,
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    table_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    database_id: Option<String>,
}

impl CatalogWork {
    pub fn to_message(&self) -> String {
        let mut message =
            Message { schema_version: SCHEMA_VERSION, kind: String::new(), table_id: None, database_id: None };
        match self {
            CatalogWork::PurgeTable(id) => {
                message.kind = "purge_table".to_owned();
                message.table_id = Some(id.as_str().to_owned());
            }
            CatalogWork::PurgeDatabase(id) => {
                message.kind = "purge_database".to_owned();
                message.database_id = Some(id.as_str().to_owned());
            }
            CatalogWork::SettleTable(id) => {
                message.kind = "settle_table".to_owned();
                message.table_id = Some(id.as_str().to_owned());
            }
        }
        // A struct of texts and a number always has a JSON form.
        serde_json::to_string(&message).unwrap_or_default()
    }

    /// Reads a message; the error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let message: Message = serde_json::from_str(text).map_err(|error| format!("not a work message: {error}"))?;
        if message.schema_version != SCHEMA_VERSION {
            return Err(format!("layout {} of work messages is not known", message.schema_version));
        }
        match (message.kind.as_str(), message.table_id, message.database_id) {
            ("purge_table", Some(id), _) => Ok(CatalogWork::PurgeTable(TableId::from_text(id))),
            ("purge_database", _, Some(id)) => Ok(CatalogWork::PurgeDatabase(DatabaseId::from_text(id))),
            ("settle_table", Some(id), _) => Ok(CatalogWork::SettleTable(TableId::from_text(id))),
            ("purge_table" | "purge_database" | "settle_table", _, _) => {
                Err(format!("`{}` without an id", message.kind))
            }
            (other, _, _) => {
                Err(format!("work of kind `{other}` is not known: purge_table, purge_database and settle_table are"))
            }
        }
    }
}

/// Asks the worker. The work is recorded already (a tombstone, an item of open work), so a message
/// that cannot be sent is no failure of the caller's operation: the worker's next scheduled run finds the record.
pub(super) async fn request(ports: &Ports, work: &CatalogWork) {
    if let Err(error) = ports.queue.send(QueueName::CatalogWork, work.to_message(), 0).await {
        tracing::warn!(%error, ?work, "work could not be queued; the next scheduled run of the worker takes it up");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_and_wrong_ones_say_why() {
        let (table, database) = (TableId::from_text("t1"), DatabaseId::from_text("d1"));
        for work in [
            CatalogWork::PurgeTable(table.clone()),
            CatalogWork::PurgeDatabase(database),
            CatalogWork::SettleTable(table),
        ] {
            assert_eq!(CatalogWork::parse(&work.to_message()).unwrap(), work);
        }
        let given = r#"{"schema_version":1,"kind":"purge_table","table_id":"t1"}"#;
        assert_eq!(CatalogWork::PurgeTable(TableId::from_text("t1")).to_message(), given);
        for (text, expected) in [
            ("x", "not a work message"),
            (r#"{"schema_version":2,"kind":"purge_table","table_id":"t"}"#, "layout 2"),
            (r#"{"schema_version":1,"kind":"purge_table"}"#, "without an id"),
            (r#"{"schema_version":1,"kind":"settle_table","database_id":"d"}"#, "without an id"),
            (r#"{"schema_version":1,"kind":"dance"}"#, "`dance` is not known"),
        ] {
            assert!(CatalogWork::parse(text).unwrap_err().contains(expected), "{text}");
        }
    }
}

//! `Items`: in memory and on DynamoDB.

mod batches;
mod conditions;
mod queries;
mod requests;
mod skims;
mod transactions;

use std::sync::Arc;

use kit::servers::{self, Server};
use lakewarden_aws::{Clients, DynamoItems};
use lakewarden_core::store::memory::MemoryWorld;
use lakewarden_core::store::{ItemUsage, Items, Key, StoreErrorKind, Table};

/// An empty item store, and the server behind it if there is one.
pub(crate) struct Bench {
    pub(crate) items: Arc<dyn Items>,
    _server: Option<Server>,
}

impl Bench {
    /// What `items` was asked since the last call.
    fn used_since(&self, earlier: &mut ItemUsage) -> ItemUsage {
        let now = self.items.item_usage();
        let used = now.since(earlier);
        *earlier = now;
        used
    }
}

pub(crate) async fn memory() -> Bench {
    Bench { items: MemoryWorld::new(0).items, _server: None }
}

pub(crate) async fn dynamodb() -> Bench {
    let server = servers::dynamodb();
    let clients = Clients::connect(&servers::connection(Some(server.url()), None));
    let names = servers::tables(&clients).await;
    Bench { items: Arc::new(DynamoItems::new(clients.dynamodb, names)), _server: Some(server) }
}

/// Read without the wire.
pub(crate) async fn beside() -> Bench {
    beside_of(None).await
}

/// As the functions of the laptop have it: read from the file, where it can be.
pub(crate) async fn beside_file() -> Bench {
    beside_of(Some(tempfile::tempdir().unwrap())).await
}

async fn beside_of(folder: Option<tempfile::TempDir>) -> Bench {
    let (server, tables) = servers::dynamodb_beside(folder);
    let clients = Clients::connect(&servers::connection(Some(server.url()), None));
    let names = servers::tables(&clients).await;
    let through = Arc::new(DynamoItems::new(clients.dynamodb, names.clone()));
    Bench { items: Arc::new(tables.items(names, through)), _server: Some(server) }
}

fn key(sk: &str) -> Key {
    Key::new(Table::Catalog, "p", sk)
}

#[track_caller]
fn assert_kind<T: std::fmt::Debug>(result: Result<T, lakewarden_core::store::StoreError>, expected: StoreErrorKind) {
    assert_eq!(result.map_err(|error| error.kind).err(), Some(expected));
}

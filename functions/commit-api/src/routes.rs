//! The function's own routes: the table that calls are looked up in, that errors list, and that `openapi.json` describes.

use lakewarden_core::commit::unity::routes::{Method, Route};

/// What a route stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Propose,
    List,
    Alarms,
    OfferUpload,
    Get,
    /// How far the catalog follows, and having it made from the whole log. Of the catalog's tables only.
    Rebuild,
}

const fn route(method: Method, path: &'static str, call: Target) -> Route<Target> {
    Route { method, path, call }
}

/// Every route but Unity Catalog's. Those below a table of the catalog have its database and its name as first parameters.
pub(crate) const ROUTES: &[Route<Target>] = &[
    route(Method::Post, "/v1/commits", Target::Propose),
    route(Method::Get, "/v1/commits", Target::List),
    route(Method::Get, "/v1/commits/alarms", Target::Alarms),
    route(Method::Post, "/v1/commits/uploads", Target::OfferUpload),
    route(Method::Get, "/v1/commits/{proposal_id}", Target::Get),
    route(Method::Post, "/v1/databases/{database}/tables/{table}/commits", Target::Propose),
    route(Method::Get, "/v1/databases/{database}/tables/{table}/commits", Target::List),
    route(Method::Get, "/v1/databases/{database}/tables/{table}/commits/alarms", Target::Alarms),
    route(Method::Post, "/v1/databases/{database}/tables/{table}/commits/uploads", Target::OfferUpload),
    route(Method::Get, "/v1/databases/{database}/tables/{table}/commits/rebuild", Target::Rebuild),
    route(Method::Post, "/v1/databases/{database}/tables/{table}/commits/rebuild", Target::Rebuild),
    route(Method::Get, "/v1/databases/{database}/tables/{table}/commits/{proposal_id}", Target::Get),
];

/// Where the paths begin that name a table of the catalog.
pub(crate) const OF_TABLE: &str = "databases";

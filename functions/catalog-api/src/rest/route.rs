//! What a route is: an address, and the operation that it stands for.

use std::future::Future;
use std::pin::Pin;

use lakewarden_core::ports::App;
use serde_json::{Map, Value};

use super::{RestAnswer, RestError, RestRequest};

/// What a handler gives back.
pub type Answering<'a> = Pin<Box<dyn Future<Output = Result<RestAnswer, RestError>> + Send + 'a>>;
/// A route's own handler: the request, and the input that its path, query and body make.
pub type Handler = for<'a> fn(&'a App, RestRequest, Map<String, Value>) -> Answering<'a>;

/// What answers a route.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// An operation of the service.
    Glue(&'static str),
    /// Something that the service's protocol does not have.
    Own { name: &'static str, handler: Handler },
}

impl Target {
    /// The name under which the route is described.
    pub fn name(self) -> &'static str {
        match self {
            Self::Glue(name) | Self::Own { name, .. } => name,
        }
    }
}

/// How a query parameter is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    /// May be there several times: a list.
    Texts,
    Number,
    /// `true`, `false`, or nothing for true.
    Flag,
    /// Seconds since 1970.
    Seconds,
}

/// A query parameter and the member of the operation's input that it gives; `A.B` is a member of a structure.
#[derive(Clone, Copy, Debug)]
pub struct Query {
    pub name: &'static str,
    pub member: &'static str,
    pub kind: Kind,
}

impl Query {
    pub const fn text(name: &'static str, member: &'static str) -> Self {
        Self { name, member, kind: Kind::Text }
    }

    pub const fn texts(name: &'static str, member: &'static str) -> Self {
        Self { name, member, kind: Kind::Texts }
    }

    pub const fn number(name: &'static str, member: &'static str) -> Self {
        Self { name, member, kind: Kind::Number }
    }

    pub const fn flag(name: &'static str, member: &'static str) -> Self {
        Self { name, member, kind: Kind::Flag }
    }

    pub const fn seconds(name: &'static str, member: &'static str) -> Self {
        Self { name, member, kind: Kind::Seconds }
    }
}

/// A route without query parameters.
pub const NO_QUERY: &[Query] = &[];

/// What a caller can state to have read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revisioned {
    /// Nothing: If-Match and If-None-Match would be ignored.
    No,
    /// The revision of one partition, in its ETag.
    Partition,
    /// The version of a table, in its ETag.
    Table,
    /// `ExpectedRevision` in each entry of this member.
    Entries(&'static str),
}

/// A method, a path with `{parameters}`, and what answers it.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    pub method: &'static str,
    pub path: &'static str,
    pub target: Target,
    /// Parameters of the path and the members that they give.
    pub members: &'static [(&'static str, &'static str)],
    pub query: &'static [Query],
    /// Status of success.
    pub status: u16,
    pub revisioned: Revisioned,
}

const fn route(method: &'static str, path: &'static str, operation: &'static str, status: u16) -> Route {
    let target = Target::Glue(operation);
    Route { method, path, target, members: &[], query: NO_QUERY, status, revisioned: Revisioned::No }
}

/// Reads.
pub const fn get(path: &'static str, operation: &'static str) -> Route {
    route("GET", path, operation, 200)
}

/// Creates.
pub const fn create(path: &'static str, operation: &'static str) -> Route {
    route("POST", path, operation, 201)
}

/// Does something with many, or something that has no address of its own.
pub const fn post(path: &'static str, operation: &'static str) -> Route {
    route("POST", path, operation, 200)
}

/// Replaces.
pub const fn put(path: &'static str, operation: &'static str) -> Route {
    route("PUT", path, operation, 200)
}

pub const fn delete(path: &'static str, operation: &'static str) -> Route {
    route("DELETE", path, operation, 204)
}

impl Route {
    pub const fn members(mut self, members: &'static [(&'static str, &'static str)]) -> Self {
        self.members = members;
        self
    }

    pub const fn query(mut self, query: &'static [Query]) -> Self {
        self.query = query;
        self
    }

    pub const fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    pub const fn revisioned(mut self, revisioned: Revisioned) -> Self {
        self.revisioned = revisioned;
        self
    }

    /// Answered by a handler of its own; the operation's name stays as the route's name.
    pub const fn own(mut self, handler: Handler) -> Self {
        let (Target::Glue(name) | Target::Own { name, .. }) = self.target;
        self.target = Target::Own { name, handler };
        self
    }

    /// Whether members come in a JSON body.
    pub fn takes_body(&self) -> bool {
        matches!(self.method, "POST" | "PUT")
    }

    /// Whether nothing is changed.
    pub fn is_read(&self) -> bool {
        self.method == "GET"
    }
}

//! Reading members of a checked input. The model guarantees the types; a member of another type reads as absent.

use serde_json::{Map, Value as Json};

use super::GlueException;

/// Members of a request or of a structure in it.
pub(super) type Members = Map<String, Json>;

pub(super) trait Read {
    fn text(&self, name: &str) -> Option<&str>;
    /// A member that the model requires.
    fn required(&self, name: &str) -> Result<&str, GlueException>;
    fn flag(&self, name: &str) -> bool;
    fn number(&self, name: &str) -> Option<i64>;
    fn object(&self, name: &str) -> Option<&Members>;
    fn list(&self, name: &str) -> &[Json];
    fn texts(&self, name: &str) -> Vec<String>;
    /// Refuses members that are given (and not empty) though Lakewarden does not act on them.
    fn refuse(&self, names: &[&str], why: &str) -> Result<(), GlueException>;
}

impl Read for Members {
    fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_str()
    }

    fn required(&self, name: &str) -> Result<&str, GlueException> {
        self.text(name).ok_or_else(|| GlueException::invalid_input(format!("{name} is required.")))
    }

    fn flag(&self, name: &str) -> bool {
        self.get(name).and_then(Json::as_bool).unwrap_or(false)
    }

    fn number(&self, name: &str) -> Option<i64> {
        self.get(name)?.as_i64()
    }

    fn object(&self, name: &str) -> Option<&Members> {
        self.get(name)?.as_object()
    }

    fn list(&self, name: &str) -> &[Json] {
        self.get(name).and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default()
    }

    fn texts(&self, name: &str) -> Vec<String> {
        self.list(name).iter().filter_map(|value| value.as_str().map(str::to_owned)).collect()
    }

    fn refuse(&self, names: &[&str], why: &str) -> Result<(), GlueException> {
        let given = |name: &&&str| match self.get(**name) {
            None | Some(Json::Null) | Some(Json::Bool(false)) => false,
            Some(Json::Object(members)) => !members.is_empty(),
            Some(Json::Array(entries)) => !entries.is_empty(),
            Some(_) => true,
        };
        match names.iter().find(given) {
            None => Ok(()),
            Some(name) => Err(GlueException::unsupported(format!("{name} is not served yet: {why}"))),
        }
    }
}

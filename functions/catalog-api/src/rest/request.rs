//! A REST request, decoded.

use std::collections::BTreeMap;

use lakewarden_core::glue::GlueException;
use percent_encoding::percent_decode_str;

/// Parameters of path and query, decoded, and the body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RestRequest {
    path: BTreeMap<&'static str, String>,
    query: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

fn decode(text: &str) -> Result<String, GlueException> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(std::borrow::Cow::into_owned).map_err(|_| GlueException::invalid_input("The URL is not UTF-8."))
}

/// Segments of a path, each decoded for itself: `%2F` is part of a name. A slash at the end does not count.
pub(super) fn decode_path(path: &str) -> Result<Vec<String>, GlueException> {
    let path = path.strip_prefix('/').unwrap_or(path);
    path.strip_suffix('/').unwrap_or(path).split('/').map(decode).collect()
}

/// The parameters of a route's pattern, if the path fits it.
pub(super) fn match_path(pattern: &'static str, segments: &[String]) -> Option<BTreeMap<&'static str, String>> {
    let wanted: Vec<&'static str> = pattern.strip_prefix('/')?.split('/').collect();
    if wanted.len() != segments.len() {
        return None;
    }
    let mut parameters = BTreeMap::new();
    for (wanted, found) in wanted.into_iter().zip(segments) {
        match wanted.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
            Some(name) => _ = parameters.insert(name, found.clone()),
            None if wanted == found => {}
            None => return None,
        }
    }
    Some(parameters)
}

impl RestRequest {
    pub(super) fn new(path: BTreeMap<&'static str, String>, query: &str, body: Vec<u8>) -> Result<Self, GlueException> {
        let mut parameters = BTreeMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let form = |text: &str| decode(&text.replace('+', " "));
            if parameters.insert(form(name)?, form(value)?).is_some() {
                let name = form(name)?;
                return Err(GlueException::invalid_input(format!("The query parameter `{name}` is there twice.")));
            }
        }
        Ok(Self { path, query: parameters, body })
    }

    /// A parameter of the route's pattern.
    pub fn path(&self, name: &str) -> &str {
        self.path.get(name).map(String::as_str).unwrap_or_default()
    }

    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str)
    }

    /// Refuses query parameters that the route does not know: a misspelt one would be ignored in silence.
    pub fn allow_query(&self, known: &[&str]) -> Result<(), GlueException> {
        match self.query.keys().find(|name| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) => Err(GlueException::invalid_input(match known {
                [] => format!("The query parameter `{name}` is not known: this route takes none."),
                known => format!("The query parameter `{name}` is not known: {} are.", known.join(", ")),
            })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_decoded_one_by_one() {
        assert_eq!(decode_path("/v1/databases/a%2Fb%20c/").unwrap(), ["v1", "databases", "a/b c"]);
        assert_eq!(decode_path("/").unwrap(), [""]);
        assert!(decode_path("/v1/%FF").is_err());
        let segments = decode_path("/v1/databases/a%2Fb/tables/%7Bx%7D").unwrap();
        let parameters = match_path("/v1/databases/{database}/tables/{table}", &segments).unwrap();
        assert_eq!(parameters["database"], "a/b");
        assert_eq!(parameters["table"], "{x}");
        assert!(match_path("/v1/databases/{database}/tables", &segments).is_none());
    }

    #[test]
    fn queries_are_decoded_and_checked() {
        let request = RestRequest::new(BTreeMap::new(), "max_results=5&expression=a%2Cb+c&flag", Vec::new()).unwrap();
        assert_eq!(request.query("expression"), Some("a,b c"));
        assert_eq!(request.query("flag"), Some(""));
        assert!(request.allow_query(&["max_results", "expression", "flag"]).is_ok());
        assert!(request.allow_query(&["max_results"]).unwrap_err().message.contains("`expression` is not known"));
        assert!(RestRequest::new(BTreeMap::new(), "a=1&a=2", Vec::new()).is_err());
    }
}

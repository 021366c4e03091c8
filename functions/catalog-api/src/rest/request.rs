//! A REST request, decoded.

use std::collections::BTreeMap;

use lakewarden_core::glue::{GlueException, GlueExceptionName};
use lakewarden_core::ports::Deadline;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

use super::conditions::Preconditions;
use super::route::{Kind, Query, Route};

/// Parameters of path and query, decoded, the preconditions, and the body.
#[derive(Clone, Debug, PartialEq)]
pub struct RestRequest {
    path: BTreeMap<&'static str, String>,
    query: BTreeMap<String, Vec<String>>,
    pub(super) preconditions: Preconditions,
    pub body: Vec<u8>,
    /// When the time for the answer is used up.
    pub deadline: Deadline,
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
    pub(super) fn new(
        path: BTreeMap<&'static str, String>,
        query: &str,
        preconditions: Preconditions,
        body: Vec<u8>,
        deadline: Deadline,
    ) -> Result<Self, GlueException> {
        let mut parameters: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let form = |text: &str| decode(&text.replace('+', " "));
            parameters.entry(form(name)?).or_default().push(form(value)?);
        }
        Ok(Self { path, query: parameters, preconditions, body, deadline })
    }

    /// A parameter of the route's pattern.
    pub fn path(&self, name: &str) -> &str {
        self.path.get(name).map(String::as_str).unwrap_or_default()
    }

    /// The first value of a query parameter.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.get(name)?.first().map(String::as_str)
    }

    /// Refuses query parameters that the route does not know, or that are there twice where one counts: either would be
    /// ignored in silence.
    pub(super) fn check_query(&self, known: &[Query]) -> Result<(), GlueException> {
        for (name, values) in &self.query {
            match known.iter().find(|query| query.name == name) {
                Some(query) if query.kind != Kind::Texts && values.len() > 1 => {
                    let text = format!("The query parameter `{name}` is there {} times.", values.len());
                    return Err(GlueException::invalid_input(text));
                }
                Some(_) => {}
                None => {
                    let names: Vec<&str> = known.iter().map(|query| query.name).collect();
                    return Err(GlueException::invalid_input(match names.as_slice() {
                        [] => format!("The query parameter `{name}` is not known: this route takes none."),
                        names => format!("The query parameter `{name}` is not known: {} are.", names.join(", ")),
                    }));
                }
            }
        }
        Ok(())
    }

    /// The input of the route's operation: members from the body, the query and the path.
    ///
    /// # Errors
    /// What is no JSON object, is not spelled as its type, or says one thing in the address and another in the body.
    pub(super) fn input(&self, route: &Route) -> Result<Map<String, Value>, GlueException> {
        self.check_query(route.query)?;
        let mut input = if route.takes_body() { self.json_object()? } else { self.no_body()? };
        for query in route.query {
            if let Some(value) = self.query.get(query.name).map(|values| read(query, values)).transpose()? {
                give(&mut input, query.name, query.member, value)?;
            }
        }
        for (parameter, member) in route.members {
            give(&mut input, parameter, member, self.path(parameter).into())?;
        }
        Ok(input)
    }

    fn json_object(&self) -> Result<Map<String, Value>, GlueException> {
        let malformed = |text: String| GlueException::new(GlueExceptionName::Serialization, text);
        if self.body.iter().all(u8::is_ascii_whitespace) {
            return Ok(Map::new());
        }
        match serde_json::from_slice(&self.body) {
            Ok(Value::Object(members)) => Ok(members),
            Ok(_) => Err(malformed("The body should be a JSON object.".to_owned())),
            Err(error) => Err(malformed(format!("The body is not JSON: {error}"))),
        }
    }

    fn no_body(&self) -> Result<Map<String, Value>, GlueException> {
        match self.json_object() {
            Ok(members) if members.is_empty() => Ok(members),
            _ => Err(GlueException::invalid_input(
                "This route takes no body: what it needs is in the path and in the query.",
            )),
        }
    }
}

/// Puts a member (`A`, or `A.B` within a structure) into the input.
fn give(input: &mut Map<String, Value>, said_as: &str, member: &str, value: Value) -> Result<(), GlueException> {
    let (input, member) = match member.split_once('.') {
        None => (input, member),
        Some((outer, inner)) => match input.entry(outer).or_insert_with(|| Value::Object(Map::new())) {
            Value::Object(members) => (members, inner),
            _ => return Err(GlueException::invalid_input(format!("`{outer}` should be an object."))),
        },
    };
    match input.insert(member.to_owned(), value.clone()) {
        Some(other) if !other.is_null() && other != value => Err(GlueException::invalid_input(format!(
            "`{member}` in the body is not what `{said_as}` in the address says; leave it out of the body."
        ))),
        _ => Ok(()),
    }
}

/// A query parameter as the type that its member has.
fn read(query: &Query, values: &[String]) -> Result<Value, GlueException> {
    let wrong = |wanted: &str| GlueException::invalid_input(format!("`{}` should be {wanted}.", query.name));
    let first = values.first().map(String::as_str).unwrap_or_default();
    Ok(match query.kind {
        Kind::Text => first.into(),
        Kind::Texts => values.into(),
        Kind::Number => first.parse::<i64>().map_err(|_| wrong("a whole number"))?.into(),
        Kind::Seconds => {
            let seconds: serde_json::Number =
                serde_json::from_str(first).map_err(|_| wrong("seconds since 1970, as a number"))?;
            Value::Number(seconds)
        }
        Kind::Flag => match first {
            "" | "true" => true.into(),
            "false" => false.into(),
            _ => return Err(wrong("true or false")),
        },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::route::{NO_QUERY, get, put};
    use super::*;

    fn request(query: &str, body: &str) -> RestRequest {
        let path = BTreeMap::from([("table", "a/b".to_owned())]);
        RestRequest::new(path, query, Preconditions::default(), body.into(), Deadline(i64::MAX)).unwrap()
    }

    const QUERY: &[Query] = &[
        Query::texts("value", "Values"),
        Query::number("part", "Segment.SegmentNumber"),
        Query::flag("exclude", "Exclude"),
        Query::seconds("as_of", "QueryAsOfTime"),
        Query::text("expression", "Expression"),
    ];

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
    fn an_input_is_put_together() {
        let route = put("/v1/{table}", "X").members(&[("table", "Name")]).query(QUERY);
        let query = "value=a%2Cb+c&value=&value=%2B/%25&part=3&exclude&as_of=1.5e9&expression=x%3D1";
        let input = request(query, r#"{"Name": "a/b", "Other": 1}"#).input(&route).unwrap();
        let expected = json!({ "Name": "a/b", "Other": 1, "Values": ["a,b c", "", "+/%"], "Segment": { "SegmentNumber": 3 },
            "Exclude": true, "QueryAsOfTime": 1.5e9, "Expression": "x=1" });
        assert_eq!(Value::Object(input), expected);
    }

    #[test]
    fn what_would_be_ignored_in_silence_is_refused() {
        let route = put("/v1/{table}", "X").members(&[("table", "Name")]).query(QUERY);
        for (query, body, text) in [
            ("part=1&part=2", "", "is there 2 times"),
            ("parts=1", "", "value, part, exclude, as_of, expression are"),
            ("part=x", "", "should be a whole number"),
            ("exclude=1", "", "should be true or false"),
            ("as_of=now", "", "seconds since 1970"),
            ("", r#"{"Name": "c"}"#, "leave it out of the body"),
            ("part=1", r#"{"Segment": 1}"#, "`Segment` should be an object"),
            ("", "[]", "should be a JSON object"),
            ("", "{", "is not JSON"),
        ] {
            let refusal = request(query, body).input(&route).unwrap_err();
            assert!(refusal.message.contains(text), "{query} {body}: {refusal}");
        }
        let reading = get("/v1/{table}", "X").query(NO_QUERY);
        assert!(request("", "{}").input(&reading).is_ok());
        assert!(request("", r#"{"a": 1}"#).input(&reading).is_err());
        assert!(request("a=1", "").input(&reading).unwrap_err().message.contains("takes none"));
    }
}

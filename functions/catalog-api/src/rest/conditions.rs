//! Entity tags and the conditions that go with them (RFC 9110, 8.8.3 and 13.1).

use lakewarden_core::glue::GlueException;

/// An entity tag as a caller sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityTag {
    is_weak: bool,
    opaque: String,
}

/// What If-Match or If-None-Match says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TagList {
    /// `*`
    Any,
    Tags(Vec<EntityTag>),
}

/// If-Match and If-None-Match of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preconditions {
    if_match: Option<TagList>,
    if_none_match: Option<TagList>,
}

/// What the preconditions say of a resource as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    Holds,
    /// If-Match names another state.
    Changed,
    /// If-None-Match names this state.
    Unchanged,
}

/// How a write can be made conditional without reading first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// Nothing is asked that the write itself does not check.
    None,
    /// Exactly this revision.
    Revision(String),
    /// Whether the conditions hold depends on the present revision.
    ReadFirst,
}

/// The tag of a revision, as headers have it.
pub fn etag(revision: &str) -> String {
    format!("\"{revision}\"")
}

impl Preconditions {
    /// Reads the two headers; values that came in several headers are joined by commas.
    ///
    /// # Errors
    /// What is neither `*` nor a list of quoted tags: a condition that is not understood must not be ignored.
    pub fn parse(if_match: Option<&str>, if_none_match: Option<&str>) -> Result<Self, GlueException> {
        let read = |name: &str, text: Option<&str>| {
            text.map(|text| {
                parse_list(text).ok_or_else(|| {
                    GlueException::invalid_input(format!(
                        "{name} should be `*` or entity tags in double quotes, separated by commas, like \"0f3a\"."
                    ))
                })
            })
            .transpose()
        };
        Ok(Self { if_match: read("If-Match", if_match)?, if_none_match: read("If-None-Match", if_none_match)? })
    }

    pub fn is_empty(&self) -> bool {
        self.if_match.is_none() && self.if_none_match.is_none()
    }

    /// If-Match compares strongly: a weak tag never matches. If-None-Match compares weakly.
    pub fn judge(&self, revision: &str) -> Judgement {
        let strong = |tag: &EntityTag| !tag.is_weak && tag.opaque == revision;
        let weak = |tag: &EntityTag| tag.opaque == revision;
        match &self.if_match {
            Some(TagList::Tags(tags)) if !tags.iter().any(strong) => return Judgement::Changed,
            _ => {}
        }
        match &self.if_none_match {
            Some(TagList::Any) => Judgement::Unchanged,
            Some(TagList::Tags(tags)) if tags.iter().any(weak) => Judgement::Unchanged,
            _ => Judgement::Holds,
        }
    }

    /// What a write must be told so that it happens only while the conditions hold.
    pub fn expectation(&self) -> Expectation {
        match (&self.if_match, &self.if_none_match) {
            // The write answers 404 by itself when there is nothing.
            (None | Some(TagList::Any), None) => Expectation::None,
            (Some(TagList::Tags(tags)), None) => match tags.as_slice() {
                [EntityTag { is_weak: false, opaque }] => Expectation::Revision(opaque.clone()),
                _ => Expectation::ReadFirst,
            },
            (_, Some(_)) => Expectation::ReadFirst,
        }
    }
}

/// `*`, or `[W/]"opaque"` separated by commas, with empty elements as lists of HTTP may have.
fn parse_list(text: &str) -> Option<TagList> {
    let mut rest = text.trim_matches([' ', '\t']);
    if rest == "*" {
        return Some(TagList::Any);
    }
    let mut tags = Vec::new();
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        if rest.is_empty() {
            return (!tags.is_empty()).then_some(TagList::Tags(tags));
        }
        let (is_weak, quoted) = match rest.strip_prefix("W/") {
            Some(quoted) => (true, quoted),
            None => (false, rest),
        };
        let (opaque, behind) = quoted.strip_prefix('"')?.split_once('"')?;
        if opaque.chars().any(|c| c <= ' ' || c == '\x7f') {
            return None;
        }
        tags.push(EntityTag { is_weak, opaque: opaque.to_owned() });
        rest = behind.trim_start_matches([' ', '\t']);
        if !rest.is_empty() && !rest.starts_with(',') {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions(if_match: Option<&str>, if_none_match: Option<&str>) -> Preconditions {
        Preconditions::parse(if_match, if_none_match).unwrap()
    }

    #[test]
    fn lists_of_tags_are_read() {
        let tag = |is_weak, opaque: &str| EntityTag { is_weak, opaque: opaque.to_owned() };
        for (text, expected) in [
            ("*", Some(TagList::Any)),
            (" * ", Some(TagList::Any)),
            ("\"a\"", Some(TagList::Tags(vec![tag(false, "a")]))),
            ("\"\"", Some(TagList::Tags(vec![tag(false, "")]))),
            ("W/\"a\" ,\"b,c\"", Some(TagList::Tags(vec![tag(true, "a"), tag(false, "b,c")]))),
            (",, \"a\",", Some(TagList::Tags(vec![tag(false, "a")]))),
            ("", None),
            (",", None),
            ("a", None),
            ("\"a", None),
            ("w/\"a\"", None),
            ("\"a\" \"b\"", None),
            ("\"a b\"", None),
            ("*, \"a\"", None),
        ] {
            assert_eq!(parse_list(text), expected, "{text}");
        }
        assert!(Preconditions::parse(Some("abc"), None).unwrap_err().message.starts_with("If-Match should be"));
    }

    #[test]
    fn conditions_are_judged_as_http_says() {
        use Judgement::{Changed, Holds, Unchanged};
        for (if_match, if_none_match, expected) in [
            (None, None, Holds),
            (Some("*"), None, Holds),
            (Some("\"7\""), None, Holds),
            (Some("\"6\", \"7\""), None, Holds),
            (Some("\"6\""), None, Changed),
            (Some("W/\"7\""), None, Changed),
            (Some("W/\"7\", \"7\""), None, Holds),
            (None, Some("*"), Unchanged),
            (None, Some("\"7\""), Unchanged),
            (None, Some("W/\"7\""), Unchanged),
            (None, Some("\"6\""), Holds),
            (Some("\"6\""), Some("\"7\""), Changed),
            (Some("\"7\""), Some("\"7\""), Unchanged),
        ] {
            assert_eq!(conditions(if_match, if_none_match).judge("7"), expected, "{if_match:?} {if_none_match:?}");
        }
    }

    #[test]
    fn a_write_reads_first_only_where_it_must() {
        let expectation = |if_match, if_none_match| conditions(if_match, if_none_match).expectation();
        assert_eq!(expectation(None, None), Expectation::None);
        assert_eq!(expectation(Some("*"), None), Expectation::None);
        assert_eq!(expectation(Some("\"7\""), None), Expectation::Revision("7".to_owned()));
        for (if_match, if_none_match) in
            [(Some("W/\"7\""), None), (Some("\"6\", \"7\""), None), (None, Some("*")), (Some("\"7\""), Some("\"6\""))]
        {
            assert_eq!(expectation(if_match, if_none_match), Expectation::ReadFirst);
        }
    }
}

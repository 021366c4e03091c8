//! Patterns of LIKE: `%` is any run of characters, `_` any one, everything else itself. The whole value must fit.

use super::domain::Scalar;
use super::set::{Cut, Set};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Is(char),
    Any,
}

/// A pattern, cut at its `%`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    /// Before the first `%`; the whole pattern if there is none.
    first: Box<[Place]>,
    /// Between two.
    inner: Box<[Box<[Place]>]>,
    /// Behind the last one; none if there is none.
    last: Option<Box<[Place]>>,
}

impl Pattern {
    /// `escape` makes the character behind it stand for itself. Without one, a backslash does so before `%` and `_`.
    ///
    /// None if the pattern ends in `escape`.
    pub(super) fn new(pattern: &str, escape: Option<char>) -> Option<Self> {
        let mut pieces: Vec<Vec<Place>> = vec![Vec::new()];
        let mut chars = pattern.chars().peekable();
        while let Some(char) = chars.next() {
            let is_escaped = match escape {
                Some(escape) => char == escape,
                None => char == '\\' && matches!(chars.peek(), Some('%' | '_')),
            };
            let place = match char {
                _ if is_escaped => Place::Is(chars.next()?),
                '%' => {
                    pieces.push(Vec::new());
                    continue;
                }
                '_' => Place::Any,
                char => Place::Is(char),
            };
            if let Some(piece) = pieces.last_mut() {
                piece.push(place);
            }
        }
        let last = if pieces.len() > 1 { pieces.pop() } else { None };
        let mut pieces = pieces.into_iter().map(Vec::into_boxed_slice);
        let first = pieces.next().unwrap_or_default();
        let inner = pieces.filter(|piece| !piece.is_empty()).collect();
        Some(Self { first, inner, last: last.map(Vec::into_boxed_slice) })
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        let Some(mut rest) = strip(text, &self.first) else { return false };
        let Some(last) = &self.last else { return rest.is_empty() };
        // The leftmost place is the best: what is behind it is longest.
        for piece in &self.inner {
            let found = rest.char_indices().find_map(|(at, _)| rest.get(at..).and_then(|from| strip(from, piece)));
            match found {
                Some(behind) => rest = behind,
                None => return false,
            }
        }
        match last.len() {
            0 => true,
            length => {
                let from = rest.char_indices().rev().nth(length - 1).and_then(|(at, _)| rest.get(at..));
                from.and_then(|from| strip(from, last)).is_some()
            }
        }
    }

    /// The texts that match, if they are an interval: `'abc'`, `'abc%'`, `'%'`.
    pub(super) fn as_set(&self) -> Option<Set<Scalar>> {
        let is_plain = self.first.iter().all(|place| matches!(place, Place::Is(_))) && self.inner.is_empty();
        match &self.last {
            _ if !is_plain => None,
            None => Some(Set::point(Scalar::Text(self.prefix().into_bytes().into()))),
            Some(last) if last.is_empty() => Some(self.cover()),
            Some(_) => None,
        }
    }

    /// An interval that has all texts that match.
    pub(super) fn cover(&self) -> Set<Scalar> {
        let prefix = self.prefix().into_bytes();
        let mut end = prefix.clone();
        // No byte of UTF-8 is the largest there is.
        match end.last_mut() {
            None => return Set::all(),
            Some(last) => *last = last.saturating_add(1),
        }
        Set::between(Cut::Before(Scalar::Text(prefix.into())), Cut::Before(Scalar::Text(end.into())))
    }

    /// What every text that matches begins with.
    fn prefix(&self) -> String {
        let fixed = |place: &Place| if let Place::Is(char) = place { Some(*char) } else { None };
        self.first.iter().map_while(fixed).collect()
    }
}

/// What is behind `piece` at the start of `text`.
fn strip<'t>(text: &'t str, piece: &[Place]) -> Option<&'t str> {
    let mut chars = text.chars();
    for place in piece {
        let char = chars.next()?;
        if let Place::Is(expected) = place
            && *expected != char
        {
            return None;
        }
    }
    Some(chars.as_str())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns() {
        #[allow(clippy::type_complexity, reason = "a table of cases")]
        let cases: [(&str, Option<char>, &[&str], &[&str]); 14] = [
            ("two", None, &["two"], &["Two", "twoo", "", "tw"]),
            ("t_o", None, &["two", "tüo", "t😀o"], &["to", "twoo"]),
            ("%", None, &["", "x", "\0\n"], &[]),
            ("%%", None, &["", "x"], &[]),
            ("%_%", None, &["x", "xy"], &[""]),
            ("", None, &[""], &["x"]),
            ("a%", None, &["a", "abc"], &["", "ba"]),
            ("%a", None, &["a", "ba"], &["", "ab"]),
            ("a%b%c", None, &["abc", "axbxc", "abbcc"], &["ac", "acb", "ab"]),
            ("%ab%ab%", None, &["abab", "xabyabz"], &["ab", "aba", "xabz"]),
            ("aa%aa", None, &["aaaa", "aaxaa"], &["aa", "aaa"]),
            (".*[x]$", None, &[".*[x]$"], &["xx"]),
            ("a\\%\\b\\_", None, &["a%\\b_"], &["a%b_", "axx\\b_"]),
            ("a!%!!_", Some('!'), &["a%!x"], &["a%!", "ax!x"]),
        ];
        for (pattern, escape, fits, others) in cases {
            let compiled = Pattern::new(pattern, escape).unwrap();
            assert!(fits.iter().all(|text| compiled.matches(text)), "{pattern}");
            assert!(!others.iter().any(|text| compiled.matches(text)), "{pattern}");
        }
        assert_eq!(Pattern::new("a!", Some('!')), None);
    }

    /// The definition, without thought for time.
    fn fits(pattern: &[char], text: &[char]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some(('%', rest)) => (0..=text.len()).any(|skipped| fits(rest, &text[skipped..])),
            Some((char, rest)) => {
                text.split_first().is_some_and(|(first, behind)| (*char == '_' || char == first) && fits(rest, behind))
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn matches_by_definition_and_within_its_cover(pattern in "[ab%_é]{0,6}", text in "[abé]{0,7}") {
            let compiled = Pattern::new(&pattern, None).unwrap();
            let [pattern, chars] = [&pattern, &text].map(|text| text.chars().collect::<Vec<_>>());
            prop_assert_eq!(compiled.matches(&text), fits(&pattern, &chars));
            let is_in = |set: Set<Scalar>| set.contains(|other| Scalar::Text(text.as_bytes().into()).cmp(other));
            prop_assert!(!compiled.matches(&text) || is_in(compiled.cover()));
            if let Some(set) = compiled.as_set() {
                prop_assert_eq!(compiled.matches(&text), is_in(set));
            }
        }
    }
}

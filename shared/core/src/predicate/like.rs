//! Patterns of LIKE: `%` is any run of characters, `_` any one, everything else itself. The whole value must fit.

use super::domain::Scalar;
use super::set::{Cut, Set};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Is(char),
    Any,
}

/// What stands between two `%`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Plain(Box<str>),
    /// With a `_`.
    Places(Box<[Place]>),
}

impl Piece {
    fn new(places: &[Place]) -> Self {
        let plain: Option<String> =
            places.iter().map(|place| if let Place::Is(char) = place { Some(*char) } else { None }).collect();
        plain.map_or_else(|| Self::Places(places.into()), |plain| Self::Plain(plain.into()))
    }

    /// Callers ask first: comparing nothing with something takes longer than it should.
    fn is_empty(&self) -> bool {
        matches!(self, Self::Plain(plain) if plain.is_empty())
    }

    /// What is behind it at the start of `text`.
    fn strip_start<'t>(&self, text: &'t str) -> Option<&'t str> {
        match self {
            Self::Plain(plain) if text.as_bytes().starts_with(plain.as_bytes()) => text.get(plain.len()..),
            Self::Plain(_) => None,
            Self::Places(places) => strip(text, places),
        }
    }

    /// What is behind the first place where it stands.
    fn find<'t>(&self, text: &'t str) -> Option<&'t str> {
        match self {
            // Values are short: preparing a search costs more than it saves.
            Self::Plain(plain) => {
                let found = text.as_bytes().windows(plain.len().max(1)).position(|window| window == plain.as_bytes());
                found.and_then(|at| text.get(at + plain.len()..))
            }
            Self::Places(places) => {
                text.char_indices().find_map(|(at, _)| text.get(at..).and_then(|from| strip(from, places)))
            }
        }
    }

    fn ends(&self, text: &str) -> bool {
        match self {
            Self::Plain(plain) => text.as_bytes().ends_with(plain.as_bytes()),
            Self::Places(places) => {
                let last = text.char_indices().rev().nth(places.len().saturating_sub(1));
                last.and_then(|(at, _)| text.get(at..)).and_then(|from| strip(from, places)).is_some()
            }
        }
    }
}

/// A pattern, cut at its `%`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    /// Before the first `%`; the whole pattern if there is none.
    first: Piece,
    /// Between two.
    inner: Box<[Piece]>,
    /// Behind the last one; none if there is none.
    last: Option<Piece>,
    /// What every text that matches begins with.
    prefix: Box<str>,
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
        let fixed = |place: &Place| if let Place::Is(char) = place { Some(*char) } else { None };
        let first = pieces.first().map(Vec::as_slice).unwrap_or_default();
        Some(Self {
            first: Piece::new(first),
            prefix: first.iter().map_while(fixed).collect::<String>().into(),
            inner: pieces.iter().skip(1).map(|places| Piece::new(places)).filter(|piece| !piece.is_empty()).collect(),
            last: last.map(|places| Piece::new(&places)),
        })
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        let mut rest = text;
        if !self.first.is_empty() {
            let Some(behind) = self.first.strip_start(text) else { return false };
            rest = behind;
        }
        let Some(last) = &self.last else { return rest.is_empty() };
        // The leftmost place is the best: what is behind it is longest.
        for piece in &self.inner {
            match piece.find(rest) {
                Some(behind) => rest = behind,
                None => return false,
            }
        }
        last.is_empty() || last.ends(rest)
    }

    /// The texts that match, if they are an interval: `'abc'`, `'abc%'`, `'%'`.
    pub(super) fn as_set(&self) -> Option<Set<Scalar>> {
        let is_plain = matches!(self.first, Piece::Plain(_)) && self.inner.is_empty();
        match &self.last {
            _ if !is_plain => None,
            None => Some(Set::point(Scalar::Text(self.prefix.as_bytes().into()))),
            Some(last) if last.is_empty() => Some(self.cover()),
            Some(_) => None,
        }
    }

    /// An interval that has all texts that match.
    pub(super) fn cover(&self) -> Set<Scalar> {
        let prefix = self.prefix.as_bytes();
        let mut end = prefix.to_vec();
        // No byte of UTF-8 is the largest there is.
        match end.last_mut() {
            None => return Set::all(),
            Some(last) => *last = last.saturating_add(1),
        }
        Set::between(Cut::Before(Scalar::Text(prefix.into())), Cut::Before(Scalar::Text(end.into())))
    }
}

/// What is behind `places` at the start of `text`.
fn strip<'t>(text: &'t str, places: &[Place]) -> Option<&'t str> {
    let mut chars = text.chars();
    for place in places {
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

    /// Pattern, escape, texts that fit, texts that do not.
    type Case = (&'static str, Option<char>, &'static [&'static str], &'static [&'static str]);

    #[test]
    fn patterns() {
        let cases: [Case; 14] = [
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

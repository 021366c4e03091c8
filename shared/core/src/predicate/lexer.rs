//! Texts to tokens.

use super::PredicateError;
use super::error::shown;

/// A token and where it stands, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub kind: TokenKind,
    pub start: usize,
    pub end: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// Keyword or name, as written.
    Word,
    /// Without sign, as written.
    Number,
    /// `'…'`: what it says.
    Text(String),
    /// `"…"`: what it says.
    Quoted(String),
    /// `` `…` ``: what it says.
    Backticked(String),
    /// Anything else is one character, but for `<>`, `<=`, `>=`, `!=`, `==`.
    Symbol(&'static str),
    End,
}

const SYMBOLS: [&str; 23] = [
    "<>", "<=", ">=", "!=", "==", "||", "<", ">", "=", "!", "(", ")", ",", "+", "-", "*", "/", "%", "|", "&", "^", "[",
    "]",
];

/// What `\'` means inside quotes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Backslash {
    /// A quote.
    Escapes,
    /// A backslash and the end of the text.
    IsPlain,
}

/// Splits `text`; the last token is [`TokenKind::End`].
///
/// A backslash before a quote escapes it, as Hive's client writes. Where quotes then do not match, it is a backslash: a
/// text may end in one.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, PredicateError> {
    let escaped = Lexer { text, at: 0, backslash: Backslash::Escapes }.run();
    if escaped.is_err() && text.contains("\\'") {
        let plain = Lexer { text, at: 0, backslash: Backslash::IsPlain }.run();
        return plain.or(escaped);
    }
    escaped
}

/// Position of a byte in characters, from 1.
pub(super) fn position(text: &str, at: usize) -> usize {
    text.get(..at).map_or(0, |before| before.chars().count()) + 1
}

struct Lexer<'t> {
    text: &'t str,
    at: usize,
    backslash: Backslash,
}

impl Lexer<'_> {
    fn run(mut self) -> Result<Vec<Token>, PredicateError> {
        let mut tokens = Vec::new();
        loop {
            let rest = self.rest().trim_start();
            self.at = self.text.len() - rest.len();
            let start = self.at;
            let kind = self.next_kind()?;
            let is_end = kind == TokenKind::End;
            tokens.push(Token { kind, start, end: self.at });
            if is_end {
                return Ok(tokens);
            }
        }
    }

    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn next_kind(&mut self) -> Result<TokenKind, PredicateError> {
        let Some(first) = self.rest().chars().next() else { return Ok(TokenKind::End) };
        if let quote @ ('\'' | '"' | '`') = first {
            let text = self.quoted(quote)?;
            return Ok(match quote {
                '\'' => TokenKind::Text(text),
                '"' => TokenKind::Quoted(text),
                _ => TokenKind::Backticked(text),
            });
        }
        if is_of_word(first) {
            return Ok(self.word_or_number());
        }
        match SYMBOLS.into_iter().find(|symbol| self.rest().starts_with(symbol)) {
            Some(symbol) => {
                self.at += symbol.len();
                Ok(TokenKind::Symbol(symbol))
            }
            None => Err(self.error(self.at, format!("{first:?} does not belong there"))),
        }
    }

    /// A quote is doubled inside; see [`tokens`] for backslashes.
    fn quoted(&mut self, quote: char) -> Result<String, PredicateError> {
        let start = self.at;
        let mut said = String::new();
        let mut chars = self.rest().char_indices().skip(1).peekable();
        while let Some((at, char)) = chars.next() {
            let next = chars.peek().map(|(_, next)| *next);
            let escapes = char == '\\' && quote == '\'' && self.backslash == Backslash::Escapes;
            if (char == quote || escapes) && next == Some(quote) {
                said.push(quote);
                chars.next();
            } else if char == quote {
                self.at += at + quote.len_utf8();
                return Ok(said);
            } else {
                said.push(char);
            }
        }
        Err(self.error(start, format!("there is no closing {quote}")))
    }

    /// A number if all up to where the word ends is one, so that `2024_day` is a name.
    fn word_or_number(&mut self) -> TokenKind {
        let rest = self.rest();
        let word = rest.find(|char| !is_of_word(char)).unwrap_or(rest.len());
        let number = number_length(rest);
        // `1e-3` goes on where a word ends.
        let (kind, length) =
            if number >= word && number > 0 { (TokenKind::Number, number) } else { (TokenKind::Word, word) };
        self.at += length;
        kind
    }

    fn error(&self, at: usize, reason: String) -> PredicateError {
        PredicateError::Unsupported { shown: shown(self.text), position: position(self.text, at), reason }
    }
}

/// Dots and dollars are in names here and there; a number may begin with a dot.
fn is_of_word(char: char) -> bool {
    char.is_alphanumeric() || matches!(char, '_' | '.' | '$')
}

/// Length of `digits[.digits][e[±]digits]` at the start; 0 if there is none.
fn number_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let digits = |from: usize| bytes.iter().skip(from).take_while(|byte| byte.is_ascii_digit()).count();
    let is = |at: usize, accepted: &[u8]| bytes.get(at).is_some_and(|byte| accepted.contains(byte));
    let whole = digits(0);
    let mut end = whole;
    if is(whole, b".") {
        let fraction = digits(whole + 1);
        if whole + fraction == 0 {
            return 0;
        }
        end = whole + 1 + fraction;
    }
    if end > 0 && is(end, b"eE") {
        let exponent = if is(end + 1, b"+-") { end + 2 } else { end + 1 };
        let places = digits(exponent);
        if places > 0 {
            end = exponent + places;
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<String> {
        let show = |token: Token| match token.kind {
            TokenKind::Word | TokenKind::Number => {
                format!("{}:{}", if token.kind == TokenKind::Word { "w" } else { "n" }, &text[token.start..token.end])
            }
            TokenKind::Text(said) => format!("t:{said}"),
            TokenKind::Quoted(said) => format!("q:{said}"),
            TokenKind::Backticked(said) => format!("b:{said}"),
            TokenKind::Symbol(symbol) => symbol.to_owned(),
            TokenKind::End => ".".to_owned(),
        };
        tokens(text).unwrap().into_iter().map(show).collect()
    }

    #[test]
    fn tokens_of_every_kind() {
        for (text, expected) in [
            ("", &["."][..]),
            ("a<>1", &["w:a", "<>", "n:1", "."]),
            ("a< >1", &["w:a", "<", ">", "n:1", "."]),
            ("a!=-1.5e-3", &["w:a", "!=", "-", "n:1.5e-3", "."]),
            (
                ".5 5. 1e3 1E+3 1e 1ex 2024_day",
                &["n:.5", "n:5.", "n:1e3", "n:1E+3", "w:1e", "w:1ex", "w:2024_day", "."],
            ),
            ("2021-01-01", &["n:2021", "-", "n:01", "-", "n:01", "."]),
            ("'' 'o''x' 'o\\'x' ", &["t:", "t:o'x", "t:o'x", "."]),
            ("'C:\\' '\\\\'", &["t:C:\\", "t:\\\\", "."]),
            ("\"a\"\"b\" `c``d`", &["q:a\"b", "b:c`d", "."]),
            ("größe='\0\u{1f600}'", &["w:größe", "=", "t:\0\u{1f600}", "."]),
            ("k\n=\t2", &["w:k", "=", "n:2", "."]),
        ] {
            assert_eq!(kinds(text), expected, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_split_is_refused_where_it_is() {
        for (text, at, why) in [
            ("k = 'abc", 5, "no closing '"),
            ("ü = \"abc", 5, "no closing \""),
            ("k = 1;", 6, "';' does not belong"),
            ("k\0= 1", 2, "'\\0' does not belong"),
        ] {
            let Err(PredicateError::Unsupported { position, reason, .. }) = tokens(text) else { panic!("{text}") };
            assert_eq!(position, at, "{text}");
            assert!(reason.contains(why), "{text}: {reason}");
        }
    }
}

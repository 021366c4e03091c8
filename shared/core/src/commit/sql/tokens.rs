//! SQL text to tokens, for the dialects that writers record it in.

use std::fmt;

/// How the engine that a text was written for reads quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `"x"` is a name, `''` in a text is a quote, backslashes are plain.
    DataFusion,
    /// `"x"` is a text, backslashes escape.
    Spark,
    /// Any: what engines read differently is none of both.
    Unknown,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    /// Keyword or name, as written.
    Word(String),
    /// Without sign; digits, and a suffix that tells the type (L, S, Y, D, BD or none).
    Number(String, String),
    /// `'…'`; none where engines disagree on what it says.
    Text(Option<String>),
    /// `"…"`, likewise.
    Quoted(Option<String>),
    /// `` `…` ``
    Name(String),
    Symbol(&'static str),
    /// Anything else that does not change where operands end.
    Odd(String),
}

impl Token {
    pub fn is_word(&self, word: &str) -> bool {
        matches!(self, Token::Word(found) if found.eq_ignore_ascii_case(word))
    }

    pub fn is_symbol(&self, symbol: &str) -> bool {
        matches!(self, Token::Symbol(found) if *found == symbol)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Word(text) | Token::Name(text) => write!(f, "`{text}`"),
            Token::Text(Some(text)) => write!(f, "'{text}'"),
            Token::Text(None) => write!(f, "a text with doubled quotes, which engines read differently,"),
            // A text to Spark, a name to others: whoever decides would be wrong for somebody.
            Token::Quoted(_) => write!(f, "a text in double quotes, which some engines take for a column,"),
            Token::Number(digits, suffix) => write!(f, "`{digits}{suffix}`"),
            Token::Symbol(symbol) => write!(f, "`{symbol}`"),
            Token::Odd(text) => write!(f, "`{text}`"),
        }
    }
}

/// Longer ones before those that they begin with.
const SYMBOLS: [&str; 27] = [
    "<=>", "::", "||", "<>", "<=", ">=", "!=", "==", "<", ">", "=", "(", ")", ",", ".", "+", "-", "*", "/", "%", "|",
    "&", "^", "~", "[", "]", "!",
];

/// An error where a text could mean something else altogether: an open quote, a comment, an escape.
pub fn tokens(text: &str, dialect: Dialect) -> Result<Vec<Token>, &'static str> {
    let mut lexer = Lexer { rest: text, dialect };
    let mut found = Vec::new();
    loop {
        lexer.rest = lexer.rest.trim_start();
        if lexer.rest.is_empty() {
            return Ok(found);
        }
        found.push(lexer.next()?);
    }
}

const BACKSLASH: &str = "backslashes in texts are not understood alike everywhere";

struct Lexer<'t> {
    rest: &'t str,
    dialect: Dialect,
}

impl Lexer<'_> {
    fn next(&mut self) -> Result<Token, &'static str> {
        if ["--", "/*", "*/", ";"].iter().any(|end| self.rest.starts_with(end)) {
            return Err("comments and several statements are not understood");
        }
        let Some(first) = self.rest.chars().next() else { return Err("the text ends too early") };
        match first {
            '\\' => return Err(BACKSLASH),
            '\'' => return self.quoted('\'').map(Token::Text),
            '"' => return self.quoted('"').map(Token::Quoted),
            '`' => return self.quoted('`').map(|name| name.map_or(Token::Odd("`".to_owned()), Token::Name)),
            _ => {}
        }
        if first.is_ascii_digit() || (first == '.' && self.digit_follows()) {
            return Ok(self.number());
        }
        if is_of_word(first) {
            let length = self.rest.find(|letter| !is_of_word(letter)).unwrap_or(self.rest.len());
            return Ok(Token::Word(self.take(length)));
        }
        if let Some(symbol) = SYMBOLS.into_iter().find(|symbol| self.rest.starts_with(symbol)) {
            self.take(symbol.len());
            return Ok(Token::Symbol(symbol));
        }
        Ok(Token::Odd(self.take(first.len_utf8())))
    }

    fn take(&mut self, length: usize) -> String {
        let (head, tail) = self.rest.split_at_checked(length).unwrap_or((self.rest, ""));
        self.rest = tail;
        head.to_owned()
    }

    fn digit_follows(&self) -> bool {
        self.rest.chars().nth(1).is_some_and(|letter| letter.is_ascii_digit())
    }

    /// A doubled quote is one quote for some engines and nothing for others.
    fn quoted(&mut self, quote: char) -> Result<Option<String>, &'static str> {
        let mut said = String::new();
        let mut is_plain = true;
        let mut letters = self.rest.char_indices().skip(1).peekable();
        while let Some((at, letter)) = letters.next() {
            if letter == '\\' && quote != '`' && self.dialect != Dialect::DataFusion {
                return Err(BACKSLASH);
            }
            if letter != quote {
                said.push(letter);
            } else if letters.peek().is_some_and(|(_, next)| *next == quote) {
                is_plain = is_plain && (self.dialect == Dialect::DataFusion || quote == '`');
                said.push(quote);
                letters.next();
            } else {
                self.take(at + quote.len_utf8());
                return Ok(is_plain.then_some(said));
            }
        }
        Err("a quote is not closed")
    }

    /// `digits[.digits][e[±]digits][suffix]`; anything longer is odd.
    fn number(&mut self) -> Token {
        let bytes = self.rest.as_bytes();
        let digits = |from: usize| bytes.iter().skip(from).take_while(|byte| byte.is_ascii_digit()).count();
        let is = |at: usize, accepted: &[u8]| bytes.get(at).is_some_and(|byte| accepted.contains(byte));
        let mut end = digits(0);
        if is(end, b".") {
            end += 1 + digits(end + 1);
        }
        if is(end, b"eE") {
            let exponent = if is(end + 1, b"+-") { end + 2 } else { end + 1 };
            let places = digits(exponent);
            if places > 0 {
                end = exponent + places;
            }
        }
        let number = self.take(end);
        let length = self.rest.find(|letter| !is_of_word(letter)).unwrap_or(self.rest.len());
        let suffix = self.take(length);
        match suffix.to_ascii_uppercase().as_str() {
            "" | "L" | "S" | "Y" | "D" | "BD" => Token::Number(number, suffix),
            _ => Token::Odd(number + &suffix),
        }
    }
}

fn is_of_word(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '_' | '$')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_differ_by_dialect() {
        let texts = |text: &str, dialect| tokens(text, dialect).ok();
        let said = |text: &str| Some(vec![Token::Text(Some(text.to_owned()))]);
        assert_eq!(texts("'b''s'", Dialect::DataFusion), said("b's"));
        assert_eq!(texts("'b''s'", Dialect::Spark), Some(vec![Token::Text(None)]));
        assert_eq!(texts("'a\\b'", Dialect::DataFusion), said("a\\b"));
        assert_eq!(texts("'a\\'", Dialect::Spark), None);
        assert_eq!(texts("`a``b`", Dialect::Spark), Some(vec![Token::Name("a`b".to_owned())]));
        for open in ["'a", "\"a", "`a", "a -- b", "a /* b */", "a; b", "a \\ b"] {
            assert_eq!(texts(open, Dialect::DataFusion), None, "{open}");
        }
    }

    #[test]
    fn numbers_end_where_they_should() {
        let one = |text: &str| tokens(text, Dialect::Spark).unwrap().remove(0);
        for (text, digits, suffix) in
            [("5L", "5", "L"), ("1.5e-3", "1.5e-3", ""), (".5", ".5", ""), ("2.20BD", "2.20", "BD"), ("7.", "7.", "")]
        {
            assert_eq!(one(text), Token::Number(digits.to_owned(), suffix.to_owned()), "{text}");
        }
        for text in ["2024_day", "1F", "0x1F", "1e"] {
            assert_eq!(one(text), Token::Odd(text.to_owned()), "{text}");
        }
        assert_eq!(tokens("1-2", Dialect::Spark).unwrap().len(), 3);
        assert_eq!(tokens("a#1 ö.b", Dialect::Spark).unwrap().len(), 6);
    }
}

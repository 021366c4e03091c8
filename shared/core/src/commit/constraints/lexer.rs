//! Tokens of SQL expressions.

use std::fmt;

use crate::delta::footer::Datum;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Word(String),
    /// A name in backticks.
    Quoted(String),
    Text(String),
    Number(Datum),
    Sign(&'static str),
}

impl Token {
    pub fn is_word(&self, word: &str) -> bool {
        matches!(self, Token::Word(found) if found.eq_ignore_ascii_case(word))
    }

    pub fn is_sign(&self, sign: &str) -> bool {
        matches!(self, Token::Sign(found) if *found == sign)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Word(text) | Token::Quoted(text) => write!(f, "`{text}`"),
            Token::Text(text) => write!(f, "'{text}'"),
            Token::Number(number) => write!(f, "`{number}`"),
            Token::Sign(sign) => write!(f, "`{sign}`"),
        }
    }
}

/// Longer signs before those that they begin with.
const SIGNS: [&str; 21] =
    ["<=>", "<>", "<=", ">=", "!=", "==", "||", "=", "<", ">", "+", "-", "*", "/", "%", "(", ")", ",", ".", "!", "&"];

pub(super) fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut out = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, tail) = match first {
            '\'' => quoted(rest, '\'').map(|(text, tail)| (Token::Text(text), tail))?,
            '`' => quoted(rest, '`').map(|(name, tail)| (Token::Quoted(name), tail))?,
            // A text to Spark, a name to others: whoever decides would be wrong for somebody.
            '"' => return Err("double quotes mean a text to some engines and a column to others".to_owned()),
            '0'..='9' => number(rest)?,
            '.' if rest.chars().nth(1).is_some_and(|next| next.is_ascii_digit()) => number(rest)?,
            letter if letter.is_alphabetic() || letter == '_' => word(rest),
            _ => sign(rest)?,
        };
        out.push(token);
        rest = tail.trim_start();
    }
    Ok(out)
}

fn word(text: &str) -> (Token, &str) {
    let end = text.find(|letter: char| !(letter.is_alphanumeric() || letter == '_')).unwrap_or(text.len());
    let (head, tail) = text.split_at_checked(end).unwrap_or((text, ""));
    (Token::Word(head.to_owned()), tail)
}

fn sign(text: &str) -> Result<(Token, &str), String> {
    let found = SIGNS.iter().find_map(|sign| text.strip_prefix(sign).map(|tail| (Token::Sign(sign), tail)));
    found.ok_or_else(|| format!("`{}` is not understood", text.chars().take(1).collect::<String>()))
}

/// A doubled quote stands for itself. Backslashes mean something to some engines only.
fn quoted(text: &str, quote: char) -> Result<(String, &str), String> {
    let mut out = String::new();
    let mut rest = text.get(1..).unwrap_or_default();
    loop {
        let end = rest.find([quote, '\\']).ok_or("a quote is not closed")?;
        let (head, tail) = rest.split_at_checked(end).ok_or("a quote is not closed")?;
        out.push_str(head);
        if tail.starts_with('\\') {
            return Err("backslashes in texts are not understood alike everywhere".to_owned());
        }
        let tail = tail.get(1..).unwrap_or_default();
        match tail.strip_prefix(quote) {
            Some(more) => {
                out.push(quote);
                rest = more;
            }
            None => return Ok((out, tail)),
        }
    }
}

fn number(text: &str) -> Result<(Token, &str), String> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let wrong = || format!("`{}` is no number", text.chars().take(20).collect::<String>());
    let whole = digits(text);
    let mut end = whole;
    let mut scale = 0;
    if text.get(end..).is_some_and(|rest| rest.starts_with('.')) {
        scale = digits(text.get(end + 1..).unwrap_or_default());
        end += 1 + scale;
    }
    let mantissa = text.get(..end).unwrap_or_default();
    let rest = text.get(end..).unwrap_or_default();
    let exponent = rest.strip_prefix(['e', 'E']).map(|tail| tail.strip_prefix(['+', '-']).unwrap_or(tail));
    if let Some(tail) = exponent.filter(|tail| digits(tail) > 0) {
        let length = rest.len() - tail.len() + digits(tail);
        let (head, tail) = text.split_at_checked(end + length).ok_or_else(wrong)?;
        return Ok((Token::Number(Datum::Float(head.parse().map_err(|_| wrong())?)), suffix(tail, &["D", "d"])));
    }
    let unscaled: i128 = mantissa.replace('.', "").parse().map_err(|_| wrong())?;
    let has_point = mantissa.contains('.');
    let is_double = rest.starts_with(['D', 'd']) && !is_longer_word(rest);
    if is_double {
        let value: f64 = mantissa.parse().map_err(|_| wrong())?;
        return Ok((Token::Number(Datum::Float(value)), suffix(rest, &["D", "d"])));
    }
    let tail = suffix(rest, &["L", "l", "S", "s", "Y", "y", "BD", "bd"]);
    if tail.starts_with(|letter: char| letter.is_alphanumeric() || letter == '_') {
        return Err(wrong());
    }
    let scale = u32::try_from(scale).map_err(|_| wrong())?;
    let datum = if has_point { Datum::Decimal { unscaled, scale } } else { Datum::Int(unscaled) };
    Ok((Token::Number(datum), tail))
}

fn is_longer_word(text: &str) -> bool {
    text.chars().nth(1).is_some_and(|next| next.is_alphanumeric() || next == '_')
}

fn suffix<'a>(text: &'a str, suffixes: &[&str]) -> &'a str {
    suffixes.iter().find_map(|suffix| text.strip_prefix(suffix)).unwrap_or(text)
}

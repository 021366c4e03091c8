//! Columns and constants, as engines write them out.

use super::{Dialect, Parser};
use crate::commit::read_set::predicate::{Column, Literal, Zone};
use crate::commit::sql::tokens::Token;

/// One side of a comparison.
pub(super) enum Term {
    Column(Column),
    Literal(Literal),
}

/// Words that are no column where they stand unquoted.
const RESERVED: [&str; 22] = [
    "ALL", "AND", "ANY", "BETWEEN", "CASE", "DISTINCT", "ELSE", "END", "EXISTS", "ILIKE", "IN", "INTERVAL", "IS",
    "LIKE", "NOT", "OR", "RLIKE", "SELECT", "SOME", "THEN", "WHEN", "CAST",
];

impl Parser<'_> {
    pub(super) fn term(&mut self) -> Option<Term> {
        let start = self.at;
        if let Some(literal) = self.literal() {
            return Some(Term::Literal(literal));
        }
        self.at = start;
        if let Some(column) = self.column() {
            return Some(Term::Column(column));
        }
        self.at = start;
        None
    }

    /// `a`, `a.b`, `` `a`.b ``, `get_field(a, 'b')`, `CAST(a AS type)`
    pub(super) fn column(&mut self) -> Option<Column> {
        if self.take_word("CAST") {
            let column = self.take_symbol("(").then(|| self.column())??;
            let cast = self.take_word("AS").then(|| self.type_name())??;
            let is_simple = column.cast.is_none() && self.take_symbol(")");
            return is_simple.then_some(Column { cast: Some(cast), ..column });
        }
        if self.take_word("get_field") {
            let mut column = self.take_symbol("(").then(|| self.column())??;
            let is_one = column.path.len() == 1 || !column.may_be_qualified;
            let name = if is_one && self.take_symbol(",") { self.literal()? } else { return None };
            let (Literal::Text(name, _) | Literal::Quoted(name)) = name else { return None };
            column.path.push(name);
            let is_closed = column.cast.is_none() && self.take_symbol(")");
            return is_closed.then(|| Column::exactly(column.path));
        }
        let mut path = vec![self.name()?];
        while self.take_symbol(".") {
            path.push(self.name()?);
        }
        // A function, or an element.
        let goes_on = matches!(self.peek(), Some(Token::Symbol("(" | "[" | "::") | Token::Text(_) | Token::Quoted(_)));
        (!goes_on).then(|| Column::named(path))
    }

    fn name(&mut self) -> Option<String> {
        let found = match self.peek()? {
            Token::Word(word) if !RESERVED.iter().any(|reserved| word.eq_ignore_ascii_case(reserved)) => word.clone(),
            Token::Name(name) => name.clone(),
            Token::Quoted(Some(name)) if self.dialect == Dialect::DataFusion => name.clone(),
            _ => return None,
        };
        self.at += 1;
        Some(found)
    }

    pub(super) fn literal(&mut self) -> Option<Literal> {
        let mut literal = self.plain_literal()?;
        while self.take_symbol("::") {
            literal = convert(literal, &self.type_name()?, self.dialect);
        }
        Some(literal)
    }

    fn plain_literal(&mut self) -> Option<Literal> {
        let is_negative = self.take_symbol("-");
        let is_signed = is_negative || self.take_symbol("+");
        let sign = if is_negative { "-" } else { "" };
        let token = self.peek()?.clone();
        self.at += 1;
        match token {
            Token::Number(digits, _) => Some(Literal::Number(format!("{sign}{digits}"))),
            _ if is_signed => None,
            Token::Text(Some(text)) => Some(Literal::Text(text, Zone::Session)),
            Token::Text(None) | Token::Quoted(None) => Some(Literal::Unusable),
            Token::Quoted(Some(text)) => match self.dialect {
                Dialect::DataFusion => None,
                Dialect::Spark => Some(Literal::Quoted(text)),
                Dialect::Unknown => Some(Literal::Unusable),
            },
            Token::Word(word) => self.word_literal(&word.to_ascii_lowercase()),
            _ => None,
        }
    }

    /// After a word.
    fn word_literal(&mut self, word: &str) -> Option<Literal> {
        match word {
            "true" => return Some(Literal::Flag(true)),
            "false" => return Some(Literal::Flag(false)),
            "null" => return Some(Literal::Null),
            "date" | "timestamp" | "timestamp_ntz" | "timestamp_ltz" => {
                let Some(Token::Text(text)) = self.peek() else { return None };
                let text = text.clone();
                self.at += 1;
                return Some(match text {
                    Some(text) if word == "date" => Literal::Date(text),
                    Some(text) => Literal::Timestamp(text, Zone::Session),
                    None => Literal::Unusable,
                });
            }
            _ => {}
        }
        if !self.take_symbol("(") {
            return None;
        }
        let literal = match word {
            "cast" => {
                let inner = self.literal()?;
                let target = self.take_word("AS").then(|| self.type_name())??;
                convert(inner, &target, self.dialect)
            }
            "arrow_cast" => self.arrow_cast()?,
            "utf8" | "largeutf8" | "utf8view" => match self.quoted()? {
                Some(text) => Literal::Text(text, Zone::Session),
                None => Literal::Unusable,
            },
            "date32" | "date64" => self.quoted()?.map_or(Literal::Unusable, Literal::Date),
            "boolean" => self.literal()?,
            "float32" | "float64" => self.literal()?,
            _ if word.trim_start_matches('u').starts_with("int") => self.literal()?,
            _ => return None,
        };
        self.take_symbol(")").then_some(literal)
    }

    /// `'…'` or `"…"`, whichever the engine prints.
    fn quoted(&mut self) -> Option<Option<String>> {
        let (Token::Text(text) | Token::Quoted(text)) = self.peek()? else { return None };
        let text = text.clone();
        self.at += 1;
        Some(text)
    }

    /// `arrow_cast('2024-01-01T00:00:00', 'Timestamp(Microsecond, Some("UTC"))')`
    fn arrow_cast(&mut self) -> Option<Literal> {
        let text = self.quoted()?;
        let target = if self.take_symbol(",") { self.quoted()? } else { return None };
        let (Some(text), Some(target)) = (text, target) else { return Some(Literal::Unusable) };
        Some(match target.strip_prefix("Timestamp(") {
            Some(rest) if rest.contains("Some(\"UTC\")") => Literal::Timestamp(text, Zone::Utc),
            Some(rest) if rest.contains("None") => Literal::Timestamp(text, Zone::Session),
            _ => Literal::Unusable,
        })
    }

    /// `bigint`, `decimal(12,2)`: in lower case, without blanks.
    fn type_name(&mut self) -> Option<String> {
        let Token::Word(word) = self.peek()? else { return None };
        let mut name = word.to_ascii_lowercase();
        self.at += 1;
        if self.take_symbol("(") {
            name.push('(');
            loop {
                let Token::Number(digits, _) = self.peek()? else { return None };
                name.push_str(digits);
                self.at += 1;
                if !self.take_symbol(",") {
                    break;
                }
                name.push(',');
            }
            name.push(')');
            return self.take_symbol(")").then_some(name);
        }
        let goes_on = self.peek().is_some_and(|token| token.is_word("WITH") || token.is_word("WITHOUT"));
        (!goes_on).then_some(name)
    }
}

/// A constant after a cast.
fn convert(literal: Literal, target: &str, dialect: Dialect) -> Literal {
    let is_integer = |text: &str| {
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        !digits.is_empty() && digits.len() <= 18 && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    let base = target.split('(').next().unwrap_or_default();
    match (literal, base) {
        (Literal::Null, _) => Literal::Null,
        (Literal::Text(text, _) | Literal::Quoted(text), "date" | "date32") => Literal::Date(text),
        (Literal::Text(text, zone), "timestamp" | "timestamp_ntz" | "timestamp_ltz") => Literal::Timestamp(text, zone),
        (Literal::Text(text, zone), "string" | "varchar" | "text" | "utf8") if !target.contains('(') => {
            Literal::Text(text, zone)
        }
        (Literal::Number(text) | Literal::Text(text, _) | Literal::Quoted(text), "bigint" | "long" | "int64")
            if is_integer(&text) =>
        {
            Literal::Number(text)
        }
        (Literal::Number(text), "double" | "float64") => Literal::Number(text),
        (Literal::Number(text), "int" | "integer" | "smallint" | "tinyint") if is_small(&text, base) => {
            Literal::Number(text)
        }
        (Literal::Number(text), "decimal") if fraction_of(&text) <= scale_of(target) => Literal::Number(text),
        // delta-rs prints the digits of a decimal without its point.
        (Literal::Text(text, _), "decimal") if is_integer(&text) && dialect != Dialect::Spark => {
            let scaled = format!("{text}e-{}", scale_of(target));
            Literal::EitherNumber(text, scaled)
        }
        _ => Literal::Unusable,
    }
}

fn is_small(text: &str, target: &str) -> bool {
    match target {
        "tinyint" => text.parse::<i8>().is_ok(),
        "smallint" => text.parse::<i16>().is_ok(),
        _ => text.parse::<i32>().is_ok(),
    }
}

fn scale_of(target: &str) -> usize {
    let scale = target.split_once(',').map(|(_, scale)| scale.trim_end_matches(')'));
    scale.and_then(|scale| scale.parse().ok()).unwrap_or(0)
}

fn fraction_of(text: &str) -> usize {
    if text.contains(['e', 'E']) {
        return usize::MAX;
    }
    text.split_once('.').map_or(0, |(_, fraction)| fraction.len())
}

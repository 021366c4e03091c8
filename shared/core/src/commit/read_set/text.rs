//! A small part of SQL: comparisons of a column with a constant, IN, BETWEEN, IS NULL, and AND, OR, NOT over them.
//!
//! Everything else is unknown, in the smallest operand of AND and OR around it. Where an operand ends is known without
//! understanding it: brackets and CASE match, and the first AND after a BETWEEN is its own. Where an operand is missing,
//! breaks off, or leaves something open, the text is no condition, and nothing of it is used.

mod terms;

use super::predicate::{Column, Literal, Predicate};
use crate::commit::sql::Comparison;
use crate::commit::sql::tokens::{Token, tokens};
use terms::Term;

pub use crate::commit::sql::tokens::Dialect;

/// Nesting of brackets and NOTs; deeper texts are unknown.
const MAX_DEPTH: usize = 48;
/// Longer texts are unknown.
const MAX_TOKENS: usize = 20_000;
/// Words that something follows.
const GOES_ON: [&str; 15] = [
    "AND", "AS", "BETWEEN", "CASE", "DISTINCT", "ELSE", "FROM", "ILIKE", "IN", "IS", "LIKE", "NOT", "RLIKE", "THEN",
    "WHEN",
];

/// What a text says; [`Predicate::Unknown`] at worst.
pub fn parse(text: &str, dialect: Dialect) -> Predicate {
    let Ok(tokens) = tokens(text, dialect) else { return Predicate::Unknown };
    // It binds less than AND, where it exists.
    let has_xor = tokens.iter().any(|token| token.is_word("XOR"));
    if tokens.is_empty() || tokens.len() > MAX_TOKENS || has_xor {
        return Predicate::Unknown;
    }
    let mut parser = Parser { tokens: &tokens, at: 0, dialect };
    match parser.or(0) {
        Some(found) if parser.at == tokens.len() => found,
        _ => Predicate::Unknown,
    }
}

struct Parser<'t> {
    tokens: &'t [Token],
    at: usize,
    dialect: Dialect,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn take_word(&mut self, word: &str) -> bool {
        let found = self.peek().is_some_and(|token| token.is_word(word));
        self.at += usize::from(found);
        found
    }

    fn take_symbol(&mut self, symbol: &str) -> bool {
        let found = self.peek().is_some_and(|token| token.is_symbol(symbol));
        self.at += usize::from(found);
        found
    }

    /// Nothing: too deep, or no condition.
    fn or(&mut self, depth: usize) -> Option<Predicate> {
        let mut parts = vec![self.and(depth)?];
        while self.take_word("OR") {
            parts.push(self.and(depth)?);
        }
        Some(if parts.len() == 1 { parts.remove(0) } else { Predicate::Or(parts) })
    }

    fn and(&mut self, depth: usize) -> Option<Predicate> {
        let mut parts = vec![self.not(depth)?];
        while self.take_word("AND") {
            parts.push(self.not(depth)?);
        }
        Some(if parts.len() == 1 { parts.remove(0) } else { Predicate::And(parts) })
    }

    fn not(&mut self, depth: usize) -> Option<Predicate> {
        if depth > MAX_DEPTH {
            return None;
        }
        if self.take_word("NOT") {
            return Some(Predicate::Not(Box::new(self.not(depth + 1)?)));
        }
        let start = self.at;
        if self.take_symbol("(") {
            let inner = self.or(depth + 1)?;
            if self.take_symbol(")") && self.is_end() {
                return Some(inner);
            }
            self.at = start;
        }
        if let Some(found) = self.condition().filter(|_| self.is_end()) {
            return Some(found);
        }
        self.at = start;
        self.skip_operand()?;
        Some(Predicate::Unknown)
    }

    /// Whether an operand ends here.
    fn is_end(&self) -> bool {
        match self.peek() {
            None | Some(Token::Symbol(")")) => true,
            Some(token) => token.is_word("AND") || token.is_word("OR"),
        }
    }

    /// Nothing: there is no operand here, or it does not end.
    fn skip_operand(&mut self) -> Option<()> {
        let start = self.at;
        let mut open: Vec<&str> = Vec::new();
        let mut own_ands = 0_usize;
        while let Some(token) = self.peek() {
            match token {
                Token::Symbol("(") => open.push(")"),
                Token::Symbol("[") => open.push("]"),
                Token::Symbol(")" | "]") if open.is_empty() => break,
                Token::Symbol(symbol @ (")" | "]")) => {
                    (open.pop() == Some(*symbol)).then_some(())?;
                }
                word if word.is_word("CASE") => open.push("END"),
                word if word.is_word("END") && open.contains(&"END") => {
                    (open.pop() == Some("END")).then_some(())?;
                }
                word if open.is_empty() && word.is_word("BETWEEN") => own_ands += 1,
                word if open.is_empty() && word.is_word("OR") => break,
                word if open.is_empty() && word.is_word("AND") => {
                    if own_ands == 0 {
                        break;
                    }
                    own_ands -= 1;
                }
                _ => {}
            }
            self.at += 1;
        }
        let last = self.tokens.get(start..self.at)?.last()?;
        let goes_on = match last {
            Token::Symbol(symbol) => !matches!(*symbol, ")" | "]" | "*"),
            word => GOES_ON.iter().any(|other| word.is_word(other)),
        };
        (open.is_empty() && own_ands == 0 && !goes_on).then_some(())
    }

    /// One comparison; nothing if it is not understood.
    fn condition(&mut self) -> Option<Predicate> {
        if let Some(found) = self.null_test() {
            return Some(found);
        }
        let left = self.term()?;
        if self.is_end() {
            return match left {
                Term::Column(column) => Some(Predicate::Compare(Comparison::Equal, column, Literal::Flag(true))),
                Term::Literal(Literal::Flag(true)) => Some(Predicate::Always),
                Term::Literal(Literal::Flag(false)) => Some(Predicate::Not(Box::new(Predicate::Always))),
                Term::Literal(_) => None,
            };
        }
        if let Some(comparison) = self.comparison() {
            return match (left, self.term()?) {
                (Term::Column(column), Term::Literal(literal)) => Some(Predicate::Compare(comparison, column, literal)),
                (Term::Literal(literal), Term::Column(column)) => {
                    Some(Predicate::Compare(comparison.flipped(), column, literal))
                }
                _ => None,
            };
        }
        let Term::Column(column) = left else { return None };
        if self.take_word("IS") {
            return self.is_what(column);
        }
        let negated = self.take_word("NOT");
        let found = if self.take_word("IN") {
            self.list().map(|literals| Predicate::In(column, literals))
        } else if self.take_word("BETWEEN") {
            self.between(column)
        } else {
            None
        }?;
        Some(if negated { Predicate::Not(Box::new(found)) } else { found })
    }

    fn comparison(&mut self) -> Option<Comparison> {
        let comparison = Comparison::of_token(self.peek()?)?;
        self.at += 1;
        Some(comparison)
    }

    /// `isnull(column)`, `isnotnull(column)`
    fn null_test(&mut self) -> Option<Predicate> {
        let start = self.at;
        let negated = match self.peek() {
            Some(word) if word.is_word("isnull") => false,
            Some(word) if word.is_word("isnotnull") => true,
            _ => return None,
        };
        self.at += 1;
        let column = if self.take_symbol("(") { self.column() } else { None };
        match column {
            Some(column) if self.take_symbol(")") => {
                let found = Predicate::IsNull(column);
                Some(if negated { Predicate::Not(Box::new(found)) } else { found })
            }
            _ => {
                self.at = start;
                None
            }
        }
    }

    /// After IS.
    fn is_what(&mut self, column: Column) -> Option<Predicate> {
        let negated = self.take_word("NOT");
        let found = if self.take_word("NULL") {
            Predicate::IsNull(column)
        } else if self.take_word("TRUE") {
            Predicate::Compare(Comparison::NullSafeEqual, column, Literal::Flag(true))
        } else if self.take_word("FALSE") {
            Predicate::Compare(Comparison::NullSafeEqual, column, Literal::Flag(false))
        } else if self.take_word("DISTINCT") && self.take_word("FROM") {
            let Term::Literal(literal) = self.term()? else { return None };
            Predicate::Not(Box::new(Predicate::Compare(Comparison::NullSafeEqual, column, literal)))
        } else {
            return None;
        };
        Some(if negated { Predicate::Not(Box::new(found)) } else { found })
    }

    fn list(&mut self) -> Option<Vec<Literal>> {
        if !self.take_symbol("(") {
            return None;
        }
        let mut literals = Vec::new();
        loop {
            let Term::Literal(literal) = self.term()? else { return None };
            literals.push(literal);
            if !self.take_symbol(",") {
                break;
            }
        }
        self.take_symbol(")").then_some(literals)
    }

    fn between(&mut self, column: Column) -> Option<Predicate> {
        let Term::Literal(low) = self.term()? else { return None };
        if !self.take_word("AND") {
            return None;
        }
        let Term::Literal(high) = self.term()? else { return None };
        Some(Predicate::And(vec![
            Predicate::Compare(Comparison::GreaterOrEqual, column.clone(), low),
            Predicate::Compare(Comparison::LessOrEqual, column, high),
        ]))
    }
}

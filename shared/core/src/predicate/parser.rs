//! Tokens to syntax.
//!
//! Predicates are read by descent. Parentheses and NOTs are kept on a list of open groups instead of the call stack, so that
//! no text, however long, can exhaust it; what remains nested is bounded by [`Limits::depth`].

use super::error::shown;
use super::lexer::{Token, TokenKind, position, tokens};
use super::syntax::{Comparison, Operand, OperandKind, Syntax, Test, TestKind};
use super::{Limits, PredicateError};

/// Words that are no literal: what they would end is incomplete.
const KEYWORDS: [&str; 8] = ["and", "or", "not", "in", "between", "like", "is", "escape"];

pub(super) fn parse(text: &str, limits: Limits) -> Result<Syntax, PredicateError> {
    let length = text.chars().count();
    if length > limits.length {
        return Err(PredicateError::TooLong { length, max: limits.length });
    }
    let tokens = tokens(text)?;
    Parser { text, tokens: &tokens, at: 0 }.expression(limits)
}

/// An open parenthesis, or the whole expression.
struct Group {
    /// Token of the parenthesis.
    opened: usize,
    /// Complete alternatives, and how deep they are.
    any: Vec<Syntax>,
    any_depth: usize,
    /// Conjuncts of the alternative at hand, and how deep they are.
    all: Vec<Syntax>,
    all_depth: usize,
    /// Whether an odd number of NOTs waits for its operand.
    is_negated: bool,
}

impl Group {
    fn new(opened: usize) -> Self {
        Self { opened, any: Vec::new(), any_depth: 0, all: Vec::new(), all_depth: 0, is_negated: false }
    }

    fn add(&mut self, operand: Syntax, depth: usize) {
        self.all.push(match (std::mem::take(&mut self.is_negated), operand) {
            (false, operand) => operand,
            (true, Syntax::Not(inside)) => *inside,
            (true, operand) => Syntax::Not(Box::new(operand)),
        });
        self.all_depth = self.all_depth.max(depth);
    }

    fn next_alternative(&mut self) {
        let (alternative, depth) =
            one_or(std::mem::take(&mut self.all), std::mem::take(&mut self.all_depth), Syntax::All);
        self.any.push(alternative);
        self.any_depth = self.any_depth.max(depth);
    }

    fn close(mut self) -> (Syntax, usize) {
        self.next_alternative();
        one_or(self.any, self.any_depth, Syntax::Any)
    }
}

/// The only operand itself, or all of them one level up.
fn one_or(mut operands: Vec<Syntax>, depth: usize, join: fn(Vec<Syntax>) -> Syntax) -> (Syntax, usize) {
    match (operands.len(), operands.pop()) {
        (1, Some(only)) => (only, depth),
        (_, last) => {
            operands.extend(last);
            (join(operands), depth + 1)
        }
    }
}

/// What stands behind a predicate or a closed parenthesis.
enum Connective {
    And,
    Or,
    Close,
    End,
}

struct Parser<'t> {
    text: &'t str,
    tokens: &'t [Token],
    at: usize,
}

impl Parser<'_> {
    fn expression(mut self, limits: Limits) -> Result<Syntax, PredicateError> {
        let mut outer: Vec<Group> = Vec::new();
        let mut group = Group::new(0);
        loop {
            if self.takes_not() {
                group.is_negated = !group.is_negated;
                continue;
            }
            let opening = self.opening_groups();
            if opening > 0 {
                for _ in 0..opening {
                    outer.push(std::mem::replace(&mut group, Group::new(self.at)));
                    self.at += 1;
                }
                continue;
            }
            let test = self.test()?;
            group.add(Syntax::Test(Box::new(test)), 1);
            loop {
                match self.connective()? {
                    Connective::And => break,
                    Connective::Or => {
                        group.next_alternative();
                        break;
                    }
                    Connective::Close => {
                        let Some(around) = outer.pop() else {
                            return Err(self.error_at(self.at - 1, "this parenthesis was never opened"));
                        };
                        let (inside, depth) = std::mem::replace(&mut group, around).close();
                        self.check_depth(depth, limits)?;
                        group.add(inside, depth);
                    }
                    Connective::End if outer.is_empty() => {
                        let (all, depth) = group.close();
                        self.check_depth(depth, limits)?;
                        return Ok(all);
                    }
                    Connective::End => return Err(self.error_at(group.opened, "this parenthesis is never closed")),
                }
            }
        }
    }

    fn check_depth(&self, depth: usize, limits: Limits) -> Result<(), PredicateError> {
        if depth <= limits.depth {
            return Ok(());
        }
        Err(self.error_at(self.at, format!("AND and OR are nested more than {} deep", limits.depth)))
    }

    // Tokens.

    fn kind(&self, at: usize) -> &TokenKind {
        self.tokens.get(at).map_or(&TokenKind::End, |token| &token.kind)
    }

    fn source(&self, at: usize) -> &str {
        self.tokens.get(at).and_then(|token| self.text.get(token.start..token.end)).unwrap_or_default()
    }

    fn start(&self, at: usize) -> usize {
        self.tokens.get(at).map_or(self.text.len(), |token| token.start)
    }

    fn is_symbol(&self, at: usize, symbol: &str) -> bool {
        matches!(self.kind(at), TokenKind::Symbol(found) if *found == symbol)
    }

    fn is_word(&self, at: usize, word: &str) -> bool {
        *self.kind(at) == TokenKind::Word && self.source(at).eq_ignore_ascii_case(word)
    }

    fn takes_word(&mut self, word: &str) -> bool {
        let found = self.is_word(self.at, word);
        self.at += usize::from(found);
        found
    }

    /// Number of `symbol`s in a row.
    fn run_of(&self, at: usize, symbol: &str) -> usize {
        (at..self.tokens.len()).take_while(|at| self.is_symbol(*at, symbol)).count()
    }

    fn error_at(&self, at: usize, reason: impl Into<String>) -> PredicateError {
        let position = position(self.text, self.start(at));
        PredicateError::Unsupported { shown: shown(self.text), position, reason: reason.into() }
    }

    fn expected(&self, what: &str) -> PredicateError {
        let found = match self.kind(self.at) {
            TokenKind::End => "the expression ends".to_owned(),
            _ => format!("there is {}", shown(self.source(self.at))),
        };
        self.error_at(self.at, format!("{what} should follow, but {found}"))
    }

    /// Tokens as one text: a blank between them, but for parentheses and commas.
    fn print(&self, from: usize, to: usize) -> String {
        let mut text = String::new();
        for at in from..to {
            let source = self.source(at);
            let is_call = source == "(" && at > from && *self.kind(at - 1) == TokenKind::Word;
            let is_tight = text.is_empty() || text.ends_with('(') || matches!(source, ")" | ",") || is_call;
            if !is_tight {
                text.push(' ');
            }
            text.push_str(source);
        }
        shown(&text)
    }

    // Groups.

    /// `NOT`, unless it is compared with something: then it is a name.
    fn takes_not(&mut self) -> bool {
        let next = self.at + 1;
        let is_tested_with_not =
            self.is_word(next, "not") && !self.is_word(next + 1, "is") && self.begins_test(next + 1);
        let is_name = self.comparison_at(next).is_some() || self.begins_test(next) || is_tested_with_not;
        !is_name && self.takes_word("not")
    }

    /// Whether IS, IN, BETWEEN or LIKE stands here as such, and is no name.
    fn begins_test(&self, at: usize) -> bool {
        if self.is_word(at, "in") {
            return self.is_symbol(at + 1, "(");
        }
        if self.is_word(at, "is") {
            return self.is_word(at + 1, "null") || (self.is_word(at + 1, "not") && self.is_word(at + 2, "null"));
        }
        let is_followed = ["is", "in", "between", "like", "not"].iter().any(|word| self.is_word(at + 1, word));
        (self.is_word(at, "between") || self.is_word(at, "like"))
            && !is_followed
            && self.comparison_at(at + 1).is_none()
    }

    /// How many parentheses at this place hold more than the first operand of a predicate.
    fn opening_groups(&self) -> usize {
        let open = self.run_of(self.at, "(");
        let closed = self.run_of(self.at + open + self.operand_length(self.at + open), ")");
        open.saturating_sub(closed)
    }

    /// Tokens of an operand; 0 if there is none.
    fn operand_length(&self, at: usize) -> usize {
        match self.kind(at) {
            TokenKind::Symbol("+" | "-") if *self.kind(at + 1) == TokenKind::Number => 2,
            TokenKind::Word if self.is_typed_literal(at) => 2,
            TokenKind::Symbol(_) | TokenKind::End => 0,
            _ => 1,
        }
    }

    /// `DATE '…'` and `TIMESTAMP '…'`.
    fn is_typed_literal(&self, at: usize) -> bool {
        (self.is_word(at, "date") || self.is_word(at, "timestamp")) && matches!(self.kind(at + 1), TokenKind::Text(_))
    }

    /// Length of AND or OR, perhaps in parentheses.
    fn connective_length(&self, at: usize) -> Option<(Connective, usize)> {
        let open = self.run_of(at, "(");
        let word = at + open;
        let connective = match () {
            () if self.is_word(word, "and") => Connective::And,
            () if self.is_word(word, "or") => Connective::Or,
            () => return None,
        };
        (self.run_of(word + 1, ")") >= open).then_some((connective, open + 1 + open))
    }

    fn connective(&mut self) -> Result<Connective, PredicateError> {
        if let Some((connective, length)) = self.connective_length(self.at) {
            self.at += length;
            return Ok(connective);
        }
        match self.kind(self.at) {
            TokenKind::End => Ok(Connective::End),
            TokenKind::Symbol(")") => {
                self.at += 1;
                Ok(Connective::Close)
            }
            _ => Err(self.expected("AND, OR or the end")),
        }
    }

    // Predicates.

    fn test(&mut self) -> Result<Test, PredicateError> {
        let from = self.at;
        let subject = self.operand(OperandPlace::First)?;
        let mut is_negated = false;
        let kind = if self.takes_word("is") {
            is_negated = self.takes_word("not");
            if !self.takes_word("null") {
                return Err(self.expected(if is_negated { "NULL" } else { "NULL or NOT NULL" }));
            }
            TestKind::IsNull
        } else if let Some((comparison, length)) = self.comparison_at(self.at) {
            self.at += length;
            let place = match subject.kind {
                OperandKind::Name(_) => OperandPlace::Other,
                _ => OperandPlace::Mirrored,
            };
            TestKind::Compare(comparison, self.operand(place)?)
        } else {
            is_negated = self.takes_word("not");
            self.worded_test(is_negated)?
        };
        Ok(Test { subject, kind, is_negated, shown: self.print(from, self.at) })
    }

    fn worded_test(&mut self, is_negated: bool) -> Result<TestKind, PredicateError> {
        if self.takes_word("in") {
            return self.list();
        }
        if self.takes_word("between") {
            let low = self.operand(OperandPlace::Other)?;
            match self.connective_length(self.at) {
                Some((Connective::And, length)) => self.at += length,
                _ => return Err(self.expected("AND")),
            }
            return Ok(TestKind::Between(low, self.operand(OperandPlace::Other)?));
        }
        if self.takes_word("like") {
            let pattern = self.operand(OperandPlace::Other)?;
            let escape = if self.takes_word("escape") { Some(self.operand(OperandPlace::Other)?) } else { None };
            return Ok(TestKind::Like { pattern, escape });
        }
        Err(self.expected(if is_negated { "IN, BETWEEN or LIKE" } else { "a comparison, IN, BETWEEN, LIKE or IS" }))
    }

    fn list(&mut self) -> Result<TestKind, PredicateError> {
        if !self.is_symbol(self.at, "(") {
            return Err(self.expected("a list in parentheses"));
        }
        let mut list = Vec::new();
        loop {
            // The opening parenthesis, or a comma.
            self.at += 1;
            list.push(self.operand(OperandPlace::Other)?);
            if self.is_symbol(self.at, ")") {
                self.at += 1;
                return Ok(TestKind::In(list));
            }
            if !self.is_symbol(self.at, ",") {
                return Err(self.expected("a comma or the end of the list"));
            }
        }
    }

    /// A comparison and its length: `< >` may have blanks.
    fn comparison_at(&self, at: usize) -> Option<(Comparison, usize)> {
        let TokenKind::Symbol(first) = self.kind(at) else { return None };
        let second = if let TokenKind::Symbol(second) = self.kind(at + 1) { *second } else { "" };
        Some(match (*first, second) {
            ("<", ">") | ("!", "=") => (Comparison::NotEqual, 2),
            ("<", "=") => (Comparison::AtMost, 2),
            (">", "=") => (Comparison::AtLeast, 2),
            ("=" | "==", _) => (Comparison::Equal, 1),
            ("<>" | "!=", _) => (Comparison::NotEqual, 1),
            ("<", _) => (Comparison::Less, 1),
            ("<=", _) => (Comparison::AtMost, 1),
            (">", _) => (Comparison::Greater, 1),
            (">=", _) => (Comparison::AtLeast, 1),
            _ => return None,
        })
    }

    /// A name or literal, perhaps in parentheses.
    fn operand(&mut self, place: OperandPlace) -> Result<Operand, PredicateError> {
        let open = self.run_of(self.at, "(");
        self.at += open;
        let from = self.at;
        let operand = self.bare_operand(place)?;
        self.check_stands_alone(from)?;
        if self.run_of(self.at, ")") < open {
            return Err(self.expected("a closing parenthesis"));
        }
        self.at += open;
        if open > 0 {
            self.check_stands_alone(from)?;
        }
        Ok(operand)
    }

    /// Whether a predicate may end before this token.
    fn ends_predicate(&self, at: usize) -> bool {
        *self.kind(at) == TokenKind::End || self.is_symbol(at, ")") || self.connective_length(at).is_some()
    }

    fn bare_operand(&mut self, place: OperandPlace) -> Result<Operand, PredicateError> {
        let at = self.at;
        let is_keyword = KEYWORDS.iter().any(|word| self.is_word(at, word));
        let is_misplaced = match place {
            OperandPlace::First => false,
            OperandPlace::Mirrored => is_keyword && !self.ends_predicate(at + 1),
            OperandPlace::Other => is_keyword,
        };
        let length = if is_misplaced { 0 } else { self.operand_length(at) };
        if length == 0 {
            let what = match place {
                OperandPlace::First => "a partition key",
                OperandPlace::Mirrored => "a partition key or a literal",
                OperandPlace::Other => "a literal",
            };
            return Err(self.expected(what));
        }
        let written = self.source(at).to_owned();
        let kind = match self.kind(at) {
            TokenKind::Symbol(_) => OperandKind::Literal(format!("{written}{}", self.source(at + 1))),
            TokenKind::Number => OperandKind::Literal(written),
            TokenKind::Text(said) => OperandKind::Literal(said.clone()),
            TokenKind::Quoted(said) => OperandKind::Quoted(said.clone()),
            TokenKind::Backticked(said) => OperandKind::Name(said.clone()),
            _ if length == 2 => match self.kind(at + 1) {
                TokenKind::Text(said) => OperandKind::Literal(said.clone()),
                _ => OperandKind::Name(written),
            },
            _ if self.is_word(at, "true") || self.is_word(at, "false") => OperandKind::Boolean(written),
            _ if self.is_word(at, "null") => OperandKind::Null(written),
            _ => OperandKind::Name(written),
        };
        self.at += length;
        Ok(Operand { kind, start: self.start(at) })
    }

    /// Arithmetic and functions are not supported; the text says which part that is.
    fn check_stands_alone(&self, from: usize) -> Result<(), PredicateError> {
        let is_arithmetic =
            matches!(self.kind(self.at), TokenKind::Symbol("+" | "-" | "*" | "/" | "%" | "||" | "|" | "&" | "^"));
        let is_call = self.is_symbol(self.at, "(")
            && *self.kind(self.at - 1) == TokenKind::Word
            && self.connective_length(self.at).is_none();
        if !is_arithmetic && !is_call {
            return Ok(());
        }
        let reason = match self.kind(from) {
            _ if is_call => "functions are not supported",
            TokenKind::Number => "arithmetic is not supported; a date is written in quotes",
            _ => "arithmetic is not supported",
        };
        let shown = self.print(from, self.end_of_term(from));
        Err(PredicateError::Unsupported {
            shown,
            position: position(self.text, self.start(from)),
            reason: reason.to_owned(),
        })
    }

    /// Where the term that begins at `from` ends: at a keyword, a comparison, a comma or a parenthesis that closes.
    fn end_of_term(&self, from: usize) -> usize {
        let mut depth = 0_usize;
        for at in from..self.tokens.len() {
            let ends = match self.kind(at) {
                TokenKind::End => return at,
                TokenKind::Symbol("(") => {
                    depth += 1;
                    false
                }
                TokenKind::Symbol(")") if depth > 0 => {
                    depth -= 1;
                    false
                }
                TokenKind::Symbol(")" | ",") => true,
                TokenKind::Word => at > from && KEYWORDS.iter().any(|word| self.is_word(at, word)),
                _ => self.comparison_at(at).is_some(),
            };
            if ends && depth == 0 {
                return at;
            }
        }
        self.tokens.len()
    }
}

/// Where an operand stands: a predicate begins with any word, also with one that is a keyword elsewhere.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OperandPlace {
    First,
    /// Compared with a literal, so it should be a name, perhaps one that is a keyword elsewhere.
    Mirrored,
    Other,
}

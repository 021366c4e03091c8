//! SQL expressions of constraints and generated columns: what is understood of them.

use super::comparison::Comparison;
use super::literal;
use super::tokens::{Dialect, Token, tokens};
use crate::delta::footer::Datum;
use crate::delta::schema::{DataType, Primitive, named_type};

/// Nesting of an expression.
const DEPTH_MAX: usize = 64;
/// Length of an expression's text.
const TEXT_MAX_BYTES: usize = 32 * 1024;
/// Tokens of an expression; bounds how deep chains of operators get.
const TOKENS_MAX: usize = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// An expression. A column is a path of names until it is bound to a slot of values.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// None: null.
    Literal(Option<Datum>),
    Column(Vec<String>),
    Slot(usize),
    Not(Box<Expr>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Compare(Comparison, Box<Expr>, Box<Expr>),
    IsNull(Box<Expr>),
    In(Box<Expr>, Vec<Expr>),
    Like(Box<Expr>, String),
    Arithmetic(Arithmetic, Box<Expr>, Box<Expr>),
    Negative(Box<Expr>),
    Call(String, Vec<Expr>),
    Cast(Box<Expr>, Primitive),
    /// Branches, and what holds else.
    Case(Vec<(Expr, Expr)>, Option<Box<Expr>>),
}

impl Expr {
    /// Parses an expression; the error says what is not understood.
    pub fn parse(text: &str) -> Result<Expr, String> {
        if text.len() > TEXT_MAX_BYTES {
            return Err(format!("expressions of more than {TEXT_MAX_BYTES} bytes are not read"));
        }
        let mut parser = Parser { tokens: tokens(text, Dialect::Unknown)?, at: 0, depth: 0 };
        if parser.tokens.len() > TOKENS_MAX {
            return Err(format!("expressions of more than {TOKENS_MAX} words and signs are not read"));
        }
        let expr = parser.or()?;
        match parser.tokens.get(parser.at) {
            None => Ok(expr),
            Some(token) => Err(format!("{token} is not understood here")),
        }
    }

    /// Parts, in the order they are written.
    pub fn parts(&self) -> Vec<&Expr> {
        match self {
            Expr::Literal(_) | Expr::Column(_) | Expr::Slot(_) => Vec::new(),
            Expr::Not(a) | Expr::IsNull(a) | Expr::Like(a, _) | Expr::Negative(a) | Expr::Cast(a, _) => vec![a],
            Expr::And(a, b) | Expr::Or(a, b) | Expr::Compare(_, a, b) | Expr::Arithmetic(_, a, b) => vec![a, b],
            Expr::In(a, list) => std::iter::once(&**a).chain(list).collect(),
            Expr::Call(_, list) => list.iter().collect(),
            Expr::Case(branches, other) => {
                branches.iter().flat_map(|(when, then)| [when, then]).chain(other.as_deref()).collect()
            }
        }
    }

    /// Columns, each as often as it is named.
    pub fn columns(&self) -> Vec<&[String]> {
        match self {
            Expr::Column(path) => vec![path],
            other => other.parts().into_iter().flat_map(Expr::columns).collect(),
        }
    }

    /// Slots, each as often as it is named.
    pub fn slots(&self) -> Vec<usize> {
        match self {
            Expr::Slot(slot) => vec![*slot],
            other => other.parts().into_iter().flat_map(Expr::slots).collect(),
        }
    }

    /// The same with every column replaced.
    pub fn bind(&self, bind: &mut dyn FnMut(&[String]) -> Result<Expr, String>) -> Result<Expr, String> {
        let mut of = |expr: &Expr| expr.bind(bind).map(Box::new);
        Ok(match self {
            Expr::Column(path) => return bind(path),
            Expr::Literal(_) | Expr::Slot(_) => self.clone(),
            Expr::Not(a) => Expr::Not(of(a)?),
            Expr::IsNull(a) => Expr::IsNull(of(a)?),
            Expr::Like(a, pattern) => Expr::Like(of(a)?, pattern.clone()),
            Expr::Negative(a) => Expr::Negative(of(a)?),
            Expr::Cast(a, kind) => Expr::Cast(of(a)?, kind.clone()),
            Expr::And(a, b) => Expr::And(of(a)?, of(b)?),
            Expr::Or(a, b) => Expr::Or(of(a)?, of(b)?),
            Expr::Compare(how, a, b) => Expr::Compare(*how, of(a)?, of(b)?),
            Expr::Arithmetic(how, a, b) => Expr::Arithmetic(*how, of(a)?, of(b)?),
            Expr::In(a, list) => {
                let a = of(a)?;
                Expr::In(a, list.iter().map(|one| one.bind(bind)).collect::<Result<_, _>>()?)
            }
            Expr::Call(name, list) => {
                Expr::Call(name.clone(), list.iter().map(|one| one.bind(bind)).collect::<Result<_, _>>()?)
            }
            Expr::Case(branches, other) => {
                let mut bound = Vec::new();
                for (when, then) in branches {
                    bound.push((when.bind(bind)?, then.bind(bind)?));
                }
                let other = match other {
                    Some(other) => Some(Box::new(other.bind(bind)?)),
                    None => None,
                };
                Expr::Case(bound, other)
            }
        })
    }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
}

type Parsed = Result<Expr, String>;

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Result<Token, String> {
        let token = self.tokens.get(self.at).cloned().ok_or("the expression ends too early")?;
        self.at += 1;
        Ok(token)
    }

    fn is_word(&self, ahead: usize, word: &str) -> bool {
        self.tokens.get(self.at + ahead).is_some_and(|token| token.is_word(word))
    }

    fn take_word(&mut self, word: &str) -> bool {
        let found = self.is_word(0, word);
        self.at += usize::from(found);
        found
    }

    fn take_symbol(&mut self, sign: &str) -> bool {
        let found = self.peek().is_some_and(|token| token.is_symbol(sign));
        self.at += usize::from(found);
        found
    }

    fn expect_symbol(&mut self, sign: &str) -> Result<(), String> {
        if self.take_symbol(sign) { Ok(()) } else { Err(self.unexpected(sign)) }
    }

    fn expect_word(&mut self, word: &str) -> Result<(), String> {
        if self.take_word(word) { Ok(()) } else { Err(self.unexpected(word)) }
    }

    fn unexpected(&self, wanted: &str) -> String {
        match self.peek() {
            Some(token) => format!("`{wanted}` is expected, not {token}"),
            None => format!("`{wanted}` is missing at the end"),
        }
    }

    fn or(&mut self) -> Parsed {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(format!("it is nested deeper than {DEPTH_MAX} levels"));
        }
        let mut left = self.and()?;
        while self.take_word("OR") {
            left = Expr::Or(Box::new(left), Box::new(self.and()?));
        }
        self.depth -= 1;
        Ok(left)
    }

    fn and(&mut self) -> Parsed {
        let mut left = self.not()?;
        while self.take_word("AND") {
            left = Expr::And(Box::new(left), Box::new(self.not()?));
        }
        Ok(left)
    }

    fn not(&mut self) -> Parsed {
        let mut times = 0;
        while self.take_word("NOT") || self.take_symbol("!") {
            times += 1;
        }
        let inner = self.predicate()?;
        Ok(match times {
            0 => inner,
            even if even % 2 == 0 => Expr::Not(Box::new(Expr::Not(Box::new(inner)))),
            _ => Expr::Not(Box::new(inner)),
        })
    }

    fn predicate(&mut self) -> Parsed {
        let mut left = self.sum()?;
        loop {
            let negates = usize::from(self.is_word(0, "NOT"));
            let is_predicate =
                ["IN", "BETWEEN", "LIKE"].iter().any(|word| self.is_word(negates, word)) || self.is_word(0, "IS");
            if is_predicate {
                left = self.word_predicate(left)?;
            } else if let Some(how) = self.comparison() {
                left = Expr::Compare(how, Box::new(left), Box::new(self.sum()?));
            } else {
                return Ok(left);
            }
        }
    }

    fn comparison(&mut self) -> Option<Comparison> {
        let how = Comparison::of_token(self.peek()?)?;
        self.at += 1;
        Some(how)
    }

    /// IS [NOT] NULL, TRUE, FALSE; [NOT] IN, BETWEEN, LIKE.
    fn word_predicate(&mut self, left: Expr) -> Parsed {
        let left = Box::new(left);
        if self.take_word("IS") {
            let negates = self.take_word("NOT");
            let inner = if self.take_word("NULL") {
                Expr::IsNull(left)
            } else if self.is_word(0, "TRUE") || self.is_word(0, "FALSE") {
                let flag = self.take_word("TRUE") || !self.take_word("FALSE");
                let literal = Expr::Literal(Some(Datum::Flag(flag)));
                Expr::Compare(Comparison::NullSafeEqual, left, Box::new(literal))
            } else {
                return Err(self.unexpected("NULL"));
            };
            return Ok(negated(negates, inner));
        }
        let negates = self.take_word("NOT");
        if self.take_word("IN") {
            self.expect_symbol("(")?;
            return Ok(negated(negates, Expr::In(left, self.list()?)));
        }
        if self.take_word("BETWEEN") {
            let low = self.sum()?;
            self.expect_word("AND")?;
            let high = self.sum()?;
            let from = Expr::Compare(Comparison::GreaterOrEqual, left.clone(), Box::new(low));
            let to = Expr::Compare(Comparison::LessOrEqual, left, Box::new(high));
            return Ok(negated(negates, Expr::And(Box::new(from), Box::new(to))));
        }
        self.expect_word("LIKE")?;
        match self.next()? {
            Token::Text(Some(pattern)) if !self.is_word(0, "ESCAPE") => Ok(negated(negates, Expr::Like(left, pattern))),
            other => Err(format!("LIKE with {other} is not understood")),
        }
    }

    /// Up to and with the closing parenthesis.
    fn list(&mut self) -> Result<Vec<Expr>, String> {
        let mut list = Vec::new();
        if self.take_symbol(")") {
            return Ok(list);
        }
        loop {
            list.push(self.or()?);
            if self.take_symbol(")") {
                return Ok(list);
            }
            self.expect_symbol(",")?;
        }
    }

    fn sum(&mut self) -> Parsed {
        let mut left = self.product()?;
        loop {
            let how = match self.peek() {
                Some(Token::Symbol("+")) => Arithmetic::Add,
                Some(Token::Symbol("-")) => Arithmetic::Subtract,
                Some(Token::Symbol("||")) => {
                    self.at += 1;
                    left = Expr::Call("concat".to_owned(), vec![left, self.product()?]);
                    continue;
                }
                _ => return Ok(left),
            };
            self.at += 1;
            left = Expr::Arithmetic(how, Box::new(left), Box::new(self.product()?));
        }
    }

    fn product(&mut self) -> Parsed {
        let mut left = self.unary()?;
        loop {
            let how = match self.peek() {
                Some(Token::Symbol("*")) => Arithmetic::Multiply,
                Some(Token::Symbol("/")) => Arithmetic::Divide,
                Some(Token::Symbol("%")) => Arithmetic::Remainder,
                _ => return Ok(left),
            };
            self.at += 1;
            left = Expr::Arithmetic(how, Box::new(left), Box::new(self.unary()?));
        }
    }

    fn unary(&mut self) -> Parsed {
        let mut negates = false;
        loop {
            if self.take_symbol("-") {
                negates = !negates;
            } else if !self.take_symbol("+") {
                break;
            }
        }
        let inner = self.primary()?;
        Ok(if negates { Expr::Negative(Box::new(inner)) } else { inner })
    }

    fn primary(&mut self) -> Parsed {
        match self.next()? {
            Token::Symbol("(") => {
                let inner = self.or()?;
                self.expect_symbol(")")?;
                Ok(inner)
            }
            Token::Number(digits, suffix) => {
                let number = literal::number(&digits, &suffix);
                let number = number.ok_or_else(|| format!("`{digits}{suffix}` is no number that is understood"))?;
                Ok(Expr::Literal(Some(number)))
            }
            Token::Text(Some(text)) => Ok(Expr::Literal(Some(Datum::Text(text)))),
            Token::Word(word) => self.word(&word),
            Token::Name(name) => self.column(name),
            other => Err(format!("{other} is not understood here")),
        }
    }

    fn word(&mut self, word: &str) -> Parsed {
        let upper = word.to_ascii_uppercase();
        match upper.as_str() {
            "TRUE" => return Ok(Expr::Literal(Some(Datum::Flag(true)))),
            "FALSE" => return Ok(Expr::Literal(Some(Datum::Flag(false)))),
            "NULL" => return Ok(Expr::Literal(None)),
            "CASE" => return self.case(),
            "DATE" | "TIMESTAMP" | "TIMESTAMP_NTZ" if matches!(self.peek(), Some(Token::Text(Some(_)))) => {
                let Token::Text(Some(text)) = self.next()? else { return Err(self.unexpected("a text")) };
                let kind = match upper.as_str() {
                    "DATE" => Primitive::Date,
                    "TIMESTAMP" => Primitive::Timestamp,
                    _ => Primitive::TimestampNtz,
                };
                return Ok(Expr::Cast(Box::new(Expr::Literal(Some(Datum::Text(text)))), kind));
            }
            "CAST" | "TRY_CAST" if self.take_symbol("(") => {
                let inner = Box::new(self.or()?);
                self.expect_word("AS")?;
                let kind = self.type_name()?;
                self.expect_symbol(")")?;
                return Ok(Expr::Cast(inner, kind));
            }
            "AND" | "OR" | "NOT" | "IN" | "IS" | "BETWEEN" | "LIKE" | "THEN" | "ELSE" | "WHEN" | "END" | "INTERVAL"
            | "SELECT" | "EXISTS" | "RLIKE" | "REGEXP" => return Err(format!("`{word}` is not understood here")),
            _ => {}
        }
        if self.take_symbol("(") {
            return Ok(Expr::Call(word.to_ascii_lowercase(), self.list()?));
        }
        self.column(word.to_owned())
    }

    fn column(&mut self, first: String) -> Parsed {
        let mut path = vec![first];
        while self.take_symbol(".") {
            match self.next()? {
                Token::Word(name) | Token::Name(name) => path.push(name),
                other => return Err(format!("{other} is no name of a field")),
            }
        }
        Ok(Expr::Column(path))
    }

    fn case(&mut self) -> Parsed {
        let operand = if self.is_word(0, "WHEN") { None } else { Some(self.or()?) };
        let mut branches = Vec::new();
        while self.take_word("WHEN") {
            let when = self.or()?;
            let when = match &operand {
                Some(operand) => Expr::Compare(Comparison::Equal, Box::new(operand.clone()), Box::new(when)),
                None => when,
            };
            self.expect_word("THEN")?;
            branches.push((when, self.or()?));
        }
        let other = if self.take_word("ELSE") { Some(Box::new(self.or()?)) } else { None };
        self.expect_word("END")?;
        Ok(Expr::Case(branches, other))
    }

    fn type_name(&mut self) -> Result<Primitive, String> {
        let Token::Word(word) = self.next()? else { return Err(self.unexpected("a type")) };
        let mut name = match word.to_ascii_lowercase().as_str() {
            "int" => "integer".to_owned(),
            "bigint" => "long".to_owned(),
            "smallint" => "short".to_owned(),
            "tinyint" => "byte".to_owned(),
            "real" => "float".to_owned(),
            "varchar" | "text" => "string".to_owned(),
            "dec" | "numeric" => "decimal".to_owned(),
            other => other.to_owned(),
        };
        if self.take_symbol("(") {
            let mut parts = Vec::new();
            for part in self.list()? {
                match part {
                    Expr::Literal(Some(Datum::Int(number))) => parts.push(number.to_string()),
                    _ => return Err("a type's lengths must be numbers".to_owned()),
                }
            }
            if name == "decimal" {
                let scale = parts.get(1).map_or("0", String::as_str);
                name = format!("decimal({},{scale})", parts.first().map_or("10", String::as_str));
            }
        }
        match named_type(&name) {
            Some(DataType::Primitive(kind)) => Ok(kind),
            _ => Err(format!("the type `{word}` is not known")),
        }
    }
}

fn negated(negates: bool, inner: Expr) -> Expr {
    if negates { Expr::Not(Box::new(inner)) } else { inner }
}

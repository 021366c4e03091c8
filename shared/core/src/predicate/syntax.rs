//! What a text says, before anything is known of keys and types.

/// An expression as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Syntax {
    All(Vec<Syntax>),
    Any(Vec<Syntax>),
    Not(Box<Syntax>),
    Test(Box<Test>),
}

/// One predicate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Test {
    pub subject: Operand,
    pub kind: TestKind,
    /// NOT IN, NOT BETWEEN, NOT LIKE, IS NOT NULL.
    pub is_negated: bool,
    /// As written, blanks aside.
    pub shown: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TestKind {
    Compare(Comparison, Operand),
    In(Vec<Operand>),
    Between(Operand, Operand),
    Like { pattern: Operand, escape: Option<Operand> },
    IsNull,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

impl Comparison {
    /// `2 < k` is `k > 2`.
    pub(super) fn mirrored(self) -> Self {
        match self {
            Self::Equal | Self::NotEqual => self,
            Self::Less => Self::Greater,
            Self::AtMost => Self::AtLeast,
            Self::Greater => Self::Less,
            Self::AtLeast => Self::AtMost,
        }
    }

    pub(super) fn negated(self) -> Self {
        match self {
            Self::Equal => Self::NotEqual,
            Self::NotEqual => Self::Equal,
            Self::Less => Self::AtLeast,
            Self::AtMost => Self::Greater,
            Self::Greater => Self::AtMost,
            Self::AtLeast => Self::Less,
        }
    }
}

/// One side of a predicate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Operand {
    pub kind: OperandKind,
    /// Where it stands, in bytes.
    pub start: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OperandKind {
    Name(String),
    /// In double quotes: a name if a key has it.
    Quoted(String),
    /// A literal: what it says.
    Literal(String),
    /// TRUE or FALSE: a literal, or the name of a key if it stands first.
    Boolean(String),
    /// NULL, likewise.
    Null(String),
}

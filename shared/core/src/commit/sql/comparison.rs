use super::tokens::Token;

/// How two values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// `<=>`, IS NOT DISTINCT FROM: equal, or both null.
    NullSafeEqual,
}

impl Comparison {
    /// The comparison that a sign stands for.
    pub fn of_token(token: &Token) -> Option<Comparison> {
        let Token::Symbol(symbol) = token else { return None };
        Some(match *symbol {
            "=" | "==" => Comparison::Equal,
            "<>" | "!=" => Comparison::NotEqual,
            "<" => Comparison::Less,
            "<=" => Comparison::LessOrEqual,
            ">" => Comparison::Greater,
            ">=" => Comparison::GreaterOrEqual,
            "<=>" => Comparison::NullSafeEqual,
            _ => return None,
        })
    }

    /// The comparison with its sides exchanged.
    pub fn flipped(self) -> Comparison {
        match self {
            Comparison::Less => Comparison::Greater,
            Comparison::LessOrEqual => Comparison::GreaterOrEqual,
            Comparison::Greater => Comparison::Less,
            Comparison::GreaterOrEqual => Comparison::LessOrEqual,
            other => other,
        }
    }

    /// What holds of two values, none of them null, where this does not.
    pub fn opposite(self) -> Comparison {
        match self {
            Comparison::Equal | Comparison::NullSafeEqual => Comparison::NotEqual,
            Comparison::NotEqual => Comparison::Equal,
            Comparison::Less => Comparison::GreaterOrEqual,
            Comparison::LessOrEqual => Comparison::Greater,
            Comparison::Greater => Comparison::LessOrEqual,
            Comparison::GreaterOrEqual => Comparison::Less,
        }
    }
}

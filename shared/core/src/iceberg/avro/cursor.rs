use super::AvroError;

/// Reads Avro's primitives from a block. Every step costs from a budget, so that schemas whose values take no bytes
/// cannot keep the reader busy for ever.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
    steps_left: u64,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        Self { rest: bytes, steps_left: size.saturating_mul(256).saturating_add(1_000_000) }
    }

    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Accounts for the visit of one value.
    pub(super) fn step(&mut self) -> Result<(), AvroError> {
        self.steps_left = self
            .steps_left
            .checked_sub(1)
            .ok_or_else(|| AvroError::Corrupt("far more values than bytes".to_owned()))?;
        Ok(())
    }

    pub(super) fn take(&mut self, length: usize, what: &'static str) -> Result<&'a [u8], AvroError> {
        let (head, tail) = self.rest.split_at_checked(length).ok_or(AvroError::Truncated(what))?;
        self.rest = tail;
        Ok(head)
    }

    /// Zigzag varint of up to ten bytes; `int` and `long` have the same encoding.
    pub(super) fn long(&mut self) -> Result<i64, AvroError> {
        // Most numbers are lengths, counts and keys of one byte.
        match self.rest.split_first() {
            Some((byte, rest)) if byte & 0x80 == 0 => {
                self.rest = rest;
                Ok(i64::from(byte >> 1) ^ -i64::from(byte & 1))
            }
            _ => self.long_of_many(),
        }
    }

    fn long_of_many(&mut self) -> Result<i64, AvroError> {
        let mut bits: u64 = 0;
        for shift in (0..70).step_by(7) {
            let byte = u64::from(self.take(1, "a number")?.first().copied().unwrap_or_default());
            if shift == 63 && byte > 1 {
                break;
            }
            bits |= (byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok((bits >> 1) as i64 ^ -((bits & 1) as i64));
            }
        }
        Err(AvroError::Corrupt("a number of more than 64 bits".to_owned()))
    }

    /// Gets past a number; refuses what [`Cursor::long`] refuses.
    pub(super) fn skip_long(&mut self) -> Result<(), AvroError> {
        // Nine bytes have 63 bits at most, so only longer ones need a look.
        match self.rest.iter().take(9).position(|byte| byte & 0x80 == 0) {
            Some(last) => {
                self.rest = self.rest.get(last + 1..).unwrap_or_default();
                Ok(())
            }
            None => self.long_of_many().map(|_| ()),
        }
    }

    /// A length that must fit into what is left.
    pub(super) fn length(&mut self, what: &'static str) -> Result<usize, AvroError> {
        let length = self.long()?;
        usize::try_from(length).map_err(|_| AvroError::Corrupt(format!("{what} has the length {length}")))
    }

    pub(super) fn bytes(&mut self, what: &'static str) -> Result<&'a [u8], AvroError> {
        let length = self.length(what)?;
        self.take(length, what)
    }

    pub(super) fn text(&mut self) -> Result<&'a str, AvroError> {
        std::str::from_utf8(self.bytes("a text")?).map_err(|_| AvroError::Corrupt("a text is not UTF-8".to_owned()))
    }

    /// Header of a block of an array or map: how many items follow, or how many bytes to jump over.
    pub(super) fn block(&mut self) -> Result<Block, AvroError> {
        let count = self.long()?;
        if count == 0 {
            return Ok(Block::End);
        }
        if count < 0 {
            return Ok(Block::Sized { count: count.unsigned_abs(), bytes: self.length("a block of a collection")? });
        }
        Ok(Block::Items(count.unsigned_abs()))
    }
}

/// Header of a block of an array or map.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Block {
    End,
    Items(u64),
    /// The writer told the size, so the block can be jumped over.
    Sized {
        count: u64,
        bytes: usize,
    },
}

//! Whether a page holds what its header claims, as far as the Parquet crate takes it for granted: where a text, a level or
//! an index of a dictionary would lie outside, it panics.

use parquet::basic::{Encoding, Type as Physical};
use parquet::column::page::Page;
use parquet::schema::types::ColumnDescPtr;

/// Looks pages of one column over, in their order.
pub(super) struct Sound {
    physical: Physical,
    max_rep: i16,
    max_def: i16,
    /// Entries of the column's dictionary.
    dictionary: usize,
}

impl Sound {
    pub fn new(column: &ColumnDescPtr) -> Sound {
        Sound {
            physical: column.physical_type(),
            max_rep: column.max_rep_level(),
            max_def: column.max_def_level(),
            dictionary: 0,
        }
    }

    /// `None`: the page must not be decoded.
    pub fn check(&mut self, page: &Page) -> Option<()> {
        match page {
            Page::DictionaryPage { buf, num_values, .. } => {
                self.dictionary = size(*num_values)?;
                self.plain(buf, self.dictionary)
            }
            Page::DataPage { buf, num_values, encoding, def_level_encoding, rep_level_encoding, .. } => {
                let (mut rest, count) = (buf.as_ref(), size(*num_values)?);
                if self.max_rep > 0 {
                    let levels = framed(&mut rest, *rep_level_encoding)?;
                    equal_to(levels, width_of(self.max_rep), count, self.max_rep)?;
                }
                let mut present = count;
                if self.max_def > 0 {
                    let levels = framed(&mut rest, *def_level_encoding)?;
                    present = equal_to(levels, width_of(self.max_def), count, self.max_def)?;
                }
                self.values(rest, *encoding, present)
            }
            Page::DataPageV2 { buf, num_values, encoding, def_levels_byte_len, rep_levels_byte_len, .. } => {
                let count = size(*num_values)?;
                let (reps, rest) = buf.split_at_checked(size(*rep_levels_byte_len)?)?;
                let (defs, rest) = rest.split_at_checked(size(*def_levels_byte_len)?)?;
                if self.max_rep > 0 {
                    equal_to(reps, width_of(self.max_rep), count, self.max_rep)?;
                }
                let mut present = count;
                if self.max_def > 0 {
                    present = equal_to(defs, width_of(self.max_def), count, self.max_def)?;
                }
                self.values(rest, *encoding, present)
            }
        }
    }

    fn values(&self, bytes: &[u8], encoding: Encoding, count: usize) -> Option<()> {
        match encoding {
            Encoding::PLAIN => self.plain(bytes, count),
            Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY => {
                if count == 0 && bytes.is_empty() {
                    return None;
                }
                let (width, rest) = bytes.split_first()?;
                if *width > 32 {
                    return None;
                }
                let (mut runs, mut seen) = (Runs { rest, width: *width }, 0_usize);
                while seen < count {
                    let run = runs.next()?;
                    let used = run.count.min(count.saturating_sub(seen));
                    if !run.holds(used)
                        || run.values().take(used).any(|index| size(index).is_none_or(|index| index >= self.dictionary))
                    {
                        return None;
                    }
                    seen = seen.saturating_add(run.count);
                }
                Some(())
            }
            // Booleans: framed like levels.
            Encoding::RLE if self.physical == Physical::BOOLEAN => {
                let mut rest = bytes;
                let framed = framed(&mut rest, Encoding::RLE)?;
                equal_to(framed, 1, count, 1).map(|_| ())
            }
            // These look after themselves.
            _ => Some(()),
        }
    }

    fn plain(&self, bytes: &[u8], count: usize) -> Option<()> {
        let width = match self.physical {
            Physical::BOOLEAN => return (bytes.len() >= count.div_ceil(8)).then_some(()),
            Physical::INT32 => 4,
            Physical::INT64 => 8,
            Physical::BYTE_ARRAY => {
                let mut rest = bytes;
                for _ in 0..count {
                    let (length, after) = rest.split_first_chunk::<4>()?;
                    rest = after.get(size(u32::from_le_bytes(*length))?..)?;
                }
                return Some(());
            }
            _ => return None,
        };
        (bytes.len() >= count.checked_mul(width)?).then_some(())
    }
}

fn size(number: u32) -> Option<usize> {
    usize::try_from(number).ok()
}

/// Bits that hold the numbers up to `max`.
fn width_of(max: i16) -> u8 {
    u8::try_from(16_u32.saturating_sub(max.unsigned_abs().leading_zeros())).unwrap_or(16)
}

/// Levels with their length before them; the old encoding without one is read by nobody any more.
fn framed<'a>(rest: &mut &'a [u8], encoding: Encoding) -> Option<&'a [u8]> {
    if encoding != Encoding::RLE {
        return None;
    }
    let (length, after) = rest.split_first_chunk::<4>()?;
    let (levels, after) = after.split_at_checked(size(u32::from_le_bytes(*length))?)?;
    *rest = after;
    Some(levels)
}

/// How many of the first `count` levels are `wanted`; `None` if there are fewer, or one is larger.
fn equal_to(levels: &[u8], width: u8, count: usize, wanted: i16) -> Option<usize> {
    let wanted = u32::try_from(wanted).ok()?;
    let (mut runs, mut seen, mut found) = (Runs { rest: levels, width }, 0_usize, 0_usize);
    while seen < count {
        let run = runs.next()?;
        let used = run.count.min(count.saturating_sub(seen));
        if !run.holds(used) {
            return None;
        }
        for value in run.values().take(used) {
            if value > wanted {
                return None;
            }
            found += usize::from(value == wanted);
        }
        seen = seen.saturating_add(run.count);
    }
    Some(found)
}

/// Runs of the hybrid of run lengths and packed bits.
struct Runs<'a> {
    rest: &'a [u8],
    width: u8,
}

/// Equal numbers, or packed ones.
struct Run<'a> {
    count: usize,
    width: u8,
    repeated: Option<u32>,
    packed: &'a [u8],
}

impl<'a> Runs<'a> {
    fn next(&mut self) -> Option<Run<'a>> {
        let header = self.header()?;
        let (count, width) = (usize::try_from(header >> 1).ok()?, usize::from(self.width));
        if count == 0 {
            return None;
        }
        if header & 1 == 0 {
            let (bytes, rest) = self.rest.split_at_checked(width.div_ceil(8))?;
            self.rest = rest;
            let value = bytes.iter().rev().fold(0_u32, |value, byte| (value << 8) | u32::from(*byte));
            return Some(Run { count, width: self.width, repeated: Some(value), packed: &[] });
        }
        // Some writers cut the padding of the last group off.
        let (packed, rest) = self.rest.split_at_checked(count.checked_mul(width)?.min(self.rest.len()))?;
        self.rest = rest;
        Some(Run { count: count.checked_mul(8)?, width: self.width, repeated: None, packed })
    }

    fn header(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for place in 0..5 {
            let (byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

impl Run<'_> {
    /// Whether the first `count` numbers are there.
    fn holds(&self, count: usize) -> bool {
        self.repeated.is_some() || count.saturating_mul(usize::from(self.width)) <= self.packed.len().saturating_mul(8)
    }

    fn values(&self) -> impl Iterator<Item = u32> {
        let repeated = self.repeated.map(|value| std::iter::repeat_n(value, self.count));
        let width = usize::from(self.width);
        let packed = (0..if self.repeated.is_none() { self.count } else { 0 }).map(move |index| {
            let first = index * width;
            (0..width).fold(0_u32, |value, bit| {
                let at = first + bit;
                let byte = self.packed.get(at / 8).copied().unwrap_or(0);
                value | (u32::from(byte >> (at % 8) & 1) << bit)
            })
        });
        repeated.into_iter().flatten().chain(packed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_counted_and_not_believed() {
        // Five times 1, then the bits 1, 0, 1, 1 of a group of eight.
        let levels = [5 << 1, 1, (1 << 1) | 1, 0b1101];
        assert_eq!(equal_to(&levels, 1, 9, 1), Some(8));
        assert_eq!(equal_to(&levels, 1, 13, 1), Some(8));
        assert_eq!(equal_to(&levels, 1, 14, 1), None, "there are 13");
        assert_eq!(equal_to(&[1 << 1, 3], 2, 1, 1), None, "a level above the highest");
        assert_eq!(equal_to(&[0xff; 9], 1, 1, 1), None, "a header without an end");
        assert_eq!(equal_to(&[0, 1], 1, 1, 1), None, "an empty run");
        // Eight numbers of three bits, of which the last byte was cut off.
        let cut = [(1 << 1) | 1, 0b1000_1000, 0b1100_0110];
        assert_eq!((equal_to(&cut, 3, 5, 7), equal_to(&cut, 3, 6, 7)), (Some(0), None));
        assert_eq!((width_of(1), width_of(2), width_of(3), width_of(4)), (1, 2, 2, 3));
    }
}

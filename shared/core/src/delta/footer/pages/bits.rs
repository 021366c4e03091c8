//! Numbers of a few bits each, alone and in runs.

use super::{PagesError, Result, cut_off, damaged};

/// A length in four bytes, and as many bytes; then what follows.
pub(in crate::delta) fn framed(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, after) = bytes.split_first_chunk::<4>()?;
    after.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)
}

/// The number of `width` bits (at most 64) at `index` of a packed list.
pub(super) fn packed(bytes: &[u8], width: usize, index: usize) -> Option<u64> {
    if width == 0 {
        return Some(0);
    }
    let first = index.checked_mul(width)?;
    let (start, shift) = (first / 8, first % 8);
    let needed = (shift + width).div_ceil(8);
    let part = bytes.get(start..start.checked_add(needed)?)?;
    let mut window = [0_u8; 16];
    window.get_mut(..needed)?.copy_from_slice(part);
    let value = u128::from_le_bytes(window) >> shift;
    let mask = if width >= 64 { u128::from(u64::MAX) } else { (1 << width) - 1 };
    u64::try_from(value & mask).ok()
}

/// Bits that hold the numbers up to `max`.
fn width_of(max: i16) -> u8 {
    u8::try_from(16_u32.saturating_sub(max.unsigned_abs().leading_zeros())).unwrap_or(16)
}

/// Equal numbers in a run, or packed ones in groups of eight.
#[derive(Clone, Debug)]
pub(in crate::delta) struct Runs<'a> {
    rest: &'a [u8],
    width: u8,
    run: Run<'a>,
}

#[derive(Clone, Debug)]
enum Run<'a> {
    Equal { value: u32, left: usize },
    Packed { bytes: &'a [u8], at: usize, count: usize },
}

impl<'a> Runs<'a> {
    /// `width` is at most 32.
    pub fn new(rest: &'a [u8], width: u8) -> Result<Runs<'a>> {
        match width {
            0..=32 => Ok(Runs { rest, width, run: Run::Equal { value: 0, left: 0 } }),
            _ => Err(damaged("numbers of more than 32 bits")),
        }
    }

    pub fn of_levels(rest: &'a [u8], max: i16) -> Runs<'a> {
        Runs { rest, width: width_of(max), run: Run::Equal { value: 0, left: 0 } }
    }

    /// `None`: there are no more.
    pub fn next(&mut self) -> Option<u32> {
        loop {
            match &mut self.run {
                Run::Equal { value, left } if *left > 0 => {
                    *left -= 1;
                    return Some(*value);
                }
                Run::Packed { bytes, at, count } if *at < *count => {
                    let value = packed(bytes, usize::from(self.width), *at)?;
                    *at += 1;
                    return u32::try_from(value).ok();
                }
                _ => self.run = self.next_run()?,
            }
        }
    }

    fn next_run(&mut self) -> Option<Run<'a>> {
        let header = self.header()?;
        let (count, width) = (usize::try_from(header >> 1).ok()?, usize::from(self.width));
        // The Parquet crate, which decodes some of what is looked through here, takes an empty run for the end.
        if count == 0 {
            return None;
        }
        if header & 1 == 0 {
            let (bytes, rest) = self.rest.split_at_checked(width.div_ceil(8))?;
            self.rest = rest;
            let value = bytes.iter().rev().fold(0_u32, |value, byte| (value << 8) | u32::from(*byte));
            return Some(Run::Equal { value, left: count });
        }
        // Some writers cut the padding of the last group off.
        let (bytes, rest) = self.rest.split_at_checked(count.checked_mul(width)?.min(self.rest.len()))?;
        self.rest = rest;
        Some(Run::Packed { bytes, at: 0, count: count.checked_mul(8)? })
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

    /// Looks through `count` levels: how many are `wanted`. `None`: there are fewer, or one is above `max`.
    pub fn count(mut self, count: usize, wanted: i16, max: i16) -> Option<usize> {
        let (wanted, max) = (u32::try_from(wanted).ok()?, u32::try_from(max).ok()?);
        let (mut seen, mut found) = (0, 0);
        while seen < count {
            let (level, times) = match &mut self.run {
                Run::Equal { value, left } if *left > 0 => {
                    let times = (*left).min(count - seen);
                    *left -= times;
                    (*value, times)
                }
                _ => (self.next()?, 1),
            };
            if level > max {
                return None;
            }
            seen += times;
            found += if level == wanted { times } else { 0 };
        }
        Some(found)
    }
}

/// A list of integers as their differences (DELTA_BINARY_PACKED).
#[derive(Debug)]
pub(super) struct Deltas<'a> {
    rest: &'a [u8],
    block: usize,
    minis: usize,
    /// Values not given yet.
    left: usize,
    value: i64,
    is_first: bool,
    least: i64,
    widths: &'a [u8],
    mini: &'a [u8],
    mini_width: usize,
    at: usize,
    in_mini: usize,
}

/// Values in one block; writers use 128, and a few thousand at most.
const BLOCK_MAX: usize = 1 << 20;

impl<'a> Deltas<'a> {
    /// `count`: how many there must be.
    pub fn new(bytes: &'a [u8], count: usize) -> Result<Deltas<'a>> {
        let mut rest = bytes;
        let mut size = || varint(&mut rest).and_then(|size| usize::try_from(size).ok()).ok_or_else(cut_off);
        let (block, minis, total) = (size()?, size()?, size()?);
        let is_whole = minis > 0 && block <= BLOCK_MAX && block > 0 && block.is_multiple_of(minis);
        if !is_whole || !(block / minis.max(1)).is_multiple_of(8) {
            return Err(damaged("blocks of differences that cannot be"));
        }
        if total != count {
            return Err(cut_off());
        }
        let value = zigzag(&mut rest).ok_or_else(cut_off)?;
        Ok(Deltas {
            rest,
            block,
            minis,
            left: total,
            value,
            is_first: true,
            least: 0,
            widths: &[],
            mini: &[],
            mini_width: 0,
            at: 0,
            in_mini: 0,
        })
    }

    pub fn next(&mut self) -> Result<i64> {
        self.left = self.left.checked_sub(1).ok_or_else(cut_off)?;
        if std::mem::take(&mut self.is_first) {
            return Ok(self.value);
        }
        if self.at >= self.in_mini {
            self.next_mini()?;
        }
        let packed = packed(self.mini, self.mini_width, self.at).ok_or_else(cut_off)?;
        self.at += 1;
        self.value = self.value.wrapping_add(self.least).wrapping_add(packed.cast_signed());
        Ok(self.value)
    }

    fn next_mini(&mut self) -> Result<()> {
        if self.widths.is_empty() {
            self.least = zigzag(&mut self.rest).ok_or_else(cut_off)?;
            (self.widths, self.rest) = self.rest.split_at_checked(self.minis).ok_or_else(cut_off)?;
        }
        let (width, widths) = self.widths.split_first().ok_or_else(cut_off)?;
        self.widths = widths;
        if *width > 64 {
            return Err(damaged("differences of more than 64 bits"));
        }
        (self.mini_width, self.in_mini, self.at) = (usize::from(*width), self.block / self.minis, 0);
        // The last one may be cut where its values end.
        let length = (self.in_mini / 8).saturating_mul(self.mini_width).min(self.rest.len());
        (self.mini, self.rest) = self.rest.split_at_checked(length).ok_or_else(cut_off)?;
        Ok(())
    }

    /// All of them as lengths, and what follows.
    pub fn lengths(mut self) -> Result<(Vec<usize>, &'a [u8])> {
        let mut lengths = Vec::new();
        while self.left > 0 {
            lengths.push(usize::try_from(self.next()?).map_err(|_| damaged("a length below zero"))?);
        }
        Ok((lengths, self.rest))
    }
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn zigzag(rest: &mut &[u8]) -> Option<i64> {
    let value = varint(rest)?;
    Some((value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
}

impl From<super::super::guard::Unsafe> for PagesError {
    fn from(reason: super::super::guard::Unsafe) -> Self {
        damaged(reason.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_counted_and_not_believed() {
        let full = |levels: &[u8], max: i16, count: usize| Runs::of_levels(levels, max).count(count, max, max);
        // Five times 1, then the bits 1, 0, 1, 1 of a group of eight.
        let levels = [5 << 1, 1, (1 << 1) | 1, 0b1101];
        assert_eq!(full(&levels, 1, 9), Some(8));
        assert_eq!(full(&levels, 1, 13), Some(8));
        assert_eq!(full(&levels, 1, 14), None, "there are 13");
        assert_eq!(full(&[1 << 1, 3], 2, 1), None, "a level above the highest");
        assert_eq!(full(&[0xff; 9], 1, 1), None, "a header without an end");
        assert_eq!(full(&[0, 1], 1, 1), None, "an empty run");
        // Eight numbers of three bits, of which the last byte was cut off.
        let cut = [(1 << 1) | 1, 0b1000_1000, 0b1100_0110];
        assert_eq!((full(&cut, 7, 5), full(&cut, 7, 6)), (Some(0), None));
        assert_eq!((width_of(1), width_of(2), width_of(3), width_of(4)), (1, 2, 2, 3));
    }
}

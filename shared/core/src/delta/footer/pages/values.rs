//! Values of one page, one after the other.

use parquet::basic::Type as Physical;
use parquet::data_type::Int96;

use super::bits::{Deltas, Runs, framed, packed};
use super::header::Encoding;
use super::{PagesError, Result, cut_off, damaged};
use crate::delta::footer::kind::Kind;
use crate::delta::footer::value::{Datum, Raw};

/// The values that pages of a chunk name by their index.
#[derive(Debug)]
pub(super) struct Dictionary(Vec<Datum>);

impl Dictionary {
    pub fn read(mut values: Values<'_>, count: usize, kind: &Kind) -> Result<Dictionary> {
        let mut found = Vec::new();
        for _ in 0..count {
            found.push(values.next(kind)?);
        }
        Ok(Dictionary(found))
    }
}

/// Values that are not null.
pub(super) struct Values<'a> {
    physical: Physical,
    /// Of values of fixed length.
    width: usize,
    source: Source<'a>,
}

enum Source<'a> {
    Plain { rest: &'a [u8] },
    Bits { bytes: &'a [u8], at: usize },
    Indices { runs: Runs<'a>, dictionary: &'a Dictionary },
    Flags(Runs<'a>),
    Deltas(Deltas<'a>),
    Lengths { lengths: std::vec::IntoIter<usize>, rest: &'a [u8] },
    Prefixes { prefixes: std::vec::IntoIter<usize>, lengths: std::vec::IntoIter<usize>, rest: &'a [u8], last: Vec<u8> },
    Split { bytes: &'a [u8], stride: usize, width: usize, at: usize },
}

impl<'a> Values<'a> {
    /// `count` values as they are. More than there are bytes (bits, for booleans) for are refused here.
    pub fn plain(bytes: &'a [u8], count: usize, physical: Physical, width: usize) -> Result<Values<'a>> {
        let least = match physical {
            Physical::BOOLEAN => count.div_ceil(8),
            Physical::FIXED_LEN_BYTE_ARRAY if width == 0 && count > 0 => return Err(damaged("values of no length")),
            other => count.saturating_mul(length_of(other, width).unwrap_or(4)),
        };
        if bytes.len() < least {
            return Err(cut_off());
        }
        let source = match physical {
            Physical::BOOLEAN => Source::Bits { bytes, at: 0 },
            _ => Source::Plain { rest: bytes },
        };
        Ok(Values { physical, width, source })
    }

    pub fn new(
        encoding: Encoding,
        bytes: &'a [u8],
        count: usize,
        (physical, width): (Physical, usize),
        dictionary: &'a Option<Dictionary>,
    ) -> Result<Values<'a>> {
        let is_bytes = matches!(physical, Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY);
        let source = match encoding {
            // Some writers leave nothing where all is null.
            _ if count == 0 => Source::Plain { rest: &[] },
            Encoding::Plain => return Values::plain(bytes, count, physical, width),
            Encoding::Dictionary => {
                let dictionary = dictionary.as_ref().ok_or_else(|| damaged("no dictionary"))?;
                let (width, rest) = bytes.split_first().ok_or_else(cut_off)?;
                Source::Indices { runs: Runs::new(rest, *width)?, dictionary }
            }
            Encoding::Rle if physical == Physical::BOOLEAN => {
                Source::Flags(Runs::new(framed(bytes).ok_or_else(cut_off)?.0, 1)?)
            }
            Encoding::Delta if matches!(physical, Physical::INT32 | Physical::INT64) => {
                Source::Deltas(Deltas::new(bytes, count)?)
            }
            Encoding::DeltaLength if is_bytes => {
                let (lengths, rest) = Deltas::new(bytes, count)?.lengths()?;
                Source::Lengths { lengths: lengths.into_iter(), rest }
            }
            Encoding::DeltaBytes if is_bytes => {
                let (prefixes, rest) = Deltas::new(bytes, count)?.lengths()?;
                let (lengths, rest) = Deltas::new(rest, count)?.lengths()?;
                let (prefixes, lengths) = (prefixes.into_iter(), lengths.into_iter());
                Source::Prefixes { prefixes, lengths, rest, last: Vec::new() }
            }
            Encoding::Split => {
                let width = length_of(physical, width).filter(|width| *width > 0);
                let width = width.ok_or_else(|| damaged("bytes of values without a length are split"))?;
                if bytes.len() != count.saturating_mul(width) {
                    return Err(cut_off());
                }
                Source::Split { bytes, stride: count, width, at: 0 }
            }
            other => return Err(damaged(format!("the encoding {other:?} of {physical} is not known"))),
        };
        Ok(Values { physical, width, source })
    }

    /// The next value, as one of `kind`.
    pub fn next(&mut self, kind: &Kind) -> Result<Datum> {
        let (physical, width) = (self.physical, self.width);
        match &mut self.source {
            Source::Plain { rest } => {
                let length = match length_of(physical, width) {
                    Some(length) => length,
                    None => {
                        let (length, after) = rest.split_first_chunk::<4>().ok_or_else(cut_off)?;
                        *rest = after;
                        usize::try_from(u32::from_le_bytes(*length)).map_err(|_| cut_off())?
                    }
                };
                decode(take(rest, length)?, physical, kind)
            }
            Source::Bits { bytes, at } => {
                let bit = packed(bytes, 1, *at).ok_or_else(cut_off)?;
                *at += 1;
                datum(kind, Raw::Flag(bit == 1))
            }
            Source::Indices { runs, dictionary } => {
                let index = runs.next().and_then(|index| usize::try_from(index).ok()).ok_or_else(cut_off)?;
                dictionary.0.get(index).cloned().ok_or_else(|| damaged("an index beyond the dictionary"))
            }
            Source::Flags(runs) => datum(kind, Raw::Flag(runs.next().ok_or_else(cut_off)? == 1)),
            Source::Deltas(deltas) => {
                let value = deltas.next()?;
                match physical {
                    // Differences of 32 bits wrap around.
                    #[allow(clippy::cast_possible_truncation, reason = "wrapping around is the point")]
                    Physical::INT32 => datum(kind, Raw::Int32(value as i32)),
                    _ => datum(kind, Raw::Int64(value)),
                }
            }
            Source::Lengths { lengths, rest } => {
                let length = lengths.next().ok_or_else(cut_off)?;
                datum(kind, Raw::Bytes(take(rest, length)?))
            }
            Source::Prefixes { prefixes, lengths, rest, last } => {
                let (prefix, length) = prefixes.next().zip(lengths.next()).ok_or_else(cut_off)?;
                if prefix > last.len() {
                    return Err(damaged("a value that begins like no value before it"));
                }
                last.truncate(prefix);
                last.extend_from_slice(take(rest, length)?);
                datum(kind, Raw::Bytes(last))
            }
            Source::Split { bytes, stride, width, at } => {
                let value: Option<Vec<u8>> = (0..*width).map(|part| bytes.get(*at + part * *stride).copied()).collect();
                *at += 1;
                decode(&value.ok_or_else(cut_off)?, physical, kind)
            }
        }
    }
}

/// Bytes of each value; none where every value tells its own.
fn length_of(physical: Physical, width: usize) -> Option<usize> {
    match physical {
        Physical::BOOLEAN => Some(1),
        Physical::INT32 | Physical::FLOAT => Some(4),
        Physical::INT64 | Physical::DOUBLE => Some(8),
        Physical::INT96 => Some(12),
        Physical::FIXED_LEN_BYTE_ARRAY => Some(width),
        Physical::BYTE_ARRAY => None,
    }
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(length).ok_or_else(cut_off)?;
    *rest = tail;
    Ok(head)
}

fn decode(bytes: &[u8], physical: Physical, kind: &Kind) -> Result<Datum> {
    let four = || bytes.first_chunk::<4>().copied().ok_or_else(cut_off);
    let eight = || bytes.first_chunk::<8>().copied().ok_or_else(cut_off);
    match physical {
        Physical::BOOLEAN => datum(kind, Raw::Flag(bytes.first() == Some(&1))),
        Physical::INT32 => datum(kind, Raw::Int32(i32::from_le_bytes(four()?))),
        Physical::INT64 => datum(kind, Raw::Int64(i64::from_le_bytes(eight()?))),
        Physical::FLOAT => datum(kind, Raw::Float(f32::from_le_bytes(four()?))),
        Physical::DOUBLE => datum(kind, Raw::Double(f64::from_le_bytes(eight()?))),
        Physical::INT96 => {
            let day = bytes.get(8..12).and_then(|day| day.first_chunk::<4>()).ok_or_else(cut_off)?;
            let nanos = u64::from_le_bytes(eight()?);
            let mut value = Int96::new();
            #[allow(clippy::cast_possible_truncation, reason = "the lower half")]
            value.set_data(nanos as u32, (nanos >> 32) as u32, u32::from_le_bytes(*day));
            datum(kind, Raw::Int96(&value))
        }
        Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY => datum(kind, Raw::Bytes(bytes)),
    }
}

fn datum(kind: &Kind, raw: Raw<'_>) -> Result<Datum> {
    Datum::decode(kind, raw).ok_or_else(|| PagesError::Damaged("a value that is none of its type".to_owned()))
}

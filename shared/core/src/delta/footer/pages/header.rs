//! Headers of pages.

use super::super::guard::{LIST, STRUCT, Scan, Unsafe};
use super::{PagesError, Result, damaged};

const TRUE: u8 = 1;
const FALSE: u8 = 2;
const I32: u8 = 5;

/// How values or levels are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Plain,
    Dictionary,
    Rle,
    Delta,
    DeltaLength,
    DeltaBytes,
    Split,
    Other(i64),
}

/// Where the levels of a page are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Levels {
    /// Packed with the values, each list after its length.
    Within,
    /// Before the values, never compressed.
    Before { repetition_bytes: usize, definition_bytes: usize, is_packed: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DataPage {
    /// Values and nulls.
    pub entries: usize,
    pub encoding: Encoding,
    pub definition_encoding: Encoding,
    pub repetition_encoding: Encoding,
    pub levels: Levels,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Data(DataPage),
    Dictionary {
        count: usize,
    },
    /// Of no use here.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub plain_bytes: usize,
    pub packed_bytes: usize,
    pub content: Content,
}

#[derive(Default)]
struct Found {
    kind: Option<i64>,
    plain: Option<i64>,
    packed: Option<i64>,
    /// Members of the header of this kind of page, by their ids.
    parts: [Option<i64>; 8],
}

/// The header at the start of `bytes`, and what follows.
pub(super) fn read_header(bytes: &[u8]) -> Result<(Header, &[u8])> {
    let mut scan = Scan::new(bytes);
    let mut found = Found::default();
    scan.structure(0, &mut |scan, field| {
        match field {
            (1, I32) => found.kind = Some(scan.zigzag()?),
            (2, I32) => found.plain = Some(scan.zigzag()?),
            (3, I32) => found.packed = Some(scan.zigzag()?),
            (5 | 7 | 8, STRUCT) => parts(scan, &mut found.parts)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let content = content(&found)?;
    let header = Header { plain_bytes: size(found.plain)?, packed_bytes: size(found.packed)?, content };
    Ok((header, scan.rest()))
}

fn parts<'a>(scan: &mut Scan<'a>, parts: &mut [Option<i64>; 8]) -> std::result::Result<(), Unsafe> {
    scan.structure(1, &mut |scan, (id, kind)| {
        let value = match kind {
            I32 => scan.zigzag()?,
            TRUE => 1,
            FALSE => 0,
            LIST => return Ok(false),
            _ => return Ok(false),
        };
        if let Some(part) = usize::try_from(id).ok().and_then(|id| parts.get_mut(id)) {
            *part = Some(value);
        }
        Ok(true)
    })
}

fn size(found: Option<i64>) -> Result<usize> {
    found.and_then(|size| usize::try_from(size).ok()).ok_or_else(|| damaged("a page without a size"))
}

fn content(found: &Found) -> Result<Content> {
    let part = |id: usize| found.parts.get(id).copied().flatten();
    Ok(match found.kind {
        Some(0) => Content::Data(DataPage {
            entries: size(part(1))?,
            encoding: encoding(part(2))?,
            definition_encoding: encoding(part(3))?,
            repetition_encoding: encoding(part(4))?,
            levels: Levels::Within,
        }),
        Some(1) => Content::Other,
        Some(2) => Content::Dictionary { count: size(part(1))? },
        Some(3) => Content::Data(DataPage {
            entries: size(part(1))?,
            encoding: encoding(part(4))?,
            definition_encoding: Encoding::Rle,
            repetition_encoding: Encoding::Rle,
            levels: Levels::Before {
                definition_bytes: size(part(5))?,
                repetition_bytes: size(part(6))?,
                is_packed: part(7) != Some(0),
            },
        }),
        _ => return Err(damaged("a page of no known kind")),
    })
}

fn encoding(found: Option<i64>) -> Result<Encoding> {
    Ok(match found.ok_or_else(|| PagesError::Damaged("a page without an encoding".to_owned()))? {
        0 => Encoding::Plain,
        2 | 8 => Encoding::Dictionary,
        3 => Encoding::Rle,
        5 => Encoding::Delta,
        6 => Encoding::DeltaLength,
        7 => Encoding::DeltaBytes,
        9 => Encoding::Split,
        other => Encoding::Other(other),
    })
}

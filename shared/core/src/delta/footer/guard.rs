//! A first look at a footer's bytes, before anything is allocated for them: how large what they describe would be, and
//! whether it is encrypted or compressed in a way that no reader of Delta knows.
//!
//! Footers come from strangers. A few bytes can announce lists of billions of elements, or groups nested deeper than a
//! stack; decoders that trust them allocate first and fail later.

use thiserror::Error;

/// Nested groups of a file's schema; the JSON of a table's schema is bounded alike.
const SCHEMA_DEPTH_MAX: usize = 64;
/// Nodes of a file's schema.
const SCHEMA_NODES_MAX: usize = 100_000;
const ROW_GROUPS_MAX: usize = 32_768;
/// Column chunks of all row groups; each takes about 600 bytes of memory once decoded.
const CHUNKS_MAX: usize = 250_000;
/// Elements of one list.
const LIST_MAX: usize = 300_000;
/// Elements of all lists.
const ELEMENTS_MAX: usize = 4_000_000;
/// Nesting of Thrift's own structures.
const THRIFT_DEPTH_MAX: usize = 24;

/// Why a footer is not decoded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum Unsafe {
    #[error("it ends too early, or has a number that cannot be")]
    Malformed,
    #[error("it describes more than {max} {what}")]
    TooMany { what: &'static str, max: usize },
    #[error("it is encrypted")]
    Encrypted,
    #[error("a column is compressed with {0}, which readers of Delta do not know")]
    Codec(String),
}

pub(super) type Result<T> = std::result::Result<T, Unsafe>;

const STOP: u8 = 0;
const I32: u8 = 5;
pub(super) const LIST: u8 = 9;
pub(super) const STRUCT: u8 = 12;

/// Looks through a footer (without length and magic).
pub(super) fn look_through(footer: &[u8]) -> Result<()> {
    let mut scan = Scan::new(footer);
    scan.structure(0, &mut |scan, field| match field {
        (2, LIST) => scan.schema().map(|()| true),
        (4, LIST) => scan.row_groups().map(|()| true),
        // Encryption algorithm of a footer that is not encrypted itself.
        (8, _) => Err(Unsafe::Encrypted),
        _ => Ok(false),
    })
}

/// Field id and wire type.
pub(super) type Field = (i16, u8);

pub(super) struct Scan<'a> {
    bytes: &'a [u8],
    elements: usize,
    chunks: usize,
}

/// Reads a field that it knows (true); others are skipped.
pub(super) type Visit<'v, 'a> = &'v mut dyn FnMut(&mut Scan<'a>, Field) -> Result<bool>;

impl<'a> Scan<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Scan<'a> {
        Scan { bytes, elements: 0, chunks: 0 }
    }

    /// What was not read yet.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (head, tail) = self.bytes.split_at_checked(count).ok_or(Unsafe::Malformed)?;
        self.bytes = tail;
        Ok(head)
    }

    fn byte(&mut self) -> Result<u8> {
        self.take(1)?.first().copied().ok_or(Unsafe::Malformed)
    }

    fn varint(&mut self) -> Result<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Unsafe::Malformed)
    }

    pub(super) fn zigzag(&mut self) -> Result<i64> {
        let value = self.varint()?;
        let half = i64::try_from(value >> 1).map_err(|_| Unsafe::Malformed)?;
        Ok(if value & 1 == 0 { half } else { -half - 1 })
    }

    pub(super) fn structure(&mut self, depth: usize, visit: Visit<'_, 'a>) -> Result<()> {
        if depth > THRIFT_DEPTH_MAX {
            return Err(Unsafe::TooMany { what: "nested structures", max: THRIFT_DEPTH_MAX });
        }
        let mut id = 0_i16;
        loop {
            let head = self.byte()?;
            let kind = head & 0x0f;
            if kind == STOP {
                return Ok(());
            }
            let delta = i16::from(head >> 4);
            id = match delta {
                0 => i16::try_from(self.zigzag()?).map_err(|_| Unsafe::Malformed)?,
                delta => id.checked_add(delta).ok_or(Unsafe::Malformed)?,
            };
            if !visit(self, (id, kind))? {
                self.skip(kind, depth)?;
            }
        }
    }

    /// Size and element type of a list.
    fn list(&mut self) -> Result<(usize, u8)> {
        let head = self.byte()?;
        let size = match head >> 4 {
            15 => usize::try_from(self.varint()?).map_err(|_| Unsafe::Malformed)?,
            short => usize::from(short),
        };
        self.count(size)?;
        Ok((size, head & 0x0f))
    }

    fn count(&mut self, size: usize) -> Result<()> {
        if size > self.bytes.len() {
            return Err(Unsafe::Malformed);
        }
        self.elements = self.elements.saturating_add(size);
        if size > LIST_MAX {
            return Err(Unsafe::TooMany { what: "elements in one list", max: LIST_MAX });
        }
        if self.elements > ELEMENTS_MAX {
            return Err(Unsafe::TooMany { what: "elements", max: ELEMENTS_MAX });
        }
        Ok(())
    }

    fn skip(&mut self, kind: u8, depth: usize) -> Result<()> {
        match kind {
            1 | 2 => Ok(()),
            3 => self.byte().map(|_| ()),
            4..=6 => self.varint().map(|_| ()),
            7 => self.take(8).map(|_| ()),
            8 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Unsafe::Malformed)?;
                self.take(length).map(|_| ())
            }
            LIST | 10 => {
                let (size, element) = self.list()?;
                for _ in 0..size {
                    self.skip_element(element, depth)?;
                }
                Ok(())
            }
            11 => {
                let size = usize::try_from(self.varint()?).map_err(|_| Unsafe::Malformed)?;
                self.count(size)?;
                let kinds = if size == 0 { 0 } else { self.byte()? };
                for _ in 0..size {
                    self.skip_element(kinds >> 4, depth)?;
                    self.skip_element(kinds & 0x0f, depth)?;
                }
                Ok(())
            }
            STRUCT => self.structure(depth + 1, &mut |_, _| Ok(false)),
            13 => self.take(16).map(|_| ()),
            _ => Err(Unsafe::Malformed),
        }
    }

    /// Flags in lists take a byte each, as fields they are in the type.
    fn skip_element(&mut self, kind: u8, depth: usize) -> Result<()> {
        match kind {
            1 | 2 => self.byte().map(|_| ()),
            LIST | 10 | 11 if depth >= THRIFT_DEPTH_MAX => Err(Unsafe::Malformed),
            other => self.skip(other, depth + 1),
        }
    }

    /// The schema as a list of nodes, parents before their children.
    fn schema(&mut self) -> Result<()> {
        let (size, kind) = self.list()?;
        if size > SCHEMA_NODES_MAX {
            return Err(Unsafe::TooMany { what: "columns", max: SCHEMA_NODES_MAX });
        }
        if kind != STRUCT {
            return Err(Unsafe::Malformed);
        }
        // Children still to come, by depth.
        let mut open: Vec<usize> = Vec::new();
        for _ in 0..size {
            let mut children = 0_i64;
            self.structure(1, &mut |scan, field| match field {
                (5, I32) => scan.zigzag().map(|found| children = found).map(|()| true),
                _ => Ok(false),
            })?;
            while open.last() == Some(&0) {
                open.pop();
            }
            if let Some(left) = open.last_mut() {
                *left -= 1;
            }
            let children = usize::try_from(children).map_err(|_| Unsafe::Malformed)?;
            if children > 0 {
                open.push(children);
            }
            if open.len() > SCHEMA_DEPTH_MAX {
                return Err(Unsafe::TooMany { what: "nested groups", max: SCHEMA_DEPTH_MAX });
            }
        }
        // Decoders look for children that were announced.
        if open.iter().all(|left| *left == 0) { Ok(()) } else { Err(Unsafe::Malformed) }
    }

    fn row_groups(&mut self) -> Result<()> {
        let (size, kind) = self.list()?;
        if size > ROW_GROUPS_MAX {
            return Err(Unsafe::TooMany { what: "row groups", max: ROW_GROUPS_MAX });
        }
        if kind != STRUCT && size > 0 {
            return Err(Unsafe::Malformed);
        }
        for _ in 0..size {
            self.structure(1, &mut |scan, field| match field {
                (1, LIST) => scan.chunks().map(|()| true),
                _ => Ok(false),
            })?;
        }
        Ok(())
    }

    fn chunks(&mut self) -> Result<()> {
        let (size, kind) = self.list()?;
        self.chunks = self.chunks.saturating_add(size);
        if self.chunks > CHUNKS_MAX {
            return Err(Unsafe::TooMany { what: "column chunks", max: CHUNKS_MAX });
        }
        if kind != STRUCT && size > 0 {
            return Err(Unsafe::Malformed);
        }
        for _ in 0..size {
            self.structure(2, &mut |scan, field| match field {
                (3, STRUCT) => scan.column_metadata().map(|()| true),
                (8 | 9, _) => Err(Unsafe::Encrypted),
                _ => Ok(false),
            })?;
        }
        Ok(())
    }

    fn column_metadata(&mut self) -> Result<()> {
        self.structure(3, &mut |scan, field| match field {
            (4, I32) => match scan.zigzag()? {
                0..=2 | 4..=7 => Ok(true),
                3 => Err(Unsafe::Codec("LZO".to_owned())),
                other => Err(Unsafe::Codec(format!("codec {other}"))),
            },
            _ => Ok(false),
        })
    }
}

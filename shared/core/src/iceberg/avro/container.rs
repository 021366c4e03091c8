use std::collections::BTreeMap;

use super::codec::Codec;
use super::cursor::{Block, Cursor};
use super::schema::{Program, compile};
use super::{AvroError, AvroLimits, Captured};

const MAGIC: &[u8] = b"Obj\x01";
const SYNC_BYTES: usize = 16;

/// An Avro object container: header read, blocks not yet.
#[derive(Debug)]
pub struct Container<'a> {
    metadata: BTreeMap<String, &'a [u8]>,
    program: Program,
    codec: Codec,
    sync: &'a [u8],
    blocks: &'a [u8],
    limits: AvroLimits,
}

impl<'a> Container<'a> {
    /// Reads the header and compiles the schema for the wanted field ids (Iceberg's `field-id`).
    pub fn open(bytes: &'a [u8], wanted: &[i32], limits: AvroLimits) -> Result<Self, AvroError> {
        let rest = bytes.strip_prefix(MAGIC).ok_or(AvroError::NotAvro)?;
        let mut cursor = Cursor::new(rest);
        let metadata = read_header(&mut cursor)?;
        let schema = metadata.get("avro.schema").ok_or_else(|| AvroError::Schema("there is none".to_owned()))?;
        let program = compile(schema, wanted, &limits)?;
        let codec = Codec::parse(metadata.get("avro.codec").copied())?;
        let sync = cursor.take(SYNC_BYTES, "the header")?;
        let blocks = cursor.take(cursor.left(), "the header")?;
        Ok(Self { metadata, program, codec, sync, blocks, limits })
    }

    /// A value of the header, Iceberg's `format-version` for example.
    pub fn metadata(&self, name: &str) -> Option<&'a [u8]> {
        self.metadata.get(name).copied()
    }

    /// Refuses a file whose schema lacks the wanted field of that index.
    pub fn check_has(&self, index: usize, id: i32) -> Result<(), AvroError> {
        if self.program.has(index) { Ok(()) } else { Err(AvroError::MissingField(id)) }
    }

    /// Hands the wanted fields of every record, in the order asked for, to `each`. Answers the number of records.
    pub fn for_each<E: From<AvroError>>(
        &self,
        mut each: impl FnMut(&[Captured<'_>]) -> Result<(), E>,
    ) -> Result<u64, E> {
        let mut cursor = Cursor::new(self.blocks);
        let mut total: u64 = 0;
        let mut plain_bytes: usize = 0;
        while !cursor.is_at_end() {
            let count = cursor.length("a block")?;
            let packed = cursor.bytes("a block")?;
            if cursor.take(SYNC_BYTES, "a block")? != self.sync {
                return Err(AvroError::Corrupt("a block does not end in the file's marker".to_owned()).into());
            }
            let plain = self.codec.decompress(packed, &self.limits)?;
            plain_bytes = plain_bytes.saturating_add(plain.len());
            if plain_bytes > self.limits.file_max_bytes {
                let as_u64 = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
                let (found, most) = (as_u64(plain_bytes), as_u64(self.limits.file_max_bytes));
                return Err(AvroError::TooLarge { what: "a file", found, most }.into());
            }
            self.read_block(&plain, count, &mut each)?;
            total = total.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        }
        Ok(total)
    }

    fn read_block<E: From<AvroError>>(
        &self,
        plain: &[u8],
        count: usize,
        each: &mut impl FnMut(&[Captured<'_>]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut cursor = Cursor::new(plain);
        let mut slots = vec![Captured::Null; self.program.slots()];
        for _ in 0..count {
            slots.fill(Captured::Null);
            cursor.step()?;
            self.program.run(&mut cursor, &mut slots)?;
            each(&slots)?;
        }
        if cursor.is_at_end() {
            Ok(())
        } else {
            Err(AvroError::Corrupt("a block is longer than its records".to_owned()).into())
        }
    }
}

/// The header's map of text to bytes.
fn read_header<'a>(cursor: &mut Cursor<'a>) -> Result<BTreeMap<String, &'a [u8]>, AvroError> {
    let mut metadata = BTreeMap::new();
    loop {
        let count = match cursor.block()? {
            Block::End => return Ok(metadata),
            Block::Items(count) | Block::Sized { count, .. } => count,
        };
        for _ in 0..count {
            let key = cursor.text()?.to_owned();
            metadata.insert(key, cursor.bytes("the header")?);
        }
    }
}

use std::borrow::Cow;
use std::io::Read;

use super::{AvroError, AvroLimits};

/// What a block packed with xz may ask for: its largest preset (9) has a dictionary of 64 MiB.
const XZ_MEMORY_MAX_KIB: u32 = 80 * 1024;

/// Compression of blocks, from the header's `avro.codec`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Codec {
    Null,
    Deflate,
    Snappy,
    Zstandard,
    Bzip2,
    Xz,
}

impl Codec {
    pub(super) fn parse(name: Option<&[u8]>) -> Result<Self, AvroError> {
        match name {
            None | Some(b"null") => Ok(Codec::Null),
            Some(b"deflate") => Ok(Codec::Deflate),
            Some(b"snappy") => Ok(Codec::Snappy),
            Some(b"zstandard") => Ok(Codec::Zstandard),
            Some(b"bzip2") => Ok(Codec::Bzip2),
            Some(b"xz") => Ok(Codec::Xz),
            Some(other) => Err(AvroError::UnknownCodec(String::from_utf8_lossy(other).chars().take(40).collect())),
        }
    }

    pub(super) fn decompress<'a>(self, block: &'a [u8], limits: &AvroLimits) -> Result<Cow<'a, [u8]>, AvroError> {
        match self {
            Codec::Null => {
                check_size(block.len(), limits)?;
                Ok(Cow::Borrowed(block))
            }
            Codec::Deflate => inflate(block, limits).map(Cow::Owned),
            Codec::Zstandard => {
                let decoder = zstd::stream::read::Decoder::with_buffer(block).map_err(corrupt)?;
                read_bounded(decoder, block, limits).map(Cow::Owned)
            }
            Codec::Snappy => snappy(block, limits).map(Cow::Owned),
            Codec::Bzip2 => read_bounded(bzip2::bufread::MultiBzDecoder::new(block), block, limits).map(Cow::Owned),
            Codec::Xz => {
                let decoder = lzma_rust2::XzReader::new_mem_limit(block, true, XZ_MEMORY_MAX_KIB);
                read_bounded(decoder, block, limits).map(Cow::Owned)
            }
        }
    }
}

fn corrupt(error: impl std::fmt::Display) -> AvroError {
    AvroError::Corrupt(format!("a block cannot be decompressed: {error}"))
}

fn check_size(size: usize, limits: &AvroLimits) -> Result<(), AvroError> {
    if size <= limits.block_max_bytes {
        return Ok(());
    }
    let as_u64 = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    Err(AvroError::TooLarge { what: "a block", found: as_u64(size), most: as_u64(limits.block_max_bytes) })
}

fn read_bounded(source: impl Read, packed: &[u8], limits: &AvroLimits) -> Result<Vec<u8>, AvroError> {
    let most = u64::try_from(limits.block_max_bytes).unwrap_or(u64::MAX);
    // What manifests are packed to, more or less: room is made once.
    let mut plain = Vec::with_capacity(packed.len().saturating_mul(4).min(limits.block_max_bytes));
    source.take(most.saturating_add(1)).read_to_end(&mut plain).map_err(corrupt)?;
    check_size(plain.len(), limits)?;
    Ok(plain)
}

/// Most of the time of reading a manifest goes into this, and a block is in memory whole: the library that does no streams
/// takes two thirds of the time of one that does.
fn inflate(block: &[u8], limits: &AvroLimits) -> Result<Vec<u8>, AvroError> {
    let most = limits.block_max_bytes.saturating_add(1);
    let mut plain = vec![0; block.len().saturating_mul(4).clamp(4096, most.max(4096))];
    let mut decompressor = libdeflater::Decompressor::new();
    loop {
        match decompressor.deflate_decompress(block, &mut plain) {
            Ok(length) => {
                plain.truncate(length);
                check_size(plain.len(), limits)?;
                return Ok(plain);
            }
            // The block does not say how long it is.
            Err(libdeflater::DecompressionError::InsufficientSpace) if plain.len() < most => {
                let larger = plain.len().saturating_mul(4).min(most);
                plain.resize(larger, 0);
            }
            Err(libdeflater::DecompressionError::InsufficientSpace) => {
                return Err(check_size(most, limits).err().unwrap_or_else(|| corrupt("it has no end")));
            }
            Err(error) => return Err(corrupt(error)),
        }
    }
}

/// Avro's snappy blocks end in the big-endian CRC-32 of the plain bytes.
fn snappy(block: &[u8], limits: &AvroLimits) -> Result<Vec<u8>, AvroError> {
    let (packed, check) = block.split_last_chunk::<4>().ok_or(AvroError::Truncated("a snappy block"))?;
    check_size(snap::raw::decompress_len(packed).map_err(corrupt)?, limits)?;
    let plain = snap::raw::Decoder::new().decompress_vec(packed).map_err(corrupt)?;
    let mut crc = flate2::Crc::new();
    crc.update(&plain);
    if crc.sum() == u32::from_be_bytes(*check) {
        Ok(plain)
    } else {
        Err(AvroError::Corrupt("the checksum of a snappy block does not match".to_owned()))
    }
}

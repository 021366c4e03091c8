//! Pages are unpacked into exactly as many bytes as their headers announce: what would be more, or less, is damaged.

use std::io::Read;

use bytes::Bytes;
use parquet::basic::Compression;

use super::{PagesError, Result, damaged};

/// Buffer of the decoder.
const BROTLI_BUFFER_BYTES: usize = 4096;

pub(super) fn unpack(codec: Compression, packed: &[u8], plain_bytes: usize) -> Result<Bytes> {
    let plain = match codec {
        Compression::UNCOMPRESSED => packed.to_vec(),
        // Nothing needs no frame, and not every writer makes one.
        _ if plain_bytes == 0 => Vec::new(),
        Compression::SNAPPY => snappy(packed, plain_bytes)?,
        Compression::GZIP(_) => read(flate2::read::MultiGzDecoder::new(packed), plain_bytes)?,
        Compression::BROTLI(_) => {
            read(brotli_decompressor::Decompressor::new(packed, BROTLI_BUFFER_BYTES), plain_bytes)?
        }
        Compression::ZSTD(_) => zstd(packed, plain_bytes)?,
        Compression::LZ4_RAW => lz4_block(packed, plain_bytes).ok_or_else(|| wrong("LZ4"))?,
        Compression::LZ4 => lz4_old(packed, plain_bytes)?,
        other => return Err(PagesError::Codec(other.to_string())),
    };
    if plain.len() == plain_bytes { Ok(plain.into()) } else { Err(damaged("a page of another length than it says")) }
}

fn wrong(codec: &str) -> PagesError {
    damaged(format!("a page that is not {codec}, or longer than it says"))
}

fn snappy(packed: &[u8], plain_bytes: usize) -> Result<Vec<u8>> {
    if snap::raw::decompress_len(packed).ok() != Some(plain_bytes) {
        return Err(wrong("Snappy"));
    }
    snap::raw::Decoder::new().decompress_vec(packed).map_err(|_| wrong("Snappy"))
}

/// One byte more than announced is enough to tell that there are more.
fn read(reader: impl Read, plain_bytes: usize) -> Result<Vec<u8>> {
    let limit = u64::try_from(plain_bytes).unwrap_or(u64::MAX).saturating_add(1);
    let mut plain = Vec::new();
    reader
        .take(limit)
        .read_to_end(&mut plain)
        .map_err(|error| damaged(format!("a page cannot be unpacked: {error}")))?;
    Ok(plain)
}

fn zstd(packed: &[u8], plain_bytes: usize) -> Result<Vec<u8>> {
    ::zstd::bulk::decompress(packed, plain_bytes).map_err(|_| wrong("Zstandard"))
}

fn lz4_block(packed: &[u8], plain_bytes: usize) -> Option<Vec<u8>> {
    let mut plain = vec![0; plain_bytes];
    let length = lz4_flex::block::decompress_into(packed, &mut plain).ok()?;
    (length == plain_bytes).then_some(plain)
}

/// The codec whose framing was never agreed on: Hadoop's blocks, LZ4's own frames, or a bare block.
fn lz4_old(packed: &[u8], plain_bytes: usize) -> Result<Vec<u8>> {
    if let Some(plain) = lz4_hadoop(packed, plain_bytes) {
        return Ok(plain);
    }
    let framed = read(lz4_flex::frame::FrameDecoder::new(packed), plain_bytes);
    if let Ok(plain) = framed
        && plain.len() == plain_bytes
    {
        return Ok(plain);
    }
    lz4_block(packed, plain_bytes).ok_or_else(|| wrong("LZ4"))
}

/// Blocks, each after its length unpacked and packed.
fn lz4_hadoop(packed: &[u8], plain_bytes: usize) -> Option<Vec<u8>> {
    let mut rest = packed;
    let mut plain = Vec::new();
    while !rest.is_empty() {
        let (lengths, after) = rest.split_first_chunk::<8>()?;
        let [a, b, c, d, e, f, g, h] = *lengths;
        let unpacked = usize::try_from(u32::from_be_bytes([a, b, c, d])).ok()?;
        let (block, after) = after.split_at_checked(usize::try_from(u32::from_be_bytes([e, f, g, h])).ok()?)?;
        if unpacked > plain_bytes.saturating_sub(plain.len()) {
            return None;
        }
        plain.extend(lz4_block(block, unpacked)?);
        rest = after;
    }
    (plain.len() == plain_bytes).then_some(plain)
}

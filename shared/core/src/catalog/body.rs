//! What an item says beside its keys: one JSON document, compressed when it is large.

use serde_json::{Map, Value as Json};

use super::CatalogError;
use crate::limits;
use crate::store::{DecodeError, Fields, Item, Key, Value, item_size_bytes};

/// Bodies above this are compressed (zstd).
pub const COMPRESS_ABOVE_BYTES: usize = 64 * 1024;
/// Largest body, as an answer spells it: a partition is at most two of them (its own and its columns), and must fit into
/// [`limits::ANSWER_MAX_BYTES`].
pub const BODY_MAX_BYTES: usize = 1_900_000;

const PLAIN: &str = "body";
const COMPRESSED: &str = "body_zstd";
const SIZE: &str = "body_size_bytes";

/// Size of a text inside a JSON string: answers travel as JSON in JSON.
pub fn escaped_len(text: &str) -> usize {
    text.bytes()
        .map(|byte| match byte {
            b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
            0..0x20 => 6,
            _ => 1,
        })
        .sum()
}

/// Puts `body` into `item`. `what` names it in a refusal.
///
/// # Errors
/// [`CatalogError::TooLarge`] above [`BODY_MAX_BYTES`].
pub fn encode_body(item: &mut Item, body: &Map<String, Json>, what: &str) -> Result<(), CatalogError> {
    let text = serde_json::to_string(body).map_err(|error| CatalogError::Broken(error.to_string()))?;
    let size_bytes = escaped_len(&text);
    if size_bytes > BODY_MAX_BYTES {
        return Err(CatalogError::TooLarge { what: what.to_owned(), size_bytes, max_bytes: BODY_MAX_BYTES });
    }
    if text.len() <= COMPRESS_ABOVE_BYTES {
        item.insert(PLAIN.to_owned(), Value::Bytes(text.into_bytes()));
        return Ok(());
    }
    let packed =
        zstd::bulk::compress(text.as_bytes(), 3).map_err(|error| CatalogError::Broken(format!("zstd: {error}")))?;
    item.insert(COMPRESSED.to_owned(), Value::Bytes(packed));
    item.insert(SIZE.to_owned(), Value::Int(i64::try_from(text.len()).unwrap_or(i64::MAX)));
    Ok(())
}

/// Reads what [`encode_body`] wrote.
pub fn decode_body(item: &Item) -> Result<Map<String, Json>, DecodeError> {
    let invalid = |message: String| DecodeError::Invalid { field: PLAIN.to_owned(), message };
    let parse = |bytes: &[u8]| serde_json::from_slice(bytes).map_err(|error| invalid(error.to_string()));
    if !item.contains_key(COMPRESSED) {
        return parse(item.bytes(PLAIN)?);
    }
    let size_bytes = usize::try_from(item.int(SIZE)?).unwrap_or(0);
    if size_bytes > BODY_MAX_BYTES {
        return Err(invalid(format!("{size_bytes} bytes")));
    }
    let text = zstd::bulk::decompress(item.bytes(COMPRESSED)?, size_bytes)
        .map_err(|error| invalid(format!("zstd: {error}")))?;
    parse(&text)
}

/// Length of the body's JSON text, without reading it.
pub fn body_size_bytes(item: &Item) -> usize {
    match (item.get(SIZE), item.get(PLAIN)) {
        (Some(Value::Int(size_bytes)), _) => usize::try_from(*size_bytes).unwrap_or(0),
        (_, Some(Value::Bytes(bytes))) => bytes.len(),
        _ => 0,
    }
}

/// Refuses, by name, an item that DynamoDB would not take.
pub fn check_item_size(key: &Key, item: &Item, what: &str) -> Result<(), CatalogError> {
    let size_bytes = item_size_bytes(key, item);
    if size_bytes > limits::ITEM_MAX_BYTES {
        let max_bytes = limits::ITEM_MAX_BYTES;
        return Err(CatalogError::TooLarge { what: format!("{what}, compressed,"), size_bytes, max_bytes });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body_of(length: usize) -> Map<String, Json> {
        let mut body = Map::new();
        body.insert("a".to_owned(), Json::String("x".repeat(length)));
        body
    }

    #[test]
    fn bodies_are_compressed_above_the_limit_and_come_back() {
        let overhead = serde_json::to_string(&body_of(0)).unwrap().len();
        for (length, compressed) in [
            (COMPRESS_ABOVE_BYTES - overhead - 1, false),
            (COMPRESS_ABOVE_BYTES - overhead, false),
            (COMPRESS_ABOVE_BYTES - overhead + 1, true),
        ] {
            let mut item = Item::new();
            encode_body(&mut item, &body_of(length), "x").unwrap();
            assert_eq!(item.contains_key(COMPRESSED), compressed, "{length}");
            assert_eq!(decode_body(&item).unwrap(), body_of(length));
            assert_eq!(body_size_bytes(&item), length + overhead);
        }
    }

    #[test]
    fn a_body_above_the_limit_is_refused_by_name() {
        // Two quotes of the name, two of the value, are escaped: four bytes more.
        let overhead = escaped_len(&serde_json::to_string(&body_of(0)).unwrap());
        let mut item = Item::new();
        assert!(encode_body(&mut item, &body_of(BODY_MAX_BYTES - overhead), "x").is_ok());
        let error = encode_body(&mut item, &body_of(BODY_MAX_BYTES - overhead + 1), "Table t").unwrap_err();
        assert_eq!(error.to_string(), "Table t takes 1900001 bytes; more than 1900000 cannot be stored yet");
    }

    #[test]
    fn escaping_is_counted_as_json_does_it() {
        for text in ["plain", "a\"b\\c", "\n\r\t\u{8}\u{c}", "\u{1}\u{1f}", "üü", ""] {
            assert_eq!(escaped_len(text), serde_json::to_string(text).unwrap().len() - 2, "{text:?}");
        }
    }
}

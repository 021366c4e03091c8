//! What an item says beside its keys: one JSON document, compressed when it is large.

use serde_json::{Map, Value as Json};

use super::CatalogError;
use crate::limits;
use crate::store::{DecodeError, Fields, Item, Key, Value, item_size_bytes};

/// Bodies above this are compressed (zstd).
pub const COMPRESS_ABOVE_BYTES: usize = 64 * 1024;
/// Largest body, as an answer spells it, so that one always fits into [`limits::ANSWER_MAX_BYTES`].
pub const BODY_MAX_BYTES: usize = 4_000_000;

const PLAIN: &str = "body";
const COMPRESSED: &str = "body_zstd";
const SIZE: &str = "body_size_bytes";
/// SHA-256 of the compressed body, which lies on S3 (see [`super::spill`]).
const POINTER: &str = "body_sha256";

/// Size of a text inside a JSON string: answers travel as JSON in JSON.
pub fn escaped_len(text: &str) -> usize {
    escaped_bytes(text.as_bytes())
}

/// What escaping adds at most: five bytes to a control character. So the sum over so many bytes fits into one.
const SUMMED_AT_ONCE: usize = 32;

/// Every answer is measured as a whole, so without a branch for each byte.
fn escaped_bytes(text: &[u8]) -> usize {
    let added = |byte: u8| {
        let is_quoted = byte == b'"' || byte == b'\\';
        let is_short = matches!(byte, b'\n' | b'\r' | b'\t' | 0x08 | 0x0c);
        u8::from(is_quoted) + 5 * u8::from(byte < 0x20) - 4 * u8::from(is_short)
    };
    let parts = text.chunks(SUMMED_AT_ONCE).map(|part| usize::from(part.iter().map(|byte| added(*byte)).sum::<u8>()));
    text.len() + parts.sum::<usize>()
}

/// [`escaped_len`] of the text of a value, which is not made for that.
pub fn escaped_json_len(value: &Json) -> usize {
    struct Count(usize);

    impl std::io::Write for Count {
        fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
            self.0 += escaped_bytes(text);
            Ok(text.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    let mut count = Count(0);
    match serde_json::to_writer(&mut count, value) {
        Ok(()) => count.0,
        // Neither the count nor a value fails.
        Err(_) => escaped_len(&value.to_string()),
    }
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
    item.insert(COMPRESSED.to_owned(), Value::Bytes(pack(text.as_bytes())?));
    item.insert(SIZE.to_owned(), Value::Int(i64::try_from(text.len()).unwrap_or(i64::MAX)));
    Ok(())
}

fn pack(text: &[u8]) -> Result<Vec<u8>, CatalogError> {
    zstd::bulk::compress(text, 3).map_err(|error| CatalogError::Broken(format!("zstd: {error}")))
}

/// The compressed body, if the item holds one (or a plain one) that takes more than `limit_bytes`.
pub(super) fn packed_above(item: &Item, limit_bytes: usize) -> Result<Option<Vec<u8>>, CatalogError> {
    match (item.get(COMPRESSED), item.get(PLAIN)) {
        (Some(Value::Bytes(packed)), _) if packed.len() > limit_bytes => Ok(Some(packed.clone())),
        (None, Some(Value::Bytes(text))) if text.len() > limit_bytes => pack(text).map(Some),
        _ => Ok(None),
    }
}

/// Replaces the body by the hash of what lies on S3.
pub(super) fn point_to(item: &mut Item, sha256: Vec<u8>) {
    let size_bytes = body_size_bytes(item);
    item.remove(PLAIN);
    item.remove(COMPRESSED);
    item.insert(SIZE.to_owned(), Value::Int(i64::try_from(size_bytes).unwrap_or(i64::MAX)));
    item.insert(POINTER.to_owned(), Value::Bytes(sha256));
}

/// The hash of a body that lies on S3 and has not been filled in.
pub(super) fn pointer(item: &Item) -> Option<&[u8]> {
    match item.get(POINTER) {
        Some(Value::Bytes(sha256)) => Some(sha256),
        _ => None,
    }
}

/// Puts back what [`point_to`] took out.
pub(super) fn fill_in(item: &mut Item, packed: Vec<u8>) {
    item.remove(POINTER);
    item.insert(COMPRESSED.to_owned(), Value::Bytes(packed));
}

/// Reads what [`encode_body`] wrote.
pub fn decode_body(item: &Item) -> Result<Map<String, Json>, DecodeError> {
    let invalid = |message: String| DecodeError::Invalid { field: PLAIN.to_owned(), message };
    let parse = |bytes: &[u8]| serde_json::from_slice(bytes).map_err(|error| invalid(error.to_string()));
    if item.contains_key(POINTER) {
        return Err(invalid("lies on S3 and was not loaded".to_owned()));
    }
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

/// Shortens a page to the entries whose bodies fit into one answer, the first one in any case; whether some were cut off.
/// Done before bodies are loaded, so that a page takes no more memory than its answer.
pub fn cut_to_answer<T>(rows: &mut Vec<(T, Item)>) -> bool {
    let mut size_bytes = 0_usize;
    let fits = |(_, item): &(T, Item)| {
        let is_first = size_bytes == 0;
        size_bytes = size_bytes.saturating_add(body_size_bytes(item));
        is_first || size_bytes <= limits::ANSWER_MAX_BYTES
    };
    let count = rows.iter().map(fits).take_while(|fits| *fits).count();
    let is_cut = count < rows.len();
    rows.truncate(count);
    is_cut
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
    fn the_size_of_a_text_inside_a_json_string() {
        let all: String = (0..0x250_u32).filter_map(char::from_u32).collect();
        for text in ["", "plain", "\"\\\n\r\t\u{8}\u{c}", "\0\u{1f} \u{7f}é😀", &all, &"\0".repeat(1000)] {
            let quoted = serde_json::to_string(text).unwrap();
            assert_eq!(escaped_len(text), quoted.len() - 2, "{text:?}");
            let value = serde_json::json!({ "a": [text, 1.5, null], "b": { text: true } });
            assert_eq!(escaped_json_len(&value), escaped_len(&value.to_string()));
        }
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
        assert_eq!(error.to_string(), "Table t takes 4000001 bytes; more than 4000000 cannot be stored");
    }

    #[test]
    fn escaping_is_counted_as_json_does_it() {
        for text in ["plain", "a\"b\\c", "\n\r\t\u{8}\u{c}", "\u{1}\u{1f}", "üü", ""] {
            assert_eq!(escaped_len(text), serde_json::to_string(text).unwrap().len() - 2, "{text:?}");
        }
    }
}

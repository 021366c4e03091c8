//! Keys on the wire. The SDK encodes keys in paths and queries itself; two places are ours.

use lakewarden_core::store::ObjectKey;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

const IN_COPY_SOURCE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// The value of `x-amz-copy-source`: bucket and key, percent-encoded but for the slashes.
pub(super) fn encode_copy_source(from: &ObjectKey) -> String {
    format!("{}/{}", from.bucket, utf8_percent_encode(&from.key, IN_COPY_SOURCE))
}

/// A key from a listing with `encoding-type=url`: form-encoded (`+` is a blank), to be decoded exactly once. `None` if
/// the result is no UTF-8.
pub(super) fn decode_listed(encoded: &str) -> Option<String> {
    let with_blanks = encoded.replace('+', " ");
    percent_decode_str(&with_blanks).decode_utf8().ok().map(|key| key.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_sources_are_percent_encoded() {
        let from = ObjectKey::new("lake", "t/dt=2026-01-01 00%3A/a+b//ü/'x'.parquet");
        let expected = "lake/t/dt%3D2026-01-01%2000%253A/a%2Bb//%C3%BC/%27x%27.parquet";
        assert_eq!(encode_copy_source(&from), expected);
        assert_eq!(encode_copy_source(&ObjectKey::new("lake", "/lead")), "lake//lead");
    }

    #[test]
    fn listed_keys_are_decoded_once() {
        let cases = [("a+b%2Bc", "a b+c"), ("p%2525", "p%25"), ("%C3%BC%0A/%3D", "ü\n/="), ("plain//x", "plain//x")];
        for (encoded, key) in cases {
            assert_eq!(decode_listed(encoded).as_deref(), Some(key), "{encoded}");
        }
        assert_eq!(decode_listed("%FF"), None);
    }
}

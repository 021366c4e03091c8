//! Z85 (ZeroMQ RFC 32): four bytes as five printable letters.

const ALPHABET: &[u8; 85] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

/// Encodes, with zeros appended up to a multiple of four bytes.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(4) * 5);
    for chunk in bytes.chunks(4) {
        let mut word = [0_u8; 4];
        for (slot, byte) in word.iter_mut().zip(chunk) {
            *slot = *byte;
        }
        let number = u32::from_be_bytes(word);
        for power in (0..5).rev() {
            let digit = number / 85_u32.pow(power) % 85;
            let letter = usize::try_from(digit).ok().and_then(|digit| ALPHABET.get(digit)).copied().unwrap_or(b'0');
            text.push(char::from(letter));
        }
    }
    text
}

/// Decodes; `None` where the text is no Z85 of whole words.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(5) {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 5 * 4);
    for chunk in text.as_bytes().chunks(5) {
        let mut number = 0_u32;
        for letter in chunk {
            let digit = ALPHABET.iter().position(|known| known == letter)?;
            number = number.checked_mul(85)?.checked_add(u32::try_from(digit).ok()?)?;
        }
        bytes.extend_from_slice(&number.to_be_bytes());
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_vector_of_the_rfc() {
        let bytes = [0x86, 0x4f, 0xd2, 0x6f, 0xb5, 0x59, 0xf7, 0x5b];
        assert_eq!(encode(&bytes), "HelloWorld");
        assert_eq!(decode("HelloWorld").unwrap(), bytes);
        assert_eq!(encode(&[0x86, 0x4f, 0xd2, 0x6f, 0xb5]), encode(&[0x86, 0x4f, 0xd2, 0x6f, 0xb5, 0, 0, 0]));
    }

    #[test]
    fn rubbish_is_none() {
        for text in ["Hell", "Hello Worl", "#####", "Héllo"] {
            assert_eq!(decode(text), None, "{text}");
        }
        assert_eq!(decode("").unwrap(), b"");
    }

    proptest! {
        #[test]
        fn what_was_encoded_comes_back(words in proptest::collection::vec(any::<[u8; 4]>(), 0..20)) {
            let bytes: Vec<u8> = words.concat();
            prop_assert_eq!(decode(&encode(&bytes)).unwrap(), bytes);
        }

        #[test]
        fn nothing_panics(text in ".{0,30}") {
            let _ = decode(&text);
        }
    }
}

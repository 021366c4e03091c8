//! XML of batches: read as an XML parser reads it, and written so that every parser reads the same again.

use bytes::Bytes;
use s3s::xml::{Deserialize, Deserializer, Serialize, Serializer};
use s3s::{S3Result, s3_error};

/// Reads a document of one element.
pub fn read<T: for<'xml> Deserialize<'xml>>(document: &[u8]) -> S3Result<T> {
    let malformed = || s3_error!(MalformedXML, "The XML you provided was not well-formed");
    let text = std::str::from_utf8(document).map_err(|_| malformed())?;
    if let Some(c) = text.chars().find(|c| !is_held(*c)) {
        return Err(s3_error!(
            MalformedXML,
            "XML cannot hold the character {} that is in this batch: delete such keys one by one. Nothing was deleted",
            c.escape_unicode()
        ));
    }
    let plain = without_sections(text).ok_or_else(malformed)?;
    let mut xml = Deserializer::new(plain.as_bytes());
    let value = T::deserialize(&mut xml).map_err(|_| malformed())?;
    xml.expect_eof().map_err(|_| malformed())?;
    Ok(value)
}

/// Whether XML 1.0 can hold a text at all, be it by references.
pub fn holds(text: &str) -> bool {
    text.chars().all(is_held)
}

fn is_held(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

/// The document with `<![CDATA[…]]>` as ordinary text, without comments and instructions, and with line ends as XML has
/// them: what the deserializer would pass over, or leave as it is. None where there is a document type, or no end.
fn without_sections(document: &str) -> Option<String> {
    let text = document.replace("\r\n", "\n").replace('\r', "\n");
    let mut out = String::with_capacity(text.len());
    let mut rest = text.strip_prefix('\u{feff}').unwrap_or(&text);
    while let Some((before, from)) = rest.find('<').and_then(|start| rest.split_at_checked(start)) {
        out.push_str(before);
        let (inner, after, is_text) = if let Some(inner) = from.strip_prefix("<![CDATA[") {
            let (inner, after) = inner.split_once("]]>")?;
            (inner, after, true)
        } else if let Some(inner) = from.strip_prefix("<!--") {
            let (inner, after) = inner.split_once("-->")?;
            (inner, after, false)
        } else if let Some(inner) = from.strip_prefix("<?") {
            let (inner, after) = inner.split_once("?>")?;
            (inner, after, false)
        } else if from.starts_with("<!") {
            return None;
        } else {
            out.push('<');
            rest = from.strip_prefix('<')?;
            continue;
        };
        if is_text {
            out.push_str(&inner.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;"));
        }
        rest = after;
    }
    out.push_str(rest);
    Some(out)
}

/// Writes a document. What a parser would change is written as a reference. What XML cannot hold at all must not be in it
/// ([`holds`]).
pub fn write(value: &impl Serialize) -> S3Result<Bytes> {
    let mut xml = Vec::new();
    let mut serializer = Serializer::new(&mut xml);
    let written = serializer.decl().and_then(|()| value.serialize(&mut serializer));
    written.map_err(|error| s3_error!(InternalError, "XML could not be written: {error}"))?;
    let text = String::from_utf8(xml).map_err(|error| s3_error!(InternalError, "XML is no text: {error}"))?;
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        // Tags are plain ASCII, so that whatever else there is belongs to a text.
        if matches!(c, '\r' | '\n' | '\t' | '\u{85}' | '\u{2028}') {
            out.push_str(&format!("&#{};", u32::from(c)));
        } else {
            out.push(c);
        }
    }
    Ok(out.into())
}

#[cfg(test)]
mod tests {
    use s3s::dto::Delete;

    use super::*;

    fn key_of(inner: &str) -> Option<String> {
        let document = format!("<Delete><Object><Key>{inner}</Key></Object><Quiet>true</Quiet></Delete>");
        read::<Delete>(document.as_bytes()).ok()?.objects.first().map(|object| object.key.clone())
    }

    #[test]
    fn keys_are_read_as_a_parser_reads_them() {
        for (inner, key) in [
            ("a", "a"),
            (" a ", " a "),
            ("<![CDATA[a&<b>]]>", "a&<b>"),
            ("x<![CDATA[&amp;]]>y<![CDATA[]]>", "x&amp;y"),
            ("x<!-- <![CDATA[z]]> -->y", "xy"),
            ("<![CDATA[<!-- z -->]]>", "<!-- z -->"),
            ("x<?pi z?>y", "xy"),
            ("a&#13;b", "a\rb"),
            ("a&#xD;&#xA;b&#9;", "a\r\nb\t"),
            ("a\r\nb\rc", "a\nb\nc"),
            ("&lt;&gt;&amp;&quot;&apos;", "<>&\"'"),
            ("&#x85;&#8232;", "\u{85}\u{2028}"),
        ] {
            assert_eq!(key_of(inner).as_deref(), Some(key), "{inner:?}");
        }
        for inner in ["<![CDATA[a", "<!-- a", "<!ENTITY a>", "&other;", "<b>", "a\u{1}b", "\u{ffff}"] {
            assert_eq!(key_of(inner), None, "{inner:?}");
        }
    }

    #[test]
    fn keys_are_written_so_that_they_stay() {
        for key in [
            "a",
            " a",
            "a ",
            "a&b<c>\"d'",
            "ü/%2F",
            "a\tb",
            "]]>",
            "a\rb",
            "\r\n",
            "a\nb",
            "\u{85}\u{2028}",
            "\u{7f}",
            "<![CDATA[x]]>",
            "<!-- x -->",
            "&amp;",
            "😀",
        ] {
            let object = s3s::dto::ObjectIdentifier { key: key.to_owned(), ..Default::default() };
            let batch = Delete { objects: vec![object], quiet: Some(true) };
            let written = write(&batch).unwrap();
            let again: Delete = read(&written).unwrap();
            assert_eq!((again.objects[0].key.as_str(), again.quiet), (key, Some(true)), "{key:?}");
            let text = std::str::from_utf8(&written).unwrap();
            assert!(!text.contains(['\r', '\n', '\t', '\u{85}', '\u{2028}']), "{text:?}");
        }
    }
}

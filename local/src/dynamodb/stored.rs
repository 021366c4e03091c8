//! Items as the crate stores them, which is DynamoDB's JSON, straight to the product's.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lakewarden_core::store::{Item, Table, Value};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, de};

/// The attributes of an item other than its key. None if it holds anything that the product does not write, or is no item:
/// whoever reads it through the crate says what.
pub(super) fn decode(table: Table, json: &str) -> Option<Item> {
    let mut read = serde_json::Deserializer::from_str(json);
    let but = &[table.hash_attribute(), table.range_attribute()];
    let item = Attributes { but }.deserialize(&mut read).ok()?;
    read.end().ok()?;
    Some(item)
}

/// Attributes by name, but for these.
struct Attributes<'a> {
    but: &'a [&'a str],
}

impl<'de> DeserializeSeed<'de> for Attributes<'_> {
    type Value = Item;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Item, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Attributes<'_> {
    type Value = Item;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("attributes")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Item, A::Error> {
        let mut item = Item::new();
        while let Some(Text(name)) = map.next_key()? {
            if self.but.contains(&name.as_ref()) {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let Attribute(value) = map.next_value()?;
            item.insert(name.into_owned(), value);
        }
        Ok(item)
    }
}

/// A text that is borrowed where it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// A value with its type: `{"S": "…"}`.
struct Attribute(Value);

impl<'de> Deserialize<'de> for Attribute {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(AttributeVisitor)
    }
}

struct AttributeVisitor;

impl<'de> Visitor<'de> for AttributeVisitor {
    type Value = Attribute;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value with its type")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Attribute, A::Error> {
        let Some(Text(kind)) = map.next_key()? else { return Err(A::Error::custom("a value without a type")) };
        let value = match kind.as_ref() {
            "S" => Value::Text(map.next_value()?),
            "N" => {
                let Text(digits) = map.next_value()?;
                Value::Int(digits.parse().map_err(A::Error::custom)?)
            }
            "B" => {
                let Text(digits) = map.next_value()?;
                Value::Bytes(STANDARD.decode(digits.as_ref()).map_err(A::Error::custom)?)
            }
            "BOOL" => Value::Bool(map.next_value()?),
            "NULL" => {
                map.next_value::<IgnoredAny>()?;
                Value::Null
            }
            "L" => Value::List(map.next_value::<Vec<Attribute>>()?.into_iter().map(|Attribute(value)| value).collect()),
            "M" => Value::Map(map.next_value_seed(Attributes { but: &[] })?),
            other => {
                return Err(A::Error::invalid_value(de::Unexpected::Str(other), &"a type that the product writes"));
            }
        };
        match map.next_key::<IgnoredAny>()? {
            None => Ok(Attribute(value)),
            Some(_) => Err(A::Error::custom("a value with two types")),
        }
    }
}

/// Finds the texts of the attribute `field`, a list of texts, of an item, as far as possible without reading the rest. What
/// is found goes to `text`, in order. None if the item has to be decoded for that, or is none; what was found by then
/// means nothing.
pub(super) fn skim(json: &str, field: &str, mut text: impl FnMut(&str)) -> Option<()> {
    let mut at = Cursor { json, at: 0 };
    at.expect(b'{')?;
    loop {
        let (name, is_plain) = at.string()?;
        if !is_plain {
            return None;
        }
        at.expect(b':')?;
        if name == field {
            break;
        }
        at.skip_value()?;
        at.expect(b',')?;
    }
    at.literal("{\"L\":[")?;
    if at.peek()? == b']' {
        return Some(());
    }
    loop {
        at.literal("{\"S\":")?;
        let start = at.at;
        match at.string()? {
            (plain, true) => text(plain),
            (_, false) => text(&serde_json::from_str::<String>(json.get(start..at.at)?).ok()?),
        }
        at.expect(b'}')?;
        match at.next()? {
            b',' => {}
            b']' => return Some(()),
            _ => return None,
        }
    }
}

/// A place in JSON without white space, as it is stored.
struct Cursor<'a> {
    json: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn peek(&self) -> Option<u8> {
        self.json.as_bytes().get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }

    fn literal(&mut self, text: &str) -> Option<()> {
        self.json.as_bytes().get(self.at..)?.starts_with(text.as_bytes()).then_some(())?;
        self.at += text.len();
        Some(())
    }

    /// What is between its quotes, and whether that is what it says: escapes are left as they are.
    fn string(&mut self) -> Option<(&'a str, bool)> {
        self.expect(b'"')?;
        let start = self.at;
        let mut is_plain = true;
        loop {
            let rest = self.json.get(self.at..)?;
            let end = rest.find('"')?;
            let escapes = rest.as_bytes().get(..end)?.iter().rev().take_while(|byte| **byte == b'\\').count();
            self.at += end + 1;
            if escapes % 2 == 0 {
                let content = self.json.get(start..self.at - 1)?;
                is_plain = is_plain && !content.contains('\\');
                return Some((content, is_plain));
            }
            is_plain = false;
        }
    }

    /// Passes a map, which is what values of attributes are in; inside everything but strings and brackets is passed
    /// unread.
    fn skip_value(&mut self) -> Option<()> {
        if self.peek()? != b'{' {
            return None;
        }
        let mut depth = 0_usize;
        loop {
            match self.peek()? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth = depth.checked_sub(1)?,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Some(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use dynoxide::types::AttributeValue;
    use lakewarden_core::store::texts_of;
    use proptest::prelude::*;

    use super::*;

    fn skimmed(json: &str) -> Option<Vec<String>> {
        let mut texts = Vec::new();
        skim(json, "values", |text| texts.push(text.to_owned()))?;
        Some(texts)
    }

    #[test]
    fn what_is_no_list_of_texts_is_left_to_others() {
        for (json, expected) in [
            (r#"{"values":{"L":[]}}"#, Some(&[][..])),
            (r#"{"values":{"L":[{"S":"a"},{"S":""}]},"b":{"N":"1"}}"#, Some(&["a", ""])),
            (r#"{"m":{"M":{"values":{"L":[{"S":"in"}]}}},"values":{"L":[{"S":"out"}]}}"#, Some(&["out"])),
            (r#"{"s":{"S":"\"values\":{\"L\":["},"values":{"L":[{"S":"\\\"é\u0041"}]}}"#, Some(&["\\\"éA"])),
            (r#"{"b":{"BOOL":true},"n":{"NULL":true},"values":{"L":[{"S":"a"}]}}"#, Some(&["a"])),
            (r#"{"values":{"L":[{"N":"1"}]}}"#, None),
            (r#"{"values":{"L":[{"S":"a"},{"N":"1"}]}}"#, None),
            (r#"{"values":{"S":"a"}}"#, None),
            (r#"{"values":{"SS":["a"]}}"#, None),
            (r#"{"other":{"L":[{"S":"a"}]}}"#, None),
            (r#"{ "values": {"L": [{"S": "a"}]}}"#, None),
            (r#"{"val\u0075es":{"L":[]}}"#, None),
            (r#"{"a":1,"values":{"L":[]}}"#, None),
            (r#"{"values":{"L":["#, None),
            (r#"{"values":{"L":[{"S":"a"#, None),
            (r#"{"values":{"L":[{"S":"a\"#, None),
            ("{", None),
            ("", None),
            ("[]", None),
        ] {
            let expected = expected.map(|texts| texts.iter().map(|text| (*text).to_owned()).collect());
            assert_eq!(skimmed(json), expected, "{json}");
        }
    }

    #[test]
    fn what_the_product_does_not_write_is_left_to_others() {
        for json in [
            r#"{"a":{"SS":["a"]}}"#,
            r#"{"a":{"N":"1.5"}}"#,
            r#"{"a":{"N":"99999999999999999999"}}"#,
            r#"{"a":{"B":"%"}}"#,
            r#"{"a":{}}"#,
            r#"{"a":{"S":"a","N":"1"}}"#,
            r#"{"a":"a"}"#,
            r#"{"a":{"S":"a"}} {}"#,
            r#"{"a":{"S":"a"}"#,
            "[]",
            "",
        ] {
            assert_eq!(decode(Table::Partitions, json), None, "{json}");
        }
        let key_alone = r#"{"pk":{"S":"p"},"sk":{"B":"AA=="}}"#;
        assert_eq!(decode(Table::Partitions, key_alone), Some(Item::new()));
    }

    fn text() -> impl Strategy<Value = String> {
        prop_oneof![4 => "[a-z0-9]{0,6}", 2 => "[\"\\\\{}\\[\\]:,SLM]{0,6}", 1 => "\\PC{0,4}", 1 => "[\\x00-\\x1f]{0,3}"]
    }

    /// The crate's form of a value, and the product's.
    fn value() -> impl Strategy<Value = (AttributeValue, Value)> {
        let leaf = prop_oneof![
            text().prop_map(|text| (AttributeValue::S(text.clone()), Value::Text(text))),
            any::<i64>().prop_map(|number| (AttributeValue::N(number.to_string()), Value::Int(number))),
            prop::collection::vec(any::<u8>(), 0..8)
                .prop_map(|bytes| (AttributeValue::B(bytes.clone()), Value::Bytes(bytes))),
            any::<bool>().prop_map(|flag| (AttributeValue::BOOL(flag), Value::Bool(flag))),
            Just((AttributeValue::NULL(true), Value::Null)),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(|values| {
                    let (theirs, ours) = values.into_iter().unzip();
                    (AttributeValue::L(theirs), Value::List(ours))
                }),
                prop::collection::vec((text(), inner), 0..4).prop_map(|values| {
                    let named = |(name, (theirs, ours)): (String, _)| ((name.clone(), theirs), (name, ours));
                    let (theirs, ours): (HashMap<_, _>, _) = values.into_iter().map(named).unzip();
                    (AttributeValue::M(theirs), Value::Map(ours))
                }),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// As the crate writes them: every item comes back, and skimming finds what decoding finds.
        #[test]
        fn items_come_back(
            attributes in prop::collection::vec((prop_oneof![text(), Just("values".to_owned())], value()), 0..5),
            texts in prop::option::of(prop::collection::vec(text(), 0..4)),
        ) {
            let (mut theirs, mut ours) = (HashMap::new(), Item::new());
            for (name, (their, our)) in attributes {
                theirs.insert(name.clone(), their);
                ours.insert(name, our);
            }
            if let Some(texts) = &texts {
                theirs.insert("values".to_owned(), AttributeValue::L(texts.iter().cloned().map(AttributeValue::S).collect()));
                ours.insert("values".to_owned(), Value::List(texts.iter().cloned().map(Value::Text).collect()));
            }
            for key in ["pk", "sk"] {
                theirs.insert(key.to_owned(), AttributeValue::S("k".to_owned()));
                ours.remove(key);
            }
            let json = serde_json::to_string(&theirs).unwrap();
            prop_assert_eq!(decode(Table::Partitions, &json), Some(ours.clone()));
            let is_plain = ours.keys().all(|name| serde_json::to_string(name).unwrap().len() == name.len() + 2);
            let found = texts_of(&ours, "values");
            let found = found.map(|texts| texts.into_iter().map(str::to_owned).collect::<Vec<_>>());
            match skimmed(&json) {
                None => prop_assert!(found.is_none() || !is_plain),
                skimmed => prop_assert_eq!(skimmed, found),
            }
        }

        #[test]
        fn nothing_panics(json in "[{}\\[\\]\":,SLa\\\\]{0,40}") {
            let _ = (skimmed(&json), decode(Table::Partitions, &json));
        }
    }
}

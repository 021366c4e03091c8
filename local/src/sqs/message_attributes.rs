use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use s3s::crypto::{Checksum as _, Md5};
use serde::{Deserialize, Serialize};

/// A typed value beside the body. Exactly one of the two values is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct MessageAttribute {
    /// `String`, `Number` or `Binary`, each with an optional suffix behind a dot.
    pub data_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub string_value: Option<String>,
    /// In base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binary_value: Option<String>,
}

/// Attributes by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageAttributes(pub BTreeMap<String, MessageAttribute>);

impl MessageAttribute {
    fn is_binary(&self) -> bool {
        self.data_type.split('.').next() == Some("Binary")
    }

    fn raw_value(&self) -> Option<Vec<u8>> {
        match (self.is_binary(), &self.string_value, &self.binary_value) {
            (true, None, Some(binary)) => BASE64.decode(binary).ok(),
            (false, Some(text), None) => Some(text.clone().into_bytes()),
            _ => None,
        }
    }
}

impl MessageAttributes {
    /// What is wrong with them, if anything.
    pub fn check(&self) -> Result<(), String> {
        if self.0.len() > 10 {
            return Err("a message takes at most 10 attributes".to_owned());
        }
        for (name, attribute) in &self.0 {
            let kind = attribute.data_type.split('.').next().unwrap_or_default();
            if !matches!(kind, "String" | "Number" | "Binary") {
                return Err(format!("the type of message attribute {name} must be String, Number or Binary"));
            }
            if attribute.raw_value().is_none_or(|value| value.is_empty()) {
                return Err(format!("message attribute {name} must have a non-empty value of its type"));
            }
        }
        Ok(())
    }

    pub(super) fn size_bytes(&self) -> usize {
        let size = |(name, attribute): (&String, &MessageAttribute)| {
            name.len() + attribute.data_type.len() + attribute.raw_value().map_or(0, |value| value.len())
        };
        self.0.iter().map(size).sum()
    }

    /// Those that a receiver names: `All` or `.*`, a prefix behind which stands `.*`, or names.
    pub(super) fn named(&self, names: &[String]) -> Self {
        let is_named = |name: &str| {
            names.iter().any(|asked| match asked.strip_suffix(".*") {
                Some(prefix) => name.starts_with(prefix),
                None => asked == "All" || asked == name,
            })
        };
        Self(self.0.iter().filter(|(name, _)| is_named(name)).map(|(k, v)| (k.clone(), v.clone())).collect())
    }

    /// As SDKs compute it to check the answer: name, type and value by name, each with its length in four bytes.
    pub(super) fn md5(&self) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        let mut md5 = Md5::new();
        let feed = |md5: &mut Md5, bytes: &[u8]| {
            md5.update(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
            md5.update(bytes);
        };
        for (name, attribute) in &self.0 {
            feed(&mut md5, name.as_bytes());
            feed(&mut md5, attribute.data_type.as_bytes());
            md5.update(&[if attribute.is_binary() { 2 } else { 1 }]);
            feed(&mut md5, &attribute.raw_value().unwrap_or_default());
        }
        Some(hex::encode(md5.finalize()))
    }
}

/// MD5 of a body, in hexadecimal.
pub(super) fn md5_of(body: &str) -> String {
    hex::encode(Md5::checksum(body.as_bytes()))
}

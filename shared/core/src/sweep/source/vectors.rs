//! Where a deletion vector lies. What it says is nobody's business here.

use crate::delta::DeletionVector;
use crate::delta::path::{Reach, resolve};
use crate::location::{Location, split_uri};
use crate::store::ObjectKey;

/// The letters of Z85 in order of their values.
const Z85: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";
/// Letters of a UUID.
const UUID_LETTERS: usize = 20;

/// The object that holds a vector, in every reading of its path; none for a vector in the action itself.
pub(super) fn files_of(root: &Location, vector: &DeletionVector) -> Result<Vec<ObjectKey>, String> {
    let text = vector.path_or_inline_dv.as_str();
    match vector.storage_type.as_str() {
        "i" => Ok(Vec::new()),
        "u" => {
            let name = relative_path(text).ok_or_else(|| format!("`{text}` does not end in the Z85 of a UUID"))?;
            Ok(vec![root.object(&name)])
        }
        "p" => {
            let decoded = resolve(root, text, Reach::Anywhere).map_err(|error| error.to_string())?;
            let raw = split_uri(text).ok().map(|(bucket, key)| ObjectKey::new(bucket, key));
            Ok(std::iter::once(decoded).chain(raw).collect())
        }
        other => Err(format!("the storage type `{other}` is not known")),
    }
}

/// `<folder>/deletion_vector_<uuid>.bin`, from a folder and 20 letters.
fn relative_path(text: &str) -> Option<String> {
    let (folder, letters) = text.split_at_checked(text.len().checked_sub(UUID_LETTERS)?)?;
    let mut bytes = Vec::with_capacity(16);
    for five in letters.as_bytes().chunks(5) {
        let mut number: u64 = 0;
        for letter in five {
            let value = Z85.iter().position(|known| known == letter)?;
            number = number * 85 + u64::try_from(value).ok()?;
        }
        bytes.extend(u32::try_from(number).ok()?.to_be_bytes());
    }
    let id = uuid::Uuid::from_slice(&bytes).ok()?;
    let slash = if folder.is_empty() { "" } else { "/" };
    Some(format!("{folder}{slash}deletion_vector_{id}.bin"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(storage_type: &str, text: &str) -> DeletionVector {
        DeletionVector {
            storage_type: storage_type.into(),
            path_or_inline_dv: text.into(),
            offset: Some(1),
            size_in_bytes: 36,
            cardinality: 2,
        }
    }

    #[test]
    fn the_protocols_own_examples() {
        let root = Location::new("b", "t");
        let keys = |storage_type: &str, text: &str| {
            files_of(&root, &vector(storage_type, text))
                .map(|found| found.into_iter().map(|at| at.to_string()).collect::<Vec<_>>())
        };
        let id = "d2c639aa-8816-431a-aaf6-d3fe2512ff61";
        assert_eq!(keys("u", "ab^-aqEH.-t@S}K{vb[*k^").unwrap(), [format!("s3://b/t/ab/deletion_vector_{id}.bin")]);
        assert_eq!(keys("u", "^-aqEH.-t@S}K{vb[*k^").unwrap(), [format!("s3://b/t/deletion_vector_{id}.bin")]);
        assert_eq!(keys("i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L").unwrap(), Vec::<String>::new());
        let absolute = format!("s3a://c/a%20b/deletion_vector_{id}.bin");
        let expected =
            [format!("s3://c/a b/deletion_vector_{id}.bin"), format!("s3://c/a%20b/deletion_vector_{id}.bin")];
        assert_eq!(keys("p", &absolute).unwrap(), expected);
        for (storage_type, text) in
            [("u", "short"), ("u", "~~~~~~~~~~~~~~~~~~~~"), ("x", "?"), ("p", "gs://b/x"), ("u", "ééééééééééé")]
        {
            assert!(keys(storage_type, text).is_err(), "{storage_type} {text}");
        }
    }
}

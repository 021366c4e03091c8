//! Finding the folders: one listing of S3 for each folder above the last level.

use std::collections::BTreeMap;

use aws_sdk_s3::types::EncodingType;
use futures::{StreamExt, TryStreamExt};
use percent_encoding::percent_decode_str;

use super::DiscoverError;
use super::layout::{Foreign, PartitionKey, read_folder};
use crate::progress::Progress;
use crate::signed::chain;

const LISTINGS_AT_ONCE: usize = 16;

/// Where the table lies: `prefix` ends in a slash, or is empty.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) bucket: String,
    pub(super) prefix: String,
}

/// A folder, and the values that it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Folder {
    pub(super) values: Vec<String>,
    /// With the slash at its end.
    pub(super) prefix: String,
}

/// What lies under a table.
#[derive(Debug, Default)]
pub(super) struct Walked {
    /// Folders of partitions, by their values.
    pub(super) partitions: BTreeMap<Vec<String>, String>,
    /// Folders that are none, with the reason.
    pub(super) foreign: Vec<(String, String)>,
    pub(super) hidden: u64,
    /// Files beside the folders, where no partition has them.
    pub(super) stray_files: u64,
}

/// One folder's folders and files.
struct Listing {
    folder: Folder,
    prefixes: Vec<String>,
    files: u64,
}

/// Walks down to the folders of the last key.
pub(super) async fn walk(
    s3: &aws_sdk_s3::Client,
    place: &Place,
    keys: &[PartitionKey],
    progress: &mut Progress,
) -> Result<Walked, DiscoverError> {
    let mut walked = Walked::default();
    let mut level = vec![Folder { values: Vec::new(), prefix: place.prefix.clone() }];
    let mut listed: u64 = 0;
    for key in keys {
        let listings = level.into_iter().map(|folder| list(s3, place, folder));
        let mut listings = futures::stream::iter(listings).buffered(LISTINGS_AT_ONCE);
        let mut next = Vec::new();
        while let Some(listing) = listings.try_next().await? {
            listed += 1;
            let before = next.len();
            sort_out(key, &listing, &mut next, &mut walked)?;
            if next.len() == before && !listing.folder.values.is_empty() {
                walked.foreign.push((listing.folder.prefix, format!("has no folder `{}=…`", key.name)));
            }
            progress.set(listed, format!("folders listed, {} of `{}` found", next.len(), key.name));
        }
        level = next;
    }
    for folder in level {
        if let Some(first) = walked.partitions.get(&folder.values) {
            walked.foreign.push((folder.prefix, format!("has the same values as s3://{}/{first}", place.bucket)));
        } else {
            walked.partitions.insert(folder.values, folder.prefix);
        }
    }
    Ok(walked)
}

fn sort_out(
    key: &PartitionKey,
    listing: &Listing,
    next: &mut Vec<Folder>,
    walked: &mut Walked,
) -> Result<(), DiscoverError> {
    walked.stray_files += listing.files;
    for prefix in &listing.prefixes {
        let name = prefix.strip_prefix(&listing.folder.prefix).unwrap_or(prefix).trim_end_matches('/');
        let log_of = [("_delta_log", "Delta"), (".hoodie", "Hudi")].into_iter().find(|(log, _)| *log == name);
        if let Some((_, format)) = log_of.filter(|_| listing.folder.values.is_empty()) {
            return Err(DiscoverError::TableFormat(format));
        }
        match read_folder(key, name) {
            Ok(value) => {
                let mut values = listing.folder.values.clone();
                values.push(value);
                next.push(Folder { values, prefix: prefix.clone() });
            }
            Err(Foreign::Hidden) => walked.hidden += 1,
            Err(reason) => walked.foreign.push((prefix.clone(), reason.to_string())),
        }
    }
    Ok(())
}

async fn list(s3: &aws_sdk_s3::Client, place: &Place, folder: Folder) -> Result<Listing, DiscoverError> {
    let mut listing = Listing { prefixes: Vec::new(), files: 0, folder };
    let mut token = None;
    loop {
        let request = s3.list_objects_v2().bucket(&place.bucket).prefix(&listing.folder.prefix).delimiter("/");
        let answer = request.encoding_type(EncodingType::Url).set_continuation_token(token).send().await;
        let answer = answer.map_err(|error| DiscoverError::Storage {
            place: format!("s3://{}/{}", place.bucket, listing.folder.prefix),
            cause: chain(&error),
        })?;
        let is_encoded = answer.encoding_type() == Some(&EncodingType::Url);
        for prefix in answer.common_prefixes().iter().filter_map(|prefix| prefix.prefix()) {
            listing.prefixes.push(decode(prefix, is_encoded)?);
        }
        for key in answer.contents().iter().filter_map(|object| object.key()) {
            // Some writers leave an empty object for the folder itself.
            if decode(key, is_encoded)? != listing.folder.prefix {
                listing.files += 1;
            }
        }
        token = answer.next_continuation_token().map(str::to_owned);
        if token.is_none() {
            return Ok(listing);
        }
    }
}

/// Listings are form-encoded: `+` is a blank.
fn decode(listed: &str, is_encoded: bool) -> Result<String, DiscoverError> {
    if !is_encoded {
        return Ok(listed.to_owned());
    }
    let decoded = percent_decode_str(&listed.replace('+', " ")).decode_utf8().map(|key| key.into_owned());
    decoded.map_err(|_| DiscoverError::Storage { place: listed.to_owned(), cause: "the key is not UTF-8".to_owned() })
}

#[cfg(test)]
mod tests {
    use lakewarden_core::partition::KeyType;

    use super::*;

    #[test]
    fn a_folder_of_the_last_level_names_all_its_keys() {
        let key = PartitionKey { name: "hour".into(), key_type: KeyType::Integer, type_name: "int".into() };
        let folder = Folder { values: vec!["x".into()], prefix: "t/day=x/".into() };
        let prefixes =
            ["hour=1", "hour=x", "minute=1", "_tmp", "other"].map(|name| format!("t/day=x/{name}/")).to_vec();
        let (mut next, mut walked) = (Vec::new(), Walked::default());
        sort_out(&key, &Listing { folder, prefixes, files: 2 }, &mut next, &mut walked).unwrap();
        assert_eq!(next, [Folder { values: vec!["x".into(), "1".into()], prefix: "t/day=x/hour=1/".into() }]);
        let foreign: Vec<&str> = walked.foreign.iter().map(|(prefix, _)| prefix.as_str()).collect();
        assert_eq!(foreign, ["t/day=x/hour=x/", "t/day=x/minute=1/", "t/day=x/other/"]);
        assert_eq!((walked.hidden, walked.stray_files), (1, 2));
    }

    #[test]
    fn a_table_with_a_log_is_left_to_its_log() {
        let key = PartitionKey { name: "day".into(), key_type: KeyType::Text, type_name: "string".into() };
        for (log, expected) in [("_delta_log", "Delta"), (".hoodie", "Hudi")] {
            let root = Folder { values: Vec::new(), prefix: "t/".into() };
            let listing = Listing { folder: root, prefixes: vec![format!("t/{log}/")], files: 0 };
            let refused = sort_out(&key, &listing, &mut Vec::new(), &mut Walked::default());
            assert!(matches!(refused, Err(DiscoverError::TableFormat(format)) if format == expected), "{log}");
        }
    }
}

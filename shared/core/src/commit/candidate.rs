//! A proposal's content, parsed and with its own consistency checked (rules 11.1 that need no table).

use std::collections::BTreeSet;

use bytes::Bytes;

use super::keys::content_hash;
use super::read_set::{self, Reads};
use super::sanity;
use super::verdict::Refusal;
use crate::delta::path::{Reach, resolve};
use crate::delta::{Actions, Strictness, Version, parse_commit};
use crate::location::Location;
use crate::store::ObjectKey;

/// A commit to be judged.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub bytes: Bytes,
    pub sha256: String,
    pub actions: Actions,
    /// Objects of `actions.adds`, in their order.
    pub add_keys: Vec<ObjectKey>,
    /// Objects of `actions.removes`, in their order.
    pub remove_keys: Vec<ObjectKey>,
    /// Objects of `actions.cdc`, in their order.
    pub cdc_keys: Vec<ObjectKey>,
    /// `add_keys`, for look-ups.
    pub added: BTreeSet<ObjectKey>,
    /// `remove_keys`, for look-ups.
    pub removed: BTreeSet<ObjectKey>,
    /// The version that the writer read; [`Version::NONE`] for the creator of a table.
    pub read_version: Version,
    pub reads: Reads,
    /// Files that the commit read: declared ones, and those that it removes.
    pub read_files: BTreeSet<ObjectKey>,
    /// Whether the writer changed every row that its condition matched, if it says so.
    pub matched_equals_written: Option<bool>,
    /// Applications that it wrote or looked up.
    pub app_ids: BTreeSet<String>,
    pub warnings: Vec<String>,
}

impl Candidate {
    /// Parses a staged object whose name proposes `proposed`.
    pub fn parse(root: &Location, proposed: Version, bytes: Bytes) -> Result<Candidate, Refusal> {
        let actions = parse_commit(&bytes, Strictness::Proposal).map_err(|error| sanity::malformed(&error))?;
        let declared = read_set::declared(&actions).map_err(|text| Refusal::invalid("MALFORMED_READ_SET", text))?;
        let mut warnings = Vec::new();
        let read_version = read_version(&actions, proposed, &mut warnings)?;
        let add_keys = keys_of(root, actions.adds.iter().map(|add| add.path.as_str()))?;
        let remove_keys = keys_of(root, actions.removes.iter().map(|remove| remove.path.as_str()))?;
        let cdc_keys = keys_of(root, actions.cdc.iter().map(|cdc| cdc.path.as_str()))?;
        let reads = read_set::reads_of(&actions, declared.as_ref());
        let mut read_files: BTreeSet<ObjectKey> = remove_keys.iter().cloned().collect();
        if let Reads::Some { files, .. } = &reads {
            read_files.extend(keys_of(root, files.iter().map(|file| file.path.as_str()))?);
        }
        let mut app_ids: BTreeSet<String> = actions.txns.iter().map(|txn| txn.app_id.clone()).collect();
        let matched_equals_written = declared.as_ref().and_then(|set| set.matched_equals_written);
        app_ids.extend(declared.into_iter().flat_map(|set| set.app_ids));
        let candidate = Candidate {
            sha256: content_hash(&bytes),
            bytes,
            actions,
            added: add_keys.iter().cloned().collect(),
            removed: remove_keys.iter().cloned().collect(),
            add_keys,
            remove_keys,
            cdc_keys,
            read_version,
            reads,
            read_files,
            matched_equals_written,
            app_ids,
            warnings,
        };
        sanity::check_actions(&candidate)?;
        Ok(candidate)
    }

    pub fn is_blind(&self) -> bool {
        self.reads == Reads::Nothing
    }

    pub fn is_rearrangement(&self) -> bool {
        read_set::is_rearrangement(&self.actions)
    }

    pub fn operation(&self) -> Option<&str> {
        self.actions.operation()
    }

    /// `metaData.id` of the table that the commit was made for, where it says: in `commitInfo.readTableId`, or by carrying
    /// the table's metaData.
    pub fn table_id(&self) -> Option<&str> {
        let metadata = self.actions.metadata.as_ref();
        self.read_table_id().or(metadata.map(|metadata| metadata.id.as_str()))
    }

    /// `commitInfo.readTableId`: `metaData.id` of the table that the writer read.
    pub fn read_table_id(&self) -> Option<&str> {
        self.actions.commit_info.as_ref().and_then(|info| info.text("readTableId"))
    }

    pub fn txn_id(&self) -> Option<&str> {
        self.actions.commit_info.as_ref().and_then(|info| info.text("txnId")).filter(|id| !id.is_empty())
    }
}

/// The version of the file name minus one, or the smaller `commitInfo.readVersion`.
fn read_version(actions: &Actions, proposed: Version, warnings: &mut Vec<String>) -> Result<Version, Refusal> {
    let by_name = proposed.previous();
    let declared = actions.commit_info.as_ref().and_then(|info| info.number("readVersion"));
    let Some(declared) = declared.map(Version).filter(|declared| *declared != by_name) else { return Ok(by_name) };
    if declared < Version::NONE {
        return Err(Refusal::invalid("READ_VERSION", format!("commitInfo.readVersion is {declared}")));
    }
    let smaller = declared.min(by_name);
    warnings.push(format!(
        "the file name says that version {by_name} was read, commitInfo.readVersion says {declared}; judged against {smaller}"
    ));
    Ok(smaller)
}

fn keys_of<'a>(root: &Location, paths: impl Iterator<Item = &'a str>) -> Result<Vec<ObjectKey>, Refusal> {
    paths
        .map(|path| {
            resolve(root, path, Reach::Inside)
                .map_err(|error| Refusal::invalid("FILE_PATH", error.to_string()).file(path))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delta::testkit::{add_line, append_info, remove_line, text};
    use serde_json::{Value, json};

    fn parse(lines: &[Value]) -> Result<Candidate, Refusal> {
        Candidate::parse(&Location::new("b", "t"), Version(5), text(lines).into())
    }

    #[test]
    fn malformed_commits_have_reasons() {
        let vector = |line: &mut Value, action: &str, id: &str| {
            line[action]["deletionVector"] =
                json!({"storageType": "u", "pathOrInlineDv": id, "sizeInBytes": 1, "cardinality": 1});
        };
        let (mut added, mut removed, mut other) = (add_line("a", 1), remove_line("a", 1), remove_line("a", 1));
        vector(&mut added, "add", "x");
        vector(&mut removed, "remove", "x");
        vector(&mut other, "remove", "y");
        assert!(parse(&[added.clone(), other.clone()]).is_ok(), "a pair that replaces a deletion vector");
        assert!(parse(&[added.clone(), remove_line("a", 1)]).is_ok());
        let mut moved = add_line("b", 1);
        moved["add"]["dataChange"] = json!(false);
        let txn = json!({"txn": {"appId": "a", "version": 1}});
        let domain = json!({"domainMetadata": {"domain": "d", "configuration": "", "removed": false}});
        let cases: Vec<(Vec<Value>, &str)> = vec![
            (vec![], "MALFORMED_COMMIT"),
            (vec![json!({"what": {}})], "MALFORMED_COMMIT"),
            (vec![json!({"commitInfo": {"readSet": []}})], "MALFORMED_READ_SET"),
            (vec![json!({"commitInfo": {"readVersion": -2}})], "READ_VERSION"),
            (vec![add_line("../x", 1)], "FILE_PATH"),
            (vec![add_line("a?b", 1)], "FILE_PATH"),
            (vec![add_line("s3://b/t/x", 1)], "FILE_PATH"),
            (vec![remove_line("s3://other/x", 1)], "FILE_PATH"),
            (vec![added, removed], "DUPLICATE_ACTIONS"),
            (vec![other, remove_line("a", 1)], "DUPLICATE_ACTIONS"),
            (vec![add_line("a%20b", 1), add_line("a%20%62", 1)], "DUPLICATE_ACTIONS"),
            (vec![remove_line("a", 1), remove_line("a", 1)], "DUPLICATE_ACTIONS"),
            (vec![add_line("a", 1), remove_line("a", 1)], "DUPLICATE_ACTIONS"),
            (vec![add_line("a", 0)], "FILE_SIZE"),
            (vec![add_line("a", 1), moved], "MIXED_DATA_CHANGE"),
            (vec![txn.clone(), txn], "DUPLICATE_TXN"),
            (vec![domain.clone(), domain], "DUPLICATE_DOMAIN"),
        ];
        for (lines, reason) in cases {
            assert_eq!(parse(&lines).unwrap_err().reason, reason, "{lines:?}");
        }
    }

    #[test]
    fn the_smaller_read_version_counts() {
        let plain = parse(&[add_line("a", 1), append_info()]).unwrap();
        assert_eq!((plain.read_version, plain.warnings.len(), plain.is_blind()), (Version(4), 0, true));
        for (declared, expected) in [(3, 3), (9, 4)] {
            let lines = [add_line("a", 1), json!({"commitInfo": {"readVersion": declared}})];
            let candidate = parse(&lines).unwrap();
            assert_eq!((candidate.read_version.0, candidate.warnings.len()), (expected, 1));
        }
    }
}

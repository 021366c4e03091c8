//! Proposals at exactly one version, as a writer makes them that puts `<version>.json` itself: they become that version
//! byte for byte, or are refused. What makes a proposal such a one is its id, so that whoever comes to judge what was
//! staged (a call, its event, a dead letter) knows.

use bytes::Bytes;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::candidate::Candidate;
use super::conflict;
use super::judge::Admission;
use super::keys::ProposalId;
use super::verdict::{Exception, Refusal};
use crate::delta::Version;
use crate::delta::log::StagedKey;
use crate::location::Location;

/// First bytes of the ids; with version 8 of UUIDs (custom ones), nobody comes by them by chance.
const TAG: [u8; 4] = [0x0e, 0x8a, 0xc7, 0xed];

/// The id of content that is proposed at `version`: the same for the same content. `nth` counts proposals of the same
/// content that came to nothing before, and whose verdicts stay as they are.
pub fn proposal_id(root: &Location, version: Version, content: &[u8], nth: u32) -> ProposalId {
    let mut hash = Sha256::new();
    for part in [root.to_string().as_bytes(), &version.0.to_be_bytes(), &nth.to_be_bytes(), content] {
        hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(part);
    }
    let digest = hash.finalize();
    let bytes: Vec<u8> = TAG.iter().chain(&digest).copied().take(16).collect();
    let id = u128::from_be_bytes(bytes.try_into().unwrap_or_default());
    let version_8 = (id & !(0xf << 76)) | (8 << 76);
    ProposalId(Uuid::from_u128((version_8 & !(0b11 << 62)) | (0b10 << 62)))
}

/// Whether the id is one of those.
pub fn is_exact(id: Uuid) -> bool {
    id.get_version_num() == 8 && id.as_bytes().starts_with(&TAG)
}

/// Refuses such a proposal whose version is not next.
pub(super) fn check_version(key: &StagedKey, latest: Version) -> Result<(), Refusal> {
    if !is_exact(key.id) || key.version == latest.next() {
        return Ok(());
    }
    let (reason, text) = if key.version <= latest {
        ("VERSION_TAKEN", format!("version {} is taken: the table is at version {latest}", key.version))
    } else {
        ("VERSION_AHEAD", format!("version {} is not next: the table is at version {latest}", key.version))
    };
    Err(Refusal::new(Exception::ConcurrentWriteException, reason, text, conflict::RETRY))
}

/// Refuses such a proposal that would have to be changed.
pub(super) fn check_unchanged(key: &StagedKey, candidate: &Candidate, admission: &Admission) -> Result<(), Refusal> {
    if !is_exact(key.id) {
        return Ok(());
    }
    let publication = &admission.publication;
    if !admission.rebase.is_empty() || publication.vectors.is_some() || !publication.returning.is_empty() {
        let text = "the commit would have to be changed to fit the table (row ids, deletion vectors, or what others did \
                    meanwhile), and was proposed as it is";
        return Err(Refusal::new(Exception::InvalidCommitException, "NEEDS_CHANGES", text, conflict::RETRY));
    }
    let Some(after_ms) = admission.timestamp_after_ms else { return Ok(()) };
    let info = candidate.actions.commit_info.as_ref();
    match info.and_then(|info| info.number("inCommitTimestamp")) {
        Some(stamp_ms) if stamp_ms > after_ms => Ok(()),
        found => {
            let found = found.map_or("missing".to_owned(), |found| found.to_string());
            let text =
                format!("inCommitTimestamp is {found}; it must be later than that of the version before, {after_ms}");
            Err(Refusal::invalid("IN_COMMIT_TIMESTAMP", text))
        }
    }
}

/// Refuses such a proposal whose content is in the log as another version.
pub(super) fn check_landed(key: &StagedKey, version: Version) -> Result<(), Refusal> {
    if !is_exact(key.id) || version == key.version {
        return Ok(());
    }
    let text = format!("the same commit (by content or txnId) is version {version} already");
    let advice = "nothing: it is in the table";
    Err(Refusal::new(Exception::ConcurrentTransactionException, "ALREADY_APPLIED", text, advice))
}

/// The staged object that such a proposal becomes.
pub fn staged_key(root: &Location, version: Version, content: &Bytes, id: Option<ProposalId>) -> StagedKey {
    let id = id.unwrap_or_else(|| proposal_id(root, version, content, 0));
    StagedKey { root: root.clone(), version, id: id.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_tell_content_and_place_apart() {
        let root = Location::new("b", "t");
        let id = proposal_id(&root, Version(1), b"x", 0);
        assert!(is_exact(id.0));
        assert_eq!(id, proposal_id(&root, Version(1), b"x", 0));
        for other in [
            proposal_id(&root, Version(2), b"x", 0),
            proposal_id(&root, Version(1), b"y", 0),
            proposal_id(&root, Version(1), b"x", 1),
            proposal_id(&Location::new("b", "u"), Version(1), b"x", 0),
        ] {
            assert!(is_exact(other.0) && other != id);
        }
        let text = id.to_string();
        assert!(text.starts_with("0e8ac7ed-") && text.get(14..15) == Some("8"), "{text}");
        for other in ["80a083e8-7026-4e79-81be-64bd76c43a11", "0e8ac7ed-7026-4e79-81be-64bd76c43a11"] {
            assert!(!is_exact(Uuid::parse_str(other).unwrap()), "{other}");
        }
    }
}

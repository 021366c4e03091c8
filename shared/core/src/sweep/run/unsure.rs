//! Requests of a batch of which nobody knows whether they were carried out, since their answers were lost.

use std::collections::HashMap;

use super::attempt::Attempt;
use super::delete::Failed;
use super::knowledge::Knowledge;
use crate::store::{ETag, Listed, ObjectError, ObjectKey, ObjectMeta, StoreError, VersionId, VersionState};
use crate::sweep::SweepError;
use crate::sweep::report::{ReportWriter, marked_line, quarantined_line};
use crate::sweep::undo::{DELETED, Way, newest_versions};

/// By key.
#[derive(Clone, Debug, Default)]
pub(super) struct Unsure {
    /// Deletions without an answer, with the tag of the copy that was made before.
    pub(super) deletions: HashMap<String, Option<ETag>>,
    /// Copies that were made.
    pub(super) copies: HashMap<String, ETag>,
}

impl Unsure {
    pub(super) fn clear(&mut self) {
        self.deletions.clear();
        self.copies.clear();
    }
}

/// Whether what lies in quarantine, at a place that only this run uses, is this file. The tag of a copy may be another than
/// that of its original (if that was uploaded in parts, or is encrypted with a key of its own): then it is the one
/// that the store answered to our own copy, or, where that answer was lost, it has the size and came after the file.
pub(super) fn is_copy_of(copy: &ObjectMeta, object: &Listed, answered: Option<&ETag>) -> bool {
    let is_same = copy.etag == object.etag || Some(&copy.etag) == answered;
    copy.size_bytes == object.size_bytes && (is_same || copy.last_modified_ms > object.last_modified_ms)
}

impl<'a> Attempt<'a> {
    /// Objects that are gone: by a request of ours whose answer was lost, which is said with where they are, or by
    /// somebody else. Answers those that cannot be told yet.
    pub(super) async fn note_gone<'o>(
        &mut self,
        known: &Knowledge<'a>,
        gone: Vec<&'o Listed>,
        writer: &mut ReportWriter,
    ) -> Result<Failed<'o>, SweepError> {
        let mut failed = Vec::new();
        for object in gone {
            let at = ObjectKey::new(known.scope.bucket.clone(), object.key.clone());
            let line = match (self.unsure.deletions.get(&object.key), self.way) {
                (Some(Some(copy)), _) => {
                    let place = self.quarantine(known).place(&object.key, &self.record.table_id, &self.record.run_id);
                    Some(quarantined_line(object, &place, Some(copy)))
                }
                (Some(None), Way::Markers) => match self.own_marker(&at, object).await {
                    Ok(marker) => marker.map(|marker| marked_line(object, DELETED, &marker)),
                    Err(error) => {
                        failed.push((object, error));
                        continue;
                    }
                },
                _ => None,
            };
            match line {
                Some(line) => {
                    self.record.totals.deleted.add(object.size_bytes);
                    writer.line(&line);
                }
                None => self.spare_gone(object, writer),
            }
        }
        Ok(failed)
    }

    /// The delete marker right above the very version that a HEAD of this batch has shown a moment ago.
    async fn own_marker(&self, at: &ObjectKey, object: &Listed) -> Result<Option<VersionId>, StoreError> {
        let (newest, hidden) = match newest_versions(self.app.ports.objects.as_ref(), at).await {
            Ok(versions) => versions,
            Err(ObjectError::Store(error)) if error.is_retryable() => return Err(error),
            // Who may not list versions cannot say where it is.
            Err(_) => return Ok(None),
        };
        let is_same = hidden.is_some_and(|one| {
            let is_same = matches!(&one.state, VersionState::Object { etag, .. } if *etag == object.etag);
            is_same && one.last_modified_ms == object.last_modified_ms
        });
        let marker = newest.filter(|one| one.state == VersionState::DeleteMarker && is_same);
        Ok(marker.map(|one| one.id))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_copy_is_known_by_its_tag_or_by_its_size_and_date() {
        let etag = |text: &str| ETag(text.to_owned());
        let object = Listed { key: "k".into(), etag: etag("a-2"), size_bytes: 7, last_modified_ms: 5_000 };
        let copy = |tag: &str, size_bytes: u64, last_modified_ms: i64| ObjectMeta {
            etag: etag(tag),
            size_bytes,
            last_modified_ms,
            metadata: BTreeMap::new(),
        };
        let answered = etag("b");
        for (copy, answered, expected) in [
            (copy("a-2", 7, 5_000), None, true),
            (copy("b", 7, 5_000), Some(&answered), true),
            (copy("b", 7, 9_000), None, true),
            // What lay there before the file was written is none of it.
            (copy("b", 7, 5_000), None, false),
            (copy("b", 8, 9_000), Some(&answered), false),
        ] {
            assert_eq!(is_copy_of(&copy, &object, answered), expected, "{copy:?} {answered:?}");
        }
    }
}

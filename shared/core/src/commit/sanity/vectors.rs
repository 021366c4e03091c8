//! Deletion vectors, as far as they can be checked without reading them. Their content is checked beside the footers.

use super::stats::{has_tight_bounds, row_count};
use crate::commit::candidate::Candidate;
use crate::commit::facts::{AtRead, FileFacts};
use crate::commit::verdict::{Exception, Refusal};
use crate::delta::{AddFile, DeletionVector};
use crate::store::ObjectKey;

/// Checks every add with a deletion vector. `are_enabled`: the table will support them and have them switched on.
pub fn check_deletion_vectors(
    candidate: &Candidate,
    are_enabled: bool,
    files: Option<&FileFacts>,
) -> Result<(), Refusal> {
    for (add, key) in candidate.actions.adds.iter().zip(&candidate.add_keys) {
        let Some(vector) = &add.deletion_vector else { continue };
        check_descriptor(add, vector)?;
        check_rows(add, vector)?;
        if !is_there_already(vector, key, files) {
            check_new(add, are_enabled)?;
        }
    }
    Ok(())
}

/// Whether the file was or is live under the same vector, so that the commit only names it once more.
fn is_there_already(vector: &DeletionVector, key: &ObjectKey, files: Option<&FileFacts>) -> bool {
    let Some(files) = files else { return false };
    let id = vector.id();
    let is_same = |add: &AddFile| add.deletion_vector.as_ref().is_some_and(|found| found.id() == id);
    let at_read = match files.at_read(key) {
        AtRead::Live(adds) => adds.into_iter().any(is_same),
        AtRead::Absent | AtRead::Unknown => false,
    };
    at_read || files.live(key).into_iter().any(|(_, add)| is_same(add))
}

fn check_descriptor(add: &AddFile, vector: &DeletionVector) -> Result<(), Refusal> {
    let problem = match vector.storage_type.as_str() {
        "u" | "p" | "i" if vector.size_in_bytes <= 0 => format!("sizeInBytes is {}", vector.size_in_bytes),
        "u" | "p" | "i" if vector.cardinality < 0 => format!("cardinality is {}", vector.cardinality),
        "u" | "p" | "i" => return Ok(()),
        other => format!("the storage type `{other}` is not one that may be written (u, p and i are)"),
    };
    Err(Refusal::invalid("DELETION_VECTOR_DESCRIPTOR", format!("add.deletionVector: {problem}")).file(&add.path))
}

fn check_rows(add: &AddFile, vector: &DeletionVector) -> Result<(), Refusal> {
    let Some(rows) = row_count(add)? else {
        let text = "a file with a deletion vector needs statistics with numRecords";
        return Err(Refusal::invalid("DELETION_VECTOR_NUM_RECORDS", text)
            .class("DELTA_DELETION_VECTOR_MISSING_NUM_RECORDS")
            .file(&add.path));
    };
    if u64::try_from(vector.cardinality).is_ok_and(|deleted| deleted <= rows) {
        return Ok(());
    }
    let text = format!("the deletion vector deletes {} of {rows} rows", vector.cardinality);
    Err(Refusal::invalid("DELETION_VECTOR_CARDINALITY", text)
        .class("DELTA_DELETION_VECTOR_CARDINALITY_MISMATCH")
        .file(&add.path))
}

fn check_new(add: &AddFile, are_enabled: bool) -> Result<(), Refusal> {
    if !are_enabled {
        return Err(Refusal::new(
            Exception::InvalidCommitException,
            "DELETION_VECTORS_DISALLOWED",
            "the commit adds a deletion vector, and the table does not have them switched on",
            "rewrite the file instead, or support the feature and set delta.enableDeletionVectors first",
        )
        .class("DELTA_ADDING_DELETION_VECTORS_DISALLOWED")
        .file(&add.path));
    }
    match has_tight_bounds(add)? {
        Some(false) => Ok(()),
        found => {
            let found = found.map_or("absent".to_owned(), |tight| tight.to_string());
            let text = format!("beside a new deletion vector, stats.tightBounds must be false; it is {found}");
            Err(Refusal::invalid("DELETION_VECTOR_TIGHT_BOUNDS", text)
                .class("DELTA_ADDING_DELETION_VECTORS_WITH_TIGHT_BOUNDS_DISALLOWED")
                .file(&add.path))
        }
    }
}

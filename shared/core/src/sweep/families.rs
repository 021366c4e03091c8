//! Files of one write operation carry its id in their names: what is old is judged by the youngest of them, since a job of
//! five days has not forgotten its first files.

use std::collections::HashMap;

use super::blob::hash64;

/// Operations that are kept track of. With more than these nothing of an operation counts as old.
const FAMILIES_MAX: usize = 2_000_000;
/// Letters of a UUID with its dashes.
const UUID_LETTERS: usize = 36;

/// When the youngest file of each operation was written, among the files that nothing references.
#[derive(Debug, Default)]
pub struct Families {
    youngest_ms: HashMap<u64, i64>,
    is_full: bool,
}

impl Families {
    /// Notes a file of a listing.
    pub fn note(&mut self, key: &str, last_modified_ms: i64) {
        for family in families_of(key) {
            if self.youngest_ms.len() >= FAMILIES_MAX && !self.youngest_ms.contains_key(&family) {
                self.is_full = true;
                continue;
            }
            let youngest_ms = self.youngest_ms.entry(family).or_insert(last_modified_ms);
            *youngest_ms = (*youngest_ms).max(last_modified_ms);
        }
    }

    /// Operations and the dates of their youngest files, to be stored; the answer is whether there were too many.
    pub fn columns(&self) -> (Vec<u64>, Vec<u64>, bool) {
        let (ids, dates) = self.youngest_ms.iter().map(|(id, date)| (*id, date.cast_unsigned())).unzip();
        (ids, dates, self.is_full)
    }

    pub fn from_columns(ids: &[u64], dates: &[u64], is_full: bool) -> Self {
        let youngest_ms = ids.iter().copied().zip(dates.iter().map(|date| date.cast_signed())).collect();
        Self { youngest_ms, is_full }
    }

    /// Date of the youngest file among those of the same operation; `None` if there is no younger one.
    pub fn youngest_ms(&self, key: &str) -> Option<i64> {
        let found = families_of(key).filter_map(|family| self.youngest_ms.get(&family).copied()).max();
        let is_in_one = self.is_full && families_of(key).next().is_some();
        if is_in_one { Some(i64::MAX) } else { found }
    }
}

/// Every UUID in a file's name, as a hash.
fn families_of(key: &str) -> impl Iterator<Item = u64> {
    let name = key.rsplit('/').next().unwrap_or(key);
    let starts = 0..(name.len() + 1).saturating_sub(UUID_LETTERS);
    starts.filter_map(move |start| {
        let text = name.get(start..start + UUID_LETTERS)?;
        let is_inside =
            |at: Option<usize>| at.and_then(|at| name.as_bytes().get(at)).is_some_and(u8::is_ascii_hexdigit);
        if !is_uuid(text) || is_inside(start.checked_sub(1)) || is_inside(Some(start + UUID_LETTERS)) {
            return None;
        }
        Some(hash64(&[text.to_ascii_lowercase().as_bytes()]))
    })
}

fn is_uuid(text: &str) -> bool {
    text.bytes().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "80a083e8-7026-4e79-81be-64bd76c43a11";

    #[test]
    fn the_youngest_file_of_an_operation_counts() {
        let mut families = Families::default();
        families.note(&format!("t/data/00000-1-{ID}-00001.parquet"), 5);
        families.note(&format!("t/data/p=1/00007-9-{}-00002.parquet", ID.to_uppercase()), 9);
        families.note(&format!("t/data/00000-1-{ID}-00003.parquet"), 7);
        assert_eq!(families.youngest_ms(&format!("t/metadata/{ID}-m0.avro")), Some(9));
        assert_eq!(families.youngest_ms(&format!("t/{ID}/x.parquet")), None, "folders are no names");
        assert_eq!(families.youngest_ms(&format!("t/a{ID}.parquet")), None, "part of a longer number");
        assert_eq!(families.youngest_ms("t/é80a083e8-7026-4e79-81be-64bd76c43a1é.parquet"), None);
        assert_eq!(families.youngest_ms("t/short"), None);
    }
}

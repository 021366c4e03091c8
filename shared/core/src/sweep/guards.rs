//! One decision per listed object, each with a reason by name. Pure: everything it knows is handed in.

use std::collections::{BTreeSet, HashSet};

use super::refs::{Held, References};
use super::survey::ForeignRoots;
use crate::iceberg::is_metadata_name;
use crate::location::Location;
use crate::store::{Listed, ObjectKey};

/// Why an object stays, or that it goes. The names stand in reports and run records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    OutsideLocation,
    Referenced,
    PendingCommit,
    SpelledDifferently,
    /// A writer has announced it. Leases are not granted yet; the name has its place.
    Lease,
    OtherTablePrefix,
    ForeignRootFound,
    ReservedName,
    UnknownAge,
    CreationGate,
    TooYoung,
    NoOwnershipEvidence,
    Orphan,
}

impl Reason {
    pub const ALL: [Reason; 13] = [
        Reason::OutsideLocation,
        Reason::Referenced,
        Reason::PendingCommit,
        Reason::SpelledDifferently,
        Reason::Lease,
        Reason::OtherTablePrefix,
        Reason::ForeignRootFound,
        Reason::ReservedName,
        Reason::UnknownAge,
        Reason::CreationGate,
        Reason::TooYoung,
        Reason::NoOwnershipEvidence,
        Reason::Orphan,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Reason::OutsideLocation => "outside_location",
            Reason::Referenced => "referenced",
            Reason::PendingCommit => "pending_commit",
            Reason::SpelledDifferently => "spelled_differently",
            Reason::Lease => "lease",
            Reason::OtherTablePrefix => "other_table_prefix",
            Reason::ForeignRootFound => "foreign_root_found",
            Reason::ReservedName => "reserved_name",
            Reason::UnknownAge => "unknown_age",
            Reason::CreationGate => "creation_gate",
            Reason::TooYoung => "too_young",
            Reason::NoOwnershipEvidence => "no_ownership_evidence",
            Reason::Orphan => "orphan",
        }
    }

    pub fn is_kept(self) -> bool {
        self != Reason::Orphan
    }
}

/// What counts as proof that a file was written for the table, and which names are never touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameRules {
    Iceberg { data_folders: Vec<Location>, metadata_folders: Vec<Location>, partition_names: BTreeSet<String> },
    Delta { root: Location, partition_names: BTreeSet<String> },
}

/// Everything that a decision depends on.
#[derive(Debug)]
pub struct Judge<'a> {
    /// What is swept: the table's location or a folder inside it.
    pub scope: &'a Location,
    pub table: &'a Location,
    pub gate_ms: i64,
    pub now_ms: i64,
    pub retention_ms: i64,
    pub references: &'a References,
    /// Locations of other tables inside ours, and the product's own.
    pub protected: &'a [Location],
    /// Locations under a writer's lease.
    pub leased: &'a [Location],
    pub foreign: &'a ForeignRoots,
    pub names: &'a NameRules,
    /// Metadata files that were opened and found to be this table's own, of an earlier state.
    pub proved_stale: &'a HashSet<ObjectKey>,
}

impl Judge<'_> {
    /// The decision on one object. The first reason to keep it wins; none means that it is an orphan.
    pub fn judge(&self, object: &Listed) -> Reason {
        let at = ObjectKey::new(self.scope.bucket.clone(), object.key.clone());
        let Some(relative) = self.scope.relative(&at).and_then(|_| self.table.relative(&at)) else {
            return Reason::OutsideLocation;
        };
        match self.references.held(&at) {
            Held::Referenced => return Reason::Referenced,
            Held::Pending => return Reason::PendingCommit,
            Held::SpelledDifferently => return Reason::SpelledDifferently,
            Held::No => {}
        }
        let below = |locations: &[Location]| locations.iter().any(|location| is_at_or_below(location, &at));
        if below(self.leased) {
            Reason::Lease
        } else if below(self.protected) {
            Reason::OtherTablePrefix
        } else if self.foreign.covers(&at.key) {
            Reason::ForeignRootFound
        } else if self.names.is_reserved(relative) {
            Reason::ReservedName
        } else {
            self.judge_age(object).unwrap_or_else(|| self.judge_evidence(&at, relative))
        }
    }

    fn judge_age(&self, object: &Listed) -> Option<Reason> {
        let modified_ms = object.last_modified_ms;
        if modified_ms <= 0 {
            Some(Reason::UnknownAge)
        } else if modified_ms <= self.gate_ms {
            Some(Reason::CreationGate)
        } else if modified_ms >= self.now_ms.saturating_sub(self.retention_ms) {
            Some(Reason::TooYoung)
        } else {
            None
        }
    }

    fn judge_evidence(&self, at: &ObjectKey, relative: &str) -> Reason {
        if self.names.is_evidence(at, relative, self.proved_stale) {
            Reason::Orphan
        } else {
            Reason::NoOwnershipEvidence
        }
    }
}

/// A marker object named like the folder itself counts as belonging to it.
fn is_at_or_below(location: &Location, at: &ObjectKey) -> bool {
    location.bucket == at.bucket && (at.key == location.prefix || location.relative(at).is_some())
}

fn has_ending(name: &str, endings: &[&str]) -> bool {
    endings.iter().any(|ending| name.len() > ending.len() && name.ends_with(ending))
}

/// No table writer makes such names (values of partitions are encoded), and XML cannot carry them: one among the keys of
/// a delete request spoils the whole request.
fn is_never_written(letter: char) -> bool {
    letter.is_control() || matches!(letter, '\u{FFFE}' | '\u{FFFF}')
}

const DATA_ENDINGS: [&str; 4] = [".parquet", ".avro", ".orc", ".puffin"];
const METADATA_ENDINGS: [&str; 4] = [".avro", ".stats", ".puffin", ".parquet"];

impl NameRules {
    /// Names that are kept whatever else is known. `relative` is below the table's location.
    pub fn is_reserved(&self, relative: &str) -> bool {
        let name = relative.rsplit('/').next().unwrap_or(relative);
        let is_marker = name.is_empty() || name.ends_with("_$folder$");
        is_marker || name == "version-hint.text" || relative.split('/').any(|segment| self.is_hidden(segment))
    }

    /// Names beginning with `_` or `.` are other tools' business, unless they are partitions of this table.
    fn is_hidden(&self, segment: &str) -> bool {
        if !segment.starts_with(['_', '.']) {
            return false;
        }
        let (partition_names, own): (_, &[&str]) = match self {
            NameRules::Iceberg { partition_names, .. } => (partition_names, &[]),
            NameRules::Delta { partition_names, .. } => (partition_names, &["_change_data", "_delta_index"]),
        };
        let is_partition = segment.split_once('=').is_some_and(|(name, _)| partition_names.contains(name));
        !is_partition && !own.contains(&segment)
    }

    /// Whether place and name say that the table's writers made the file.
    fn is_evidence(&self, at: &ObjectKey, relative: &str, proved_stale: &HashSet<ObjectKey>) -> bool {
        if at.key.contains(is_never_written) {
            return false;
        }
        let name = relative.rsplit('/').next().unwrap_or(relative);
        match self {
            NameRules::Iceberg { data_folders, metadata_folders, .. } => {
                let in_any = |folders: &[Location]| folders.iter().any(|folder| folder.relative(at).is_some());
                if is_metadata_name(name) {
                    return in_any(metadata_folders) && proved_stale.contains(at);
                }
                (in_any(data_folders) && has_ending(name, &DATA_ENDINGS))
                    || (in_any(metadata_folders) && has_ending(name, &METADATA_ENDINGS))
            }
            NameRules::Delta { root, .. } => {
                let is_vector = name.starts_with("deletion_vector_") && name.ends_with(".bin");
                root.relative(at).is_some() && (has_ending(name, &[".parquet"]) || is_vector)
            }
        }
    }
}

/// Most orphans that a healthy table has, of all files under the scope.
pub const FUSE_PERCENT: u64 = 30;
/// Fewer orphans than this never blow the fuse.
pub const FUSE_MIN: u64 = 100;

/// Whether so many orphans among so many files rather mean that references are missing.
pub fn is_fuse_blown(orphans: u64, listed: u64) -> bool {
    orphans >= FUSE_MIN && orphans.saturating_mul(100) > listed.saturating_mul(FUSE_PERCENT)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::store::ETag;
    use crate::sweep::survey::{OwnSigns, Survey};

    const DAY_MS: i64 = 86_400_000;

    fn strings(case: &Value, field: &str) -> Vec<String> {
        case[field].as_array().into_iter().flatten().map(|text| text.as_str().unwrap().to_owned()).collect()
    }

    fn names(case: &Value, table: &Location) -> NameRules {
        let partition_names = strings(case, "partitions").into_iter().collect();
        if case["format"] == "delta" {
            return NameRules::Delta { root: table.clone(), partition_names };
        }
        NameRules::Iceberg {
            data_folders: vec![Location::new("b", "wh/t/data")],
            metadata_folders: vec![Location::new("b", "wh/t/metadata")],
            partition_names,
        }
    }

    /// The optimizer is 10 days old and retention is 3 days unless a case says otherwise.
    fn judge(case: &Value) -> Reason {
        let table = Location::new("b", "wh/t");
        let scope = Location::new("b", case["scope"].as_str().unwrap_or("wh/t"));
        let key = |text: &String| ObjectKey::new("b", text.as_str());
        let mut references = References::default();
        strings(case, "referenced").iter().map(key).for_each(|at| references.add(&at));
        strings(case, "pending").iter().map(key).for_each(|at| references.add_pending(&at));
        references.seal();
        let listed = |key: &str, age_ms: i64| Listed {
            key: key.to_owned(),
            etag: ETag("e".to_owned()),
            size_bytes: 1,
            last_modified_ms: 100 * DAY_MS - age_ms,
        };
        let mut survey = Survey::default();
        strings(case, "also_listed").iter().for_each(|key| survey.note(&scope.bucket, &listed(key, 0)));
        let ours = OwnSigns {
            delta_root: (case["format"] == "delta").then(|| "wh/t".to_owned()),
            metadata_folders: BTreeSet::from(["wh/t/metadata".to_owned()]),
        };
        let locations = |field: &str| -> Vec<Location> {
            strings(case, field).iter().map(|prefix| Location::new("b", prefix)).collect()
        };
        let judge = Judge {
            scope: &scope,
            table: &table,
            gate_ms: 100 * DAY_MS - case["gate_age_ms"].as_i64().unwrap_or(10 * DAY_MS),
            now_ms: 100 * DAY_MS,
            retention_ms: 3 * DAY_MS,
            references: &references,
            protected: &locations("other_tables"),
            leased: &locations("leased"),
            foreign: &survey.foreign_roots(&ours),
            names: &names(case, &table),
            proved_stale: &strings(case, "proved_stale").iter().map(key).collect(),
        };
        let age_ms = case["age_ms"].as_i64().unwrap_or(5 * DAY_MS);
        judge.judge(&listed(case["key"].as_str().unwrap(), age_ms))
    }

    #[test]
    fn the_table_of_cases() {
        let cases: Vec<Value> = serde_json::from_str(include_str!("guard-cases.json")).unwrap();
        let mut covered = BTreeSet::new();
        for case in &cases {
            let found = judge(case);
            assert_eq!(found.as_str(), case["expect"].as_str().unwrap(), "{case}");
            covered.insert(found);
        }
        assert_eq!(covered.len(), Reason::ALL.len(), "every reason has a case: {covered:?}");
    }

    #[test]
    fn the_fuse_needs_both_share_and_number() {
        for (orphans, listed, blown) in
            [(99, 99, false), (100, 100, true), (100, 333, true), (100, 334, false), (300, 1000, false), (0, 0, false)]
        {
            assert_eq!(is_fuse_blown(orphans, listed), blown, "{orphans} of {listed}");
        }
    }
}

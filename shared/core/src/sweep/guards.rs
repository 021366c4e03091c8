//! One decision per listed object, each with a reason by name. Pure: everything it knows is handed in.

use std::collections::{BTreeSet, HashSet};

use super::families::Families;
use super::leases::Leased;
use super::refs::{Held, References};
use super::sightings::{Sightings, is_multipart};
use super::survey::ForeignRoots;
use crate::delta::log::{LOG_DIR, STAGED_DIR, TEMP_DIR};
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
    /// A writer has announced it.
    Lease,
    OtherTablePrefix,
    ForeignRootFound,
    ReservedName,
    UnknownAge,
    CreationGate,
    TooYoung,
    /// Uploaded in parts, so its date is that of the upload's start: age counts from when it was first seen.
    MultipartAge,
    /// Another file of the same write operation is too young.
    FamilyTooYoung,
    NoOwnershipEvidence,
    /// An orphan, but seen for the first time, or not long enough ago.
    SeenOnce,
    Orphan,
}

impl Reason {
    pub const ALL: [Reason; 16] = [
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
        Reason::MultipartAge,
        Reason::FamilyTooYoung,
        Reason::NoOwnershipEvidence,
        Reason::SeenOnce,
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
            Reason::MultipartAge => "multipart_age",
            Reason::FamilyTooYoung => "family_too_young",
            Reason::NoOwnershipEvidence => "no_ownership_evidence",
            Reason::SeenOnce => "seen_once",
            Reason::Orphan => "orphan",
        }
    }

    /// The decision in words.
    pub fn explain(self) -> &'static str {
        match self {
            Reason::OutsideLocation => "it lies outside what is swept",
            Reason::Referenced => "the table, or another one, needs it",
            Reason::PendingCommit => "a commit that may still be made names it, or one that was refused lately",
            Reason::SpelledDifferently => "something is needed whose name some tools take for this one",
            Reason::Lease => "a writer has announced it",
            Reason::OtherTablePrefix => "it lies at the place of another table, or of Lakewarden itself",
            Reason::ForeignRootFound => "signs of a table that the catalog does not know lie around it",
            Reason::ReservedName => "files of this name are kept whatever else is known",
            Reason::UnknownAge => "its age is not known",
            Reason::CreationGate => "it is not younger than the optimizer",
            Reason::TooYoung => "it is younger than the retention",
            Reason::MultipartAge => "it was uploaded in parts and has not been seen for a whole retention",
            Reason::FamilyTooYoung => "another file of the same write operation is younger than the retention",
            Reason::NoOwnershipEvidence => "nothing about its place and name says that the table's writers made it",
            Reason::SeenOnce => "nothing needs it; it goes when a later run finds it again, unchanged",
            Reason::Orphan => "nothing needs it",
        }
    }

    pub fn is_kept(self) -> bool {
        self != Reason::Orphan
    }
}

/// What counts as proof that a file was written for the table, and which names are never touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameRules {
    Iceberg {
        data_folders: Vec<Location>,
        metadata_folders: Vec<Location>,
        partition_names: BTreeSet<String>,
    },
    Delta {
        root: Location,
        partition_names: BTreeSet<String>,
        /// A folder below the root that another format's side of the table uses.
        kept_folder: Option<&'static str>,
        /// Such a folder once that format is switched off, proved to be the table's own.
        swept_folder: Option<&'static str>,
    },
    /// Of a table that was dropped: its metadata goes as well.
    Dropped {
        root: Location,
        left_by: LeftBy,
        metadata_folders: Vec<Location>,
        partition_names: BTreeSet<String>,
    },
}

/// What kind of table has left files behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftBy {
    Iceberg,
    Delta,
    /// Files of columns, without metadata.
    Other,
}

/// What happens to the empty objects that stand for folders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Markers {
    #[default]
    Keep,
    /// They go like other files: when they are old enough.
    Sweep,
}

/// Everything that a decision depends on.
#[derive(Debug)]
pub struct Judge<'a> {
    /// What is swept: the table's location or a folder inside it.
    pub scope: &'a Location,
    pub table: &'a Location,
    /// `None` in a backfill.
    pub gate_ms: Option<i64>,
    pub now_ms: i64,
    pub retention_ms: i64,
    /// How long ago an orphan must have been seen before; `None`: one sighting is enough.
    pub quarantine_ms: Option<i64>,
    pub references: &'a References,
    /// Locations of other tables inside ours, and the product's own.
    pub protected: &'a [Location],
    /// What writers have announced.
    pub leased: &'a Leased,
    pub foreign: &'a ForeignRoots,
    pub names: &'a NameRules,
    pub markers: Markers,
    /// Files that were opened, or whose verdict was read, and that are this table's own and not needed any more.
    pub proved_stale: &'a HashSet<ObjectKey>,
    pub families: &'a Families,
    pub sightings: &'a Sightings,
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
        let is_proved = self.proved_stale.contains(&at);
        let is_marker = is_marker(relative);
        let is_reserved =
            (is_marker && !self.is_swept_marker(relative, object)) || (!is_proved && self.names.is_reserved(relative));
        if self.leased.covers(&at) {
            Reason::Lease
        } else if self.protected.iter().any(|location| location.may_hold(&at)) {
            Reason::OtherTablePrefix
        } else if self.foreign.covers(&at.key) {
            Reason::ForeignRootFound
        } else if is_reserved {
            Reason::ReservedName
        } else if let Some(reason) = marked_folder(&at).and_then(|folder| self.judge_folder(&folder)) {
            reason
        } else if let Some(reason) = self.judge_age(&at, object) {
            reason
        } else if is_proved || is_marker || self.has_evidence(&at, relative) {
            self.judge_sightings(&at, object)
        } else {
            Reason::NoOwnershipEvidence
        }
    }

    /// The marker of the table's own folder stays: some tools take its absence for that of the table.
    fn is_swept_marker(&self, relative: &str, object: &Listed) -> bool {
        self.markers == Markers::Sweep && object.size_bytes == 0 && !relative.trim_matches('/').is_empty()
    }

    /// A folder with somebody else's place in it, or in such a place, needs its marker as they do.
    fn judge_folder(&self, folder: &Location) -> Option<Reason> {
        let touches = |place: &Location| folder.may_contain(place) || place.may_contain(folder);
        let inside = ObjectKey::new(folder.bucket.clone(), folder.key_prefix());
        if self.leased.covers(&inside) {
            Some(Reason::Lease)
        } else if self.protected.iter().any(touches) {
            Some(Reason::OtherTablePrefix)
        } else if self.foreign.covers(&inside.key) || self.foreign.lies_in(&folder.prefix) {
            Some(Reason::ForeignRootFound)
        } else {
            None
        }
    }

    fn judge_age(&self, at: &ObjectKey, object: &Listed) -> Option<Reason> {
        let modified_ms = object.last_modified_ms;
        let cut_off_ms = self.now_ms.saturating_sub(self.retention_ms);
        if modified_ms <= 0 {
            Some(Reason::UnknownAge)
        } else if self.gate_ms.is_some_and(|gate_ms| modified_ms <= gate_ms) {
            Some(Reason::CreationGate)
        } else if modified_ms >= cut_off_ms {
            Some(Reason::TooYoung)
        } else if is_multipart(&object.etag)
            && self.sightings.first_seen_ms(at, object).is_none_or(|seen_ms| seen_ms >= cut_off_ms)
        {
            Some(Reason::MultipartAge)
        } else if self.families.youngest_ms(&at.key).is_some_and(|youngest_ms| youngest_ms >= cut_off_ms) {
            Some(Reason::FamilyTooYoung)
        } else {
            None
        }
    }

    fn judge_sightings(&self, at: &ObjectKey, object: &Listed) -> Reason {
        let Some(quarantine_ms) = self.quarantine_ms else { return Reason::Orphan };
        let since_ms = self.sightings.candidate_since_ms(at, object);
        if since_ms.is_some_and(|since_ms| since_ms <= self.now_ms.saturating_sub(quarantine_ms)) {
            Reason::Orphan
        } else {
            Reason::SeenOnce
        }
    }

    fn has_evidence(&self, at: &ObjectKey, relative: &str) -> bool {
        if at.key.contains(is_never_written) {
            return false;
        }
        let is_beside_content = || self.references.is_beside_content(at);
        self.names.is_evidence(at, relative, is_beside_content)
    }
}

/// What Hadoop's clients put behind the name of a folder. The object lies beside the folder, not in it.
const FOLDER_ENDING: &str = "_$folder$";

/// Whether a key stands for a folder.
fn is_marker(relative: &str) -> bool {
    let name = relative.rsplit('/').next().unwrap_or(relative);
    name.is_empty() || name.ends_with(FOLDER_ENDING)
}

/// The folder that a key stands for.
fn marked_folder(at: &ObjectKey) -> Option<Location> {
    let folder = at.key.strip_suffix(FOLDER_ENDING).or_else(|| at.key.strip_suffix('/'))?;
    Some(Location { bucket: at.bucket.clone(), prefix: folder.trim_end_matches('/').to_owned() })
}

/// The key with repeated slashes as one: `location` may end in a slash, and writers then double it.
fn with_single_slashes(at: &ObjectKey) -> ObjectKey {
    let mut key = String::with_capacity(at.key.len());
    for letter in at.key.chars() {
        if letter != '/' || !key.ends_with('/') {
            key.push(letter);
        }
    }
    ObjectKey::new(at.bucket.clone(), key)
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
/// Of what lies in a Delta log.
const LOG_ENDINGS: [&str; 3] = [".json", ".parquet", ".crc"];
const HINT: &str = "_last_checkpoint";
const METADATA_ENDINGS: [&str; 4] = [".avro", ".stats", ".puffin", ".parquet"];

impl NameRules {
    /// Rules by which no name is evidence.
    pub fn nothing() -> Self {
        NameRules::Iceberg { data_folders: Vec::new(), metadata_folders: Vec::new(), partition_names: BTreeSet::new() }
    }

    /// Names that are kept whatever else is known. `relative` is below the table's location.
    pub fn is_reserved(&self, relative: &str) -> bool {
        let name = relative.rsplit('/').next().unwrap_or(relative);
        let is_kept = match self {
            NameRules::Delta { kept_folder: Some(kept), .. } => relative.split('/').next() == Some(*kept),
            _ => false,
        };
        let is_hint = name == "version-hint.text" && !matches!(self, NameRules::Dropped { .. });
        is_kept || is_hint || relative.split('/').any(|segment| self.is_hidden(segment))
    }

    /// Names beginning with `_` or `.` are other tools' business, unless they are partitions of this table.
    fn is_hidden(&self, segment: &str) -> bool {
        if !segment.starts_with(['_', '.']) {
            return false;
        }
        let (partition_names, own): (_, &[&str]) = match self {
            NameRules::Iceberg { partition_names, .. } => (partition_names, &[]),
            NameRules::Delta { partition_names, .. } => (partition_names, &["_change_data", "_delta_index"]),
            NameRules::Dropped { partition_names, left_by: LeftBy::Delta, .. } => {
                (partition_names, &["_change_data", "_delta_index", LOG_DIR, STAGED_DIR, TEMP_DIR, "_sidecars", HINT])
            }
            NameRules::Dropped { partition_names, .. } => (partition_names, &[]),
        };
        let is_partition = segment.split_once('=').is_some_and(|(name, _)| partition_names.contains(name));
        !is_partition && !own.contains(&segment)
    }

    /// Whether place and name say that the table's writers made the file: in a data or metadata folder, or (dearer to
    /// find out) in a folder where the table's files lie.
    fn is_evidence(&self, at: &ObjectKey, relative: &str, is_beside_content: impl Fn() -> bool) -> bool {
        let name = relative.rsplit('/').next().unwrap_or(relative);
        match self {
            NameRules::Iceberg { data_folders, metadata_folders, .. } => {
                let plain = with_single_slashes(at);
                let in_any = |folders: &[Location]| folders.iter().any(|folder| folder.relative(&plain).is_some());
                // They say whose they are and of which state, so nothing less than opening them counts.
                if is_metadata_name(name) {
                    return false;
                }
                (has_ending(name, &DATA_ENDINGS) && (in_any(data_folders) || is_beside_content()))
                    || (in_any(metadata_folders) && has_ending(name, &METADATA_ENDINGS))
            }
            NameRules::Delta { root, swept_folder, .. } => {
                let is_vector = name.starts_with("deletion_vector_") && name.ends_with(".bin");
                let is_manifest = swept_folder.is_some_and(|folder| relative.split('/').next() == Some(folder))
                    && has_ending(name, &[".avro"]);
                root.relative(at).is_some() && (has_ending(name, &[".parquet"]) || is_vector || is_manifest)
            }
            NameRules::Dropped { root, left_by, metadata_folders, .. } => {
                let in_metadata = metadata_folders.iter().any(|folder| folder.relative(at).is_some());
                let in_log = relative.split('/').next() == Some(LOG_DIR);
                let is_vector = name.starts_with("deletion_vector_") && name.ends_with(".bin");
                let is_own = match left_by {
                    LeftBy::Iceberg => {
                        let is_metadata = is_metadata_name(name) || name == "version-hint.text";
                        in_metadata && (is_metadata || has_ending(name, &METADATA_ENDINGS))
                    }
                    LeftBy::Delta => is_vector || (in_log && (name == HINT || has_ending(name, &LOG_ENDINGS))),
                    LeftBy::Other => false,
                };
                root.relative(at).is_some() && (is_own || has_ending(name, &DATA_ENDINGS))
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
            let folder = |field: &str| (case[field] == true).then_some("metadata");
            let (kept_folder, swept_folder) = (folder("uniform"), folder("old_uniform"));
            return NameRules::Delta { root: table.clone(), partition_names, kept_folder, swept_folder };
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
        for at in strings(case, "referenced").iter().map(key) {
            references.add_content(&at);
        }
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
            delta_roots: (case["format"] == "delta").then(|| "wh/t".to_owned()).into_iter().collect(),
            metadata_folders: BTreeSet::from(["wh/t/metadata".to_owned()]),
            ..OwnSigns::default()
        };
        let locations = |field: &str| -> Vec<Location> {
            strings(case, field).iter().map(|prefix| Location::new("b", prefix)).collect()
        };
        let now_ms = 100 * DAY_MS;
        let mut object = listed(case["key"].as_str().unwrap(), case["age_ms"].as_i64().unwrap_or(5 * DAY_MS));
        object.etag = ETag(case["etag"].as_str().unwrap_or("e").to_owned());
        object.size_bytes = case["size_bytes"].as_u64().unwrap_or(1);
        let at = key(&object.key);
        let mut families = Families::default();
        strings(case, "young_family").iter().for_each(|key| families.note(key, now_ms - DAY_MS));
        let mut sightings = Sightings::default();
        let ago = |field: &str| case[field].as_i64().map(|ago_ms| now_ms - ago_ms);
        sightings.see(&at, &object, ago("first_seen_ago_ms"), ago("candidate_ago_ms"));
        let judge = Judge {
            scope: &scope,
            table: &table,
            gate_ms: (case["backfill"] != true).then(|| now_ms - case["gate_age_ms"].as_i64().unwrap_or(10 * DAY_MS)),
            now_ms,
            retention_ms: 3 * DAY_MS,
            quarantine_ms: (case["sightings"] == 2).then_some(DAY_MS),
            references: &references,
            protected: &locations("other_tables"),
            leased: &Leased::new(
                strings(case, "leased").iter().map(key).collect(),
                strings(case, "leased_keys").iter().map(key).collect(),
            ),
            foreign: &ForeignRoots::of(&survey.foreign_signs(&ours)),
            names: &names(case, &table),
            markers: if case["markers"] == "sweep" { Markers::Sweep } else { Markers::Keep },
            proved_stale: &strings(case, "proved_stale").iter().map(key).collect(),
            families: &families,
            sightings: &sightings.sealed(),
        };
        judge.judge(&object)
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

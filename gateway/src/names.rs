//! Which keys name files of a Delta log, however they are spelled, and where that is guarded.
//!
//! S3 takes keys literally: `t//_delta_log/…` is another object than `t/_delta_log/…`. Stores that resemble S3, and
//! programs that read them, do not always. So a key that some reader could take for a log file, and that is none as it
//! is spelled, may be read and never be written: nothing is guessed about it.

use lakewarden_core::delta::Version;
use lakewarden_core::delta::log::{LOG_DIR, LogName, commit_key, log_key};
use lakewarden_core::location::{Location, LocationError};
use lakewarden_core::store::ObjectKey;
use percent_encoding::percent_decode_str;

/// Times that a key is percent-decoded in search of another spelling.
const DECODE_MOST: usize = 4;

/// What a key names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// `<root>/_delta_log/<20 digits>.json`
    LogFile(LogFile),
    /// A checkpoint, or a part of one.
    Checkpoint(Checkpoint),
    /// Something that could be taken for one of these.
    Lookalike,
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFile {
    pub root: Location,
    pub version: Version,
}

impl LogFile {
    pub fn key(&self) -> ObjectKey {
        commit_key(&self.root, self.version)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    pub root: Location,
    /// In `_delta_log/`.
    pub name: String,
}

impl Checkpoint {
    pub fn key(&self) -> ObjectKey {
        log_key(&self.root, &self.name)
    }
}

/// What a decoded key names.
pub fn classify(at: &ObjectKey) -> Named {
    exactly(at).unwrap_or_else(|| if looks_like_log_file(at) { Named::Lookalike } else { Named::Other })
}

fn exactly(at: &ObjectKey) -> Option<Named> {
    let (folder, name) = at.key.rsplit_once('/')?;
    let root = folder.strip_suffix(LOG_DIR)?;
    if !(root.is_empty() || root.ends_with('/')) || root.split('/').any(|segment| matches!(segment, "." | "..")) {
        return None;
    }
    if !is_plain_bucket(&at.bucket) {
        return None;
    }
    let root = Location::new(at.bucket.clone(), root);
    let (named, key) = match LogName::parse(name) {
        LogName::Commit(version) => {
            let file = LogFile { root, version };
            let key = file.key();
            (Named::LogFile(file), key)
        }
        found if found.checkpoint().is_some() => {
            let checkpoint = Checkpoint { root, name: name.to_owned() };
            let key = checkpoint.key();
            (Named::Checkpoint(checkpoint), key)
        }
        _ => return None,
    };
    // A prefix that is not canonical (`a//`) would be another table than the one that is proposed to.
    (key == *at).then_some(named)
}

/// Ends of names that S3 gives to access points, and lets no bucket have.
const OF_ACCESS_POINTS: [&str; 4] = ["-s3alias", "--ol-s3", "--xa-s3", ".mrap"];

/// Whether what stands for a bucket is another name of one: an access point, whose objects are those of some bucket.
fn is_access_point(bucket: &str) -> bool {
    let bucket = bucket.to_ascii_lowercase();
    bucket.contains(':') || OF_ACCESS_POINTS.iter().any(|end| bucket.ends_with(end))
}

/// Whether a bucket's name is nothing that a path could be shortened by, and the only name of what lies in it.
fn is_plain_bucket(bucket: &str) -> bool {
    !is_access_point(bucket) && matches!(reduced(bucket).as_slice(), [one] if one.eq_ignore_ascii_case(bucket))
}

/// Also other numbers of digits: some readers take any.
fn looks_like_log_file(at: &ObjectKey) -> bool {
    let segments = reduced(&at.key);
    let [.., folder, name] = segments.as_slice() else { return false };
    let digits = name.strip_suffix(".json").unwrap_or_default();
    let is_commit = !digits.is_empty() && digits.chars().all(char::is_numeric);
    folder == LOG_DIR && (is_commit || LogName::parse(name).checkpoint().is_some())
}

/// The segments of a key as the most forgiving reader could see them: decoded until nothing changes, lower case, without
/// empty and dot segments, blanks and control characters, and whatever follows `?` or `#`.
fn reduced(key: &str) -> Vec<String> {
    let mut text = key.to_owned();
    for _ in 0..DECODE_MOST {
        let decoded = percent_decode_str(&text).decode_utf8_lossy().into_owned();
        if decoded == text {
            break;
        }
        text = decoded;
    }
    let text = text.split(['?', '#']).next().unwrap_or_default().replace('\\', "/").to_lowercase();
    let mut segments: Vec<String> = Vec::new();
    for segment in text.split('/') {
        let segment: String = segment.chars().filter(|c| !c.is_control() && !c.is_whitespace()).collect();
        match segment.as_str() {
            "" | "." => {}
            ".." => drop(segments.pop()),
            _ => segments.push(segment.trim_end_matches('.').to_owned()),
        }
    }
    segments
}

/// Where log files are guarded.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// Nothing means everywhere.
    guarded: Vec<Place>,
    /// Exceptions: what lies here passes.
    passed: Vec<Place>,
}

#[derive(Clone, Debug)]
struct Place {
    literal: Location,
    reduced: Vec<String>,
}

impl Place {
    fn parse(uri: &str) -> Result<Place, LocationError> {
        let literal = Location::parse(uri)?;
        Ok(Place { reduced: reduced(&literal.prefix), literal })
    }

    fn holds_literally(&self, at: &ObjectKey) -> bool {
        self.literal.relative(at).is_some()
    }

    /// `segments` begin with the bucket.
    fn holds_reduced(&self, segments: &[String]) -> bool {
        let Some((bucket, rest)) = segments.split_first() else { return false };
        self.literal.bucket.eq_ignore_ascii_case(bucket) && rest.starts_with(&self.reduced)
    }
}

impl Scope {
    /// `guarded`, or everything if there is none, but for `passed`; folders as `s3://bucket/prefix`.
    pub fn new(guarded: &[String], passed: &[String]) -> Result<Scope, LocationError> {
        let places = |uris: &[String]| uris.iter().map(|uri| Place::parse(uri)).collect::<Result<Vec<_>, _>>();
        Ok(Scope { guarded: places(guarded)?, passed: places(passed)? })
    }

    /// Whether a log file of this key is guarded. In doubt (the key lies in one place as it is spelled and in another as
    /// it might be read) it is.
    pub fn guards(&self, at: &ObjectKey) -> bool {
        // Dots may lead out of the bucket, too: for whom they lead there, it lies in another one.
        let within: Vec<String> = [at.bucket.to_lowercase()].into_iter().chain(reduced(&at.key)).collect();
        let whole = reduced(&format!("{}/{}", at.bucket, at.key));
        let is_in = self.guarded.is_empty()
            || is_access_point(&at.bucket)
            || self
                .guarded
                .iter()
                .any(|place| place.holds_literally(at) || place.holds_reduced(&within) || place.holds_reduced(&whole));
        let is_out = self
            .passed
            .iter()
            .any(|place| place.holds_literally(at) && place.holds_reduced(&within) && place.holds_reduced(&whole));
        is_in && !is_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(key: &str) -> Named {
        classify(&ObjectKey::new("lake", key))
    }

    #[test]
    fn log_files_are_known_by_their_exact_names() {
        for (key, prefix, version) in [
            ("t/_delta_log/00000000000000000000.json", "t", 0),
            ("_delta_log/00000000000000000007.json", "", 7),
            ("a b/ü+%25/_delta_log/00000000000000000012.json", "a b/ü+%25", 12),
            ("t/_delta_log/x/_delta_log/00000000000000000001.json", "t/_delta_log/x", 1),
        ] {
            let file = LogFile { root: Location::new("lake", prefix), version: Version(version) };
            assert_eq!(named(key), Named::LogFile(file), "{key}");
        }
    }

    #[test]
    fn what_a_reader_could_take_for_one_is_a_lookalike() {
        for key in [
            "t//_delta_log/00000000000000000000.json",
            "/t/_delta_log/00000000000000000000.json",
            "t/_delta_log//00000000000000000000.json",
            "t/_delta_log/./00000000000000000000.json",
            "t/./_delta_log/00000000000000000000.json",
            "t/x/../_delta_log/00000000000000000000.json",
            "../t/_delta_log/00000000000000000000.json",
            "t/_delta_log/x/../00000000000000000000.json",
            "t/_DELTA_LOG/00000000000000000000.json",
            "t/_delta_log/00000000000000000000.JSON",
            "t/_delta_log%2F00000000000000000000.json",
            "t/%5Fdelta_log/00000000000000000000.json",
            "t/%255Fdelta_log/00000000000000000000.json",
            "t\\_delta_log\\00000000000000000000.json",
            "t/_delta_log/00000000000000000000.json/",
            "t/_delta_log/00000000000000000000.json ",
            "t/_delta_log/00000000000000000000.json\0",
            "t/_delta_log/00000000000000000000.json?versionId=1",
            "t/_delta_log/00000000000000000000.json.",
            "t/_delta_log./00000000000000000000.json",
            "t/_delta_log/0.json",
            "t/_delta_log/000000000000000000001.json",
            "t/_delta_log/99999999999999999999.json",
            "t/_delta_log/٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠.json",
        ] {
            assert_eq!(named(key), Named::Lookalike, "{key}");
        }
    }

    #[test]
    fn checkpoints_are_known_by_their_exact_names_too() {
        let id = "80a083e8-7026-4e79-81be-64bd76c43a11";
        for name in [
            "00000000000000000004.checkpoint.parquet".to_owned(),
            "00000000000000000004.checkpoint.0000000001.0000000002.parquet".to_owned(),
            format!("00000000000000000004.checkpoint.{id}.json"),
            format!("00000000000000000004.checkpoint.{id}.parquet"),
        ] {
            let checkpoint = Checkpoint { root: Location::new("lake", "t"), name: name.clone() };
            assert_eq!(named(&format!("t/_delta_log/{name}")), Named::Checkpoint(checkpoint));
            for key in
                [format!("t//_delta_log/{name}"), format!("t/_delta_log/x/../{name}"), format!("t/_DELTA_LOG/{name}")]
            {
                assert_eq!(named(&key), Named::Lookalike, "{key}");
            }
        }
    }

    #[test]
    fn a_bucket_that_a_path_could_lose_is_none() {
        let key = "lake/t/_delta_log/00000000000000000000.json";
        for bucket in
            ["", ".", "..", "a/..", "x%2e", " ", "arn:aws:s3:eu-west-1:1:accesspoint", "ap-0a1b-s3alias", "x--ol-s3"]
        {
            assert_eq!(classify(&ObjectKey::new(bucket, key)), Named::Lookalike, "{bucket:?}");
        }
        assert!(matches!(classify(&ObjectKey::new("my.Lake-1", key)), Named::LogFile(_)));
    }

    #[test]
    fn everything_else_is_something_else() {
        for key in [
            "",
            "t/part-0.parquet",
            "t/_delta_log/",
            "t/_delta_log/_last_checkpoint",
            "t/_delta_log/00000000000000000000.00000000000000000004.compacted.json",
            "t/_delta_log/_sidecars/00000000000000000004.checkpoint.parquet",
            "t/_delta_log/4.checkpoint.parquet",
            "t/_delta_log/00000000000000000004.crc",
            "t/_delta_log/_staged_commits/00000000000000000004.80a083e8-7026-4e79-81be-64bd76c43a11.json",
            "t/_delta_log/_commits/00000000000000000004.json",
            "t/x_delta_log/00000000000000000004.json",
            "00000000000000000004.json",
            "t/_delta_log/.json",
        ] {
            assert_eq!(named(key), Named::Other, "{key}");
        }
    }

    #[test]
    fn scopes_are_folders() {
        let at =
            |bucket: &str, key: &str| ObjectKey::new(bucket, format!("{key}/_delta_log/00000000000000000000.json"));
        let everywhere = Scope::default();
        assert!(everywhere.guards(&at("any", "t")));
        let some = Scope::new(&["s3://lake/gold".into()], &["s3://lake/gold/raw/".into()]).unwrap();
        for (bucket, key, guarded) in [
            ("lake", "gold/t", true),
            ("lake", "gold", true),
            ("lake", "golden/t", false),
            ("other", "gold/t", false),
            ("lake", "silver/t", false),
            ("lake", "gold/raw/t", false),
            ("lake", "gold/rawest/t", true),
            // Spelled so that it lies elsewhere for some reader.
            ("lake", "silver/../gold/t", true),
            ("lake", "GOLD/t", true),
            ("lake", "/gold/t", true),
            ("lake", "gold/raw/../t", true),
            // Or in another bucket.
            ("scratch", "../lake/gold/t", true),
            ("scratch", "%2e%2e/lake/gold/t", true),
            ("scratch", "../lake/silver/t", false),
            (".", "lake/gold/t", true),
            ("", "lake/gold/t", true),
            ("lake", "../lake/gold/raw/t", true),
            // Whose bucket that is nobody knows.
            ("ap-0a1b-s3alias", "silver/t", true),
        ] {
            assert_eq!(some.guards(&at(bucket, key)), guarded, "{bucket}/{key}");
        }
        assert!(Scope::new(&["/tmp".into()], &[]).is_err());
    }
}

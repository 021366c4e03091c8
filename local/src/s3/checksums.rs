//! The five checksums of S3, given in headers or trailers, checked while a body is received and stored with the object.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::HeaderMap;
use s3s::checksum::ChecksumHasher;
use s3s::dto::{Checksum, ChecksumAlgorithm, ChecksumType};
use s3s::{S3Error, TrailingHeaders, s3_error};
use serde::{Deserialize, Serialize};

use super::Failure;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Algorithm {
    Crc32,
    Crc32c,
    Crc64nvme,
    Sha1,
    Sha256,
}

/// What a checksum of a multipart object covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ChecksumScope {
    #[default]
    FullObject,
    /// The checksums of the parts, followed by `-` and their number.
    Composite,
}

/// Checksums in base64, by algorithm.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Checksums(pub BTreeMap<Algorithm, String>);

/// Takes the checksums out of an input of the wire layer (its members have the same names everywhere).
macro_rules! given_checksums {
    ($input:expr) => {
        $crate::s3::checksums::Checksums::computed(s3s::dto::Checksum {
            checksum_crc32: $input.checksum_crc32.take(),
            checksum_crc32c: $input.checksum_crc32c.take(),
            checksum_crc64nvme: $input.checksum_crc64nvme.take(),
            checksum_sha1: $input.checksum_sha1.take(),
            checksum_sha256: $input.checksum_sha256.take(),
            ..Default::default()
        })
    };
}
/// Puts checksums into an output of the wire layer.
macro_rules! set_checksums {
    ($output:expr, $checksums:expr) => {{
        let sums = $checksums.to_wire();
        $output.checksum_crc32 = sums.checksum_crc32;
        $output.checksum_crc32c = sums.checksum_crc32c;
        $output.checksum_crc64nvme = sums.checksum_crc64nvme;
        $output.checksum_sha1 = sums.checksum_sha1;
        $output.checksum_sha256 = sums.checksum_sha256;
    }};
}
pub(super) use {given_checksums, set_checksums};

impl Algorithm {
    pub const ALL: [Algorithm; 5] =
        [Algorithm::Crc32, Algorithm::Crc32c, Algorithm::Crc64nvme, Algorithm::Sha1, Algorithm::Sha256];

    fn name(self) -> &'static str {
        match self {
            Algorithm::Crc32 => "CRC32",
            Algorithm::Crc32c => "CRC32C",
            Algorithm::Crc64nvme => "CRC64NVME",
            Algorithm::Sha1 => "SHA1",
            Algorithm::Sha256 => "SHA256",
        }
    }

    pub fn to_wire(self) -> ChecksumAlgorithm {
        ChecksumAlgorithm::from_static(self.name())
    }

    pub fn parse(name: &str) -> Result<Self, S3Error> {
        Algorithm::ALL
            .into_iter()
            .find(|algorithm| algorithm.name().eq_ignore_ascii_case(name))
            .ok_or_else(|| s3_error!(InvalidRequest, "The checksum algorithm {name} is not supported"))
    }

    fn header(self) -> String {
        format!("x-amz-checksum-{}", self.name().to_ascii_lowercase())
    }

    /// Of a multipart upload that does not say: CRC64NVME exists as a full-object checksum only.
    pub fn default_scope(self) -> ChecksumScope {
        match self {
            Algorithm::Crc64nvme => ChecksumScope::FullObject,
            _ => ChecksumScope::Composite,
        }
    }
}

impl ChecksumScope {
    pub fn to_wire(self) -> ChecksumType {
        ChecksumType::from_static(match self {
            ChecksumScope::FullObject => ChecksumType::FULL_OBJECT,
            ChecksumScope::Composite => ChecksumType::COMPOSITE,
        })
    }

    pub fn parse(wire: &ChecksumType) -> Result<Self, S3Error> {
        match wire.as_str() {
            ChecksumType::FULL_OBJECT => Ok(ChecksumScope::FullObject),
            ChecksumType::COMPOSITE => Ok(ChecksumScope::Composite),
            other => Err(s3_error!(InvalidRequest, "The checksum type {other} does not exist")),
        }
    }
}

impl Checksums {
    pub fn computed(wire: Checksum) -> Self {
        let all = [
            (Algorithm::Crc32, wire.checksum_crc32),
            (Algorithm::Crc32c, wire.checksum_crc32c),
            (Algorithm::Crc64nvme, wire.checksum_crc64nvme),
            (Algorithm::Sha1, wire.checksum_sha1),
            (Algorithm::Sha256, wire.checksum_sha256),
        ];
        Self(all.into_iter().filter_map(|(algorithm, value)| Some((algorithm, value?))).collect())
    }

    pub fn to_wire(&self) -> Checksum {
        let get = |algorithm| self.0.get(&algorithm).cloned();
        Checksum {
            checksum_crc32: get(Algorithm::Crc32),
            checksum_crc32c: get(Algorithm::Crc32c),
            checksum_crc64nvme: get(Algorithm::Crc64nvme),
            checksum_sha1: get(Algorithm::Sha1),
            checksum_sha256: get(Algorithm::Sha256),
            checksum_type: None,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

pub(super) fn hasher(algorithms: impl IntoIterator<Item = Algorithm>) -> ChecksumHasher {
    let mut hasher = ChecksumHasher::default();
    for algorithm in algorithms {
        match algorithm {
            Algorithm::Crc32 => hasher.crc32 = Some(Default::default()),
            Algorithm::Crc32c => hasher.crc32c = Some(Default::default()),
            Algorithm::Crc64nvme => hasher.crc64nvme = Some(Default::default()),
            Algorithm::Sha1 => hasher.sha1 = Some(Default::default()),
            Algorithm::Sha256 => hasher.sha256 = Some(Default::default()),
        }
    }
    hasher
}

/// The checksum of the checksums of parts.
pub(super) fn composite(algorithm: Algorithm, parts: &[&str]) -> Result<Checksums, Failure> {
    let mut whole = hasher([algorithm]);
    for part in parts {
        let raw = BASE64.decode(part).map_err(|_| s3_error!(InvalidPart, "A part's checksum is not base64"))?;
        whole.update(&raw);
    }
    let mut sums = Checksums::computed(whole.finalize());
    for value in sums.0.values_mut() {
        *value = format!("{value}-{}", parts.len());
    }
    Ok(sums)
}

/// The wire layer passes over checksums it does not know; an unchecked body must not look checked.
fn refuse_unknown(headers: &HeaderMap) -> Result<(), S3Error> {
    for name in headers.keys() {
        match name.as_str().strip_prefix("x-amz-checksum-") {
            None | Some("type" | "algorithm" | "mode") => {}
            Some(algorithm) => {
                Algorithm::parse(algorithm)?;
            }
        }
    }
    Ok(())
}

/// What a request says about its body, in headers and later in trailers.
#[derive(Debug)]
pub(super) struct Expected {
    given: Checksums,
    announced: Option<Algorithm>,
    declared: Option<Algorithm>,
    content_md5: Option<String>,
}

impl Expected {
    pub fn of_request(
        given: Checksums,
        declared: Option<&ChecksumAlgorithm>,
        content_md5: Option<String>,
        headers: &HeaderMap,
    ) -> Result<Self, S3Error> {
        refuse_unknown(headers)?;
        let announced = headers
            .get("x-amz-trailer")
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.trim().strip_prefix("x-amz-checksum-"))
            .map(Algorithm::parse)
            .transpose()?;
        let declared = declared.map(|algorithm| Algorithm::parse(algorithm.as_str())).transpose()?;
        Ok(Self { given, announced, declared, content_md5 })
    }

    pub fn hasher(&self) -> ChecksumHasher {
        let named: BTreeSet<Algorithm> =
            self.given.0.keys().copied().chain(self.announced).chain(self.declared).collect();
        hasher(named)
    }

    /// Compares what was said with what was received. Call when the body has been read to its end.
    pub fn check(
        mut self,
        trailers: Option<TrailingHeaders>,
        computed: &Checksums,
        md5: &[u8; 16],
    ) -> Result<(), S3Error> {
        if let Some(algorithm) = self.announced {
            let trailer = trailers.and_then(|trailers| trailers.take()).and_then(|trailers| {
                trailers.get(algorithm.header()).and_then(|value| value.to_str().ok()).map(str::to_owned)
            });
            let Some(trailer) = trailer else {
                return Err(s3_error!(InvalidRequest, "The announced trailer {} is missing", algorithm.header()));
            };
            self.given.0.insert(algorithm, trailer);
        }
        for (algorithm, value) in &self.given.0 {
            if computed.0.get(algorithm) != Some(value) {
                let name = algorithm.name();
                return Err(s3_error!(BadDigest, "The {name} you specified did not match the calculated checksum."));
            }
        }
        if let Some(given) = self.content_md5 {
            let given = BASE64.decode(given).map_err(|_| s3_error!(InvalidDigest))?;
            if given.len() != md5.len() {
                return Err(s3_error!(InvalidDigest));
            }
            if given != md5 {
                return Err(s3_error!(BadDigest, "The Content-MD5 you specified did not match what we received."));
            }
        }
        Ok(())
    }
}

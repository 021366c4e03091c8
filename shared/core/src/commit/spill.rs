//! Parts of a table's cached state that are too large for its head's item: objects named by their content, at
//! `<bodies>/heads/<hash of the root>/<hash of the content>`.
//!
//! They lie with the other bodies, outside every table: below a table's root, other engines' clean-up would find files
//! that no log names, our own sweep as well, and a table that is deleted by its prefix would take the cache of its
//! successor along. Not in `_delta_log/.tmp` either: what lies there is bytes that claims point at.
//!
//! Everything here is a cache. The name is the hash of the content and is checked, so a stale pointer finds the right
//! bytes or none; where there are none, the log is read instead. Deleting any of these objects is safe at any time.

use bytes::Bytes;

use super::error::CommitError;
use super::keys::content_hash;
use crate::location::Location;
use crate::ports::Ports;
use crate::store::{GetOptions, ObjectError, ObjectKey, PutOptions, StoreErrorKind};

fn object_of(ports: &Ports, root: &Location, sha256: &str) -> ObjectKey {
    ports.bodies.object(&format!("heads/{}/{sha256}", content_hash(root.to_string().as_bytes())))
}

/// Stores a part and answers its hash. Same content, same name: writing it twice changes nothing.
pub async fn store(ports: &Ports, root: &Location, bytes: Bytes) -> Result<String, CommitError> {
    let sha256 = content_hash(&bytes);
    ports.objects.put(&object_of(ports, root, &sha256), bytes, &PutOptions::default()).await?;
    Ok(sha256)
}

/// A part, if it is still there.
pub async fn load(ports: &Ports, root: &Location, sha256: &str) -> Result<Option<Bytes>, CommitError> {
    let at = object_of(ports, root, sha256);
    match ports.objects.get(&at, &GetOptions::default()).await {
        Ok(object) if content_hash(&object.bytes) == sha256 => Ok(Some(object.bytes)),
        Ok(_) => {
            tracing::warn!(%at, "a cached part of a table's state is not what its name says; the log is read instead");
            Ok(None)
        }
        Err(ObjectError::NotFound(_)) => Ok(None),
        // Without leave to list, S3 says this of objects that are not there.
        Err(ObjectError::Store(error)) if error.kind == StoreErrorKind::AccessDenied => {
            tracing::warn!(%at, %error, "a cached part of a table's state cannot be read; the log is read instead");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

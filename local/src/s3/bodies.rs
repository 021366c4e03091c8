//! Where bodies are. Up to 64 KiB they go into SQLite: one write, one sync. Larger ones go to a file of their own,
//! complete and synced before a row names it.

use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;

use bytes::Bytes;
use futures::StreamExt;
use lakewarden_core::store::{Ids, RandomIds};
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum as _, Md5};
use s3s::dto::StreamingBlob;
use s3s::{S3Error, S3ErrorCode};
use tokio::fs::File;
use tokio::io::{AsyncWriteExt, BufWriter};

use super::Failure;
use super::checksums::Checksums;
use super::store::Durability;

/// Larger bodies go to a file.
pub(super) const INLINE_MAX_BYTES: usize = 64 * 1024;
const FILE_BUFFER_BYTES: usize = 256 * 1024;

/// The folder of body files.
#[derive(Clone, Debug)]
pub(super) struct BodyFolder {
    path: PathBuf,
    durability: Durability,
}

/// A body file that no row names yet; removed when dropped before `keep`.
pub(super) struct StagedFile {
    path: PathBuf,
    name: String,
    kept: bool,
}

/// A received body, not yet named by a row.
#[derive(Debug)]
pub(super) enum StagedBody {
    Inline(Bytes),
    File(StagedFile),
}

/// A received body and what was computed on the way.
#[derive(Debug)]
pub(super) struct Staged {
    pub body: StagedBody,
    pub size_bytes: u64,
    pub md5: [u8; 16],
    pub checksums: Checksums,
}

/// A body that a row names.
#[derive(Debug)]
pub(super) enum StoredBody {
    Inline(Bytes),
    /// Name within the folder.
    File(String),
}

impl StagedFile {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn keep(mut self) {
        self.kept = true;
    }
}

impl fmt::Debug for StagedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StagedFile").field(&self.name).finish()
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if !self.kept {
            remove_file(&self.path);
        }
    }
}

impl BodyFolder {
    pub fn new(path: PathBuf, durability: Durability) -> Self {
        Self { path, durability }
    }

    pub fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Removes a file that no row names any more.
    pub fn remove(&self, name: &str) {
        remove_file(&self.path_of(name));
    }

    pub fn writer(&self, hasher: ChecksumHasher) -> BodyWriter {
        BodyWriter { folder: self.clone(), hasher, md5: Md5::new(), size_bytes: 0, buffer: Vec::new(), file: None }
    }

    /// Receives a whole body.
    pub async fn stage(&self, body: Option<StreamingBlob>, hasher: ChecksumHasher) -> Result<Staged, Failure> {
        let mut writer = self.writer(hasher);
        if let Some(mut body) = body {
            while let Some(chunk) = body.next().await {
                writer.write(&chunk.map_err(receive_error)?).await?;
            }
        }
        writer.finish().await
    }

    async fn create(&self) -> Result<(StagedFile, BufWriter<File>), Failure> {
        let name = RandomIds.uuid().simple().to_string();
        let path = self.path_of(&name);
        let file = File::create_new(&path).await.map_err(Failure::file(&path))?;
        Ok((StagedFile { path, name, kept: false }, BufWriter::with_capacity(FILE_BUFFER_BYTES, file)))
    }

    /// Makes a file's bytes and its name in the folder survive a crash of the machine.
    async fn sync(&self, file: &File) -> io::Result<()> {
        if self.durability == Durability::Ephemeral {
            return Ok(());
        }
        file.sync_all().await?;
        if cfg!(unix) {
            File::open(&self.path).await?.sync_all().await?;
        }
        Ok(())
    }
}

/// Takes a body piece by piece.
pub(super) struct BodyWriter {
    folder: BodyFolder,
    hasher: ChecksumHasher,
    md5: Md5,
    size_bytes: u64,
    buffer: Vec<u8>,
    file: Option<(StagedFile, BufWriter<File>)>,
}

impl BodyWriter {
    pub async fn write(&mut self, chunk: &[u8]) -> Result<(), Failure> {
        self.md5.update(chunk);
        self.hasher.update(chunk);
        self.size_bytes = self.size_bytes.saturating_add(chunk.len() as u64);
        if self.file.is_none() {
            self.buffer.extend_from_slice(chunk);
            if self.buffer.len() > INLINE_MAX_BYTES {
                let (staged, mut file) = self.folder.create().await?;
                file.write_all(&self.buffer).await.map_err(Failure::file(&staged.path))?;
                self.buffer = Vec::new();
                self.file = Some((staged, file));
            }
        } else if let Some((staged, file)) = &mut self.file {
            file.write_all(chunk).await.map_err(Failure::file(&staged.path))?;
        }
        Ok(())
    }

    pub async fn finish(self) -> Result<Staged, Failure> {
        let body = match self.file {
            None => StagedBody::Inline(self.buffer.into()),
            Some((staged, mut file)) => {
                file.flush().await.map_err(Failure::file(&staged.path))?;
                self.folder.sync(file.get_ref()).await.map_err(Failure::file(&staged.path))?;
                StagedBody::File(staged)
            }
        };
        Ok(Staged {
            body,
            size_bytes: self.size_bytes,
            md5: self.md5.finalize(),
            checksums: Checksums::computed(self.hasher.finalize()),
        })
    }
}

/// The stream of a request ends with an error: a wrong chunk signature, or a client that went away.
fn receive_error(error: s3s::StdError) -> Failure {
    match error.downcast::<S3Error>() {
        Ok(refused) => Failure::Refused(*refused),
        Err(other) => Failure::Refused(S3Error::with_message(S3ErrorCode::IncompleteBody, other.to_string())),
    }
}

/// A file that cannot be removed now is removed at the next start.
fn remove_file(path: &std::path::Path) {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(file = %path.display(), %error, "a body file that nothing needs stays until the next start");
        }
        _ => {}
    }
}

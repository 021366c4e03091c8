//! Rows of a checkpoint's Parquet file: which columns are read, and what actions they make.

use std::collections::BTreeMap;

use serde_json::json;

use super::CheckpointError;
use super::columns::Column;
use crate::delta::actions::{
    AddFile, DeletionVector, DomainMetadata, Metadata, OtherMembers, PartitionValues, Protocol, RemoveFile, Txn,
};
use crate::delta::footer::Datum;

macro_rules! fields {
    ($($name:ident = $path:literal,)*) => {
        /// Columns that are read; nested ones by the path of their group.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Field { $($name,)* }

        pub(super) const FIELDS: &[(Field, &str)] = &[$((Field::$name, $path),)*];
    };
}

fields! {
    TxnAppId = "txn.appId",
    TxnVersion = "txn.version",
    AddPath = "add.path",
    AddValues = "add.partitionValues",
    AddSize = "add.size",
    AddTime = "add.modificationTime",
    AddChange = "add.dataChange",
    AddStats = "add.stats",
    AddRows = "add.stats_parsed.numRecords",
    AddRowId = "add.baseRowId",
    AddCommitVersion = "add.defaultRowCommitVersion",
    AddTags = "add.tags",
    AddClustering = "add.clusteringProvider",
    AddVectorType = "add.deletionVector.storageType",
    AddVectorPath = "add.deletionVector.pathOrInlineDv",
    AddVectorOffset = "add.deletionVector.offset",
    AddVectorSize = "add.deletionVector.sizeInBytes",
    AddVectorCount = "add.deletionVector.cardinality",
    RemovePath = "remove.path",
    RemoveTime = "remove.deletionTimestamp",
    RemoveChange = "remove.dataChange",
    RemoveValues = "remove.partitionValues",
    RemoveSize = "remove.size",
    RemoveStats = "remove.stats",
    RemoveRowId = "remove.baseRowId",
    RemoveCommitVersion = "remove.defaultRowCommitVersion",
    RemoveVectorType = "remove.deletionVector.storageType",
    RemoveVectorPath = "remove.deletionVector.pathOrInlineDv",
    RemoveVectorOffset = "remove.deletionVector.offset",
    RemoveVectorSize = "remove.deletionVector.sizeInBytes",
    RemoveVectorCount = "remove.deletionVector.cardinality",
    MetadataId = "metaData.id",
    MetadataName = "metaData.name",
    MetadataDescription = "metaData.description",
    MetadataProvider = "metaData.format.provider",
    MetadataOptions = "metaData.format.options",
    MetadataSchema = "metaData.schemaString",
    MetadataPartitions = "metaData.partitionColumns",
    MetadataConfiguration = "metaData.configuration",
    MetadataCreated = "metaData.createdTime",
    ProtocolReader = "protocol.minReaderVersion",
    ProtocolWriter = "protocol.minWriterVersion",
    ProtocolReaderFeatures = "protocol.readerFeatures",
    ProtocolWriterFeatures = "protocol.writerFeatures",
    DomainName = "domainMetadata.domain",
    DomainConfiguration = "domainMetadata.configuration",
    DomainRemoved = "domainMetadata.removed",
    SidecarPath = "sidecar.path",
    SidecarSize = "sidecar.sizeInBytes",
}

/// How much of the files is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    /// Everything.
    Whole,
    /// Of files only their paths.
    Paths,
    /// Files only.
    Files,
    /// Everything but files.
    Others,
    /// Everything, but of files only their places, sizes and dates.
    Outline,
    /// Which file it is, and [`PARSED`](crate::delta::actions::PARSED).
    Parsed,
}

/// What a file's row has in one of these columns.
#[derive(Clone, Debug, PartialEq)]
pub enum ParsedValue {
    Null,
    Value(Datum),
    /// A number of four bytes, whose decimal form is another one than that of the same number in eight.
    Single(f32),
    /// Of a type that is not read.
    Unreadable,
}

/// A column of these: its path from the group on, and where it stands among the columns of a row, if it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ParsedColumn {
    pub path: Vec<String>,
    pub place: Option<usize>,
}

impl Field {
    pub fn is_in(self, pass: Pass) -> bool {
        let path = FIELDS.iter().find(|(field, _)| *field == self).map_or("", |(_, path)| path);
        let is_file = path.starts_with("add.") || path.starts_with("remove.");
        match pass {
            Pass::Whole => true,
            Pass::Paths => !is_file || matches!(self, Field::AddPath | Field::RemovePath),
            Pass::Files => is_file,
            Pass::Others => !is_file,
            Pass::Outline => !is_file || self.is_of_place() || matches!(self, Field::AddSize | Field::RemoveTime),
            Pass::Parsed => {
                self == Field::AddPath || path.starts_with("add.deletionVector.") || path.starts_with("sidecar.")
            }
        }
    }
}

impl Field {
    /// Whether it tells, with others, which logical file it is.
    fn is_of_place(self) -> bool {
        let path = FIELDS.iter().find(|(field, _)| *field == self).map_or("", |(_, path)| path);
        path.ends_with(".path") || path.contains(".deletionVector.")
    }
}

/// The file of actions that a V2 checkpoint names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sidecar {
    pub path: String,
    pub size_bytes: u64,
}

/// The columns of a row group, standing on one row.
pub(super) struct Row {
    /// Columns in the order of [`FIELDS`]: none, one, or two (key and value of a map). Those of `parsed` come after them.
    pub columns: Vec<Vec<Column>>,
    pub parsed: Vec<ParsedColumn>,
}

fn missing(what: &str) -> CheckpointError {
    CheckpointError::damaged(format!("a row lacks {what}"))
}

impl Row {
    fn column(&self, field: Field) -> Option<&Column> {
        self.columns.get(field as usize)?.first()
    }

    pub fn text(&self, field: Field) -> Result<Option<&str>, CheckpointError> {
        self.column(field).map_or(Ok(None), Column::text)
    }

    fn string(&self, field: Field) -> Result<Option<String>, CheckpointError> {
        Ok(self.text(field)?.map(str::to_owned))
    }

    fn number(&self, field: Field) -> Result<Option<i64>, CheckpointError> {
        self.column(field).map_or(Ok(None), Column::number)
    }

    fn flag(&self, field: Field) -> Result<Option<bool>, CheckpointError> {
        self.column(field).map_or(Ok(None), Column::flag)
    }

    fn list(&self, field: Field) -> Result<Option<Vec<String>>, CheckpointError> {
        let entries = self.column(field).map_or(Ok(None), Column::entries)?;
        Ok(entries.map(|entries| entries.into_iter().flatten().map(str::to_owned).collect()))
    }

    fn map(&self, field: Field) -> Result<Option<PartitionValues>, CheckpointError> {
        let Some([keys, values]) = self.columns.get(field as usize).map(Vec::as_slice) else { return Ok(None) };
        let (Some(keys), Some(values)) = (keys.entries()?, values.entries()?) else { return Ok(None) };
        let mut map = BTreeMap::new();
        for (key, value) in keys.into_iter().zip(values) {
            let key = key.ok_or_else(|| missing("the key of an entry"))?;
            map.insert(key.to_owned(), value.map(str::to_owned));
        }
        Ok(Some(map))
    }

    /// What the row says in columns of their own types.
    pub fn parsed(&self) -> impl Iterator<Item = (&[String], ParsedValue)> {
        self.parsed.iter().map(|parsed| {
            let column = parsed.place.and_then(|place| self.columns.get(place)?.first());
            (parsed.path.as_slice(), column.map_or(ParsedValue::Unreadable, Column::parsed))
        })
    }

    /// The deletion vector of the row's live file.
    pub fn add_vector(&self) -> Result<Option<DeletionVector>, CheckpointError> {
        self.vector(Field::AddVectorType)
    }

    pub fn txn(&self) -> Result<Option<Txn>, CheckpointError> {
        let Some(app_id) = self.string(Field::TxnAppId)? else { return Ok(None) };
        let version = self.number(Field::TxnVersion)?.ok_or_else(|| missing("txn.version"))?;
        Ok(Some(Txn { app_id, version }))
    }

    pub fn add(&self) -> Result<Option<AddFile>, CheckpointError> {
        let Some(path) = self.string(Field::AddPath)? else { return Ok(None) };
        let stats = match self.string(Field::AddStats)? {
            Some(stats) => Some(stats),
            // Statistics may stand in columns of their own only; of these the number of rows is wanted.
            None => self.number(Field::AddRows)?.map(|rows| format!("{{\"numRecords\":{rows}}}")),
        };
        Ok(Some(AddFile {
            path,
            partition_values: self.map(Field::AddValues)?.unwrap_or_default(),
            size: self.number(Field::AddSize)?.ok_or_else(|| missing("add.size"))?,
            modification_time: self.number(Field::AddTime)?.unwrap_or(0),
            data_change: self.flag(Field::AddChange)?.unwrap_or(true),
            stats,
            deletion_vector: self.vector(Field::AddVectorType)?,
            base_row_id: self.number(Field::AddRowId)?,
            default_row_commit_version: self.number(Field::AddCommitVersion)?,
            others: self.other_members()?,
        }))
    }

    fn other_members(&self) -> Result<OtherMembers, CheckpointError> {
        let tags = self.map(Field::AddTags)?.map(|tags| ("tags".to_owned(), json!(tags)));
        let clustering = self.text(Field::AddClustering)?.map(|name| ("clusteringProvider".to_owned(), json!(name)));
        Ok(OtherMembers::new(tags.into_iter().chain(clustering).collect()))
    }

    pub fn remove(&self) -> Result<Option<RemoveFile>, CheckpointError> {
        let Some(path) = self.string(Field::RemovePath)? else { return Ok(None) };
        Ok(Some(RemoveFile {
            path,
            deletion_timestamp: self.number(Field::RemoveTime)?,
            data_change: self.flag(Field::RemoveChange)?.unwrap_or(true),
            partition_values: self.map(Field::RemoveValues)?,
            size: self.number(Field::RemoveSize)?,
            stats: self.string(Field::RemoveStats)?,
            deletion_vector: self.vector(Field::RemoveVectorType)?,
            base_row_id: self.number(Field::RemoveRowId)?,
            default_row_commit_version: self.number(Field::RemoveCommitVersion)?,
        }))
    }

    fn vector(&self, of: Field) -> Result<Option<DeletionVector>, CheckpointError> {
        let (path, offset, size, count) = if of == Field::AddVectorType {
            (Field::AddVectorPath, Field::AddVectorOffset, Field::AddVectorSize, Field::AddVectorCount)
        } else {
            (Field::RemoveVectorPath, Field::RemoveVectorOffset, Field::RemoveVectorSize, Field::RemoveVectorCount)
        };
        let Some(storage_type) = self.string(of)? else { return Ok(None) };
        Ok(Some(DeletionVector {
            storage_type,
            path_or_inline_dv: self.string(path)?.ok_or_else(|| missing("deletionVector.pathOrInlineDv"))?,
            offset: self.number(offset)?,
            size_in_bytes: self.number(size)?.ok_or_else(|| missing("deletionVector.sizeInBytes"))?,
            cardinality: self.number(count)?.ok_or_else(|| missing("deletionVector.cardinality"))?,
        }))
    }

    pub fn metadata(&self) -> Result<Option<Metadata>, CheckpointError> {
        let Some(id) = self.string(Field::MetadataId)? else { return Ok(None) };
        let format = match self.text(Field::MetadataProvider)? {
            None => None,
            Some(provider) => {
                let options = self.map(Field::MetadataOptions)?.unwrap_or_default();
                Some(json!({"provider": provider, "options": options}))
            }
        };
        Ok(Some(Metadata {
            id,
            name: self.string(Field::MetadataName)?,
            description: self.string(Field::MetadataDescription)?,
            format,
            schema_string: self.string(Field::MetadataSchema)?.ok_or_else(|| missing("metaData.schemaString"))?,
            partition_columns: self.list(Field::MetadataPartitions)?.unwrap_or_default(),
            configuration: self.map(Field::MetadataConfiguration)?.unwrap_or_default(),
            created_time: self.number(Field::MetadataCreated)?,
        }))
    }

    pub fn protocol(&self) -> Result<Option<Protocol>, CheckpointError> {
        let Some(min_reader_version) = self.number(Field::ProtocolReader)? else { return Ok(None) };
        let min_writer_version =
            self.number(Field::ProtocolWriter)?.ok_or_else(|| missing("protocol.minWriterVersion"))?;
        // Some writers store an empty list where there is none; only these versions have features.
        let listed = |list: Option<Vec<String>>, has_features: bool| {
            list.filter(|features| has_features || !features.is_empty())
        };
        Ok(Some(Protocol {
            min_reader_version,
            min_writer_version,
            reader_features: listed(self.list(Field::ProtocolReaderFeatures)?, min_reader_version >= 3),
            writer_features: listed(self.list(Field::ProtocolWriterFeatures)?, min_writer_version >= 7),
        }))
    }

    pub fn domain(&self) -> Result<Option<DomainMetadata>, CheckpointError> {
        let Some(domain) = self.string(Field::DomainName)? else { return Ok(None) };
        Ok(Some(DomainMetadata {
            domain,
            configuration: self.string(Field::DomainConfiguration)?.unwrap_or_default(),
            removed: self.flag(Field::DomainRemoved)?.unwrap_or(false),
        }))
    }

    pub fn sidecar(&self) -> Result<Option<Sidecar>, CheckpointError> {
        let Some(path) = self.string(Field::SidecarPath)? else { return Ok(None) };
        let size = self.number(Field::SidecarSize)?.and_then(|size| u64::try_from(size).ok());
        Ok(Some(Sidecar { path, size_bytes: size.ok_or_else(|| missing("sidecar.sizeInBytes"))? }))
    }
}

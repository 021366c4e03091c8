"""Takes a table that PyIceberg wrote to format version 3, which PyIceberg reads and does not write: deletion vectors in
Puffin files, statistics, row lineage."""

import json
import time
import uuid
import zlib

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.io import OutputFile
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyroaring import BitMap

MAGIC = b"PFA1"
VECTOR = "deletion-vector-v1"


def vector_blob(positions):
    bitmaps = (1).to_bytes(8, "little") + (0).to_bytes(4, "little") + BitMap(positions).serialize()
    body = b"\xd1\xd3\x39\x64" + bitmaps
    return len(body).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")


def puffin(blobs):
    """The bytes of a file of blobs (type, payload, properties), and where each blob is."""
    file, entries = MAGIC, []
    for kind, payload, properties in blobs:
        place = {"offset": len(file), "length": len(payload)}
        entries.append({"type": kind, "fields": [], "snapshot-id": -1, "sequence-number": -1, "properties": properties} | place)
        file += payload
    footer = json.dumps({"blobs": entries}).encode()
    return file + MAGIC + footer + len(footer).to_bytes(4, "little") + bytes(4) + MAGIC, entries


class Upgraded:
    """A table whose metadata is written by hand from now on."""

    def __init__(self, table):
        self.table, self.io, self.location = table, table.io, table.location()
        with table.io.new_input(table.metadata_location).open() as file:
            self.metadata = json.loads(file.read())
        self.pointer = table.metadata_location
        self.manifests = table.current_snapshot().manifests(table.io)
        self.rows = self.metadata["next-row-id"] = 0

    def put(self, name, content):
        uri = f"{self.location}/{name}"
        output: OutputFile = self.io.new_output(uri)
        with output.create() as file:
            file.write(content)
        return uri, len(content)

    def write_vectors(self, rows_by_file):
        """A Puffin file with a vector for each data file; answers the entries that name them."""
        blobs = [(VECTOR, vector_blob(rows), {"referenced-data-file": data.file_path, "cardinality": str(len(rows))}) for data, rows in rows_by_file]
        content, places = puffin(blobs)
        uri, size = self.put(f"data/00000-0-{uuid.uuid4()}-deletes.puffin", content)
        return [self.entry(data, rows, uri, size, place) for (data, rows), place in zip(rows_by_file, places)]

    def entry(self, data, rows, uri, size, place):
        return DataFile.from_args(
            _table_format_version=3,
            content=DataFileContent.POSITION_DELETES,
            file_path=uri,
            file_format=FileFormat.PUFFIN,
            partition=data.partition,
            record_count=len(rows),
            file_size_in_bytes=size,
            referenced_data_file=data.file_path,
            content_offset=place["offset"],
            content_size_in_bytes=place["length"],
        )

    def commit(self, vectors):
        """A snapshot in which these vectors are the only delete files."""
        metadata = self.metadata
        snapshot_id, sequence = uuid.uuid4().int >> 65, metadata["last-sequence-number"] + 1
        deletes = self.write_manifest(vectors, snapshot_id, sequence)
        list_uri = f"{self.location}/metadata/snap-{snapshot_id}-0-{uuid.uuid4()}.avro"
        with AvroOutputFile(
            output_file=self.io.new_output(list_uri),
            file_schema=MANIFEST_LIST_FILE_SCHEMAS[3],
            record_schema=MANIFEST_LIST_FILE_SCHEMAS[2],
            schema_name="manifest_file",
            metadata={"snapshot-id": str(snapshot_id), "sequence-number": str(sequence), "format-version": "3"},
        ) as writer:
            writer.write_block([*self.manifests, deletes])
        now_ms = max(int(time.time() * 1000), metadata["last-updated-ms"] + 1)
        snapshot = {
            "snapshot-id": snapshot_id,
            "parent-snapshot-id": metadata["current-snapshot-id"],
            "sequence-number": sequence,
            "timestamp-ms": now_ms,
            "manifest-list": list_uri,
            "summary": {"operation": "delete", "added-delete-files": str(len(vectors)), "added-dvs": str(len(vectors))},
            "schema-id": metadata["current-schema-id"],
            "first-row-id": metadata["next-row-id"],
            "added-rows": 0,
        }
        metadata["snapshots"].append(snapshot)
        metadata["snapshot-log"].append({"snapshot-id": snapshot_id, "timestamp-ms": now_ms})
        metadata["refs"]["main"]["snapshot-id"] = snapshot_id
        metadata |= {"format-version": 3, "current-snapshot-id": snapshot_id, "last-sequence-number": sequence, "last-updated-ms": now_ms}
        return snapshot_id

    def write_manifest(self, vectors, snapshot_id, sequence):
        schema, spec = self.table.schema(), self.table.spec()
        data_file = data_file_with_partition(format_version=3, partition_type=spec.partition_type(schema))
        entries = manifest_entry_schema_with_data_file(format_version=3, data_file=data_file)
        output = self.io.new_output(f"{self.location}/metadata/{uuid.uuid4()}-m0.avro")
        metadata = {
            "schema": schema.model_dump_json(),
            "partition-spec": json.dumps([field.model_dump(by_alias=True, mode="json") for field in spec.fields]),
            "partition-spec-id": str(spec.spec_id),
            "format-version": "3",
            "content": "deletes",
        }
        with AvroOutputFile(
            output_file=output, file_schema=entries, record_schema=entries, schema_name="manifest_entry", metadata=metadata
        ) as writer:
            for vector in vectors:
                named = {"status": ManifestEntryStatus.ADDED, "snapshot_id": snapshot_id, "data_file": vector}
                writer.write_block([ManifestEntry.from_args(_table_format_version=3, **named)])
        return ManifestFile.from_args(
            manifest_path=output.location,
            manifest_length=len(output),
            partition_spec_id=spec.spec_id,
            content=ManifestContent.DELETES,
            sequence_number=sequence,
            min_sequence_number=sequence,
            added_snapshot_id=snapshot_id,
            added_files_count=len(vectors),
            existing_files_count=0,
            deleted_files_count=0,
            added_rows_count=sum(vector.record_count for vector in vectors),
            existing_rows_count=0,
            deleted_rows_count=0,
        )

    def forget(self, snapshot_id):
        """Expires a snapshot, and leaves its files."""
        kept = [one for one in self.metadata["snapshots"] if one["snapshot-id"] != snapshot_id]
        log = [one for one in self.metadata["snapshot-log"] if one["snapshot-id"] != snapshot_id]
        self.metadata |= {"snapshots": kept, "snapshot-log": log}

    def add_statistics(self, snapshot_id):
        """Statistics of columns in a Puffin file, and of partitions in a Parquet file; answers both."""
        content, places = puffin([("apache-datasketches-theta-v1", b"a sketch", {"ndv": "5"})])
        columns, size = self.put(f"metadata/{snapshot_id}-{uuid.uuid4()}.stats", content)
        blobs = [{name: place[name] for name in ("type", "snapshot-id", "sequence-number", "fields", "properties")} for place in places]
        named = {"snapshot-id": snapshot_id, "statistics-path": columns, "file-size-in-bytes": size}
        self.metadata.setdefault("statistics", []).append(named | {"file-footer-size-in-bytes": size - 12, "blob-metadata": blobs})
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"record_count": [5]}), sink)
        partitions, size = self.put(f"metadata/partition-stats-{snapshot_id}-{uuid.uuid4()}.parquet", sink.getvalue().to_pybytes())
        named = {"snapshot-id": snapshot_id, "statistics-path": partitions, "file-size-in-bytes": size}
        self.metadata.setdefault("partition-statistics", []).append(named)
        return columns, partitions

    def publish(self, glue, database, name):
        """Writes the metadata and points the catalog to it."""
        self.metadata["metadata-log"].append({"metadata-file": self.pointer, "timestamp-ms": self.metadata["last-updated-ms"]})
        before, (self.pointer, _size) = self.pointer, self.put(f"metadata/00100-{uuid.uuid4()}.metadata.json", json.dumps(self.metadata).encode())
        table = glue.get_table(DatabaseName=database, Name=name)["Table"]
        table["Parameters"] |= {"metadata_location": self.pointer, "previous_metadata_location": before}
        known = {"Name", "Description", "TableType", "Parameters", "StorageDescriptor", "PartitionKeys"}
        glue.update_table(DatabaseName=database, TableInput={member: value for member, value in table.items() if member in known})

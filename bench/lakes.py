"""Tables of many files for the sweep's figures: real metadata, written by PyIceberg and deltalake, that names files which lie
beside as many that nothing names.

The files hold one byte each. They are not uploaded: while the server is down they are written into the data folder of the
embedded S3 (`local/src/s3/schema.rs`), each with a row and a body of its own as an upload would leave them. Those that tables
name are of now, the others of thirty days ago.
"""

import hashlib
import json
import pathlib
import sqlite3
import time
import uuid

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties
from deltalake.schema import Field, PrimitiveType, Schema
from deltalake.transaction import AddAction, create_table_with_add_actions
from pyiceberg.catalog import load_catalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.types import LongType, NestedField, StringType
from pyiceberg.typedef import Record

BUCKET, DATABASE = "lake", "bench"
DAY_MS = 86_400_000
ORPHANS_AGE_MS = 30 * DAY_MS
COLUMNS = 8
ROLE = "arn:aws:iam::000000000000:role/lakewarden-sweeps"
# Layouts of the store in which a row and a body are all there is of an object.
SCHEMA_VERSIONS = ("1", "2")


def file_name(seed, number):
    """As Iceberg's writers name files; the same on each call."""
    return f"{number % 200:05}-{number}-{uuid.UUID(hashlib.md5(f'{seed}/{number}'.encode()).hexdigest())}-00001.parquet"


def day_of(number, count, days=100):
    return f"2026-{number * days // count // 28 + 1:02}-{number * days // count % 28 + 1:02}"


class Lake:
    """One table of `count` files and as many orphans below `prefix`."""

    def __init__(self, server, count, commits):
        self.server, self.count, self.commits = server, count, commits
        self.prefix = f"warehouse/{self.name}"
        self.uri = f"s3://{BUCKET}/{self.prefix}"

    def key(self, seed, number, count):
        return f"{self.prefix}/{self.folder}day={day_of(number, count)}/{file_name(seed, number)}"

    def slices(self):
        """Numbers of the files of each commit."""
        edges = [self.count * commit // self.commits for commit in range(self.commits + 1)]
        return [range(first, last) for first, last in zip(edges, edges[1:])]

    def live_keys(self):
        return (self.key("live", number, self.count) for number in range(self.count))

    def orphan_keys(self):
        return (self.key("orphan", number, self.count) for number in range(self.count))


class IcebergLake(Lake):
    """A manifest per commit, with the statistics of eight columns per file."""

    name, folder = "iceberg", "data/"

    def create(self):
        fields = [NestedField(1, "id", LongType()), NestedField(2, "name", StringType())]
        fields += [NestedField(number, f"c{number}", LongType()) for number in range(3, COLUMNS + 1)]
        catalog = self.server.catalog()
        self.table = catalog.create_table(f"{DATABASE}.{self.name}", schema=IcebergSchema(*fields), location=self.uri)
        for numbers in self.slices():
            self.commit([f"s3://{BUCKET}/{self.key('live', number, self.count)}" for number in numbers])

    def commit(self, uris):
        with self.table.transaction() as transaction:
            with transaction.update_snapshot().fast_append() as append:
                for number, uri in enumerate(uris):
                    append.append_data_file(data_file(uri, number))

    def days_later(self, commits):
        """As many commits of a file each, as a day brings them; they are uploaded."""
        self.table = self.server.catalog().load_table(f"{DATABASE}.{self.name}")
        for _ in range(commits):
            key = f"{self.prefix}/data/day=2026-12-01/{file_name('late', uuid.uuid4().int % 10**9)}"
            self.server.s3().put_object(Bucket=BUCKET, Key=key, Body=b"x")
            self.commit([f"s3://{BUCKET}/{key}"])


def data_file(uri, number):
    bounds = {column: (number * 1000 + column).to_bytes(8, "little") for column in range(1, COLUMNS + 1)}
    bounds[2] = f"name {number:06}".encode()
    counts = {column: 1000 for column in range(1, COLUMNS + 1)}
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=uri,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1000,
        file_size_in_bytes=1,
        column_sizes=counts,
        value_counts=counts,
        null_value_counts={column: 0 for column in counts},
        nan_value_counts={},
        lower_bounds=bounds,
        upper_bounds=bounds,
        split_offsets=[4],
    )
    file.spec_id = 0
    return file


class DeltaLake(Lake):
    """Partitioned by day; ends with a checkpoint of all files, as deltalake writes it."""

    name, folder = "delta", ""

    def create(self):
        schema = Schema([Field("id", PrimitiveType("long")), Field("day", PrimitiveType("string"))])
        options = self.server.storage_options()
        quiet = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
        for commit, numbers in enumerate(self.slices()):
            adds = [self.add(number) for number in numbers]
            if commit == 0:
                create_table_with_add_actions(self.uri, schema, adds, partition_by=["day"], storage_options=options)
                table = DeltaTable(self.uri, storage_options=options, without_files=True)
            else:
                table.create_write_transaction(
                    adds, "append", schema, partition_by=["day"], post_commithook_properties=quiet, commit_properties=CommitProperties()
                )
        DeltaTable(self.uri, storage_options=options).create_checkpoint()
        columns = [{"Name": "id", "Type": "bigint"}]
        described = {"Name": self.name, "TableType": "EXTERNAL_TABLE", "Parameters": {"table_type": "DELTA"}}
        described |= {"PartitionKeys": [{"Name": "day", "Type": "string"}], "StorageDescriptor": {"Location": self.uri, "Columns": columns}}
        self.server.glue().create_table(DatabaseName=DATABASE, TableInput=described)

    def add(self, number):
        day = day_of(number, self.count)
        stats = {"numRecords": 1000, "minValues": {"id": number}, "maxValues": {"id": number + 999}, "nullCount": {"id": 0}}
        path = self.key("live", number, self.count).removeprefix(self.prefix + "/")
        return AddAction(path, 1, {"day": day}, int(time.time() * 1000), True, json.dumps(stats))

    def days_later(self, commits):
        for _ in range(commits):
            path = f"day=2026-12-01/{file_name('late', uuid.uuid4().int % 10**9)}"
            self.server.s3().put_object(Bucket=BUCKET, Key=f"{self.prefix}/{path}", Body=b"x")
            table = DeltaTable(self.uri, storage_options=self.server.storage_options(), without_files=True)
            schema = Schema([Field("id", PrimitiveType("long")), Field("day", PrimitiveType("string"))])
            add = AddAction(path, 1, {"day": "2026-12-01"}, int(time.time() * 1000), True, json.dumps({"numRecords": 1000}))
            table.create_write_transaction([add], "append", schema, partition_by=["day"])


def place(data_dir, lakes):
    """Writes the files of the tables, and their orphans, into the embedded S3's data folder. The server is down."""
    connection = sqlite3.connect(pathlib.Path(data_dir, "s3", "s3.sqlite"))
    found = connection.execute("SELECT value FROM meta WHERE name = 'schema_version'").fetchone()
    if not found or found[0] not in SCHEMA_VERSIONS:
        raise RuntimeError(f"the embedded S3 has layout {found}; this script knows {SCHEMA_VERSIONS}")
    # What an upload of one byte leaves, whatever columns there are.
    uploaded = connection.execute("SELECT * FROM object WHERE key = ?", (b"pattern",))
    columns = [column[0] for column in uploaded.description]
    pattern = dict(zip(columns, uploaded.fetchone()))
    insert = f"INSERT INTO object({', '.join(columns)}) VALUES({', '.join('?' * len(columns))})"
    now_ms = int(time.time() * 1000)
    (next_blob,) = connection.execute("SELECT coalesce(max(id), 0) + 1 FROM blob").fetchone()
    for lake in lakes:
        keys = [(key, now_ms) for key in lake.live_keys()] + [(key, now_ms - ORPHANS_AGE_MS) for key in lake.orphan_keys()]
        keys.sort()
        blobs = range(next_blob, next_blob + len(keys))
        next_blob += len(keys)
        with connection:
            connection.executemany("INSERT INTO blob(id, data) VALUES(?, ?)", ((blob, b"x") for blob in blobs))
            rows = (pattern | {"key": key.encode(), "modified_ms": at_ms, "blob": blob} for (key, at_ms), blob in zip(keys, blobs))
            connection.executemany(insert, ([row[column] for column in columns] for row in rows))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def iceberg_catalog(endpoints):
    """PyIceberg's own Glue catalog."""
    keys = {"region": endpoints["region"], "access-key-id": endpoints["access_key"], "secret-access-key": endpoints["secret_key"]}
    properties = {f"{service}.{name}": value for service in ("glue", "s3") for name, value in keys.items()}
    properties |= {"glue.endpoint": endpoints["gateway"], "s3.endpoint": endpoints["s3"], "s3.path-style-access": "true"}
    return load_catalog("bench", type="glue", **properties, **{"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"})


def storage_options(endpoints):
    return {
        "AWS_ENDPOINT_URL": endpoints["s3"],
        "AWS_ACCESS_KEY_ID": endpoints["access_key"],
        "AWS_SECRET_ACCESS_KEY": endpoints["secret_key"],
        "AWS_REGION": endpoints["region"],
        "AWS_ALLOW_HTTP": "true",
    }

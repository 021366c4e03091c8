"""Sweeps of tables that PyIceberg, deltalake and Sail wrote, held against an oracle for every object.

What a table needs is computed here, from the libraries' own objects or from the log's lines, and never asked of the
server. Whatever else lies there and looks like a writer's file must go, everything else must stay.
"""

import datetime
import json
import urllib.parse
import uuid

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import engines
from conftest import LAKE
from swept import Swept

RETENTION_DELTA_S = 7 * 86_400


def rows(first, count, dt="a"):
    ids = list(range(first, first + count))
    return pa.table({"id": pa.array(ids, pa.int64()), "dt": pa.array([dt] * count, pa.string())})


def key_of(uri):
    """The key behind an address in the lake."""
    scheme, _, rest = uri.partition("://")
    bucket, _, key = rest.partition("/")
    assert scheme in ("s3", "s3a") and bucket == LAKE, uri
    return key


# ------------------------------------------------------------------------------------------------------------ oracles


def needed_by_iceberg(table):
    """Everything that the current metadata names: all snapshots with their manifests, statistics, older metadata."""
    metadata = table.metadata
    named = {table.metadata_location}
    named |= {entry.metadata_file for entry in metadata.metadata_log}
    for statistics in (*metadata.statistics, *metadata.partition_statistics):
        named.add(statistics.statistics_path)
    for snapshot in metadata.snapshots:
        named.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            named.add(manifest.manifest_path)
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
                named.add(entry.data_file.file_path)
    return {key_of(uri) for uri in named}


Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def vector_file(vector):
    """The file of a deletion vector, relative to the table; none for one in the action itself."""
    if vector["storageType"] != "u":
        assert vector["storageType"] == "i", vector
        return None
    text = vector["pathOrInlineDv"]
    folder, letters = text[:-20], text[-20:]
    number = b""
    for start in range(0, 20, 5):
        value = 0
        for letter in letters[start : start + 5]:
            value = value * 85 + Z85.index(letter)
        number += value.to_bytes(4, "big")
    return (folder + "/" if folder else "") + f"deletion_vector_{uuid.UUID(bytes=number)}.bin"


def needed_by_delta(clients, prefix, now_s):
    """By the lines of all commits: live files, what was removed within the retention, their vectors, and the log."""
    logs = sorted(key for key in clients.objects(f"{prefix}/_delta_log/") if key.endswith(".json") and key.count("/") == prefix.count("/") + 2)
    live, removed = {}, {}
    for number, key in enumerate(logs):
        assert key.endswith(f"/{number:020}.json"), "every commit is there"
        lines = clients.s3.get_object(Bucket=LAKE, Key=key)["Body"].read().decode().splitlines()
        actions = [json.loads(line) for line in lines]
        for action in (action["remove"] for action in actions if "remove" in action):
            file = (action["path"], json.dumps(action.get("deletionVector")))
            live.pop(file, None)
            removed[file] = action.get("deletionTimestamp") or 0
        for action in (action["add"] for action in actions if "add" in action):
            file = (action["path"], json.dumps(action.get("deletionVector")))
            removed.pop(file, None)
            live[file] = None
    young = {file for file, removed_ms in removed.items() if removed_ms >= (now_s - RETENTION_DELTA_S) * 1000}
    named = set(clients.objects(f"{prefix}/_delta_log/"))
    for path, vector in [*live, *young]:
        named.add(f"{prefix}/{urllib.parse.unquote(path)}")
        file = vector_file(json.loads(vector)) if vector != "null" else None
        named |= {f"{prefix}/{file}"} if file else set()
    return named


# -------------------------------------------------------------------------------------------------------------- scenes


def register(clients, name, location):
    table = {"Name": name, "TableType": "EXTERNAL_TABLE", "Parameters": {"table_type": "DELTA"}}
    table["StorageDescriptor"] = {"Location": location, "Columns": [{"Name": "id", "Type": "bigint"}]}
    clients.glue.create_table(DatabaseName="oracle", TableInput=table)


def now_s(clients):
    """By the store's clock."""
    clients.s3.put_object(Bucket=LAKE, Key="clock", Body=b"")
    return clients.s3.head_object(Bucket=LAKE, Key="clock")["LastModified"].timestamp()


def is_before_the_optimizer(clients, key):
    """The clock was moved by an hour when the optimizer was there."""
    modified = clients.s3.head_object(Bucket=LAKE, Key=key)["LastModified"]
    return modified < datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=30)


def plant(swept, orphans, others):
    return {swept.plant(name) for name in orphans}, {swept.plant(name) for name in others}


def see(swept):
    """The libraries upload in parts, and the age of such files counts from when a run has seen them."""
    assert swept.run(mode="ordinary")["deleted"]["count"] == 0


def check(swept, needed, stays, read):
    """Every object of a dry run, then two scheduled runs a day apart, and the table read afterwards."""
    clients, server = swept.clients, swept.server
    before = swept.keys()
    assert needed <= before, f"the table lacks {sorted(needed - before)}"
    expected = {key for key in before - needed - stays if not is_before_the_optimizer(clients, key)}
    _run, lines = swept.dry_run(sightings=1)
    decided = {line["key"]: line["decision"] == "delete" for line in lines if "decision" in line}
    wrong = [f"{line['reason']}: {line['key']}" for line in lines if decided[line["key"]] != (line["key"] in expected)]
    assert set(decided) == before and not wrong, "\n".join(wrong)
    content = read()
    configuration = {"roleArn": "arn:aws:iam::000000000000:role/lakewarden-sweeps", "enabled": True}
    clients.glue.update_table_optimizer(**swept.optimizer(), TableOptimizerConfiguration=configuration)
    server.run_schedule()
    server.wait_idle()
    assert swept.keys() == before, "seen for the first time"
    server.advance_clock("25h")
    server.run_schedule()
    server.wait_idle()
    assert swept.keys() == before - expected
    assert read() == content
    return expected


@pytest.fixture
def oracle(own_clients):
    own_clients.glue.create_database(DatabaseInput={"Name": "oracle"})
    return own_clients


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_table_of_pyiceberg(oracle, version):
    from pyiceberg.expressions import EqualTo
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.types import LongType, NestedField, StringType

    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "dt", StringType()))
    table = oracle.iceberg().create_table(
        "oracle.visits",
        schema=schema,
        location=f"s3://{LAKE}/wh/visits",
        partition_spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "_dt")),
        properties={"format-version": version, "write.metadata.previous-versions-max": "3"},
    )
    swept = Swept(oracle, "oracle", "visits", "wh/visits")
    swept.create_optimizer(enabled=False)
    oracle.server.advance_clock("1h")
    for number, dt in enumerate(["a b", "50%", "ü/x", "a b"]):
        table.append(rows(number * 10, 5, dt))
    table.delete(EqualTo("id", 11))
    table.overwrite(rows(100, 3, "a b"), overwrite_filter=EqualTo("dt", "50%"))
    table.manage_snapshots().create_tag(table.metadata.snapshots[2].snapshot_id, "kept").commit()
    table.maintenance.expire_snapshots().by_ids([table.metadata.snapshots[0].snapshot_id, table.metadata.snapshots[1].snapshot_id]).commit()
    for number in range(4):
        table.append(rows(200 + number, 1, "z"))
    orphans = [f"data/00000-0-{uuid.uuid4()}.parquet", f"data/_dt=x y/00001-0-{uuid.uuid4()}.orc", f"metadata/{uuid.uuid4()}-m0.avro"]
    orphans += [f"metadata/snap-1-1-{uuid.uuid4()}.avro", "data/%C3%BC.puffin", "metadata/20261130_1-abc.stats"]
    others = ["metadata/version-hint.text", "README.md", "data/_tmp/x.parquet", "data/.hidden.parquet", "notes/x.parquet", "data/dir/"]
    _, stays = plant(swept, orphans, others)
    see(swept)
    oracle.server.advance_clock("4d")
    young = swept.plant(f"data/00000-9-{uuid.uuid4()}.parquet")
    table = oracle.iceberg().load_table("oracle.visits")

    def read():
        return sorted(oracle.iceberg().load_table("oracle.visits").scan().to_arrow()["id"].to_pylist())

    gone = check(swept, needed_by_iceberg(table), stays | {young}, read)
    # Among them what two expired snapshots and a short log of metadata left behind.
    assert len(gone) > len(orphans) + 5


def test_a_table_of_version_3_with_deletion_vectors_and_statistics(oracle):
    """Written by PyIceberg as version 2, taken to version 3 by hand, read by PyIceberg."""
    from iceberg_v3 import Upgraded
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.types import LongType, NestedField, StringType

    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "dt", StringType()))
    table = oracle.iceberg().create_table(
        "oracle.third",
        schema=schema,
        location=f"s3://{LAKE}/wh/third",
        partition_spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "dt")),
    )
    swept = Swept(oracle, "oracle", "third", "wh/third")
    swept.create_optimizer(enabled=False)
    oracle.server.advance_clock("1h")
    for number, dt in enumerate(["a b", "50%", "c"]):
        table.append(rows(number * 10, 5, dt))
    entries = [entry for manifest in table.current_snapshot().manifests(table.io) for entry in manifest.fetch_manifest_entry(table.io)]
    first, second, third = sorted((entry.data_file for entry in entries), key=lambda data: data.file_path)
    ids = {data.file_path: read_ids(table.io, data.file_path) for data in (first, second, third)}
    upgraded = Upgraded(table)
    expired = upgraded.commit(upgraded.write_vectors([(first, [0])]))
    vectors_of = upgraded.write_vectors([(first, [0]), (second, [1, 3])])
    kept = upgraded.commit(vectors_of)
    lost_statistics = upgraded.add_statistics(expired)
    upgraded.metadata |= {"statistics": [], "partition-statistics": []}
    # The vector of the second file stays in the file of both; that of the first is replaced.
    replaced = upgraded.write_vectors([(first, [0, 2])])
    upgraded.commit([*replaced, vectors_of[1]])
    statistics = upgraded.add_statistics(kept)
    upgraded.forget(expired)
    upgraded.publish(oracle.glue, "oracle", "third")
    orphans = [f"data/00000-0-{uuid.uuid4()}.parquet", f"data/00000-0-{uuid.uuid4()}-deletes.puffin", f"metadata/{uuid.uuid4()}-m0.avro"]
    _, stays = plant(swept, orphans, ["README.md", "data/.hidden.puffin"])
    see(swept)
    oracle.server.advance_clock("4d")
    young = swept.plant(f"data/00000-9-{uuid.uuid4()}-deletes.puffin")
    table = oracle.iceberg().load_table("oracle.third")
    assert table.format_version == 3
    needed = needed_by_iceberg(table)
    assert {key_of(uri) for uri in statistics} <= needed and sum(key.endswith(".puffin") for key in needed) == 2

    def read():
        return sorted(oracle.iceberg().load_table("oracle.third").scan().to_arrow()["id"].to_pylist())

    deleted = [ids[first.file_path][0], ids[first.file_path][2], ids[second.file_path][1], ids[second.file_path][3]]
    assert read() == sorted({id for some in ids.values() for id in some} - set(deleted)), "PyIceberg reads the vectors"
    gone = check(swept, needed, stays | {young}, read)
    left_behind = {key for key in gone if key.endswith(".puffin")} - {f"wh/third/{orphans[1]}"}
    assert len(left_behind) == 1 and {key_of(uri) for uri in lost_statistics} <= gone


def read_ids(io, uri):
    import pyarrow.parquet as pq

    with io.new_input(uri).open() as file:
        return pq.read_table(pa.BufferReader(file.read()))["id"].to_pylist()


def test_a_table_of_deltalake(oracle):
    location, options = f"s3://{LAKE}/wh/delta", oracle.storage_options()
    schema = pa.schema([("id", pa.int64()), ("dt", pa.string())])
    table = DeltaTable.create(location, schema=schema, partition_by=["dt"], storage_options=options)
    register(oracle, "delta", location)
    swept = Swept(oracle, "oracle", "delta", "wh/delta")
    swept.create_optimizer(enabled=False)
    oracle.server.advance_clock("1h")
    for number, dt in enumerate(["a b", "50%", "ü=x", "a b", "a b"]):
        write_deltalake(location, rows(number * 10, 5, dt), mode="append", storage_options=options)
    opened = DeltaTable(location, storage_options=options)
    opened.delete("id = 11")
    opened.optimize.compact()
    opened.create_checkpoint()
    write_deltalake(location, rows(100, 3, "50%"), mode="overwrite", predicate="dt = '50%'", storage_options=options)
    source = rows(0, 2, "a b")
    merge = DeltaTable(location, storage_options=options).merge(source, "s.id = t.id", source_alias="s", target_alias="t")
    merge.when_matched_delete().execute()
    orphans = [f"part-00000-{uuid.uuid4()}-c000.snappy.parquet", f"dt=x%20y/part-00001-{uuid.uuid4()}-c000.parquet"]
    orphans += [f"ab/deletion_vector_{uuid.uuid4()}.bin", f"_change_data/cdc-{uuid.uuid4()}.parquet"]
    others = ["README.md", "_tmp/x.parquet", ".hidden.parquet", "notes/x.txt", "dir/"]
    _, stays = plant(swept, orphans, others)
    see(swept)
    oracle.server.advance_clock("8d")
    young = swept.plant(f"part-00009-{uuid.uuid4()}-c000.snappy.parquet")

    def read():
        return sorted(DeltaTable(location, storage_options=options).to_pyarrow_table()["id"].to_pylist())

    gone = check(swept, needed_by_delta(oracle, "wh/delta", now_s(oracle)), stays | {young}, read)
    assert len(gone) > len(orphans) + 3, "what was removed for longer than the retention"


def test_a_table_of_sail_with_deletion_vectors(oracle):
    location = f"s3://{LAKE}/wh/sail"
    sail = engines.sail(oracle.server)
    try:
        properties = "'delta.enableDeletionVectors'='true', 'delta.feature.deletionVectors'='supported'"
        create = f"CREATE TABLE visits (id bigint, dt string) USING delta LOCATION '{location}' TBLPROPERTIES({properties})"
        sail.ask("sql", statements=[create])
        write_deltalake(location, rows(0, 6), mode="append", storage_options=oracle.storage_options())
        register(oracle, "sail", location)
        swept = Swept(oracle, "oracle", "sail", "wh/sail")
        swept.create_optimizer(enabled=False)
        oracle.server.advance_clock("1h")
        write_deltalake(location, rows(10, 6), mode="append", storage_options=oracle.storage_options())
        sail.ask("sql", statements=[f"DELETE FROM visits WHERE id = {number}" for number in (1, 11, 2)])
        vectors = [key for key in swept.keys() if key.endswith(".bin")]
        assert vectors, "Sail wrote no deletion vector"
        orphans = [f"part-00000-{uuid.uuid4()}-c000.snappy.parquet", f"deletion_vector_{uuid.uuid4()}.bin"]
        _, stays = plant(swept, orphans, ["README.md"])
        see(swept)
        oracle.server.advance_clock("8d")
        needed = needed_by_delta(oracle, "wh/sail", now_s(oracle))
        gone = check(swept, needed, stays, lambda: sail.ask("read", uri=location)["ids"])
        assert any(key.endswith(".bin") and key in vectors for key in gone), "vectors that later ones replaced"
    finally:
        sail.close()

"""Schemas are enforced before a commit is visible: files and commits of real writers that fit, and files that do not."""

import datetime
import io
import json
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, Schema, write_deltalake

from conftest import LAKE
from delta import Delta

UTC = datetime.timezone.utc


def every_type():
    """One row of all types that deltalake has, and one of nulls."""
    at = datetime.datetime(2024, 2, 29, 13, 45, 6, 789012)
    columns = {
        "id": pa.array([1, 2], pa.int64()),
        "i8": pa.array([1, None], pa.int8()),
        "i16": pa.array([1, None], pa.int16()),
        "i32": pa.array([1, None], pa.int32()),
        "f32": pa.array([0.1, None], pa.float32()),
        "f64": pa.array([float("nan"), None], pa.float64()),
        "flag": pa.array([True, None], pa.bool_()),
        "text": pa.array(["a" * 100, None], pa.string()),
        "bytes": pa.array([b"\x00\xff", None], pa.binary()),
        "day": pa.array([at.date(), None], pa.date32()),
        "ts": pa.array([at.replace(tzinfo=UTC), None], pa.timestamp("us", "UTC")),
        "ntz": pa.array([at, None], pa.timestamp("us")),
        "small": pa.array([Decimal("1.23"), None], pa.decimal128(9, 2)),
        "large": pa.array([Decimal("12345678901234567890.123"), None], pa.decimal128(38, 3)),
        "list": pa.array([[1, None], None], pa.list_(pa.int64())),
        "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
        "struct": pa.array([{"x": 1, "deep": {"y": "z"}}, None], pa.struct([("x", pa.int64()), ("deep", pa.struct([("y", pa.string())]))])),
    }
    return pa.table(columns)


@pytest.fixture
def wide(clients, unique):
    """A table of all types at version 0."""
    table = Delta(clients, unique)
    table.write(every_type())
    return table


@pytest.fixture
def orders(clients, unique):
    """id (not null), name, at; version 0 is empty."""
    table = Delta(clients, unique)
    schema = Schema([Field("id", "long", nullable=False), Field("name", "string"), Field("at", "timestamp")])
    DeltaTable.create(table.uri, schema, storage_options=clients.storage_options())
    return table


def order_rows(ids=(1, 2), names=("a", "b")):
    at = datetime.datetime(2024, 2, 29, tzinfo=UTC)
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string()), pa.field("at", pa.timestamp("us", "UTC"))])
    return pa.table([pa.array(ids, pa.int64()), pa.array(names, pa.string()), pa.array([at] * len(ids), pa.timestamp("us", "UTC"))], schema)


def propose(table, proposal, tmp_path):
    return table.verdict(table.stage(proposal, tmp_path))


def with_file(table, proposal, rows, stats=None, **options):
    """Puts another file in the place of the one that the commit adds."""
    sink = io.BytesIO()
    pq.write_table(rows, sink, **options)
    added = proposal.added()[0]
    table.clients.s3.put_object(Bucket=LAKE, Key=f"{table.prefix}/{added['path']}", Body=sink.getvalue())
    added["size"] = len(sink.getvalue())
    added["stats"] = json.dumps({"numRecords": rows.num_rows, **(stats or {})})
    return proposal


def assert_committed(verdict, version=1):
    assert (verdict["status"], verdict["version"]) == ("committed", version), verdict


def assert_refused(verdict, error_class, column=None):
    assert verdict["status"] == "rejected", verdict
    assert verdict["error_class"] == error_class, verdict
    assert column is None or verdict["place"]["column"] == column, verdict
    assert verdict["advice"] and verdict["message"], verdict


def test_all_types_of_deltalake_pass(wide, tmp_path):
    assert_committed(propose(wide, wide.fork_append(every_type()), tmp_path))


@pytest.mark.parametrize(
    "options",
    [{}, {"version": "1.0"}, {"version": "2.4"}, {"use_dictionary": False, "write_statistics": False}, {"data_page_version": "2.0"}, {"compression": "zstd"}, {"store_decimal_as_integer": True}, {"use_compliant_nested_type": False}],
    ids=lambda options: "-".join(f"{name}={value}" for name, value in options.items()) or "plain",
)
def test_all_types_of_pyarrow_pass(wide, tmp_path, options):
    rows = every_type()
    if options.get("version") == "1.0":
        rows = rows.drop_columns(["i8", "i16"])
    assert_committed(propose(wide, with_file(wide, wide.fork_append(every_type()), rows, **options), tmp_path))


@pytest.mark.parametrize(
    ("name", "kind"),
    [("i32", pa.int64()), ("i8", pa.int32()), ("id", pa.int32()), ("f32", pa.float64()), ("day", pa.timestamp("us")), ("ts", pa.timestamp("us")), ("ntz", pa.timestamp("us", "UTC")), ("ntz", pa.timestamp("ns")), ("text", pa.binary()), ("small", pa.decimal128(9, 3)), ("large", pa.decimal128(37, 3)), ("list", pa.list_(pa.string())), ("struct", pa.string())],
    ids=lambda value: str(value).replace(" ", ""),
)
def test_another_type_is_named(wide, tmp_path, name, kind):
    rows = every_type()
    at = rows.schema.get_field_index(name)
    rows = rows.set_column(at, pa.field(name, kind), pa.nulls(2, kind))
    verdict = propose(wide, with_file(wide, wide.fork_append(every_type()), rows), tmp_path)
    if (name, kind) == ("text", pa.binary()):
        # Texts without their annotation are readable.
        assert_committed(verdict)
        return
    column = "list.element" if name == "list" else name
    decimal = name in ("small", "large")
    assert_refused(verdict, "DELTA_MERGE_INCOMPATIBLE_DECIMAL_TYPE" if decimal else "DELTA_MERGE_INCOMPATIBLE_DATATYPE", column)


def test_columns_that_are_missing_or_more_or_spelled_otherwise(orders, tmp_path):
    good = order_rows()
    for change, error_class, column in [
        (lambda rows: rows.drop_columns(["name"]), None, None),
        (lambda rows: rows.drop_columns(["id"]), "DELTA_MISSING_NOT_NULL_COLUMN_VALUE", "id"),
        (lambda rows: rows.append_column("extra", pa.array([1, 2])), "DELTA_METADATA_MISMATCH.SCHEMA_MISMATCH", "extra"),
        (lambda rows: rows.rename_columns(["id", "Name", "at"]), "DELTA_METADATA_MISMATCH.SCHEMA_MISMATCH", "Name"),
        (lambda rows: rows.append_column("NAME", rows["name"]), "DELTA_DUPLICATE_COLUMNS_FOUND.DUPLICATE_COLUMNS", "NAME"),
    ]:
        verdict = propose(orders, with_file(orders, orders.fork_append(good), change(good)), tmp_path)
        if error_class is None:
            assert verdict["status"] == "committed", verdict
        else:
            assert_refused(verdict, error_class, column)


@pytest.mark.parametrize("statistics", [True, False])
def test_nulls_where_none_may_be(orders, tmp_path, statistics):
    rows = pa.table({"id": pa.array([1, None], pa.int64())})
    verdict = propose(orders, with_file(orders, orders.fork_append(order_rows()), rows, write_statistics=statistics), tmp_path)
    assert_refused(verdict, "DELTA_NOT_NULL_CONSTRAINT_VIOLATED", "id")


def test_a_merge_of_schemas_by_deltalake(orders, tmp_path):
    rows = order_rows().append_column("new", pa.array([[1], None], pa.list_(pa.int32())))
    verdict = propose(orders, orders.fork_append(rows, schema_mode="merge"), tmp_path)
    assert_committed(verdict)
    assert any("column `new` is added" in warning for warning in verdict["warnings"]), verdict
    assert [field.name for field in orders.open().schema().fields] == ["id", "name", "at", "new"]


def test_a_new_column_may_not_come_first(orders, tmp_path):
    rows = order_rows().append_column("new", pa.array([1, 2], pa.int32()))
    proposal = orders.fork_append(rows, schema_mode="merge")
    metadata = next(action["metaData"] for action in proposal.actions if "metaData" in action)
    schema = json.loads(metadata["schemaString"])
    schema["fields"].insert(0, schema["fields"].pop())
    metadata["schemaString"] = json.dumps(schema)
    assert_refused(propose(orders, proposal, tmp_path), "DELTA_METADATA_MISMATCH.OVERWRITE_REQUIRED", "new")


def test_an_overwrite_by_deltalake_brings_another_schema(orders, clients, tmp_path):
    orders.write(order_rows(), mode="append")
    rows = pa.table({"id": ["x", "y"]})
    change = lambda uri, options: write_deltalake(uri, rows, mode="overwrite", schema_mode="overwrite", storage_options=options)
    assert_committed(propose(orders, orders.fork(change), tmp_path), 2)
    half = orders.fork(lambda uri, options: write_deltalake(uri, pa.table({"id": [1]}), mode="overwrite", schema_mode="overwrite", storage_options=options))
    half.actions = [action for action in half.actions if "remove" not in action]
    assert_refused(propose(orders, half, tmp_path), "DELTA_METADATA_MISMATCH.OVERWRITE_REQUIRED")


def test_constraints_of_deltalake(orders, tmp_path):
    orders.open().alter.add_constraint({"named": "name <> 'bad'"})
    assert orders.version() == 1
    good = orders.fork_append(order_rows())
    assert_committed(propose(orders, good, tmp_path), 2)
    bad = with_file(orders, orders.fork_append(order_rows()), order_rows((1, 2, 3), ("a", "bad", "z")))
    verdict = propose(orders, bad, tmp_path)
    assert_refused(verdict, "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES", "name")
    assert "bad" in verdict["place"]["found"], verdict


def test_statistics_that_lie(orders, tmp_path):
    for stats, column in [({"minValues": {"id": 2}}, "id"), ({"maxValues": {"name": "a"}}, "name"), ({"nullCount": {"name": 1}}, "name")]:
        proposal = with_file(orders, orders.fork_append(order_rows()), order_rows(), stats)
        assert_refused(propose(orders, proposal, tmp_path), "LAKEWARDEN_STATISTICS_MISMATCH", column)


def test_a_partition_column_in_the_file_has_its_value(clients, unique, tmp_path):
    table = Delta(clients, unique)
    day = pa.table({"id": [1], "day": ["a"]})
    table.write(day, partition_by=["day"])
    assert_committed(propose(table, with_file(table, table.fork_append(day), day), tmp_path))
    other = pa.table({"id": [1], "day": ["b"]})
    verdict = propose(table, with_file(table, table.fork_append(day), other), tmp_path)
    assert_refused(verdict, "DELTA_METADATA_MISMATCH.PARTITIONING_MISMATCH", "day")


def test_files_that_are_none(orders, clients, tmp_path):
    for body, reason in [(b"PAR1" + b"x" * 100 + b"PAR1", "NOT_PARQUET"), (b"x" * 20 + b"\x08\x00\x00\x00PARE", "ENCRYPTED_FILE"), (b"", "NOT_PARQUET")]:
        proposal = orders.fork_append(order_rows())
        added = proposal.added()[0]
        clients.s3.put_object(Bucket=LAKE, Key=f"{orders.prefix}/{added['path']}", Body=body)
        added["size"] = len(body) or 1
        verdict = propose(orders, proposal, tmp_path)
        assert (verdict["status"], verdict["reason"]) == ("rejected", reason), verdict
    assert orders.version() == 0

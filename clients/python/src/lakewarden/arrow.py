"""Appends of Arrow tables: Parquet files with statistics below the table's root, and the staged commit that names them."""

from __future__ import annotations

import io
import json
import time
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ._refusals import check_transaction
from .client import DEFAULT_TIMEOUT_S, Action, Client
from .errors import UnsupportedTable
from .location import Location
from .verdict import Verdict

if TYPE_CHECKING:
    import pyarrow

    from . import _delta

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


def stage_append(
    client: Client,
    uri: str,
    table: pyarrow.Table,
    *,
    partition_by: Sequence[str] = (),
    app_transaction: tuple[str, int] | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Verdict:
    """Appends an Arrow table to a Delta table, and creates the Delta table where there is none. Needs the extra ``[arrow]``.

    One Parquet file for each partition is written below the table's root, with its statistics; then the commit is staged, and
    its verdict waited for. Files of a commit that is refused stay unreferenced until a sweep takes them.

    Args:
        uri: root of the table.
        table: the rows; at least one. Columns are found by their exact names. Integers, floats, text, decimals and
            timestamps, also nested ones, are brought to the width that the Delta table has where nothing is lost; what
            does not fit is left for the server to refuse.
        partition_by: for a table that is created. One that exists keeps its own.
        app_transaction: ``(application id, version)``. A version that was committed already is refused with the reason
            ``ALREADY_APPLIED``, before anything is written, so that a job can be run again; one that is below the
            application's newest, with ``SAME_APPLICATION``: whether it was ever committed cannot be told.

    Raises:
        CommitRefused: the subclass that the verdict names, for example ``SchemaMismatchException``.
        UnsupportedTable: the table maps its columns to other names, or is catalog-managed.
        ValueError: no rows; a partition column is missing; or values that Delta cannot hold, such as nanoseconds.
            Nothing was written then.
    """
    from . import _delta, _parquet

    root = Location.parse(uri)
    if table.num_rows == 0:
        raise ValueError("nothing to append: the table has no rows")
    found = _delta.read_definition(client.s3, root, app_transaction[0] if app_transaction else None)
    actions: list[Action] = []
    if found is None:
        found = _delta.Definition(-1, _delta.schema_of(table.schema), tuple(partition_by), {})
        actions += _delta.creating(found)
    elif partition_by and tuple(partition_by) != found.partition_columns:
        raise ValueError(f"{uri} is partitioned by {list(found.partition_columns)}, not by {list(partition_by)}")
    if found.configuration.get("delta.columnMapping.mode", "none") != "none":
        raise UnsupportedTable(f"{uri} maps its columns to other names: use stage_from_fork")
    if found.is_catalog_managed:
        raise UnsupportedTable(f"{uri} is catalog-managed: its catalog alone commits to it; write with a client of the catalog")
    missing = [column for column in found.partition_columns if column not in table.column_names]
    if missing:
        raise ValueError(f"the partition columns {missing} are missing")
    info: dict[str, Any] = {
        "timestamp": int(time.time() * 1000),
        "operation": "WRITE",
        "operationParameters": {"mode": "Append", "partitionBy": json.dumps(list(found.partition_columns))},
        "engineInfo": "lakewarden-python/0.1.0",
        "isBlindAppend": True,
    }
    if found.version >= 0:
        # Should another table stand here by the time of the verdict, the commit is none of its.
        info |= {"readVersion": found.version, "readTableId": found.table_id}
    actions.insert(0, {"commitInfo": info})
    if app_transaction is not None:
        app_id, version = app_transaction
        # One that comes in after this look is a winner, which the server compares by itself.
        check_transaction(root.uri, found.version, app_id, version, found.transactions)
        actions.append({"txn": {"appId": app_id, "version": version, "lastUpdated": int(time.time() * 1000)}})
    table = _parquet.conform(table, found.schema)
    for values, rows in _parquet.split(table, found.partition_columns):
        actions.append(_write(client, root, values, rows, found))
    return client.stage_and_wait(uri, actions, read_version=found.version, timeout_s=timeout_s)


def _write(
    client: Client, root: Location, values: dict[str, str | None], rows: pyarrow.Table, definition: _delta.Definition
) -> Action:
    from . import _parquet

    folders = [f"{_escaped(name)}={NULL_PARTITION if value is None else _escaped(value)}" for name, value in values.items()]
    relative = "/".join([*folders, f"part-{uuid.uuid4()}.snappy.parquet"])
    sink = io.BytesIO()
    _parquet.write(rows, sink)
    body, stats = sink.getvalue(), _parquet.statistics(rows, definition.schema, definition.partition_columns)
    client.s3.put_object(Bucket=root.bucket, Key=root.key(relative), Body=body)
    return {
        "add": {
            # The key has Hive's escapes; a path is a URI, which escapes them once more.
            "path": quote(relative, safe="/=-_.~:+@,$!*'()"),
            "partitionValues": values,
            "size": len(body),
            "modificationTime": int(time.time() * 1000),
            "dataChange": True,
            "stats": stats,
        }
    }


def _escaped(text: str) -> str:
    """Hive's escapes in a folder's name."""
    return quote(text, safe=" !$&()+,-.;@_~") if text else NULL_PARTITION

"""What an append needs to know of a Delta table: its version, schema, partition columns and properties."""

from __future__ import annotations

import io
import json
import posixpath
import re
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from . import _parquet
from .client import Action
from .errors import LakewardenError
from .location import LOG, Location, commit_version, list_keys


_CATALOG_MANAGED = frozenset(("catalogManaged", "catalogOwned-preview"))
_CHECKPOINT = re.compile(r"^(\d{20})\.checkpoint\.(?:(\d{10})\.(\d{10})\.parquet|(?:.+\.)?(?:parquet|json))$")
# Kinds of actions, and a member that each of them has.
_KINDS = {"metaData": "schemaString", "protocol": "minReaderVersion", "txn": "appId"}


@dataclass(frozen=True)
class Definition:
    version: int
    schema: dict[str, Any]
    partition_columns: tuple[str, ...]
    configuration: Mapping[str, str]
    table_id: str | None = None
    """``metaData.id``; none of a table that is about to be created."""
    features: frozenset[str] = frozenset()
    """Table features that the protocol names."""
    transactions: tuple[tuple[int, int | None], ...] = ()
    """Of the application that was asked for, those since the checkpoint and the newest of the checkpoint: their versions, and
    the table's versions that hold them (``None``: only the checkpoint tells of it)."""

    @property
    def is_catalog_managed(self) -> bool:
        return not _CATALOG_MANAGED.isdisjoint(self.features)


def read_definition(s3: Any, root: Location, app_id: str | None = None) -> Definition | None:
    """The newest version, from the log: its newest complete checkpoint and the commits since. ``None``: no log.

    Raises:
        LakewardenError: a commit is missing, or there is no table's metadata.
    """
    keys = list_keys(s3, root.bucket, root.key(f"{LOG}/0"))
    commits = {version: key for key in keys if (version := commit_version(key)) is not None}
    checkpoints = _checkpoints(keys)
    if not commits:
        if checkpoints:
            raise LakewardenError(f"the log of {root.uri} has checkpoints and no commit")
        return None
    latest = max(commits)
    base = max((version for version in checkpoints if version <= latest), default=-1)
    metadata: Mapping[str, Any] | None = None
    protocol: Mapping[str, Any] | None = None
    transactions: list[tuple[int, int | None]] = []
    for version in range(latest, base - 1, -1):
        if version < 0 or (app_id is None and metadata and protocol):
            break
        if version > base and version not in commits:
            raise LakewardenError(f"the log of {root.uri} lacks version {version}")
        bodies = [commits[version]] if version > base else checkpoints[base]
        actions = [action for key in bodies for action in _actions(_read(s3, root, key), key)]
        for action in actions:
            txn = action.get("txn")
            if txn and app_id is not None and txn.get("appId") == app_id:
                transactions.append((int(txn["version"]), version if version > base else None))
        metadata = metadata or next((found for action in actions if (found := action.get("metaData"))), None)
        protocol = protocol or next((found for action in actions if (found := action.get("protocol"))), None)
    if metadata is None:
        raise LakewardenError(f"the log of {root.uri} has no table's metadata")
    return _definition(latest, metadata, protocol or {}, tuple(transactions))


def _checkpoints(keys: list[str]) -> dict[int, list[str]]:
    """Of each version that has a complete checkpoint, the files of one of them."""
    whole: dict[int, list[str]] = {}
    parts: dict[tuple[int, int], list[str]] = {}
    for key in keys:
        found = _CHECKPOINT.match(posixpath.basename(key))
        if not found or posixpath.basename(posixpath.dirname(key)) != LOG:
            continue
        if found.group(3):
            parts.setdefault((int(found.group(1)), int(found.group(3))), []).append(key)
        else:
            whole.setdefault(int(found.group(1)), [key])
    for (version, count), found_parts in parts.items():
        if len(found_parts) == count:
            whole.setdefault(version, found_parts)
    return whole


def _read(s3: Any, root: Location, key: str) -> bytes:
    return bytes(s3.get_object(Bucket=root.bucket, Key=key)["Body"].read())


def _actions(body: bytes, key: str) -> list[Mapping[str, Any]]:
    """Those of interest."""
    if key.endswith(".json"):
        lines = (json.loads(line) for line in body.splitlines() if line.strip())
        return [line for line in lines if any(line.get(kind) for kind in _KINDS)]
    file = pq.ParquetFile(io.BytesIO(body))
    found = [kind for kind in _KINDS if kind in file.schema_arrow.names]
    # Checkpoints are long, and nearly all of it is files: those rows have none of the columns.
    columns = file.read(columns=found)
    told = [(kind, action) for kind in found for action in columns.column(kind).drop_null().to_pylist()]
    # Some writers have structs without values where there is no action.
    return [{kind: action} for kind, action in told if action.get(_KINDS[kind]) is not None]


def _definition(
    version: int, metadata: Mapping[str, Any], protocol: Mapping[str, Any], transactions: tuple[tuple[int, int | None], ...]
) -> Definition:
    configuration = metadata.get("configuration") or {}
    pairs = configuration.items() if isinstance(configuration, Mapping) else configuration
    columns = tuple(metadata.get("partitionColumns") or ())
    features = frozenset((*(protocol.get("readerFeatures") or ()), *(protocol.get("writerFeatures") or ())))
    schema = json.loads(metadata["schemaString"])
    return Definition(version, schema, columns, dict(pairs), metadata.get("id"), features, transactions)


def creating(definition: Definition) -> list[Action]:
    """The actions of a first commit."""
    protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 2}
    if _has_type(definition.schema, "timestamp_ntz"):
        features = ["timestampNtz"]
        protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    metadata = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(definition.schema),
        "partitionColumns": list(definition.partition_columns),
        "configuration": {},
        "createdTime": int(time.time() * 1000),
    }
    return [{"protocol": protocol}, {"metaData": metadata}]


def _has_type(schema: Any, name: str) -> bool:
    """At any depth."""
    if isinstance(schema, dict):
        members = [schema.get(member) for member in ("type", "elementType", "keyType", "valueType")]
        return any(_has_type(one, name) for one in (*members, *schema.get("fields", ())))
    return bool(schema == name)


def schema_of(schema: pa.Schema) -> dict[str, Any]:
    """The Delta schema of an Arrow schema."""
    return {"type": "struct", "fields": [_field(field) for field in schema]}


def _field(field: pa.Field) -> dict[str, Any]:
    return {"name": field.name, "type": _type(field.type), "nullable": field.nullable, "metadata": {}}


def _type(kind: pa.DataType) -> Any:
    is_ = pa.types
    kind = _parquet.plain(kind)
    for check, name in (
        (is_.is_int64, "long"), (is_.is_int32, "integer"), (is_.is_int16, "short"), (is_.is_int8, "byte"),
        (is_.is_float64, "double"), (is_.is_float32, "float"), (is_.is_boolean, "boolean"), (is_.is_date, "date"),
        (is_.is_string, "string"), (is_.is_large_string, "string"), (is_.is_binary, "binary"), (is_.is_large_binary, "binary"),
    ):  # fmt: skip
        if check(kind):
            return name
    if is_.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if is_.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if is_.is_list(kind):
        return {"type": "array", "elementType": _type(kind.value_type), "containsNull": kind.value_field.nullable}
    if is_.is_struct(kind):
        return {"type": "struct", "fields": [_field(kind.field(at)) for at in range(kind.num_fields)]}
    if is_.is_map(kind):
        nullable = kind.item_field.nullable
        return {"type": "map", "keyType": _type(kind.key_type), "valueType": _type(kind.item_type), "valueContainsNull": nullable}
    raise ValueError(f"Delta has no type for Arrow's {kind}")

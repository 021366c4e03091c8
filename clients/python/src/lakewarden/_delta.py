"""What an append needs to know of a Delta table: its version, schema, partition columns and properties."""

from __future__ import annotations

import io
import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from .client import Action
from .errors import LakewardenError
from .location import LOG, Location, checkpoint_version, commit_version, list_keys


@dataclass(frozen=True)
class Definition:
    version: int
    schema: dict[str, Any]
    partition_columns: tuple[str, ...]
    configuration: Mapping[str, str]
    table_id: str | None = None
    """``metaData.id``; none of a table that is about to be created."""


def read_definition(s3: Any, root: Location) -> Definition | None:
    """From the log: the newest commit with a ``metaData`` action, else the newest checkpoint. ``None``: no log."""
    keys = list_keys(s3, root.bucket, root.key(f"{LOG}/0"))
    commits = {version: key for key in keys if (version := commit_version(key)) is not None}
    checkpoints: dict[int, list[str]] = {}
    for key in keys:
        version = checkpoint_version(key)
        if version is not None:
            checkpoints.setdefault(version, []).append(key)
    if not commits:
        return None
    latest, base = max(commits), max((version for version in checkpoints if version <= max(commits)), default=-1)
    for version in sorted((version for version in commits if version > base), reverse=True):
        for line in _read(s3, root, commits[version]).splitlines():
            metadata = json.loads(line).get("metaData") if line.strip() else None
            if metadata:
                return _definition(latest, metadata)
    for key in checkpoints.get(base, []):
        metadata = _in_checkpoint(_read(s3, root, key), key)
        if metadata:
            return _definition(latest, metadata)
    raise LakewardenError(f"the log of {root.uri} has no table's metadata")


def _read(s3: Any, root: Location, key: str) -> bytes:
    return bytes(s3.get_object(Bucket=root.bucket, Key=key)["Body"].read())


def _in_checkpoint(body: bytes, key: str) -> Mapping[str, Any] | None:
    if key.endswith(".json"):
        found = [json.loads(line).get("metaData") for line in body.splitlines() if line.strip()]
    else:
        file = pq.ParquetFile(io.BytesIO(body))
        if "metaData" not in file.schema_arrow.names:
            return None
        found = file.read(columns=["metaData"]).column("metaData").to_pylist()
    return next((one for one in found if one and one.get("schemaString")), None)


def _definition(version: int, metadata: Mapping[str, Any]) -> Definition:
    configuration = metadata.get("configuration") or {}
    pairs = configuration.items() if isinstance(configuration, Mapping) else configuration
    columns = tuple(metadata.get("partitionColumns") or ())
    return Definition(version, json.loads(metadata["schemaString"]), columns, dict(pairs), metadata.get("id"))


def creating(definition: Definition) -> list[Action]:
    """The actions of a first commit."""
    has_ntz = any(field["type"] == "timestamp_ntz" for field in definition.schema["fields"])
    protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 2}
    if has_ntz:
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


def schema_of(schema: pa.Schema) -> dict[str, Any]:
    """The Delta schema of an Arrow schema."""
    return {"type": "struct", "fields": [_field(field) for field in schema]}


def _field(field: pa.Field) -> dict[str, Any]:
    return {"name": field.name, "type": _type(field.type), "nullable": field.nullable, "metadata": {}}


def _type(kind: pa.DataType) -> Any:
    is_ = pa.types
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
    if is_.is_dictionary(kind):
        return _type(kind.value_type)
    if is_.is_list(kind) or is_.is_large_list(kind):
        return {"type": "array", "elementType": _type(kind.value_type), "containsNull": kind.value_field.nullable}
    if is_.is_struct(kind):
        return {"type": "struct", "fields": [_field(kind.field(at)) for at in range(kind.num_fields)]}
    if is_.is_map(kind):
        nullable = kind.item_field.nullable
        return {"type": "map", "keyType": _type(kind.key_type), "valueType": _type(kind.item_type), "valueContainsNull": nullable}
    raise ValueError(f"Delta has no type for Arrow's {kind}")

"""Rows as a Delta table wants them: types, partitions, Parquet files, statistics."""

from __future__ import annotations

import datetime
import decimal
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_TEXT_MAX_CHARS = 32
_LAST_CHAR = "\U0010ffff"
_PRIMITIVES: dict[str, pa.DataType] = {
    "long": pa.int64(), "integer": pa.int32(), "short": pa.int16(), "byte": pa.int8(), "double": pa.float64(),
    "float": pa.float32(), "boolean": pa.bool_(), "date": pa.date32(), "string": pa.string(), "binary": pa.binary(),
    "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip


def arrow_type(delta: Any) -> pa.DataType | None:
    """Of a primitive type."""
    if not isinstance(delta, str):
        return None
    found = re.fullmatch(r"decimal\((\d+),\s*(-?\d+)\)", delta)
    return pa.decimal128(int(found.group(1)), int(found.group(2))) if found else _PRIMITIVES.get(delta)


def _family(kind: pa.DataType) -> str:
    is_ = pa.types
    for name, checks in (
        ("integer", (is_.is_signed_integer, is_.is_unsigned_integer)),
        ("float", (is_.is_floating,)),
        ("text", (is_.is_string, is_.is_large_string)),
        ("binary", (is_.is_binary, is_.is_large_binary, is_.is_fixed_size_binary)),
        ("date", (is_.is_date,)),
        ("decimal", (is_.is_decimal,)),
    ):
        if any(check(kind) for check in checks):
            return name
    if is_.is_timestamp(kind):
        # With a time zone it is a moment, without one a reading of a clock: never one for the other.
        return "moment" if kind.tz else "clock"
    return str(kind)


def conform(table: pa.Table, schema: dict[str, Any]) -> pa.Table:
    """Columns in the widths of the Delta table where nothing is lost by it. Anything else stays, and the server says why
    it does not fit."""
    types = {field["name"]: arrow_type(field["type"]) for field in schema["fields"]}
    columns, fields = [], []
    for field, column in zip(table.schema, table.columns):
        if pa.types.is_dictionary(field.type):
            column = column.cast(field.type.value_type)
        wanted = types.get(field.name)
        if wanted is not None and column.type != wanted and _family(column.type) == _family(wanted):
            try:
                column = column.cast(wanted)
            except pa.ArrowInvalid:
                pass
        columns.append(column)
        fields.append(pa.field(field.name, column.type, field.nullable))
    return pa.table(columns, schema=pa.schema(fields))


def split(table: pa.Table, partition_columns: Sequence[str]) -> Iterator[tuple[dict[str, str | None], pa.Table]]:
    """The rows of each partition, without the partition columns."""
    if not partition_columns:
        yield {}, table
        return
    keys = [table.column(name) for name in partition_columns]
    texts = [pa.array([value_text(value) for value in key.to_pylist()], pa.string()) for key in keys]
    rest = table.drop_columns(list(partition_columns))
    groups: dict[tuple[str | None, ...], list[int]] = {}
    for row, values in enumerate(zip(*(text.to_pylist() for text in texts))):
        groups.setdefault(values, []).append(row)
    for values, rows in groups.items():
        yield dict(zip(partition_columns, values)), rest.take(pa.array(rows, pa.int64()))


def value_text(value: Any) -> str | None:
    """A partition value as the Delta protocol spells it; empty text is null there."""
    if value is None or value == "":
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime.datetime):
        if value.tzinfo is not None:
            value = value.astimezone(datetime.timezone.utc)
        return f"{value:%Y-%m-%d %H:%M:%S}.{value.microsecond:06}"
    if isinstance(value, decimal.Decimal):
        return f"{value:f}"
    if isinstance(value, bytes):
        raise ValueError("binary partition columns are not written")
    return str(value)


def write(rows: pa.Table, sink: BinaryIO) -> None:
    pq.write_table(rows, sink, compression="snappy", coerce_timestamps="us", store_schema=False)


def statistics(rows: pa.Table, schema: dict[str, Any]) -> dict[str, Any]:
    """Row count, and of columns with a primitive type the bounds and null counts."""
    known = {field["name"]: arrow_type(field["type"]) for field in schema["fields"]}
    bounds: tuple[dict[str, Any], dict[str, Any], dict[str, int]] = ({}, {}, {})
    for field, column in zip(rows.schema, rows.columns):
        if field.name not in known or pa.types.is_nested(field.type):
            continue
        bounds[2][field.name] = column.null_count
        # Of another type than the table's: the server says so, and bounds would say nothing.
        if field.type != known[field.name]:
            continue
        least, most = _bounds(column)
        if least is not None and most is not None:
            bounds[0][field.name], bounds[1][field.name] = least, most
    return {"numRecords": rows.num_rows, "minValues": bounds[0], "maxValues": bounds[1], "nullCount": bounds[2]}


def _bounds(column: pa.ChunkedArray) -> tuple[Any, Any]:
    kind, is_ = column.type, pa.types
    if is_.is_boolean(kind) or _family(kind) == "binary" or column.null_count == len(column):
        return None, None
    if is_.is_floating(kind) and pc.any(pc.is_nan(column)).as_py():
        return None, None
    found = pc.min_max(column)
    least, most = found["min"].as_py(), found["max"].as_py()
    if isinstance(least, str):
        return _text_bounds(least, most)
    if isinstance(least, datetime.datetime):
        return _moment(least, 0), _moment(most, 999)
    if isinstance(least, datetime.date):
        return least.isoformat(), most.isoformat()
    if isinstance(least, float):
        return (least, most) if math.isfinite(least) and math.isfinite(most) else (None, None)
    if isinstance(least, decimal.Decimal):
        # JSON of Python has no decimals: a float may be on the wrong side of one.
        exact = all(decimal.Decimal(repr(float(one))) == one for one in (least, most))
        return (float(least), float(most)) if exact else (None, None)
    return (least, most) if isinstance(least, int) else (None, None)


def _text_bounds(least: str, most: str) -> tuple[str | None, str | None]:
    if len(most) > _TEXT_MAX_CHARS:
        most = most[:_TEXT_MAX_CHARS] + _LAST_CHAR
    return least[:_TEXT_MAX_CHARS], most


def _moment(value: datetime.datetime, round_up_us: int) -> str:
    """To the millisecond, as the protocol has it, and never inside the bounds."""
    value += datetime.timedelta(microseconds=round_up_us)
    text = value.strftime("%Y-%m-%dT%H:%M:%S") + f".{value.microsecond // 1000:03}"
    return text + "Z" if value.tzinfo is not None else text

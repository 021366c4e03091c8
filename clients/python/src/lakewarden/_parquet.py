"""Rows as a Delta table wants them: types, partitions, Parquet files, statistics."""

from __future__ import annotations

import datetime
import decimal
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_TEXT_MAX_CHARS = 32
_LAST_CHAR = "\U0010ffff"
_EPOCH = datetime.datetime(1970, 1, 1)
_DAY_US = 86_400_000_000
# The first and last moment that has a date: years 1 to 9999.
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
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
    it does not fit.

    Raises:
        ValueError: Parquet and Delta cannot hold the values at all, for example nanoseconds.
    """
    types = {field["name"]: field["type"] for field in schema["fields"]}
    columns, fields = [], []
    for field, column in zip(table.schema, table.columns):
        column = _brought(field.name, column, types.get(field.name))
        columns.append(column)
        fields.append(pa.field(field.name, column.type, field.nullable))
    return pa.table(columns, schema=pa.schema(fields))


def _brought(name: str, column: pa.ChunkedArray, delta: Any) -> pa.ChunkedArray:
    written = plain(column.type)
    if "list_view<" in str(written):
        raise ValueError(f"the column `{name}` cannot be written: make lists of its list views")
    for wanted in (_wanted(written, delta), written):
        if column.type == wanted:
            return column
        try:
            return column.cast(wanted)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            problem = error
    raise ValueError(f"the column `{name}` cannot be written as {written}: {problem}") from problem


def plain(kind: pa.DataType) -> pa.DataType:
    """The type that is written for an Arrow type: dictionaries, views and fixed sizes are Arrow's own matter, and the
    smallest unit of time is the microsecond."""
    is_ = pa.types
    if is_.is_dictionary(kind):
        return plain(kind.value_type)
    if _is_view(kind, "string"):
        return pa.string()
    if _is_view(kind, "binary") or is_.is_fixed_size_binary(kind):
        return pa.binary()
    if is_.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if is_.is_date64(kind):
        return pa.date32()
    if is_.is_decimal(kind) and kind.precision <= 38:
        return pa.decimal128(kind.precision, kind.scale)
    return _inside(kind, plain, plain, lambda field: plain(field.type))


def _wanted(kind: pa.DataType, delta: Any) -> pa.DataType:
    """The type of the Delta table, as far as it is the same kind of thing."""
    if not isinstance(delta, dict):
        wanted = arrow_type(delta)
        return wanted if wanted is not None and _family(kind) == _family(wanted) else kind
    types = {field["name"]: field["type"] for field in delta.get("fields", ())}
    return _inside(
        kind,
        lambda value: _wanted(value, delta.get("elementType", delta.get("valueType"))),
        lambda key: _wanted(key, delta.get("keyType")),
        lambda field: _wanted(field.type, types.get(field.name)),
    )


def _inside(
    kind: pa.DataType,
    value: Callable[[pa.DataType], pa.DataType],
    key: Callable[[pa.DataType], pa.DataType],
    member: Callable[[pa.Field], pa.DataType],
) -> pa.DataType:
    """A nested type with other types inside. Lists of every kind become lists, but for views: pyarrow 25 makes broken lists
    of them."""
    is_ = pa.types
    if is_list(kind):
        return pa.list_(kind.value_field.with_type(value(kind.value_type)))
    if is_.is_map(kind):
        key_field, item_field = kind.key_field, kind.item_field
        return pa.map_(key_field.with_type(key(kind.key_type)), item_field.with_type(value(kind.item_type)))
    if is_.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        return pa.struct([field.with_type(member(field)) for field in fields])
    return kind


def is_list(kind: pa.DataType) -> bool:
    is_ = pa.types
    return bool(is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind))


def _is_view(kind: pa.DataType, of: str) -> bool:
    """Older releases of pyarrow have no views."""
    check = getattr(pa.types, f"is_{of}_view", None)
    return bool(check and check(kind))


def split(table: pa.Table, partition_columns: Sequence[str]) -> Iterator[tuple[dict[str, str | None], pa.Table]]:
    """The rows of each partition, without the partition columns. What cannot be a partition value is noticed before the
    first of them is given."""
    if not partition_columns:
        yield {}, table
        return
    texts = [_value_texts(name, table.column(name)) for name in partition_columns]
    rest = table.drop_columns(list(partition_columns))
    groups: dict[tuple[str | None, ...], list[int]] = {}
    for row, values in enumerate(zip(*texts)):
        groups.setdefault(values, []).append(row)
    for values, rows in groups.items():
        yield dict(zip(partition_columns, values)), rest.take(pa.array(rows, pa.int64()))


def _value_texts(name: str, column: pa.ChunkedArray) -> list[str | None]:
    if pa.types.is_nested(column.type) or _family(column.type) == "binary":
        raise ValueError(f"the column `{name}` cannot partition a table: it is {column.type}")
    try:
        return [value_text(value) for value in column.to_pylist()]
    except (ValueError, OverflowError) as error:
        raise ValueError(f"the column `{name}` has values beyond the years 1 to 9999 that partition values have") from error


def value_text(value: Any) -> str | None:
    """A partition value as the Delta protocol spells it; empty text is null there."""
    if value is None or value == "":
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime.datetime):
        moment = value if value.tzinfo is None else value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
        return moment.isoformat(" ", "microseconds")
    if isinstance(value, decimal.Decimal):
        return f"{value:f}"
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return str(value)


def write(rows: pa.Table, sink: BinaryIO) -> None:
    pq.write_table(rows, sink, compression="snappy", coerce_timestamps="us", store_schema=False)


def statistics(rows: pa.Table, schema: dict[str, Any], partition_columns: Sequence[str]) -> str:
    """``add.stats``: the row count, and null counts and bounds of the columns that readers filter files by.

    Readers take a bound that is missing for one that nothing fits, so bounds are told of all columns or of none: one
    column whose bounds cannot be told (NaN, infinity, years beyond 9999) leaves the file without them. A column of
    nulls has none and needs none. Where the file lacks a column of the table, all its values are null.
    """
    nulls: dict[str, str] = {}
    low: dict[str, str] | None = {}
    high: dict[str, str] = {}
    for field in schema["fields"]:
        name, kind = field["name"], arrow_type(field["type"])
        if kind is None or name in partition_columns:
            continue
        column = rows.column(name) if name in rows.column_names else None
        if column is not None and column.type != kind:
            # The server says that it does not fit, and bounds would say nothing.
            low = None
            continue
        null_count = rows.num_rows if column is None else column.null_count
        nulls[name] = str(null_count)
        if column is None or null_count == rows.num_rows or pa.types.is_binary(kind):
            continue
        bounds = _bounds(column)
        if bounds is None:
            low = None
        elif low is not None:
            low[name], high[name] = bounds
    members = {"numRecords": str(rows.num_rows)}
    if low is not None:
        members |= {"minValues": _object(low), "maxValues": _object(high)}
    return _object(members | {"nullCount": _object(nulls)})


def _object(members: Mapping[str, str]) -> str:
    """JSON of members that are JSON: Python's own has no decimals."""
    return "{" + ",".join(f"{_json(name)}:{value}" for name, value in members.items()) + "}"


def _json(value: Any) -> str:
    """Without escapes of what is not ASCII: deltalake takes most pairs of surrogates for another character."""
    return json.dumps(value, ensure_ascii=False)


def _bounds(column: pa.ChunkedArray) -> tuple[str, str] | None:
    """As JSON; ``None`` where a value has none. There is a value that is not null."""
    kind, is_ = column.type, pa.types
    if is_.is_date(kind) or is_.is_timestamp(kind):
        least, most = _min_max(column.cast(pa.int32() if is_.is_date(kind) else pa.int64()))
        ends = _days(least, most) if is_.is_date(kind) else _moments(least, most, "Z" if kind.tz else "")
        return (_json(ends[0]), _json(ends[1])) if ends else None
    if is_.is_floating(kind) and not pc.all(pc.is_finite(column)).as_py():
        return None
    least, most = _min_max(column)
    if isinstance(least, str):
        return _json(least[:_TEXT_MAX_CHARS]), _json(_text_above(most))
    if isinstance(least, decimal.Decimal):
        return f"{least:f}", f"{most:f}"
    if isinstance(least, float):
        # The two zeros are equal for some readers, and in order for others.
        return _json(least or -0.0), _json(most or 0.0)
    return _json(least), _json(most)


def _min_max(column: pa.ChunkedArray) -> tuple[Any, Any]:
    found = pc.min_max(column)
    return found["min"].as_py(), found["max"].as_py()


def _text_above(most: str) -> str:
    """Cut, and not below the whole text: what is cut away begins with a lesser character than the one that is put there."""
    for end in range(_TEXT_MAX_CHARS, len(most)):
        if most[end] != _LAST_CHAR:
            return most[:end] + _LAST_CHAR
    return most


def _days(least: int, most: int) -> tuple[str, str] | None:
    if least < _FIRST_US // _DAY_US or most > _LAST_US // _DAY_US:
        return None
    first, last = ((_EPOCH + datetime.timedelta(days=day)).date().isoformat() for day in (least, most))
    return first, last


def _moments(least_us: int, most_us: int, zone: str) -> tuple[str, str] | None:
    """To the millisecond, as the protocol has it, and never inside the bounds."""
    if least_us < _FIRST_US or most_us > _LAST_US:
        return None
    low, high = least_us // 1000 * 1000, -(-most_us // 1000) * 1000
    # The last millisecond of the last year cannot be rounded up.
    end = _iso(high, "milliseconds") if high <= _LAST_US else _iso(most_us, "microseconds")
    return _iso(low, "milliseconds") + zone, end + zone


def _iso(moment_us: int, unit: str) -> str:
    return (_EPOCH + datetime.timedelta(microseconds=moment_us)).isoformat("T", unit)

"""Statistics and values that the Python client writes: nothing that is there may be filtered away."""

import datetime
import decimal
import io
import json
import math
import os
import random
import uuid

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

from conftest import LAKE
from lakewarden import _delta, _parquet, stage_append
from lakewarden.client import encode
from test_python_client import lake, objects, open_table, rows, uri  # noqa: F401

UTC = datetime.timezone.utc
DAY_US = 86_400_000_000
FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
# Of each type: values at its edges, and how others are made.
MOMENTS = [FIRST_US, LAST_US, LAST_US - 999, FIRST_US + 1, -1, 0, 1, -62_104_060_800_000_001, LAST_US + 1, FIRST_US - 1,
           INT64_MIN + 1, INT64_MAX]  # fmt: skip
FLOATS = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5, -1e-45, 5e-324, 1.7e308, 0.1, 2.0**53 + 2]
LAST = "\U0010ffff"


def integers(bits):
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return [low, high, 0, -1], lambda dice: dice.randint(low, high)


def texts():
    edges = ["", "a", "a" * 32, "a" * 33, "é" * 50, LAST * 31, LAST * 32, LAST * 33, LAST * 40 + "b", "\ud7ff" * 40, "\x00", 'q"\\\n', "a" * 31 + LAST * 5]
    return edges, lambda dice: "".join(dice.choice("ab\uffff" + LAST) for _ in range(dice.randint(0, 40)))


KINDS = {
    "long": integers(64),
    "integer": integers(32),
    "short": integers(16),
    "byte": integers(8),
    "double": (FLOATS, lambda dice: dice.uniform(-10, 10)),
    "float": ([one for one in FLOATS if one != 1.7e308], lambda dice: dice.uniform(-10, 10)),
    "boolean": ([True, False], lambda dice: dice.random() < 0.5),
    "string": texts(),
    "binary": ([b"", b"\x00", b"\xff" * 40, b"a"], lambda dice: dice.randbytes(3)),
    "date": ([FIRST_US // DAY_US, LAST_US // DAY_US, LAST_US // DAY_US + 1, FIRST_US // DAY_US - 1, 0, -1, -719_000], lambda dice: dice.randint(-800_000, 3_000_000)),
    "timestamp": (MOMENTS, lambda dice: dice.randint(FIRST_US, LAST_US)),
    "timestamp_ntz": (MOMENTS, lambda dice: dice.randint(FIRST_US, LAST_US)),
    "decimal(38,2)": ([10**38 - 1, 1 - 10**38, 0, -1, 110, 10**17 + 1], lambda dice: dice.randint(-(10**25), 10**25)),
    "decimal(5,0)": ([99999, -99999, 0], lambda dice: dice.randint(-99999, 99999)),
    "decimal(18,18)": ([1, -1, 10**18 - 1], lambda dice: dice.randint(-(10**18) + 1, 10**18 - 1)),
}


def array_of(kind, values):
    wanted = _parquet.arrow_type(kind)
    if kind == "date":
        return pa.array(values, pa.int32()).cast(wanted)
    if kind.startswith("timestamp"):
        return pa.array(values, pa.int64()).cast(wanted)
    if kind.startswith("decimal"):
        with decimal.localcontext(prec=60):
            values = [None if value is None else decimal.Decimal(value).scaleb(-wanted.scale) for value in values]
    return pa.array(values, wanted)


def draw(kind, dice, count):
    """Values of a column: often few different ones, sometimes nulls only."""
    edges, make = KINDS[kind]
    style = dice.random()
    if style < 0.15:
        return [None] * count
    pick = [dice.choice(edges) if dice.random() < 0.5 else make(dice) for _ in range(dice.randint(1, 3))]
    return [None if style > 0.6 and dice.random() < 0.3 else dice.choice(pick) for _ in range(count)]


def fields_of(kinds):
    return [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]


class Written:
    """A Delta table on disk, of files with the client's statistics; or with none, to see what is there."""

    def __init__(self, folder, kinds, files, with_statistics):
        definition = _delta.Definition(-1, {"type": "struct", "fields": fields_of(kinds)}, (), {})
        folder = folder / uuid.uuid4().hex
        log = folder / "_delta_log"
        log.mkdir(parents=True)
        actions, self.stats = _delta.creating(definition), []
        for file in files:
            path, sink = f"{uuid.uuid4()}.parquet", io.BytesIO()
            _parquet.write(file, sink)
            (folder / path).write_bytes(sink.getvalue())
            add = {"path": path, "partitionValues": {}, "size": len(sink.getvalue()), "modificationTime": 1, "dataChange": True}
            if with_statistics:
                add["stats"] = _parquet.statistics(file, definition.schema, ())
                self.stats.append(json.loads(add["stats"], parse_float=decimal.Decimal))
            actions.append({"add": add})
        (log / f"{0:020}.json").write_bytes(encode(actions))
        self.table = DeltaTable(str(folder))

    def select(self, condition):
        return sorted(self.table.to_pyarrow_dataset().to_table(filter=condition)["row"].to_pylist())

    def sql(self, condition):
        """By deltalake's own engine; what it says where it cannot compare such values at all."""
        try:
            found = QueryBuilder().register("t", self.table).execute(f'SELECT "row" FROM t WHERE {condition}').read_all()
        except Exception as error:
            return type(error)
        return sorted(found["row"].to_pylist())


def literals(kind, column):
    """Constants of SQL."""
    for value in column:
        if kind in ("date", "timestamp", "timestamp_ntz"):
            yield f"arrow_cast({value.cast(pa.int32() if kind == 'date' else pa.int64())}, '{value.type and SQL_TYPES[kind]}')"
        elif kind in ("double", "float"):
            yield f"arrow_cast('{value.as_py()!r}', '{SQL_TYPES[kind]}')"
        elif kind == "string":
            yield "'" + value.as_py().replace("'", "''") + "'"
        elif kind == "binary":
            yield f"X'{value.as_py().hex()}'"
        elif kind.startswith("decimal"):
            yield f"arrow_cast('{value.as_py():f}', 'Decimal128({column.type.precision}, {column.type.scale})')"
        else:
            yield str(value.as_py()).lower()


SQL_TYPES = {"date": "Date32", "timestamp": 'Timestamp(Microsecond, Some("UTC"))', "timestamp_ntz": "Timestamp(Microsecond, None)",
             "double": "Float64", "float": "Float32"}  # fmt: skip
COMPARE = {"=": pc.equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal, "<>": pc.not_equal}


@pytest.mark.parametrize("kind", KINDS)
def test_filters_lose_no_row(tmp_path, kind):
    """Whatever the values are, and whatever lies beside them: filtering finds the rows that it finds in files of which
    nothing is known."""
    dice = random.Random(f"rows {kind}")
    for _ in range(int(os.environ.get("LAKEWARDEN_TEST_ROUNDS", "12"))):
        beside = dice.choice(list(KINDS))
        kinds = {"row": "long", "c": kind, "other": beside}
        files, first = [], 0
        for _ in range(dice.randint(1, 3)):
            count = dice.randint(1, 4)
            columns = {"row": pa.array(range(first, first + count), pa.int64())}
            first += count
            for name, of in (("c", kind), ("other", beside)):
                # An append may lack a column.
                if dice.random() < 0.85:
                    columns[name] = array_of(of, draw(of, dice, count))
            files.append(pa.table(columns))
        told, bare = Written(tmp_path, kinds, files, True), Written(tmp_path, kinds, files, False)
        constants = pa.chunked_array([file["c"].chunk(0) for file in files if "c" in file.column_names], _parquet.arrow_type(kind)).drop_null().unique()
        conditions = [pc.field("c").is_null(), pc.field("c").is_valid(), pc.field("row") >= 0, pc.field("row") == 0,
                      (pc.field("row") == 0) | pc.field("c").is_null()]  # fmt: skip
        texts = ["c IS NULL", "c IS NOT NULL", '"row" >= 0']
        for constant, literal in zip(constants, literals(kind, constants)):
            conditions += [compare(pc.field("c"), pc.scalar(constant)) for compare in COMPARE.values()]
            texts += [f"c {sign} {literal}" for sign in dice.sample(list(COMPARE), 3)]
        for condition in conditions:
            found, there = told.select(condition), bare.select(condition)
            # pyarrow takes a comparison with NaN for true where it is given any bounds.
            same = set(found) >= set(there) if "nan" in str(condition) else found == there
            assert same, (str(condition), found, there, told.stats)
        for text in texts:
            found = bare.sql(text)
            assert isinstance(found, type) or told.sql(text) == found, (text, told.stats)


# What is said of each value, to the byte


def moment(kind, *texts):
    zone = "UTC" if kind == "timestamp" else None
    parsed = [datetime.datetime.fromisoformat(text) for text in texts]
    return pa.array([one.replace(tzinfo=UTC) if zone else one for one in parsed], pa.timestamp("us", zone))


def said(text):
    return f'"{text}"'


D = decimal.Decimal
SAID = [
    ("long", pa.array([INT64_MIN, INT64_MAX, None]), f"{INT64_MIN}", f"{INT64_MAX}"),
    ("byte", pa.array([-128, 127], pa.int8()), "-128", "127"),
    ("boolean", pa.array([True, False]), "false", "true"),
    ("boolean", pa.array([True, None]), "true", "true"),
    ("double", pa.array([1.5, -0.25]), "-0.25", "1.5"),
    ("double", pa.array([0.0]), "-0.0", "0.0"),
    ("double", pa.array([-0.0]), "-0.0", "0.0"),
    ("double", pa.array([math.nan, 1.5]), None, None),
    ("double", pa.array([math.inf, 1.5]), None, None),
    ("float", pa.array([0.1], pa.float32()), "0.10000000149011612", "0.10000000149011612"),
    ("float", pa.array([-math.inf], pa.float32()), None, None),
    ("string", pa.array(["b", "a"]), '"a"', '"b"'),
    ("string", pa.array(["é" * 40]), said("é" * 32), said("é" * 32 + LAST)),
    ("string", pa.array([LAST * 40]), said(LAST * 32), said(LAST * 40)),
    ("string", pa.array([LAST * 34 + "b"]), said(LAST * 32), said(LAST * 34 + LAST)),
    ("date", pa.array([datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]), '"0001-01-01"', '"9999-12-31"'),
    ("date", pa.array([3_000_000], pa.int32()).cast(pa.date32()), None, None),
    ("timestamp", moment("timestamp", "0001-01-01T00:00:00"), '"0001-01-01T00:00:00.000Z"', '"0001-01-01T00:00:00.000Z"'),
    ("timestamp", moment("timestamp", "0999-01-01T00:00:00.000001"), '"0999-01-01T00:00:00.000Z"', '"0999-01-01T00:00:00.001Z"'),
    ("timestamp", moment("timestamp", "9999-12-31T23:59:59.999999"), '"9999-12-31T23:59:59.999Z"', '"9999-12-31T23:59:59.999999Z"'),
    ("timestamp", pa.array([LAST_US + 1], pa.int64()).cast(pa.timestamp("us", "UTC")), None, None),
    ("timestamp_ntz", moment("ntz", "1969-12-31T23:59:59.999999"), '"1969-12-31T23:59:59.999"', '"1970-01-01T00:00:00.000"'),
    ("decimal(38,2)", pa.array([D("-99999999999999999999.99"), D("1.10")], pa.decimal128(38, 2)), "-99999999999999999999.99", "1.10"),
]  # fmt: skip


@pytest.mark.parametrize("kind, column, low, high", SAID, ids=[f"{kind} {number}" for number, (kind, *_) in enumerate(SAID)])
def test_bounds_are_said_like_this(lake, clients, uri, kind, column, low, high):
    """And the server takes them."""
    table = pa.table({"i": pa.array(range(len(column)), pa.int64()), "c": column})
    stats = _parquet.statistics(table, {"fields": fields_of({"i": "long", "c": kind})}, ())
    last = len(column) - 1
    expected = f'{{"numRecords":{len(column)}'
    if low is not None:
        expected += f',"minValues":{{"i":0,"c":{low}}},"maxValues":{{"i":{last},"c":{high}}}'
    assert stats == expected + f',"nullCount":{{"i":0,"c":{column.null_count}}}}}'
    assert stage_append(lake, uri, table).version == 0
    assert stage_append(lake, uri, table).version == 1
    log = f"{uri.removeprefix(f's3://{LAKE}/')}/_delta_log/{0:020}.json"
    actions = [json.loads(line) for line in clients.s3.get_object(Bucket=LAKE, Key=log)["Body"].read().splitlines()]
    assert [action["add"]["stats"] for action in actions if "add" in action] == [stats]
    for value in column.drop_null():
        found = open_table(clients, uri).to_pyarrow_dataset().to_table(filter=pc.field("c") == value)
        assert found.num_rows == 2 * sum(pc.equal(column, value).drop_null().to_pylist())


def test_a_column_of_nulls_needs_no_bounds_and_one_that_is_missing_is_null(lake, clients, uri):
    whole = pa.table({"i": [1, 2], "c": [1.5, 2.5]})
    stage_append(lake, uri, whole)
    for lacking in (pa.table({"i": [3]}), pa.table({"i": [4], "c": pa.array([None], pa.float64())})):
        stage_append(lake, uri, lacking)
        stats = json.loads(_parquet.statistics(lacking, {"fields": fields_of({"i": "long", "c": "double"})}, ()))
        assert (list(stats["minValues"]), stats["nullCount"]) == (["i"], {"i": 0, "c": 1})
    found = lambda condition: sorted(open_table(clients, uri).to_pyarrow_dataset().to_table(filter=condition)["i"].to_pylist())  # noqa: E731
    assert found(pc.field("c").is_null()) == [3, 4]
    assert found(pc.field("i") >= 2) == [2, 3, 4]
    assert found(pc.field("c") >= 1) == [1, 2]


# Types


CREATED = [
    ("string_view", pa.array(["a", None], pa.string_view()), "string"),
    ("binary_view", pa.array([b"a"], pa.binary_view()), "binary"),
    ("large", pa.array(["a"], pa.large_string()), "string"),
    ("fixed_size_list", pa.array([[1, 2], None], pa.list_(pa.int64(), 2)), {"type": "array", "elementType": "long", "containsNull": True}),
    ("large_list", pa.array([[1]], pa.large_list(pa.int32())), {"type": "array", "elementType": "integer", "containsNull": True}),
    ("fixed_size_binary", pa.array([b"ab"], pa.binary(2)), "binary"),
    ("dictionary", pa.array(["a", "b"]).dictionary_encode(), "string"),
    ("nanoseconds", pa.array([1_700_000_000_000_000_000], pa.timestamp("ns", "UTC")), "timestamp"),
    ("seconds", pa.array([5], pa.timestamp("s")), "timestamp_ntz"),
    ("another zone", pa.array([5], pa.timestamp("us", "Europe/Berlin")), "timestamp"),
    ("date64", pa.array([datetime.date(2026, 1, 1)], pa.date64()), "date"),
    ("ntz in a list", pa.array([[datetime.datetime(2026, 1, 1)]], pa.list_(pa.timestamp("us"))), {"type": "array", "elementType": "timestamp_ntz", "containsNull": True}),
    ("ntz in a map", pa.array([[("k", datetime.datetime(2026, 1, 1))]], pa.map_(pa.string(), pa.timestamp("ns"))), None),
    ("views in a struct", pa.array([{"a": "x", "b": [1, 2]}], pa.struct({"a": pa.string_view(), "b": pa.list_(pa.int64(), 2)})), None),
]  # fmt: skip


@pytest.mark.parametrize("column, delta", [one[1:] for one in CREATED], ids=[one[0] for one in CREATED])
def test_types_that_only_arrow_has_are_written_as_deltas(lake, clients, uri, column, delta):
    table = pa.table({"c": column})
    for version in range(2):
        assert stage_append(lake, uri, table).version == version
    field = json.loads(open_table(clients, uri).schema().to_json())["fields"][0]
    assert delta is None or field["type"] == delta
    found = rows(clients, uri)["c"]
    plain = lambda value: value.tz_localize(None).to_pydatetime() if hasattr(value, "tz_localize") and value.tz is None else value  # noqa: E731
    expected = [plain(value) for value in column.to_pylist()]
    assert str([plain(value) for value in found.cast(_parquet.plain(found.type)).to_pylist()]) == str(pa.array(expected * 2, _parquet.plain(column.type)).to_pylist())


def test_nested_widths_are_brought_to_the_tables(lake, clients, uri):
    wide = pa.table({"s": pa.array([{"a": 1, "l": [1]}], pa.struct({"a": pa.int64(), "l": pa.list_(pa.int64())}))})
    narrow = pa.table({"s": pa.array([{"a": 2, "l": [2]}], pa.struct({"a": pa.int8(), "l": pa.list_(pa.int32(), 1)}))})
    stage_append(lake, uri, wide)
    stage_append(lake, uri, narrow)
    assert sorted(row["a"] for row in rows(clients, uri)["s"].to_pylist()) == [1, 2]


UNWRITABLE = {
    "nanoseconds": ({"t": pa.array([1], pa.timestamp("ns", "UTC"))}, [], "`t` cannot be written as timestamp"),
    "nested nanoseconds": ({"t": pa.array([[1]], pa.list_(pa.timestamp("ns")))}, [], "`t` cannot be written as list"),
    "a list as partition": ({"t": [[1]], "i": [1]}, ["t"], "`t` cannot partition a table"),
    "bytes as partition": ({"t": [b"a"], "i": [1]}, ["t"], "`t` cannot partition a table"),
    "the year 10000 as partition": ({"t": pa.array([0, LAST_US + 1], pa.timestamp("us", "UTC")), "i": [1, 2]}, ["t"], "years 1 to 9999"),
    "the day after as partition": ({"t": pa.array([0, 3_000_000], pa.int32()).cast(pa.date32()), "i": [1, 2]}, ["t"], "years 1 to 9999"),
    "views of lists": ({"t": pa.array([[1]], pa.list_view(pa.int32()))}, [], "Delta has no type for Arrow's list_view"),
    "a time of day": ({"t": [datetime.time(1)]}, [], "Delta has no type for Arrow's time64"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNWRITABLE)
def test_what_cannot_be_written_is_said_before_anything_is(lake, clients, uri, name):
    columns, partition_by, text = UNWRITABLE[name]
    with pytest.raises(ValueError, match=text):
        stage_append(lake, uri, pa.table(columns), partition_by=partition_by)
    assert objects(clients, uri) == {}
    if not partition_by and name != "a time of day":
        stage_append(lake, uri, pa.table({"t": pa.array([0], pa.timestamp("us", "UTC"))}))
        before = objects(clients, uri)
        with pytest.raises(ValueError, match="`t` cannot be written"):
            stage_append(lake, uri, pa.table(columns))
        assert objects(clients, uri) == before


PARTITIONS = {
    "timestamps": (pa.array([FIRST_US, 0, LAST_US, -1], pa.int64()).cast(pa.timestamp("us", "UTC")), ["0001-01-01 00:00:00.000000", "1970-01-01 00:00:00.000000", "9999-12-31 23:59:59.999999", "1969-12-31 23:59:59.999999"]),
    "another zone": (pa.array([0], pa.timestamp("us", "Europe/Berlin")), ["1970-01-01 00:00:00.000000"]),
    "dates": (pa.array([datetime.date(1, 1, 1), datetime.date(999, 1, 1)]), ["0001-01-01", "0999-01-01"]),
    "floats": (pa.array([1.5, -0.25, 1e20]), ["1.5", "-0.25", "1e+20"]),
    "decimals": (pa.array([D("1.10"), D("20.00")], pa.decimal128(38, 2)), ["1.10", "20.00"]),
    "booleans": (pa.array([True, False]), ["true", "false"]),
}  # fmt: skip


@pytest.mark.parametrize("name", PARTITIONS)
def test_partition_values_are_said_like_this(lake, clients, uri, name):
    column, texts = PARTITIONS[name]
    table = pa.table({"p": column, "i": pa.array(range(len(column)), pa.int64())})
    stage_append(lake, uri, table, partition_by=["p"])
    opened = open_table(clients, uri)
    log = f"{uri.removeprefix(f's3://{LAKE}/')}/_delta_log/{0:020}.json"
    actions = [json.loads(line) for line in clients.s3.get_object(Bucket=LAKE, Key=log)["Body"].read().splitlines()]
    assert [action["add"]["partitionValues"]["p"] for action in actions if "add" in action] == texts
    assert sorted(zip(opened.to_pyarrow_table()["i"].to_pylist(), map(str, opened.to_pyarrow_table()["p"].to_pylist()))) == sorted(
        zip(range(len(column)), map(str, column.cast(opened.to_pyarrow_table()["p"].type).to_pylist()))
    )

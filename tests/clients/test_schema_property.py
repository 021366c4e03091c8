"""Random schemas: what pyarrow and deltalake write to them passes, also after they grew, and what was broken on purpose is named.

The generator knows the rules and says what becomes of each commit; nothing here asks the server what it thinks a rule is.
"""

import copy
import datetime
import io
import json
import random
import time
import uuid
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from conftest import LAKE
from delta import Delta, Proposal

UTC = datetime.timezone.utc
SCHEMA_MISMATCH = "DELTA_METADATA_MISMATCH.SCHEMA_MISMATCH"
OVERWRITE_REQUIRED = "DELTA_METADATA_MISMATCH.OVERWRITE_REQUIRED"
OTHER_TYPE = "DELTA_MERGE_INCOMPATIBLE_DATATYPE"
OTHER_DECIMAL = "DELTA_MERGE_INCOMPATIBLE_DECIMAL_TYPE"
LEAVES = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.binary(), pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("us")]
PARQUET = [{}, {"compression": "zstd"}, {"compression": "gzip"}, {"compression": "brotli"}, {"compression": "lz4"}, {"data_page_version": "2.0"}, {"use_dictionary": False}, {"version": "2.4"}, {"write_statistics": False}, {"store_decimal_as_integer": True}]


def decimal(rng):
    precision = rng.randint(1, 38)
    return pa.decimal128(precision, rng.randint(0, precision))


def leaf(rng):
    return decimal(rng) if rng.random() < 0.2 else rng.choice(LEAVES)


def data_type(rng, depth=0):
    kind = rng.random() + 0.25 * depth
    if kind > 0.45:
        return leaf(rng)
    if kind > 0.3:
        return pa.list_(data_type(rng, depth + 1))
    if kind > 0.2:
        return pa.map_(rng.choice([pa.string(), pa.int32(), pa.date32()]), data_type(rng, depth + 1))
    return pa.struct([pa.field(f"f{index}", data_type(rng, depth + 1)) for index in range(rng.randint(1, 3))])


def value(rng, kind, is_null=0.2):
    if rng.random() < is_null:
        return None
    at = datetime.datetime(2024, 1, 1) + datetime.timedelta(seconds=rng.randint(-10**9, 10**9), microseconds=rng.randint(0, 999_999))
    if pa.types.is_list(kind):
        return [value(rng, kind.value_type) for _ in range(rng.randint(0, 3))]
    if pa.types.is_map(kind):
        keys = {value(rng, kind.key_type, 0) for _ in range(rng.randint(0, 3))}
        return [(key, value(rng, kind.item_type)) for key in sorted(keys)]
    if pa.types.is_struct(kind):
        return {field.name: value(rng, field.type) for field in kind}
    if pa.types.is_decimal(kind):
        return Decimal(rng.randint(-(10**kind.precision) + 1, 10**kind.precision - 1)).scaleb(-kind.scale)
    if pa.types.is_integer(kind):
        return rng.randint(-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1)
    if pa.types.is_floating(kind):
        return rng.choice([rng.uniform(-1e6, 1e6), -0.0, float("nan"), float("inf")])
    if pa.types.is_boolean(kind):
        return rng.random() < 0.5
    if pa.types.is_string(kind):
        return "".join(rng.choice("abß\U0001f600 ") for _ in range(rng.choice([0, 3, 50])))
    if pa.types.is_binary(kind):
        return rng.randbytes(rng.choice([0, 4, 40]))
    if pa.types.is_date(kind):
        return at.date()
    return at.replace(tzinfo=UTC) if kind.tz else at


def rows(rng, schema):
    count = rng.randint(1, 4)
    columns = [pa.array([value(rng, field.type, 0.2 if field.nullable else 0) for _ in range(count)], field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


# Where things are in a schema


def places(schema):
    """Path in Delta's words, steps, and type of everything in the schema."""
    found = []

    def walk(kind, path, steps):
        found.append((path, steps, kind))
        if pa.types.is_list(kind):
            walk(kind.value_type, f"{path}.element", [*steps, "element"])
        elif pa.types.is_map(kind):
            walk(kind.key_type, f"{path}.key", [*steps, "key"])
            walk(kind.item_type, f"{path}.value", [*steps, "value"])
        elif pa.types.is_struct(kind):
            for field in kind:
                walk(field.type, f"{path}.{field.name}", [*steps, field.name])

    for field in schema:
        walk(field.type, field.name, [field.name])
    return found


def with_type(kind, steps, change):
    """The type with `change(type)` in the place that the steps lead to."""
    if not steps:
        return change(kind)
    step, *rest = steps
    if pa.types.is_list(kind):
        return pa.list_(with_type(kind.value_type, rest, change))
    if pa.types.is_map(kind):
        return pa.map_(with_type(kind.key_type, rest, change) if step == "key" else kind.key_type, with_type(kind.item_type, rest, change) if step == "value" else kind.item_type)
    return pa.struct([pa.field(field.name, with_type(field.type, rest, change)) if field.name == step else field for field in kind])


def with_place(table, steps, change):
    """The table with nulls of another type in the column of the place."""
    at = table.schema.get_field_index(steps[0])
    kind = with_type(table.schema.field(at).type, steps[1:], change)
    return table.set_column(at, pa.field(steps[0], kind), pa.nulls(table.num_rows, kind))


def is_leaf(kind):
    return not (pa.types.is_list(kind) or pa.types.is_map(kind) or pa.types.is_struct(kind))


def is_readable(column, file):
    """Types that differ and are read alike by everybody."""
    narrower = pa.types.is_integer(column) and pa.types.is_integer(file) and column.bit_width <= 32 and file.bit_width < column.bit_width
    return narrower or (pa.types.is_string(column) and pa.types.is_binary(file))


# What is broken, and how it is named: each gives a table and (class, column), or nothing where the schema has no such place


def another_leaf(rng, table):
    path, steps, kind = rng.choice([place for place in places(table.schema) if is_leaf(place[2]) and place[1] != ["id"]])
    others = [other for other in [*LEAVES, pa.timestamp("ns"), pa.uint32(), pa.uint64(), pa.time64("us"), decimal(rng)] if other != kind and not is_readable(kind, other)]
    other = rng.choice(others)
    error_class = OTHER_DECIMAL if pa.types.is_decimal(kind) and pa.types.is_decimal(other) else OTHER_TYPE
    return with_place(table, steps, lambda _: other), error_class, path


def another_shape(rng, table):
    path, steps, kind = rng.choice([place for place in places(table.schema) if place[1] != ["id"] and place[1][-1] != "key"])
    other = pa.list_(pa.int64()) if is_leaf(kind) else pa.int64()
    return with_place(table, steps, lambda _: other), OTHER_TYPE, path


def one_more_column(rng, table):
    return table.append_column("more", pa.array([1] * table.num_rows)), SCHEMA_MISMATCH, "more"


def structs(table):
    return [place for place in places(table.schema) if pa.types.is_struct(place[2])]


def one_more_field(rng, table):
    if not structs(table):
        return None
    path, steps, _ = rng.choice(structs(table))
    return with_place(table, steps, lambda kind: pa.struct([*kind, pa.field("more", pa.int64())])), SCHEMA_MISMATCH, f"{path}.more"


def another_case(rng, table):
    name = rng.choice([name for name in table.column_names if name != "id"])
    return table.rename_columns([name.upper() if one == name else one for one in table.column_names]), SCHEMA_MISMATCH, name.upper()


def another_case_inside(rng, table):
    if not structs(table):
        return None
    path, steps, kind = rng.choice(structs(table))
    spell = lambda kind: pa.struct([pa.field(kind[0].name.upper(), kind[0].type), *list(kind)[1:]])
    return with_place(table, steps, spell), SCHEMA_MISMATCH, f"{path}.{kind[0].name.upper()}"


def twice_but_for_case(rng, table):
    name = rng.choice(table.column_names)
    return table.append_column(name.upper(), pa.array([1] * table.num_rows)), "DELTA_DUPLICATE_COLUMNS_FOUND.DUPLICATE_COLUMNS", name.upper()


def without_the_key(rng, table):
    return table.drop_columns(["id"]), "DELTA_MISSING_NOT_NULL_COLUMN_VALUE", "id"


def with_null_keys(rng, table):
    nulls = pa.array([None] * table.num_rows, pa.int64())
    return table.set_column(0, pa.field("id", pa.int64()), nulls), "DELTA_NOT_NULL_CONSTRAINT_VIOLATED", "id"


BROKEN_FILES = [another_leaf, another_shape, one_more_column, one_more_field, another_case, another_case_inside, twice_but_for_case, without_the_key, with_null_keys]


# The same for the schema that a commit brings: each changes the fields of `schemaString`, the last of which is new


def new_column_first(fields):
    fields.insert(0, fields.pop())
    return OVERWRITE_REQUIRED, fields[0]["name"]


def new_column_not_null(fields):
    fields[-1]["nullable"] = False
    return OVERWRITE_REQUIRED, fields[-1]["name"]


def key_of_another_type(fields):
    fields[0]["type"] = "string"
    return OTHER_TYPE, "id"


def column_dropped(fields):
    return OVERWRITE_REQUIRED, fields.pop(1)["name"]


def nullability_tightened(fields):
    fields[1]["nullable"] = False
    return OVERWRITE_REQUIRED, fields[1]["name"]


def columns_moved(fields):
    fields[1], fields[2] = fields[2], fields[1]
    return OVERWRITE_REQUIRED, None


BROKEN_SCHEMAS = [new_column_first, new_column_not_null, key_of_another_type, column_dropped, nullability_tightened, columns_moved]


class World:
    def __init__(self, rng, clients, name):
        self.rng, self.clients, self.table = rng, clients, Delta(clients, name)
        columns = [pa.field(f"c{index}", data_type(rng)) for index in range(rng.randint(2, 6))]
        # One timestamp without a zone from the start, since deltalake does not turn that feature on later.
        self.schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("at", pa.timestamp("us")), *columns])
        self.table.write(self.schema.empty_table())
        self.version = 0

    def put(self, rows, **options):
        """An append of a file that pyarrow wrote."""
        sink = io.BytesIO()
        pq.write_table(rows, sink, **options)
        path = f"part-{uuid.uuid4()}.parquet"
        self.clients.s3.put_object(Bucket=LAKE, Key=f"{self.table.prefix}/{path}", Body=sink.getvalue())
        add = {"path": path, "partitionValues": {}, "size": len(sink.getvalue()), "modificationTime": int(time.time() * 1000), "dataChange": True, "stats": json.dumps({"numRecords": rows.num_rows})}
        info = {"operation": "WRITE", "operationParameters": {"mode": "Append"}, "isBlindAppend": True, "txnId": str(uuid.uuid4())}
        return self.proposal([{"commitInfo": info}, {"add": add}])

    def proposal(self, actions):
        return Proposal(self.version + 1, "".join(json.dumps(action) + "\n" for action in actions).encode())

    def assert_passes(self, proposal):
        verdict = self.table.verdict(self.table.put_staged(proposal))
        assert verdict["status"] == "committed", (verdict, str(self.schema))
        self.version = verdict["version"]

    def legal_file(self):
        table = rows(self.rng, self.schema)
        options = self.rng.choice(PARQUET)
        change = self.rng.choice(["none", "missing", "shuffled", "binary", "narrow"])
        if change == "missing":
            table = table.drop_columns([self.rng.choice(table.column_names[1:])])
        elif change == "shuffled":
            table = table.select(self.rng.sample(table.column_names, len(table.column_names)))
        else:
            for _, steps, kind in places(table.schema):
                other = {"binary": pa.binary() if pa.types.is_string(kind) else None, "narrow": pa.int8() if pa.types.is_int32(kind) or pa.types.is_int16(kind) else None}.get(change)
                if other is not None and steps[0] != "id":
                    table = with_place(table, steps, lambda _: other)
                    break
        return self.put(table, **options)

    def broken_files(self):
        """Every kind of damage, staged at once; ids by what must be said."""
        staged = []
        for damage in BROKEN_FILES:
            found = damage(self.rng, rows(self.rng, self.schema))
            if found is not None:
                table, error_class, column = found
                staged.append((damage.__name__, self.table.put_staged(self.put(table, **self.rng.choice(PARQUET))), error_class, column))
        return staged

    def grown(self):
        """A commit of deltalake that brings a column."""
        new = pa.field(f"n{self.version}", data_type(self.rng))
        schema = self.schema.append(new)
        table = rows(self.rng, schema)
        return schema, self.table.fork(lambda uri, options: write_deltalake(uri, table, mode="append", schema_mode="merge", storage_options=options))

    def broken_schemas(self, proposal):
        staged = []
        for damage in BROKEN_SCHEMAS:
            one = Proposal(proposal.version, b"")
            one.actions = copy.deepcopy(proposal.actions)
            metadata = next(action["metaData"] for action in one.actions if "metaData" in action)
            schema = json.loads(metadata["schemaString"])
            error_class, column = damage(schema["fields"])
            metadata["schemaString"] = json.dumps(schema)
            one.commit_info()["txnId"] = one.id
            staged.append((damage.__name__, self.table.put_staged(one), error_class, column))
        return staged

    def assert_named(self, staged):
        wrong = []
        for name, proposal, error_class, column in staged:
            verdict = self.table.verdict(proposal)
            found = (verdict["status"], verdict.get("error_class"), verdict.get("place", {}).get("column"))
            if found[:2] != ("rejected", error_class) or column not in (None, found[2]) or not verdict.get("advice"):
                wrong.append((name, (error_class, column), found, verdict.get("message")))
        assert not wrong, (wrong, str(self.schema))


@pytest.mark.parametrize("seed", range(4))
def test_what_is_legal_passes_and_what_is_broken_is_named(clients, unique, seed):
    world = World(random.Random(seed), clients, unique)
    for _ in range(2):
        data = rows(world.rng, world.schema)
        world.assert_passes(world.table.fork_append(data))
        for _ in range(2):
            world.assert_passes(world.legal_file())
        world.assert_named(world.broken_files())
        schema, proposal = world.grown()
        world.assert_named(world.broken_schemas(proposal))
        world.assert_passes(proposal)
        world.schema = schema
    # Nothing that was refused is there.
    assert world.table.version() == world.version
    assert world.table.open().to_pyarrow_table().schema.names == world.schema.names

"""deltalake 1.6.0, the last release that claims versions in DynamoDB as Spark does. Needs its folder first on the path."""

import os

import deltalake
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from worker import serve

# The locking provider and its table are in the environment.
OPTIONS = {name: value for name, value in os.environ.items() if name.startswith(("AWS_", "DELTA_DYNAMO_"))}


def rows(ids, dt):
    return pa.table({"id": pa.array(ids, pa.int64()), "dt": [dt] * len(ids)})


def write(uri, ids, dt="a", mode="append"):
    write_deltalake(uri, rows(ids, dt), mode=mode, storage_options=OPTIONS)
    return DeltaTable(uri, storage_options=OPTIONS).version()


def delete(uri, predicate):
    table = DeltaTable(uri, storage_options=OPTIONS)
    table.delete(predicate)
    return table.version()


def read(uri):
    table = DeltaTable(uri, storage_options=OPTIONS)
    return {"version": table.version(), "ids": sorted(table.to_pyarrow_table()["id"].to_pylist())}


assert deltalake.__version__ == "1.6.0", deltalake.__version__
serve({"write": write, "delete": delete, "read": read})

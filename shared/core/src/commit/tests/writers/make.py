"""Writes the sample files beside this script: one small table, as each writer has it.

    python make.py      with pyarrow, deltalake, pyiceberg[sql-sqlite], polars, fastparquet, pandas and pysail[spark]

The files are kept, so that tests need none of these. `writers.json` says what becomes of each.
"""

import datetime
import glob
import os
import shutil
import sys
import tempfile
from decimal import Decimal
from pathlib import Path

HERE = Path(__file__).parent
AT = datetime.datetime(2024, 2, 29, 13, 45, 6, 789000)
IDS = [1, 2, 3]
NAMES = ["a", None, "c"]


def arrow():
    import pyarrow as pa

    return pa.table(
        {
            "id": pa.array(IDS, pa.int64()),
            "name": pa.array(NAMES, pa.string()),
            "price": pa.array([1.5, None, 2.5], pa.float64()),
            "day": pa.array([AT.date()] * 3, pa.date32()),
            "ts": pa.array([AT.replace(tzinfo=datetime.timezone.utc)] * 3, pa.timestamp("us", "UTC")),
            "amount": pa.array([Decimal("1.23"), None, Decimal("4.56")], pa.decimal128(9, 2)),
            "tags": pa.array([["x"], [], None], pa.list_(pa.string())),
        }
    )


def pyarrow_files():
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(arrow(), HERE / "pyarrow.parquet")
    pq.write_table(arrow(), HERE / "pyarrow-1.0.parquet", version="1.0", use_deprecated_int96_timestamps=True)
    nanos = arrow().set_column(4, "ts", pa.array([AT] * 3, pa.timestamp("ns", "UTC")))
    pq.write_table(nanos, HERE / "pyarrow-nanoseconds.parquet")
    pq.write_table(arrow().set_column(1, "name", pa.nulls(3)), HERE / "pyarrow-null.parquet")
    large = arrow().set_column(1, "name", pa.array(NAMES, pa.large_string()))
    pq.write_table(large, HERE / "pyarrow-large.parquet", compression="gzip", data_page_version="2.0")
    categories = arrow().set_column(1, "name", pa.array(NAMES, pa.string()).dictionary_encode())
    pq.write_table(categories, HERE / "pyarrow-dictionary.parquet")
    pq.write_table(arrow(), HERE / "pyarrow-int32-decimal.parquet", store_decimal_as_integer=True, compression="zstd")


def deltalake_file():
    from deltalake import write_deltalake

    with tempfile.TemporaryDirectory() as folder:
        write_deltalake(folder, arrow())
        shutil.copy(glob.glob(f"{folder}/*.parquet")[0], HERE / "deltalake.parquet")


def pyiceberg_file():
    from pyiceberg.catalog.memory import InMemoryCatalog

    with tempfile.TemporaryDirectory() as folder:
        catalog = InMemoryCatalog("c", warehouse=f"file://{folder}")
        catalog.create_namespace("n")
        table = catalog.create_table("n.t", arrow().schema)
        table.append(arrow())
        shutil.copy(glob.glob(f"{folder}/**/*.parquet", recursive=True)[0], HERE / "pyiceberg.parquet")


def polars_files():
    import polars as pl

    utc = AT.replace(tzinfo=datetime.timezone.utc)
    frame = pl.DataFrame(
        {"id": IDS, "name": NAMES, "price": [1.5, None, 2.5], "day": [AT.date()] * 3, "ts": [utc] * 3, "tags": [["x"], [], None]},
        schema_overrides={"ts": pl.Datetime("us", "UTC"), "tags": pl.List(pl.String)},
    )
    frame.write_parquet(HERE / "polars.parquet")
    frame.with_columns(pl.col("name").cast(pl.Categorical)).write_parquet(HERE / "polars-categorical.parquet")
    frame.with_columns(pl.col("id").cast(pl.UInt64)).write_parquet(HERE / "polars-unsigned.parquet")


def fastparquet_files():
    import pandas as pd
    from fastparquet import write

    frame = pd.DataFrame({"id": IDS, "name": NAMES, "price": [1.5, None, 2.5], "ts": pd.to_datetime([AT] * 3).tz_localize("UTC").astype("datetime64[us, UTC]")})
    write(str(HERE / "fastparquet.parquet"), frame)
    write(str(HERE / "fastparquet-int96.parquet"), frame.assign(ts=frame.ts.dt.tz_localize(None)), times="int96")
    write(str(HERE / "fastparquet-index.parquet"), frame, write_index=True)


def sail_file():
    from pysail.spark import SparkConnectServer
    from pyspark.sql import SparkSession

    server = SparkConnectServer()
    server.start(background=True)
    spark = SparkSession.builder.remote(f"sc://localhost:{server.listening_address[1]}").getOrCreate()
    columns = "id bigint, name string, price double, day date, ts timestamp, amount decimal(9,2), tags array<string>"
    row = "({}, {}, {}, date '2024-02-29', timestamp '2024-02-29 13:45:06.789', {}, {})"
    rows = [row.format(1, "'a'", "1.5D", "1.23", "array('x')"), row.format(2, "null", "null", "null", "array()"), row.format(3, "'c'", "2.5D", "4.56", "null")]
    with tempfile.TemporaryDirectory() as folder:
        spark.sql(f"CREATE TABLE t ({columns}) USING delta LOCATION '{folder}/t'").collect()
        spark.sql(f"INSERT INTO t VALUES {', '.join(rows)}").collect()
        shutil.copy(glob.glob(f"{folder}/t/*.parquet")[0], HERE / "sail.parquet")


if __name__ == "__main__":
    os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")
    for make in [pyarrow_files, deltalake_file, pyiceberg_file, polars_files, fastparquet_files, sail_file]:
        try:
            make()
        except ImportError as error:
            print(f"{make.__name__}: {error}", file=sys.stderr)

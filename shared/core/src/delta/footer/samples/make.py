"""Writes the sample files beside this script: every encoding and compression that pyarrow can write, column by column.

    python make.py      with pyarrow

A column is named `<kind>-<encoding>-<compression>`, and all columns of a kind have the same values (see the tests).
"""

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).parent
ROWS = 130
CODECS = ["NONE", "SNAPPY", "GZIP", "BROTLI", "LZ4", "ZSTD"]
KINDS = {
    "flag": (pa.bool_(), lambda i: i % 3 == 0, ["PLAIN", "RLE"]),
    "int": (pa.int32(), lambda i: i * 37 - 500, ["PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT", "dictionary"]),
    "long": (pa.int64(), lambda i: i**3 * 10_000_000_019 - 2**60, ["PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT", "dictionary"]),
    "float": (pa.float32(), lambda i: i / 4 - 10, ["PLAIN", "BYTE_STREAM_SPLIT", "dictionary"]),
    "double": (pa.float64(), lambda i: i / 8 - 10, ["PLAIN", "BYTE_STREAM_SPLIT", "dictionary"]),
    "text": (pa.string(), lambda i: f"text {i % 50} " + "x" * (i % 20), ["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY", "dictionary"]),
    "decimal": (pa.decimal128(25, 2), lambda i: Decimal(i * 101 - 3000) / 100, ["PLAIN", "DELTA_BYTE_ARRAY", "BYTE_STREAM_SPLIT", "dictionary"]),
}


def columns():
    for kind, (type_, value, encodings) in KINDS.items():
        values = pa.array([None if i % 7 == 3 else value(i) for i in range(ROWS)], type_)
        for encoding in encodings:
            # Compression knows nothing of kinds: every codec with some, every encoding with one at least.
            for codec in CODECS if kind in ("long", "text") else CODECS[len(encoding) % 6 :][:1]:
                yield f"{kind}-{encoding}-{codec}", values, encoding, codec
    lists = pa.array([None if i % 5 == 0 else [] if i % 5 == 1 else [i, None, i + 1] for i in range(ROWS)], pa.list_(pa.int64()))
    yield "list-DELTA_BINARY_PACKED-GZIP", lists, "DELTA_BINARY_PACKED", "GZIP"


def write(name, **options):
    found = list(columns())
    path = lambda name: f"{name}.list.element" if name.startswith("list") else name
    pq.write_table(
        pa.table({name: values for name, values, _, _ in found}),
        HERE / name,
        use_dictionary=[name for name, _, encoding, _ in found if encoding == "dictionary"],
        column_encoding={path(name): encoding for name, _, encoding, _ in found if encoding != "dictionary"},
        compression={path(name): codec for name, _, _, codec in found},
        data_page_size=400,
        write_batch_size=40,
        write_statistics=False,
        store_schema=False,
        **options,
    )


write("pyarrow-v1.parquet", data_page_version="1.0")
write("pyarrow-v2.parquet", data_page_version="2.0")

"""The catalog beside moto_server: the same requests to both, in one run.

(a) server time: raw requests, serialised before, over one connection; bodies drained. Aims and ratios are about this.
(b) end to end through boto3, with the client's own floor: the time boto3 takes for the same answers from a server that has
    them ready.
(c) evaluating a filter alone, over the same values in memory: `Compiled::evaluate`, and moto's own evaluation called in
    this process. Neither parses the expression nor reads anything meanwhile. In time of the processor.

Table: keys year, month, day, hour (int or text), 4 columns, one Hive-style location per partition. Texts have leading zeros,
numbers have none. What a row matches is fixed by the table, not by chance: one full key, 100 and 24 partitions under a bound
prefix, and one in a hundred by keys that no prefix leads to.
"""

import argparse
import contextlib
import http.server
import json
import pathlib
import statistics
import subprocess
import threading
import time

import boto3
from botocore.config import Config

from peers import Lakewarden, Moto, Raw

DATABASE, TABLE = "bench", "events"
COLUMNS = [{"Name": f"c{n}", "Type": "string"} for n in range(4)]
FORMAT = {
    "InputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
    "OutputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
    "SerdeInfo": {"SerializationLibrary": "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"},
}


def values_of(key_type, number):
    """Partition `number`, in order: 24 hours, 28 days, 12 months, and years as many as it takes."""
    rest, hour = divmod(number, 24)
    rest, day = divmod(rest, 28)
    year, month = divmod(rest, 12)
    return [written(key_type, part) for part in (2000 + year, month + 1, day + 1, hour)]


def written(key_type, part):
    return str(part) if key_type == "int" else f"{part:02}"


def partition(key_type, number):
    year, month, day, hour = values_of(key_type, number)
    location = f"s3://lake/events/year={year}/month={month}/day={day}/hour={hour}/"
    return {"Values": [year, month, day, hour], "StorageDescriptor": {"Columns": COLUMNS, "Location": location, **FORMAT}}


def table_input(key_type):
    keys = [{"Name": name, "Type": key_type} for name in ("year", "month", "day", "hour")]
    descriptor = {"Columns": COLUMNS, "Location": "s3://lake/events/", **FORMAT}
    return {"Name": TABLE, "PartitionKeys": keys, "StorageDescriptor": descriptor}


def at(**members):
    return {"DatabaseName": DATABASE, "TableName": TABLE, **members}


def filters(key_type, count):
    """(row, expression, matches) with the key prefix bound, and with a residual that keeps about one in a hundred."""

    def of(part):
        text = part if isinstance(part, str) else written(key_type, part)
        return text if key_type == "int" else f"'{text}'"

    year, month, middle, _ = values_of(key_type, count // 2)
    month_is = f"year = {of(year)} AND month = {of(month)}"
    residual = sum(1 for n in range(count) if n // 24 % 28 == 10 and n % 24 < 7)
    return [
        ("full key =", f"{month_is} AND day = {of(middle)} AND hour = {of(7)}", 1),
        (
            "prefix =, 100",
            f"{month_is} AND ((day >= {of(11)} AND day <= {of(14)}) OR (day = {of(15)} AND hour < {of(4)}))",
            100,
        ),
        ("prefix =, a day", f"{month_is} AND day = {of(11)}", 24),
        ("residual, 1 %", f"day = {of(11)} AND hour >= {of(0)} AND hour < {of(7)}", residual),
    ]


class Walk:
    """GetPartitions, page after page."""

    def __init__(self, raw, **members):
        self.raw, self.members = raw, members

    def run(self):
        """Seconds in the server, partitions, pages, bytes."""
        seconds, partitions, pages, size, token = 0.0, 0, 0, 0, None
        while True:
            members = at(**self.members) | ({"NextToken": token} if token else {})
            took, content = self.raw.send(Raw.serialise("GetPartitions", members))
            answer = json.loads(content)
            seconds, pages, size = seconds + took, pages + 1, size + len(content)
            partitions += len(answer["Partitions"])
            token = answer.get("NextToken")
            if not token:
                return seconds, partitions, pages, size


def best(walk, repeats):
    """The median of several walks, by time."""
    runs = sorted((walk.run() for _ in range(repeats)), key=lambda run: run[0])
    return runs[len(runs) // 2]


def cost(server, action):
    """What an action took of the item store, where the server tells."""
    before = server.usage()
    answer = action()
    after = server.usage()
    return answer, {name: after[name] - before[name] for name in after} if after else None


def create(server, raw, key_type, count):
    raw.send(Raw.serialise("CreateTable", {"DatabaseName": DATABASE, "TableInput": table_input(key_type)}))
    batches = [
        Raw.serialise("BatchCreatePartition", at(PartitionInputList=[partition(key_type, n) for n in range(first, min(first + 100, count))]))
        for first in range(0, count, 100)
    ]
    seconds = 0.0
    for batch in batches:
        took, content = raw.send(batch)
        errors = json.loads(content).get("Errors")
        if errors:
            raise RuntimeError(f"{server.name}: {errors[:2]}")
        seconds += took
    return seconds


def measure(server, key_type, options):
    """Rows: name -> (seconds, matches, usage)."""
    raw = Raw(server.url)
    rows = {}
    seconds, usage = cost(server, lambda: create(server, raw, key_type, options.partitions))
    rows["create, batches of 100"] = (seconds, options.partitions, usage)
    middle = values_of(key_type, options.partitions // 2)
    request = Raw.serialise("GetPartition", at(PartitionValues=middle))
    times = [raw.send(request)[0] for _ in range(200)]
    _, usage = cost(server, lambda: raw.send(request))
    rows["GetPartition"] = (statistics.median(times), 1, usage)
    for name, members, repeats in [
        ("list all", {}, 1),
        ("list all, no columns", {"ExcludeColumnSchema": True}, 1),
    ]:
        if not options.wants(name):
            continue
        (seconds, found, _, _), usage = cost(server, best_of(raw, members, repeats))
        rows[name] = (seconds, found, usage)
    for name, expression, matches in filters(key_type, options.partitions):
        if not options.wants(name):
            continue
        members = {"Expression": expression}
        try:
            Walk(raw, **members).run()
        except RuntimeError as refused:
            print(f"  {server.name}: {name}: {refused}")
            continue
        seconds, found, _, _ = best(Walk(raw, **members), 9 if matches <= 100 else 3)
        _, usage = cost(server, Walk(raw, **members).run)
        if found != matches:
            raise RuntimeError(f"{server.name}: {name}: {found} partitions, not {matches}")
        rows[name] = (seconds, found, usage)
    return rows


def best_of(raw, members, repeats):
    return lambda: best(Walk(raw, **members), repeats)


def client(url):
    config = Config(retries={"total_max_attempts": 1}, read_timeout=3600)
    keys = {"aws_access_key_id": "lakewarden", "aws_secret_access_key": "lakewarden-local", "region_name": "us-east-1"}
    return boto3.client("glue", endpoint_url=url, config=config, **keys)


def through_boto3(url, members):
    """Seconds of a whole walk by boto3's paginator."""
    glue = client(url)
    glue.get_database(Name=DATABASE)
    started = time.perf_counter()
    count = sum(len(page["Partitions"]) for page in glue.get_paginator("get_partitions").paginate(**at(**members)))
    return time.perf_counter() - started, count


class Replay:
    """A server that answers with pages it has ready: what is left is the client's own time."""

    def __init__(self, pages):
        bodies = iter(pages)

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                is_walk = self.headers["X-Amz-Target"].endswith("GetPartitions")
                body = next(bodies) if is_walk else b'{"Database": {"Name": "bench"}}'
                self.send_response(200)
                self.send_header("Content-Type", "application/x-amz-json-1.1")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def pages_of(url, members):
    raw, token, pages = Raw(url), None, []
    while True:
        _, content = raw.send(Raw.serialise("GetPartitions", at(**members) | ({"NextToken": token} if token else {})))
        pages.append(content)
        token = json.loads(content).get("NextToken")
        if not token:
            return pages


def floor(url, members):
    replay = Replay(pages_of(url, members))
    try:
        return through_boto3(replay.url, members)[0]
    finally:
        replay.close()


def evaluate_ours(key_type, options):
    """Nanoseconds for a row and rows kept, by filter."""
    answers = {}
    for name, expression, _ in filters(key_type, options.partitions):
        binary = pathlib.Path(options.binary).parent / "examples" / "evaluate_filter"
        command = [str(binary), key_type, str(options.partitions), expression]
        answer = json.loads(subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True).stdout)
        answers[name] = (answer["nanoseconds_a_row"], answer["kept"])
    return answers


def evaluate_theirs(key_type, options):
    """The same by moto, which compiles an expression once and keeps it."""
    from moto.glue import utils

    keys = table_input(key_type)["PartitionKeys"]
    rows = [{"Values": values_of(key_type, n)} for n in range(options.partitions)]
    answers = {}
    for name, expression, _ in filters(key_type, options.partitions):
        compiled = utils._PARTITION_FILTER_EXPRESSION_CACHE.get(expression)
        times = []
        for _ in range(3):
            started = time.process_time()
            kept = sum(1 for row in rows if compiled.eval(part_keys=keys, part_input=row))
            times.append(time.process_time() - started)
        answers[name] = (min(times) / len(rows) * 1e9, kept)
    return answers


def show_evaluation(key_type, options):
    print(f"\n(c) evaluating a filter, keys of type {key_type}: time for a row")
    ours, theirs = evaluate_ours(key_type, options), {} if options.alone else evaluate_theirs(key_type, options)
    for name, (nanoseconds, kept) in ours.items():
        other = theirs.get(name)
        if other and other[1] != kept:
            raise RuntimeError(f"{name}: {kept} rows kept, {other[1]} by moto")
        peer = f"{other[0]:>10.0f} ns{other[0] / nanoseconds:>8.0f}x" if other else ""
        print(f"{name:26}{kept:>11}{nanoseconds:>10.2f} ns{peer}")


def show(key_type, ours, theirs):
    print(f"\n(a) server time, keys of type {key_type}")
    print(f"{'':26}{'partitions':>11}{'lakewarden':>13}{'moto_server':>13}{'ratio':>9}   of ours: queries, gets, items read, read units, write units")
    for name, (seconds, found, usage) in ours.items():
        other = theirs.get(name)
        peer = f"{other[0] * 1000:>10.1f} ms" if other else f"{'-':>13}"
        ratio = f"{other[0] / seconds:>8.1f}x" if other else f"{'-':>9}"
        used = ""
        if usage:
            reads = usage["gets"] + usage["batch_gets"]
            used = f"{usage['queries']}, {reads}, {usage['items_read']}, {usage['read_half_units'] / 2:g}, {usage['write_units']}"
        print(f"{name:26}{found:>11}{seconds * 1000:>10.1f} ms{peer}{ratio}   {used}", flush=True)


def show_ends(key_type, servers, measured, options):
    name, expression, _ = filters(key_type, options.partitions)[1]
    print("\n(b) end to end through boto3, and boto3's own time for the same answers", flush=True)
    for row, members in [("list all", {}), (name, {"Expression": expression})]:
        for server in servers if row in measured and not options.rows else []:
            seconds, found = through_boto3(server.url, members)
            own = floor(server.url, members)
            print(f"{row:26}{found:>11}  {server.name:12}{seconds * 1000:>10.1f} ms, of it boto3 {own * 1000:.1f} ms", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--types", nargs="+", default=["int", "string"], choices=["int", "string"])
    parser.add_argument("--binary", default="target/release/lakewarden")
    parser.add_argument("--alone", action="store_true", help="leave the peer out")
    parser.add_argument("--rows", nargs="+", help="only these listings, by their names in the table")
    options = parser.parse_args()
    options.wants = lambda name: not options.rows or name in options.rows
    for key_type in options.types:
        with contextlib.ExitStack() as stack:
            rows, servers = [], []
            for server in [Lakewarden(options.binary)] + ([] if options.alone else [Moto()]):
                servers.append(stack.enter_context(server))
                Raw(server.url).send(Raw.serialise("CreateDatabase", {"DatabaseInput": {"Name": DATABASE}}))
                rows.append(measure(server, key_type, options))
                server.settle()
            # Each part is shown as soon as it is known: the peer takes minutes for the next.
            show(key_type, rows[0], rows[1] if len(rows) > 1 else {})
            show_evaluation(key_type, options)
            if key_type == options.types[0]:
                show_ends(key_type, servers, rows[0], options)


if __name__ == "__main__":
    main()

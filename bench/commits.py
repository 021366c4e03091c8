"""Commits to one Delta table by several appenders at once: staged for Lakewarden, beside deltalake's own conditional puts of the
same Parquet files to the same embedded S3, in one run.

An appender makes one commit after the other, each on top of the version it knows from the one before. With Lakewarden it puts
the staged commit and asks for the verdict until there is one; that ends the commit. With deltalake the commit ends when the call
returns, however often it had to try again inside; the time between its commits, in which it has to refresh its state, is not
counted. The Parquet files lie there before the clock starts. At the end both tables must have every version and every row.

Wasted work: requests and bytes beyond what the same number of commits cost a single appender.

The model puts something between every client and the embedded servers that lets answers arrive later (S3 60 ms, DynamoDB 6 ms).
"""

import argparse
import datetime
import hashlib
import hmac
import http.client
import io
import json
import pathlib
import socket
import statistics
import tempfile
import threading
import time
import urllib.parse
import uuid

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
from botocore.config import Config
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, write_deltalake
from deltalake.transaction import AddAction

from peers import Between, lakewarden_server

BUCKET = "lake"
S3_MS, DYNAMODB_MS = 60, 6
# Pause before the next question for a verdict: a part of the time waited so far, as a patient client asks.
ASK_FIRST_S, ASK_PART = 0.004, 0.2
PATIENCE_S = 300


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class World:
    """A running Lakewarden, and what stands before its embedded servers: for the clients, and for its own functions."""

    def __init__(self, binary, is_model):
        lakewarden_server.BINARY = pathlib.Path(binary).resolve()
        self.folder = tempfile.TemporaryDirectory(prefix="lakewarden-bench-")
        self.between = []
        ports, extra = {}, []
        if is_model:
            ports = {"s3": free_port(), "dynamodb": free_port()}
            for service, delay_ms in (("s3", S3_MS), ("dynamodb", DYNAMODB_MS)):
                extra += [f"--functions-{service}-url", self.put_before(f"http://127.0.0.1:{ports[service]}", delay_ms).url]
        self.server = lakewarden_server.Server(self.folder.name, ports=ports)
        self.server.command += extra
        self.server.start()
        self.endpoints = self.server.endpoints
        # deltalake always goes through something that counts; without the model it is timed without it.
        self.counting = self.put_before(self.endpoints["s3"], S3_MS if is_model else 0)
        self.s3_url = self.counting.url if is_model else self.endpoints["s3"]
        config = Config(s3={"addressing_style": "path"}, signature_version="s3v4")
        keys = {"aws_access_key_id": self.endpoints["access_key"], "aws_secret_access_key": self.endpoints["secret_key"]}
        self.s3 = boto3.client("s3", endpoint_url=self.endpoints["s3"], region_name="us-east-1", config=config, **keys)

    def put_before(self, url, delay_ms):
        self.between.append(Between(url, delay_ms))
        return self.between[-1]

    def options(self, url):
        return {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": self.endpoints["access_key"],
            "AWS_SECRET_ACCESS_KEY": self.endpoints["secret_key"],
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.stop()
        for between in self.between:
            between.close()
        self.folder.cleanup()


class Table:
    """A table at version 0 with one row, and Parquet files for commits to come."""

    def __init__(self, world, commits):
        self.world = world
        self.prefix = f"bench/{uuid.uuid4()}"
        self.uri = f"s3://{BUCKET}/{self.prefix}"
        write_deltalake(self.uri, pa.table({"id": pa.array([0], pa.int64())}), storage_options=self.options())
        self.files = [self._file(number) for number in range(1, commits + 1)]

    def options(self):
        return self.world.options(self.world.endpoints["s3"])

    def _file(self, number):
        sink = io.BytesIO()
        pq.write_table(pa.table({"id": pa.array([number], pa.int64())}), sink)
        path = f"part-{number:05}-{uuid.uuid4()}.parquet"
        self.world.s3.put_object(Bucket=BUCKET, Key=f"{self.prefix}/{path}", Body=sink.getvalue())
        bounds = {"numRecords": 1, "minValues": {"id": number}, "maxValues": {"id": number}, "nullCount": {"id": 0}}
        return path, len(sink.getvalue()), json.dumps(bounds)

    def check(self):
        table = DeltaTable(self.uri, storage_options=self.options())
        ids = sorted(table.to_pyarrow_table()["id"].to_pylist())
        if table.version() != len(self.files) or ids != list(range(len(self.files) + 1)):
            raise RuntimeError(f"{self.uri}: version {table.version()} with {len(ids)} rows after {len(self.files)} commits")


def at_once(workers):
    """Runs them in threads that begin together; seconds until the last one ends. The first trouble is raised."""
    gate = threading.Barrier(len(workers) + 1)
    troubles = []

    def work(worker):
        try:
            gate.wait()
            worker()
        except BaseException as trouble:  # noqa: BLE001, raised below
            troubles.append(trouble)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    gate.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    if troubles:
        raise troubles[0]
    return took


def shares(files, appenders):
    return [files[part::appenders] for part in range(appenders)]


def by_deltalake(world, appenders, commits, url):
    """Seconds without the refreshing, and the seconds of each commit."""
    table = Table(world, commits)
    times, refreshing = [], []
    again = CommitProperties(max_commit_retries=10_000)
    nothing_after = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)

    def appender(files):
        own = DeltaTable(table.uri, storage_options=world.options(url))
        schema = own.schema()

        def work():
            for number, (path, size, stats) in enumerate(files):
                if number > 0:
                    began = time.perf_counter()
                    own.update_incremental()
                    refreshing.append(time.perf_counter() - began)
                add = AddAction(path, size, {}, int(time.time() * 1000), True, stats)
                began = time.perf_counter()
                own.create_write_transaction(
                    [add], "append", schema, commit_properties=again, post_commithook_properties=nothing_after
                )
                times.append(time.perf_counter() - began)

        return work

    took = at_once([appender(files) for files in shares(table.files, appenders)])
    table.check()
    return took - sum(refreshing) / appenders, times


class Connection:
    """One HTTP connection that is kept; signs for S3, since an SDK's own time would be most of what is measured."""

    def __init__(self, url, endpoints=None):
        self.address = urllib.parse.urlsplit(url).netloc
        self.connection = http.client.HTTPConnection(self.address, timeout=PATIENCE_S)
        self.endpoints = endpoints

    def send(self, method, path, body=None, headers=None):
        self.connection.request(method, path, body, headers or {})
        answer = self.connection.getresponse()
        return answer.status, answer.read()

    def put(self, key, body):
        path = f"/{BUCKET}/{urllib.parse.quote(key)}"
        return self.send("PUT", path, body, self.signed("PUT", path, body))

    def signed(self, method, path, body):
        """Headers of signature version 4."""
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        digest = hashlib.sha256(body).hexdigest()
        names = "host;x-amz-content-sha256;x-amz-date"
        headers = f"host:{self.address}\nx-amz-content-sha256:{digest}\nx-amz-date:{now}\n"
        request = hashlib.sha256(f"{method}\n{path}\n\n{headers}\n{names}\n{digest}".encode()).hexdigest()
        scope = f"{now[:8]}/us-east-1/s3/aws4_request"
        secret = f"AWS4{self.endpoints['secret_key']}".encode()
        for part in scope.split("/"):
            secret = hmac.digest(secret, part.encode(), "sha256")
        signature = hmac.new(secret, f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{request}".encode(), "sha256").hexdigest()
        credential = f"{self.endpoints['access_key']}/{scope}"
        authorization = f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}"
        return {"x-amz-date": now, "x-amz-content-sha256": digest, "Authorization": authorization}


def commit_body(file):
    path, size, stats = file
    info = {"operation": "WRITE", "operationParameters": {"mode": "Append"}, "isBlindAppend": True}
    add = {"path": path, "partitionValues": {}, "size": size, "modificationTime": 0, "dataChange": True, "stats": stats}
    return "".join(json.dumps(action) + "\n" for action in ({"commitInfo": info}, {"add": add})).encode()


def by_lakewarden(world, appenders, commits):
    """Seconds, the seconds of each commit, and how often a verdict was asked for."""
    table = Table(world, commits)
    times, asked = [], []

    def appender(files):
        bodies = [commit_body(file) for file in files]
        s3, gateway = Connection(world.s3_url, world.endpoints), Connection(world.endpoints["gateway"])

        def work():
            version = 0
            for body in bodies:
                proposal_id = str(uuid.uuid4())
                began = time.perf_counter()
                key = f"{table.prefix}/_delta_log/_staged_commits/{version + 1:020}.{proposal_id}.json"
                status, answer = s3.put(key, body)
                if status != 200:
                    raise RuntimeError(f"staging: {status} {answer[:500]}")
                version, questions = verdict_of(gateway, proposal_id, began)
                times.append(time.perf_counter() - began)
                asked.append(questions)

        return work

    took = at_once([appender(files) for files in shares(table.files, appenders)])
    world.server.wait_idle()
    table.check()
    return took, times, sum(asked)


def verdict_of(gateway, proposal_id, began):
    """Asks until there is one; the version, and how often. Anything but a commit is an error: no appender has anything to try again."""
    questions = 0
    while time.perf_counter() - began < PATIENCE_S:
        questions += 1
        status, answer = gateway.send("GET", f"/v1/commits/{proposal_id}")
        verdict = json.loads(answer) if status == 200 else {}
        if verdict.get("final"):
            if verdict["status"] != "committed":
                raise RuntimeError(f"refused: {answer!r}")
            return verdict["version"], questions
        time.sleep(max(ASK_FIRST_S, ASK_PART * (time.perf_counter() - began)))
    raise RuntimeError(f"no verdict on {proposal_id} within {PATIENCE_S} s")


# Requests and bytes


def difference(after, before):
    return {name: count - before.get(name, 0) for name, count in after.items() if isinstance(count, int)}


def work_of_deltalake(counts):
    requests = sum(count for name, count in counts.items() if name in ("GET", "PUT", "POST", "HEAD", "DELETE"))
    return {
        "S3 requests": requests,
        "bytes": counts.get("bytes sent", 0) + counts.get("bytes received", 0),
        "refused puts": counts.get("412", 0) + counts.get("409", 0),
    }


def work_of_lakewarden(usage):
    """Without what the questions for verdicts read: those are queries and gets of the item store."""
    objects = usage["objects"]
    requests = sum(count for name, count in objects.items() if not name.startswith("bytes"))
    return {
        "S3 requests": requests,
        "bytes": objects["bytes_read"] + objects["bytes_written"],
        "transactions": usage["items"]["transactions"],
        "write units": usage["items"]["write_units"],
    }


def measure(world, is_model, appenders, commits):
    """Both, and what each asked for."""
    before = world.counting.counts()
    seconds, times = by_deltalake(world, appenders, commits, world.s3_url)
    if not is_model:
        by_deltalake(world, appenders, commits, world.counting.url)
    theirs = (seconds, times, work_of_deltalake(difference(world.counting.counts(), before)))
    world.server.wait_idle()
    before = world.server.ok("GET", "/local/usage")
    seconds, times, questions = by_lakewarden(world, appenders, commits)
    after = world.server.ok("GET", "/local/usage")
    usage = {store: difference(after[store], before[store]) for store in after}
    ours = (seconds, times, work_of_lakewarden(usage) | {"questions": questions})
    return ours, theirs


def per_commit(work, commits):
    return {name: count / commits for name, count in work.items()}


def show(name, commits, result, single):
    seconds, times, work = result
    times = sorted(times)
    late = times[min(len(times) - 1, len(times) * 95 // 100)]
    print(f"  {name:11}{commits / seconds:>9.1f} commits/s   of a commit: median {statistics.median(times) * 1000:.0f} ms,"
          f" 95 % {late * 1000:.0f} ms")
    each = per_commit(work, commits)
    print("    a commit took " + ", ".join(f"{value:.1f} {what}" for what, value in each.items()))
    if single:
        wasted = {what: max(0, each[what] - single[what]) * commits for what in ("S3 requests", "bytes")}
        print("    wasted: " + ", ".join(f"{value:.0f} {what}" for what, value in wasted.items()))
    return each


def run(options, is_model):
    label = f"model: S3 {S3_MS} ms, DynamoDB {DYNAMODB_MS} ms" if is_model else "the embedded servers as they are"
    print(f"\n{label}")
    with World(options.binary, is_model) as world:
        measure(world, is_model, 1, 2)
        single = {}
        for appenders in options.appenders:
            commits = max(appenders, options.commits)
            ours, theirs = measure(world, is_model, appenders, commits)
            print(f"\n  appenders: {appenders}, commits: {commits}, lakewarden is {theirs[0] / ours[0]:.2f} times as fast")
            for name, result in (("lakewarden", ours), ("deltalake", theirs)):
                each = show(name, commits, result, single.get(name) if appenders > 1 else None)
                if appenders == 1:
                    single[name] = each


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--appenders", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--commits", type=int, default=96, help="of all appenders together")
    parser.add_argument("--binary", default="target/release/lakewarden")
    parser.add_argument("--without-model", action="store_true", help="only the embedded servers as they are")
    parser.add_argument("--only-model", action="store_true")
    options = parser.parse_args()
    print(f"binary: {options.binary}")
    if not options.only_model:
        run(options, is_model=False)
    if not options.without_model:
        run(options, is_model=True)


if __name__ == "__main__":
    main()

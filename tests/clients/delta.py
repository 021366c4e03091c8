"""Real Delta commits that have not been committed: made by an unmodified writer in a copy of the table, then staged.

No writer has a mode for staging commits on plain tables yet. So the table is copied, deltalake commits to the copy, and
what it wrote there (data files and one log file) is proposed for the original.
"""

import io
import json
import time
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from conftest import LAKE
from lakewarden_server import wait_until
from log_store import versions


def rows(*ids, dt="a"):
    return pa.table({"id": pa.array(ids, pa.int64()), "dt": [dt] * len(ids)})


class Proposal:
    """A commit that was made in a copy. `actions` may be changed before it is staged."""

    def __init__(self, version, body):
        self.version = version
        self.actions = [json.loads(line) for line in body.decode().splitlines()]
        self.id = str(uuid.uuid4())

    def added(self):
        return [action["add"] for action in self.actions if "add" in action]

    def commit_info(self):
        return next(action["commitInfo"] for action in self.actions if "commitInfo" in action)

    def body(self):
        return "".join(json.dumps(action) + "\n" for action in self.actions).encode()

    def name(self):
        return f"{self.version:020}.{self.id}.json"


class Delta:
    """One Delta table below the lake bucket."""

    def __init__(self, clients, name):
        self.clients = clients
        self.prefix = f"delta/{name}"
        self.uri = f"s3://{LAKE}/{self.prefix}"

    def write(self, rows, **options):
        write_deltalake(self.uri, rows, storage_options=self.clients.storage_options(), **options)

    def open(self, prefix=None):
        return DeltaTable(f"s3://{LAKE}/{prefix or self.prefix}", storage_options=self.clients.storage_options())

    def version(self):
        return self.open().version()

    def ids(self):
        found = QueryBuilder().register("found", self.open()).execute("SELECT id FROM found").read_all()
        return sorted(found["id"].to_pylist())

    def objects(self):
        return self.clients.objects(self.prefix + "/")

    def log(self):
        """The versions that the log has, ascending."""
        return versions(self.clients.s3, f"{self.prefix}/_delta_log/")

    def fork(self, change):
        """Lets `change(uri, storage_options)` commit once to a copy; its data files are brought to the original."""
        s3 = self.clients.s3
        copy = f"forks/{uuid.uuid4()}"
        before = set()
        for key in self.objects():
            relative = key.removeprefix(self.prefix)
            if "/_staged_commits/" not in relative:
                s3.copy_object(Bucket=LAKE, Key=copy + relative, CopySource={"Bucket": LAKE, "Key": key})
                before.add(copy + relative)
        change(f"s3://{LAKE}/{copy}", self.clients.storage_options())
        made = set(self.clients.objects(copy + "/")) - before
        logs = sorted(key for key in made if key.startswith(f"{copy}/_delta_log/") and key.endswith(".json"))
        assert len(logs) == 1, f"one commit was expected, made were {sorted(made)}"
        for key in made - set(logs):
            if "/_delta_log/" not in key:
                s3.copy_object(Bucket=LAKE, Key=self.prefix + key.removeprefix(copy), CopySource={"Bucket": LAKE, "Key": key})
        body = s3.get_object(Bucket=LAKE, Key=logs[0])["Body"].read()
        return Proposal(int(logs[0].rsplit("/", 1)[1].removesuffix(".json")), body)

    def fork_append(self, rows, **options):
        return self.fork(lambda uri, opts: write_deltalake(uri, rows, mode="append", storage_options=opts, **options))

    def fork_delete(self, predicate):
        return self.fork(lambda uri, opts: DeltaTable(uri, storage_options=opts).delete(predicate))

    def hand_made_append(self, *ids, version=None, dt="a"):
        """A blind append to the unpartitioned table, written without an engine: many of them are needed."""
        sink = io.BytesIO()
        pq.write_table(rows(*ids, dt=dt), sink)
        path = f"part-{uuid.uuid4()}.parquet"
        self.clients.s3.put_object(Bucket=LAKE, Key=f"{self.prefix}/{path}", Body=sink.getvalue())
        bounds = {"numRecords": len(ids), "minValues": {"id": min(ids)}, "maxValues": {"id": max(ids)}, "nullCount": {"id": 0}}
        info = {"operation": "WRITE", "operationParameters": {"mode": "Append"}, "isBlindAppend": True}
        add = {
            "path": path,
            "partitionValues": {},
            "size": len(sink.getvalue()),
            "modificationTime": int(time.time() * 1000),
            "dataChange": True,
            "stats": json.dumps(bounds),
        }
        actions = [{"commitInfo": info | {"txnId": str(uuid.uuid4())}}, {"add": add}]
        body = "".join(json.dumps(action) + "\n" for action in actions).encode()
        return Proposal(self.version() + 1 if version is None else version, body)

    def staged_key(self, proposal):
        return f"{self.prefix}/_delta_log/_staged_commits/{proposal.name()}"

    def stage(self, proposal, tmp_path):
        """Uploads the commit with plain `aws s3 cp`."""
        file = tmp_path / proposal.name()
        file.write_bytes(proposal.body())
        self.clients.cli("s3", "cp", str(file), f"s3://{LAKE}/{self.staged_key(proposal)}")
        return proposal.id

    def put_staged(self, proposal):
        """The same in one request, where there are many."""
        self.clients.s3.put_object(Bucket=LAKE, Key=self.staged_key(proposal), Body=proposal.body())
        return proposal.id

    def verdict(self, proposal_id, timeout_s=60):
        """The final verdict, as the REST API tells it."""
        server = self.clients.server

        def final():
            answer = server.request("GET", f"/v1/commits/{proposal_id}")
            assert answer.status_code in (200, 404), answer.text
            found = answer.json() if answer.status_code == 200 else {}
            return found if found.get("final") else None

        return wait_until(final, f"a verdict on {proposal_id}", timeout_s)

"""Real Delta commits that have not been committed: made by an unmodified writer on a fork of the table (as the Python client
makes it), then staged.
"""

import io
import json
import time
import uuid

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from conftest import LAKE
from lakewarden import Client
from lakewarden.client import encode
from lakewarden.fork import fork
from lakewarden_server import wait_until
from log_store import versions


def rows(*ids, dt="a"):
    return pa.table({"id": pa.array(ids, pa.int64()), "dt": [dt] * len(ids)})


class Proposal:
    """A commit that was made on a fork. `actions` may be changed before it is staged."""

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
        """Lets `change(uri, storage_options)` commit once to a fork; its data files are brought to the original."""
        endpoints = self.clients.server.endpoints
        session = boto3.Session(endpoints["access_key"], endpoints["secret_key"], region_name=endpoints["region"])
        with fork(Client(endpoints["gateway"], session, self.clients.s3), self.uri) as made:
            change(made.uri, made.storage_options)
            commit = made.commit()
        return Proposal(commit.read_version + 1, encode(commit.actions))

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

"""The process is killed (SIGKILL) in the middle of a sweep that deletes, at a moment that is exactly one request to S3, and started again
on the same data. The run is taken over and comes to what an uninterrupted one comes to."""

import concurrent.futures
import socket
import uuid

import pyarrow as pa
import pytest

from conftest import LAKE, Clients
from gate import Gate
from lakewarden_server import Server, wait_until
from swept import Swept, decisions

LIVE, NOTES, ORPHANS = 3, 800, 300
PATIENCE_S = 180
QUARANTINE = "lakewarden-quarantine/"
# The lock of a dead worker runs out after two minutes.
DOWN_MS = 180_000

MOMENTS = [
    ("get", 2, "after"),
    # The last page of the first listing, and the first of the second, are among these.
    ("list", 3, "after"),
    ("list", 5, "before"),
    ("put lines", 1, "after"),
    ("delete batch", 1, "before"),
    ("delete batch", 1, "after"),
    ("delete batch", 2, "after"),
    ("put page", 1, "before"),
    ("put page", 1, "after"),
]


def rows(*ids):
    return pa.table({"id": pa.array(ids, pa.int64())})


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Crashing:
    """A server whose functions reach S3 through a gate."""

    def __init__(self, folder):
        self.folder = folder
        port = free_port()
        self.gate = Gate(port)
        self.server = Server(folder / "server", data_dir=folder / "data", ports={"s3": port})
        self.server.command += ["--functions-s3-url", self.gate.url]
        self.start()

    def start(self):
        self.gate.open()
        self.server.start()
        self.clients = Clients(self.server)
        self.swept = Swept(self.clients, "sweeps", "orders", "iceberg/orders")

    def create(self):
        catalog = self.clients.iceberg()
        catalog.create_namespace("sweeps")
        created = catalog.create_table("sweeps.orders", schema=rows().schema, location=f"s3://{LAKE}/iceberg/orders")
        self.swept.create_optimizer(enabled=False)
        self.server.advance_clock("1h")
        for number in range(LIVE):
            created.append(rows(number))
        self.plant(f"notes/{number:05}.txt" for number in range(NOTES))

    def plant(self, relatives):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            return set(pool.map(self.swept.plant, relatives))

    def orphans(self):
        keys = self.plant([f"data/p={number % 3}/00000-{number}-{uuid.uuid4()}.parquet" for number in range(ORPHANS)])
        self.server.advance_clock("4d")
        self.server.wait_idle()
        return keys

    def begin(self, moment=None):
        self.gate.watch(moment)
        return self.server.ok("POST", self.swept.path, {"mode": "ordinary", "sightings": 1})["run_id"]

    def finish(self, run_id):
        """The run at its end."""

        def ended():
            run = self.server.ok("GET", f"{self.swept.path}/{run_id}")
            return run if run["state"] in ("completed", "failed") else None

        return wait_until(ended, f"run {run_id} ended", PATIENCE_S)

    def crash(self):
        """As when the power fails, and comes back three minutes later."""
        self.server.kill()
        clock = self.folder / "data" / "clock"
        clock.write_text(f"{int(clock.read_text()) + DOWN_MS}\n", encoding="utf-8")
        self.start()

    def close(self):
        self.server.kill()
        self.gate.close()


@pytest.fixture(scope="module")
def crashing(binary, tmp_path_factory):
    crashing = Crashing(tmp_path_factory.mktemp("crashing"))
    crashing.create()
    yield crashing
    crashing.close()


@pytest.fixture(scope="module")
def uninterrupted(crashing):
    """Reasons of an undisturbed run, but for the orphans; and what it sent."""
    before = crashing.swept.keys()
    crashing.orphans()
    run = crashing.finish(crashing.begin())
    assert (run["state"], run["deleted"]["count"], run["attempts"]) == ("completed", ORPHANS, 1), run
    assert crashing.swept.keys() == before
    return kept(run), list(crashing.gate.seen)


def kept(run):
    """Reasons of files of the table that stay. What lies in quarantine grows with every test."""
    return {reason: tally for reason, tally in run["by_reason"].items() if reason not in ("orphan", "quarantined", "quarantine_expired")}


def set_aside(crashing, run_id):
    """Where the files came from that a run moved to quarantine."""
    copies = [key.rsplit("/", 2) for key in crashing.clients.objects(QUARANTINE)]
    return [key.removeprefix(QUARANTINE) for key, _table, run in copies if run == run_id]


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: "-".join(map(str, moment)).replace(" ", "_"))
def test_a_killed_run_comes_to_the_same_end(crashing, uninterrupted, moment):
    reasons, sent = uninterrupted
    kind, which, side = moment
    assert sent.count(kind) >= which, f"there is no such moment: {sent}"
    before = crashing.swept.keys()
    orphans = crashing.orphans()
    run_id = crashing.begin(moment)
    assert crashing.gate.reached.wait(PATIENCE_S), crashing.gate.seen
    crashing.crash()
    gone = (before | orphans) - crashing.swept.keys()
    assert gone <= orphans
    if kind == "delete batch":
        assert len(gone) == 250 * (which - 1) + (min(250, ORPHANS - 250 * (which - 1)) if side == "after" else 0)

    run = crashing.finish(run_id)
    assert run["state"] == "completed" and run["attempts"] == 2, run
    assert crashing.swept.keys() == before, "all orphans, and nothing else"
    # The second attempt judged what the first had left.
    judged = run["by_reason"].get("orphan", {"count": 0})["count"]
    assert kept(run) == reasons
    assert judged >= ORPHANS - len(gone)
    told = [line["key"] for line in crashing.swept.report(run_id) if line.get("outcome") == "quarantined"]
    assert len(told) == len(set(told)) and set(told) <= orphans
    lost = orphans - set(told)
    assert lost <= gone, "of a batch whose answer was lost nothing is told"
    assert run["deleted"]["count"] <= ORPHANS
    assert sorted(set_aside(crashing, run_id)) == sorted(orphans), "whatever was told, each can come back"
    listed = decisions(crashing.swept.report(run_id))
    assert {key for key, reason in listed.items() if reason == "orphan"} <= orphans
    assert sorted(crashing.clients.iceberg().load_table("sweeps.orders").scan().to_arrow()["id"].to_pylist()) == list(range(LIVE))
    bucket, folder = run["page"].removeprefix("s3://").rsplit("/", 1)[0].split("/", 1)
    assert not [key for key in crashing.clients.objects(folder + "/", bucket) if "/work/" in key]

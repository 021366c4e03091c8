"""Sweeps of a table with more files than a page of a listing or a batch of deleting holds: runs as they are started, watched, ended and
looked back on, by REST and by the command."""

import concurrent.futures
import json
import re
import uuid

import pyarrow as pa
import pytest

from conftest import LAKE, Clients
from lakewarden_server import Server, wait_until
from swept import Swept, decisions
from test_tools import Tools

LIVE, NOTES, ORPHANS = 6, 1_100, 320
PATIENCE_S = 180
STAGES = ["loading", "surveying", "judging", "deleting"]


def rows(*ids):
    return pa.table({"id": pa.array(ids, pa.int64())})


@pytest.fixture(scope="module")
def table(binary, tmp_path_factory):
    """An Iceberg table with a commit per file, and so many notes that the share of its orphans stays below the fuse. Days pass on its
    server, so it has one of its own."""
    server = Server(tmp_path_factory.mktemp("scale")).start()
    clients = Clients(server)
    catalog = clients.iceberg()
    catalog.create_namespace("sweeps")
    created = catalog.create_table("sweeps.orders", schema=rows().schema, location=f"s3://{LAKE}/iceberg/orders")
    swept = Swept(clients, "sweeps", "orders", "iceberg/orders")
    swept.create_optimizer(enabled=False)
    server.advance_clock("1h")
    for number in range(LIVE):
        created.append(rows(number))
    plant(swept, (f"notes/{number % 13}/{number:05}.txt" for number in range(NOTES)))
    yield swept
    assert server.stop() == 0, server.tail()


def plant(swept, relatives):
    """Uploads many at once; their keys."""
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return set(pool.map(swept.plant, relatives))


def plant_orphans(swept, count):
    """Files of writers that died, older than the retention."""
    keys = plant(swept, [f"data/p={number % 7}/00000-{number}-{uuid.uuid4()}.parquet" for number in range(count)])
    swept.server.advance_clock("4d")
    return keys


def ids(clients):
    return sorted(clients.iceberg().load_table("sweeps.orders").scan().to_arrow()["id"].to_pylist())


def stored(clients, uri):
    bucket, key = uri.removeprefix("s3://").split("/", 1)
    return clients.s3.get_object(Bucket=bucket, Key=key)


def test_hundreds_of_orphans_go_and_nothing_else(table):
    clients, server = table.clients, table.server
    before = table.keys()
    orphans = plant_orphans(table, ORPHANS)
    dry, lines = table.dry_run(sightings=1)
    assert len(lines) == len(decisions(lines)) == len(before | orphans) == dry["listed"], "every object once"
    assert {key for key, reason in decisions(lines).items() if reason == "orphan"} == orphans
    assert {reason: tally["count"] for reason, tally in dry["by_reason"].items()} == counted(lines)
    assert dry["deleted"]["count"] == 0 and table.keys() == before | orphans
    run = table.run(mode="ordinary", sightings=1)
    assert run["state"] == "completed" and run["progress"] is None, run
    assert run["deleted"] == {"count": ORPHANS, "size_bytes": sum(map(len, [b"nobody knows me"] * ORPHANS))} and not run["spared"], run
    assert table.keys() == before
    assert ids(clients) == list(range(LIVE))
    outcomes = {line["key"]: line["outcome"] for line in table.report(run["run_id"]) if "outcome" in line}
    assert outcomes == dict.fromkeys(orphans, "quarantined")
    # The page lies beside the lines, and loads nothing.
    page = stored(clients, run["page"])
    html = page["Body"].read().decode()
    assert page["ContentType"].startswith("text/html") and "data/p=3/" in html and f">{ORPHANS}<" in html
    assert not re.search(r"https?:|<script|src=|href=|@import|url\(", html)
    bucket, folder = run["page"].removeprefix("s3://").rsplit("/", 1)[0].split("/", 1)
    beside = [key.removeprefix(folder + "/") for key in clients.objects(folder + "/", bucket)]
    assert {name.rsplit(".", 1)[1] for name in beside} == {"html", "jsonl"}, "and nothing that only its slices needed"
    # And so they are found: newest first.
    listed = server.ok("GET", table.path)["runs"]
    assert [one["run_id"] for one in listed[:2]] == [run["run_id"], dry["run_id"]]
    assert server.ok("GET", f"{table.path}/{dry['run_id']}") == dry


def counted(lines):
    reasons = list(decisions(lines).values())
    return {reason: reasons.count(reason) for reason in set(reasons)}


def test_a_run_that_waits_for_another_can_be_ended(table):
    server = table.server
    orphans = plant_orphans(table, 3)
    before = table.keys()
    first = server.ok("POST", table.path, {"mode": "dry_run"})["run_id"]
    second = server.ok("POST", table.path, {"mode": "ordinary", "sightings": 1})["run_id"]
    asked = server.request("DELETE", f"{table.path}/{second}")
    assert asked.status_code == 202 and asked.json()["run_id"] == second, asked.text
    ended = {}
    for run_id in (first, second):
        ended[run_id] = wait_until(lambda: final(table, run_id), f"run {run_id} ended", PATIENCE_S, 0.2)
    assert ended[first]["state"] == "completed"
    run = ended[second]
    assert (run["state"], run["reason"], run["deleted"]["count"]) == ("failed", "cancelled", 0), run
    assert "cancelled" in stored(table.clients, run["page"])["Body"].read().decode()
    assert table.keys() == before and orphans <= before
    again = server.request("DELETE", f"{table.path}/{second}")
    assert again.status_code == 422 and "has ended" in again.text
    assert server.request("DELETE", f"{table.path}/none").status_code == 404
    assert table.run(mode="ordinary", sightings=1)["state"] == "completed" and not orphans & table.keys(), "the next one is not meant"


def final(table, run_id):
    run = table.server.ok("GET", f"{table.path}/{run_id}")
    return run if run["state"] in ("completed", "failed") else None


def test_a_run_can_be_watched(table, tmp_path):
    """What it says on the way is of one stage after the other, and never more than there is; the command draws it on a terminal."""
    server = table.server
    orphans = plant_orphans(table, ORPHANS)
    run_id = server.ok("POST", table.path, {"mode": "ordinary", "sightings": 1})["run_id"]
    seen = []

    def ended():
        # It says something every two seconds of its clock.
        server.advance_clock("2s")
        run = server.ok("GET", f"{table.path}/{run_id}")
        if run["progress"]:
            seen.append(run["progress"])
        return run if run["state"] in ("completed", "failed") else None

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        command = pool.submit(Tools(server, tmp_path).run_on_terminal, "sweep", "sweeps", "orders", "--run", run_id)
        run = wait_until(ended, f"run {run_id} ended", PATIENCE_S, 0.1)
        drawn, closing = command.result()
    assert run["state"] == "completed" and run["deleted"]["count"] == ORPHANS and not orphans & table.keys(), run
    assert seen, "it said nothing"
    stages = [STAGES.index(live["stage"]) for live in seen]
    assert stages == sorted(stages)
    for live in seen:
        assert live["total"] is None or live["done"] <= live["total"] <= run["listed"], live
        assert live["candidates"] <= len(orphans) and live["referenced"] <= run["by_reason"]["referenced"]["count"]
        assert live["listed"] <= run["listed"] and run["started_ms"] <= live["at_ms"] <= run["ended_ms"]
    # One line that is drawn again and again, and gone at the end; the table stays.
    assert closing.startswith(f"ordinary {run_id} completed") and re.search(rf"moved to quarantine +{ORPHANS} ", closing), closing
    for frame in filter(None, drawn.split("\r\x1b[2K")):
        assert re.search(r"\b(queued|running|" + "|".join(STAGES) + r")\b", frame), frame
    assert not drawn or drawn.endswith("\r\x1b[2K"), "nothing of the bar is left"


def test_the_command_starts_follows_lists_and_explains(table, tmp_path):
    orphan = table.plant(f"data/00000-0-{uuid.uuid4()}.parquet", b"nobody")
    table.server.advance_clock("4d")
    tools = Tools(table.server, tmp_path)
    dry = tools.run("sweep", "sweeps", "orders", "--sightings", "1")
    assert dry.stderr == "", "a bar is drawn on a terminal only"
    first, *table_of_reasons, last = dry.stdout.splitlines()
    dry_run = table.server.ok("GET", table.path)["runs"][0]
    assert first == f"dry_run {dry_run['run_id']} completed: {dry_run['listed']} objects under s3://{LAKE}/{table.prefix}"
    told = {words[0]: int(words[1]) for words in map(str.split, table_of_reasons)}
    assert told == {reason: tally["count"] for reason, tally in dry_run["by_reason"].items()} and told["orphan"] == 1
    assert last == f"  report: {dry_run['page']}"
    assert orphan in table.keys(), "a dry run deletes nothing"

    answer = json.loads(tools.run("explain", "sweeps", "orders", orphan, "--json").stdout)
    assert (answer["key"], answer["reason"], answer["decision"]) == (orphan, "seen_once", "keep")
    live = next(key for key in table.keys() if key.endswith(".metadata.json"))
    for spelling in (live, f"s3://{LAKE}/{live}"):
        assert "keep, referenced" in tools.run("explain", "sweeps", "orders", spelling).stdout
    assert "no such object" in tools.run("explain", "sweeps", "orders", f"{table.prefix}/data/none.parquet").stdout

    run = json.loads(tools.run("sweep", "sweeps", "orders", "--delete", "--sightings", "1", "--json").stdout)
    assert run["deleted"]["count"] == 1 and orphan not in table.keys()
    listed = json.loads(tools.run("sweep", "sweeps", "orders", "--list", "--json").stdout)["runs"]
    assert [one["run_id"] for one in listed[:2]] == [run["run_id"], dry_run["run_id"]]
    lines = tools.run("sweep", "sweeps", "orders", "--list").stdout.splitlines()
    assert lines[0].split()[:5] == [run["run_id"], "ordinary", "completed", "1", "deleted"]
    assert json.loads(tools.run("sweep", "sweeps", "orders", "--run", run["run_id"], "--json").stdout) == run
    queued = json.loads(tools.run("sweep", "sweeps", "orders", "--detach", "--json").stdout)
    assert queued["state"] == "queued"
    assert queued["run_id"] in tools.run("sweep", "sweeps", "orders", "--run", queued["run_id"]).stdout
    refused = tools.run("sweep", "sweeps", "orders", "--cancel", run["run_id"], check=False)
    assert "has ended" in refused.stderr
    assert "EntityNotFound" in tools.run("sweep", "sweeps", "none", check=False).stderr

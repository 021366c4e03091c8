"""Sweeps of tables with many files: key ranges, what is remembered from run to run, workers that are killed, and the command."""

import json
import time
import uuid

import pyarrow as pa
import pytest

from conftest import LAKE
from swept import Swept, decisions
from test_tools import Tools

LIVE, ORPHANS = 40, 2_500


def rows(*ids):
    return pa.table({"id": pa.array(ids, pa.int64())})


@pytest.fixture
def table(own_clients):
    """An Iceberg table with a commit per file, and more orphans than a page of a listing has keys."""
    catalog = own_clients.iceberg()
    catalog.create_namespace("sweeps")
    created = catalog.create_table("sweeps.orders", schema=rows().schema, location=f"s3://{LAKE}/iceberg/orders")
    swept = Swept(own_clients, "sweeps", "orders", "iceberg/orders")
    swept.create_optimizer(enabled=False)
    own_clients.server.advance_clock("1h")
    for number in range(LIVE):
        created.append(rows(number))
    # Kept, and many: the share of orphans stays below the fuse.
    for number in range(ORPHANS * 3):
        swept.plant(f"notes/{number % 13}/{number:05}.txt", b"x")
    return swept


def plant(swept):
    return {swept.plant(f"data/p={number % 7}/00000-{number}-{uuid.uuid4()}.parquet") for number in range(ORPHANS)}


def ids(clients):
    return sorted(clients.iceberg().load_table("sweeps.orders").scan().to_arrow()["id"].to_pylist())


def test_thousands_of_orphans_go_and_nothing_else(table, own_clients, tmp_path):
    before = table.keys()
    orphans = plant(table)
    own_clients.server.advance_clock("4d")
    dry, lines = table.dry_run(sightings=1)
    assert {key for key, reason in decisions(lines).items() if reason == "orphan"} == orphans
    assert len(lines) == len(decisions(lines)) == len(before | orphans), "every object once"
    run = table.run(mode="ordinary", sightings=1)
    assert run["state"] == "completed" and run["deleted"]["count"] == ORPHANS and not run["spared"], run
    assert table.keys() == before
    assert ids(own_clients) == list(range(LIVE))
    page = own_clients.s3.get_object(Bucket=run["page"].split("/")[2], Key=run["page"].split("/", 3)[3])
    html = page["Body"].read().decode()
    assert page["ContentType"].startswith("text/html") and "data/p=3/" in html and "2,500" in html
    assert "http:" not in html and "https:" not in html and "<script" not in html
    # What a run stored for its slices is gone with it.
    reports = run["page"].split("/")[2]
    left = own_clients.s3.get_paginator("list_objects_v2").paginate(Bucket=reports)
    assert not [one["Key"] for some in left for one in some.get("Contents", []) if "/work/" in one["Key"]]


def test_a_killed_server_goes_on_where_it_was(table, own_clients):
    """The whole process dies in the middle of deleting; started again, the queue delivers the message again."""
    before = table.keys()
    orphans = plant(table)
    own_clients.server.advance_clock("4d")
    run_id = own_clients.server.ok("POST", table.path, {"mode": "ordinary", "sightings": 1})["run_id"]
    end = time.monotonic() + 120
    while len(table.keys()) == len(before | orphans) and time.monotonic() < end:
        time.sleep(0.02)
    own_clients.server.kill()
    own_clients.server.start()
    swept = Swept(own_clients.__class__(own_clients.server), table.database, table.table, table.prefix)
    # The lock of the dead worker runs out, and its message is delivered again.
    end = time.monotonic() + 240
    while time.monotonic() < end:
        run = swept.server.ok("GET", f"{swept.path}/{run_id}")
        if run["state"] in ("completed", "failed"):
            break
        swept.server.advance_clock("3m")
        time.sleep(0.5)
    assert run["state"] == "completed", run
    assert swept.keys() == before
    told = [line["key"] for line in swept.report(run_id) if "outcome" in line]
    assert set(told) <= orphans
    assert run["deleted"]["count"] + run["spared"].get("already_gone", {"count": 0})["count"] <= ORPHANS


def test_a_run_can_be_ended(table, own_clients):
    before = table.keys()
    orphans = plant(table)
    own_clients.server.advance_clock("4d")
    run_id = own_clients.server.ok("POST", table.path, {"mode": "ordinary", "sightings": 1})["run_id"]
    asked = own_clients.server.request("DELETE", f"{table.path}/{run_id}").status_code
    assert asked in (202, 400)
    end = time.monotonic() + 120
    while (run := own_clients.server.ok("GET", f"{table.path}/{run_id}"))["state"] not in ("completed", "failed"):
        assert time.monotonic() < end, run
        time.sleep(0.1)
    if asked == 202 and run["state"] == "failed":
        assert run["reason"] == "cancelled", run
    assert before <= table.keys()
    assert len(table.keys() - before) == len(orphans) - run["deleted"]["count"]
    assert own_clients.server.request("DELETE", f"{table.path}/{run_id}").status_code == 400


def test_the_command_starts_follows_lists_and_explains(table, own_clients, tmp_path):
    orphan = table.plant(f"data/00000-0-{uuid.uuid4()}.parquet", b"nobody")
    own_clients.server.advance_clock("4d")
    tools = Tools(own_clients.server, tmp_path)
    told = tools.run("sweep", "sweeps", "orders", "--sightings", "1").stdout
    assert "dry_run" in told and "orphan" in told and "referenced" in told and "report.html" in told
    assert orphan in table.keys(), "a dry run deletes nothing"
    answer = json.loads(tools.run("explain", "sweeps", "orders", orphan, "--json").stdout)
    assert answer["key"] == orphan and answer["reason"] == "seen_once"
    live = next(key for key in table.keys() if key.endswith(".metadata.json"))
    assert "keep, referenced" in tools.run("explain", "sweeps", "orders", live).stdout
    run = json.loads(tools.run("sweep", "sweeps", "orders", "--delete", "--sightings", "1", "--json").stdout)
    assert run["deleted"]["count"] == 1 and orphan not in table.keys()
    listed = json.loads(tools.run("sweep", "sweeps", "orders", "--list", "--json").stdout)["runs"]
    assert {one["run_id"] for one in listed} >= {run["run_id"]}
    assert run["run_id"] in tools.run("sweep", "sweeps", "orders", "--run", run["run_id"]).stdout
    refused = tools.run("sweep", "sweeps", "orders", "--cancel", run["run_id"], check=False)
    assert "has ended" in refused.stderr
    assert "EntityNotFound" in tools.run("sweep", "sweeps", "none", check=False).stderr

"""The answer to one DELETE of a batch does not reach the function. What it did is found out, reported, and can be undone."""

import uuid

import pytest

from conftest import LAKE
from test_sweep_crashes import QUARANTINE, Crashing, rows


@pytest.fixture(params=["Enabled", None], ids=["versions", "quarantine"])
def lake(request, binary, tmp_path):
    crashing = Crashing(tmp_path)
    catalog = crashing.clients.iceberg()
    catalog.create_namespace("sweeps")
    created = catalog.create_table("sweeps.orders", schema=rows().schema, location=f"s3://{LAKE}/iceberg/orders")
    crashing.swept.create_optimizer(enabled=False)
    crashing.server.advance_clock("1h")
    created.append(rows(1))
    if request.param:
        crashing.clients.s3.put_bucket_versioning(Bucket=LAKE, VersioningConfiguration={"Status": request.param})
    yield crashing, request.param
    crashing.close()


def outcomes(swept, run):
    return [(line["key"], line["outcome"]) for line in swept.report(run["run_id"]) if "outcome" in line]


def test_what_a_batch_did_whose_answer_was_lost_is_told_and_undone(lake):
    crashing, versions = lake
    orphans = crashing.plant([f"data/00000-{number}-{uuid.uuid4()}.parquet" for number in range(8)])
    crashing.server.wait_idle()
    crashing.server.advance_clock("4d")
    run = crashing.finish(crashing.begin(("delete batch", 1, "lost")))
    said = "deleted" if versions else "quarantined"
    assert sorted(outcomes(crashing.swept, run)) == sorted((key, said) for key in orphans), run
    assert (run["state"], run["deleted"]["count"], run["spared"]) == ("completed", len(orphans), {}), run
    assert crashing.gate.seen.count("delete batch") == 1, "nobody repeated it unseen"
    assert not orphans & crashing.swept.keys()

    body = {"run": run["run_id"]}
    queued = crashing.server.ok("POST", crashing.swept.path.removesuffix("/sweeps") + "/restore-sweep", body)
    back = crashing.finish(queued["run_id"])
    assert sorted(outcomes(crashing.swept, back)) == sorted((key, "restored") for key in orphans)
    assert orphans <= crashing.swept.keys() and not crashing.clients.objects(QUARANTINE)

"""What sweeps take away comes back: behind delete markers, from quarantine, by hand and by itself."""

import json
import subprocess
import uuid

import pyarrow as pa
import pytest
from botocore.exceptions import ClientError

import lakewarden_server
from conftest import LAKE
from delta import Delta
from delta import rows as delta_rows
from lakewarden_server import wait_until
from swept import Swept

QUARANTINE = "lakewarden-quarantine/"


@pytest.fixture
def iceberg(own_clients):
    catalog = own_clients.iceberg()
    catalog.create_namespace("undo")
    table = catalog.create_table("undo.orders", schema=rows().schema, location=f"s3://{LAKE}/iceberg/undone")
    for number in range(3):
        table.append(rows(number))
    swept = Swept(own_clients, "undo", "orders", "iceberg/undone")
    swept.create_optimizer(enabled=False)
    return swept


def rows(*ids):
    return pa.table({"id": pa.array(ids, pa.int64())})


def versioned(clients, status="Enabled"):
    clients.s3.put_bucket_versioning(Bucket=LAKE, VersioningConfiguration={"Status": status})


def outcomes(swept, run):
    return {line["key"]: line["outcome"] for line in swept.report(run["run_id"]) if "outcome" in line}


def restored(swept, clients, *asked):
    command = [str(lakewarden_server.BINARY), "sweep", "restore", swept.database, swept.table, *asked, "--json"]
    done = subprocess.run(
        [*command, "--gateway", clients.server.endpoints["gateway"]],
        env=clients.server.environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def old_orphan(swept):
    swept.server.advance_clock("1h")
    orphan = swept.plant(f"data/00000-0-{uuid.uuid4()}.parquet", b"orphan")
    swept.server.advance_clock("4d")
    return orphan


def body(clients, key):
    return clients.s3.get_object(Bucket=LAKE, Key=key)["Body"].read()


def test_versions_of_objects_over_the_wire(own_clients):
    """The embedded S3 keeps versions as S3 does, as boto3 sees it."""
    s3 = own_clients.s3
    assert "Status" not in s3.get_bucket_versioning(Bucket=LAKE)
    s3.put_object(Bucket=LAKE, Key="v/a", Body=b"before")
    versioned(own_clients)
    assert s3.get_bucket_versioning(Bucket=LAKE)["Status"] == "Enabled"
    one = s3.put_object(Bucket=LAKE, Key="v/a", Body=b"one")["VersionId"]
    two = s3.put_object(Bucket=LAKE, Key="v/a", Body=b"two" * 40_000)["VersionId"]
    assert s3.get_object(Bucket=LAKE, Key="v/a", VersionId=one)["Body"].read() == b"one"
    assert s3.head_object(Bucket=LAKE, Key="v/a")["VersionId"] == two
    marker = s3.delete_object(Bucket=LAKE, Key="v/a")
    assert marker["DeleteMarker"] is True
    with pytest.raises(ClientError, match="404"):
        s3.head_object(Bucket=LAKE, Key="v/a")
    assert "Contents" not in s3.list_objects_v2(Bucket=LAKE, Prefix="v/")
    listed = s3.list_object_versions(Bucket=LAKE, Prefix="v/")
    assert [entry["VersionId"] for entry in listed["Versions"]] == [two, one, "null"]
    assert [entry["IsLatest"] for entry in listed["Versions"] + listed["DeleteMarkers"]] == [False, False, False, True]
    gone = s3.delete_object(Bucket=LAKE, Key="v/a", VersionId=marker["VersionId"])
    assert gone["DeleteMarker"] is True
    assert body(own_clients, "v/a") == b"two" * 40_000
    with pytest.raises(ClientError, match="BucketNotEmpty|not empty"):
        s3.delete_bucket(Bucket=LAKE)
    with pytest.raises(ClientError, match="NoSuchVersion"):
        s3.get_object(Bucket=LAKE, Key="v/a", VersionId=marker["VersionId"])
    versioned(own_clients, "Suspended")
    assert s3.put_object(Bucket=LAKE, Key="v/a", Body=b"null again").get("VersionId") == "null"
    pages = s3.get_paginator("list_object_versions").paginate(Bucket=LAKE, Prefix="v/", PaginationConfig={"PageSize": 1})
    assert [entry["VersionId"] for page in pages for entry in page.get("Versions", [])] == ["null", two, one]


def test_a_run_is_undone_in_a_bucket_with_versions(iceberg, own_clients):
    versioned(own_clients)
    orphan, other = old_orphan(iceberg), iceberg.plant(f"data/00000-1-{uuid.uuid4()}.parquet", b"young")
    before = own_clients.s3.head_object(Bucket=LAKE, Key=orphan)
    run = iceberg.run(mode="ordinary", sightings=1)
    assert (run["undo"], run["deleted"]["count"]) == ("delete_markers", 1)
    assert orphan not in iceberg.keys() and other in iceberg.keys()
    back = restored(iceberg, own_clients, "--run", run["run_id"])
    assert (back["state"], back["mode"], back["restored"]["count"]) == ("completed", "restore", 1)
    assert outcomes(iceberg, back) == {orphan: "restored"}
    after = own_clients.s3.head_object(Bucket=LAKE, Key=orphan)
    assert [after[name] for name in ("ETag", "VersionId", "LastModified")] == [before[name] for name in ("ETag", "VersionId", "LastModified")]
    again = restored(iceberg, own_clients, "--key", f"s3://{LAKE}/{orphan}")
    assert outcomes(iceberg, again) == {orphan: "exists"}
    runs = own_clients.glue.list_table_optimizer_runs(**iceberg.optimizer())["TableOptimizerRuns"]
    assert len(runs) == 1, "what restores is no run of Glue's"


def test_files_go_to_quarantine_and_come_back_and_expire(iceberg, own_clients):
    orphan = old_orphan(iceberg)
    run = iceberg.run(mode="ordinary", sightings=1)
    assert (run["undo"], run["deleted"]["count"]) == ("quarantine", 1)
    place = f"{QUARANTINE}{orphan}/"
    assert orphan not in iceberg.keys() and len(own_clients.objects(place)) == 1
    back = restored(iceberg, own_clients, "--prefix", f"{iceberg.prefix}/data/")
    assert outcomes(iceberg, back) == {orphan: "restored"}
    assert body(own_clients, orphan) == b"orphan" and not own_clients.objects(QUARANTINE)

    own_clients.server.advance_clock("4d")
    run = iceberg.run(mode="ordinary", sightings=1)
    own_clients.s3.put_object(Bucket=LAKE, Key=orphan, Body=b"written anew")
    told = restored(iceberg, own_clients, "--run", run["run_id"])
    assert outcomes(iceberg, told) == {orphan: "exists"} and told["spared"]["exists"]["count"] == 1, told
    assert body(own_clients, orphan) == b"written anew"

    waits, lines = iceberg.dry_run(sightings=1)
    reasons = {line["origin"]: (line["decision"], line["reason"]) for line in lines if "origin" in line}
    assert reasons == {orphan: ("keep", "quarantined")}
    own_clients.server.advance_clock("8d")
    _, lines = iceberg.dry_run(sightings=1)
    reasons = {line["origin"]: (line["decision"], line["reason"]) for line in lines if "origin" in line}
    assert reasons == {orphan: ("delete", "quarantine_expired")} and len(own_clients.objects(place)) == 1
    last = iceberg.run(mode="ordinary", sightings=1)
    # What was written anew is old by now and goes the same way; the first copy is over.
    assert (last["expired"]["count"], last["deleted"]["count"]) == (1, 1)
    assert len(own_clients.objects(place)) == 1


def test_a_late_commit_brings_its_file_back(own_clients):
    table = Delta(own_clients, "undo/late")
    table.write(delta_rows(1))
    own_clients.glue.create_database(DatabaseInput={"Name": "undo"})
    own_clients.glue.create_table(
        DatabaseName="undo",
        TableInput={
            "Name": "late",
            "TableType": "EXTERNAL_TABLE",
            "Parameters": {"table_type": "DELTA"},
            "StorageDescriptor": {"Location": table.uri, "Columns": [{"Name": "id", "Type": "bigint"}, {"Name": "dt", "Type": "string"}]},
        },
    )
    swept = Swept(own_clients, "undo", "late", table.prefix)
    swept.create_optimizer(enabled=False)
    own_clients.server.advance_clock("1h")
    staged, direct = table.hand_made_append(7), table.hand_made_append(8, version=2)
    files = [f"{table.prefix}/{one.added()[0]['path']}" for one in (staged, direct)]
    own_clients.server.advance_clock("9d")
    run = swept.run(mode="ordinary", sightings=1)
    assert (run["undo"], run["deleted"]["count"]) == ("quarantine", 2), run
    assert not set(files) & swept.keys()

    table.put_staged(staged)
    verdict = table.verdict(staged.id)
    assert verdict["status"] == "committed" and "was restored" in str(verdict["warnings"]), verdict
    assert files[0] in swept.keys() and files[1] not in swept.keys()
    assert table.ids() == [1, 7]

    # Somebody puts the other one straight into the log: it is visible, and its file is there soon after.
    own_clients.s3.put_object(Bucket=LAKE, Key=f"{table.prefix}/_delta_log/{2:020}.json", Body=direct.body())
    wait_until(lambda: files[1] in swept.keys(), "the file of a visible commit came back")
    assert table.ids() == [1, 7, 8] and not own_clients.objects(QUARANTINE)


@pytest.mark.parametrize("body", [{}, {"run": 1}, {"key": "s3://elsewhere/k"}, {"prefix": ""}, {"run": "nobody"}])
def test_what_is_to_come_back_must_be_said(iceberg, body):
    answer = iceberg.server.request("POST", iceberg.path.removesuffix("/sweeps") + "/restore-sweep", body)
    assert answer.status_code == (404 if body == {"run": "nobody"} else 422), answer.text

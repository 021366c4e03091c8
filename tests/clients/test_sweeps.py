"""Sweeps of orphan files: days pass by moving the server's clock, so each test has a server of its own."""

import uuid

import pyarrow as pa
import pytest
from botocore.exceptions import ClientError

from conftest import LAKE
from delta import Delta
from lakewarden_server import wait_until

ROLE = "arn:aws:iam::000000000000:role/lakewarden-sweeps"


def rows(*ids):
    return pa.table({"id": pa.array(ids, pa.int64())})


class Swept:
    """A table of the catalog with an optimizer."""

    def __init__(self, clients, database, table, prefix):
        self.clients, self.server = clients, clients.server
        self.database, self.table, self.prefix = database, table, prefix
        self.path = f"/v1/databases/{database}/tables/{table}/sweeps"

    def optimizer(self):
        names = {"CatalogId": "000000000000", "DatabaseName": self.database, "TableName": self.table}
        return names | {"Type": "orphan_file_deletion"}

    def create_optimizer(self, enabled=True, **configuration):
        """One that is not enabled has no scheduled runs; what is asked for runs all the same."""
        self.clients.glue.create_table_optimizer(
            **self.optimizer(),
            TableOptimizerConfiguration={
                "roleArn": ROLE,
                "enabled": enabled,
                "orphanFileDeletionConfiguration": {"icebergConfiguration": {"orphanFileRetentionPeriodInDays": 3} | configuration},
            },
        )

    def plant(self, relative, body=b"nobody knows me"):
        key = f"{self.prefix}/{relative}"
        self.clients.s3.put_object(Bucket=LAKE, Key=key, Body=body)
        return key

    def keys(self):
        return set(self.clients.objects(self.prefix + "/"))

    def dry_run(self):
        """The record of a finished dry run and its report, line by line."""
        run_id = self.server.ok("POST", self.path, {"mode": "dry_run"})["run_id"]

        def finished():
            run = self.server.ok("GET", f"{self.path}/{run_id}")
            assert run["state"] != "failed", run
            return run if run["state"] == "completed" else None

        run = wait_until(finished, f"dry run {run_id} completed")
        return run, self.report(run_id)

    def report(self, run_id):
        """The lines of a report, over all its pages."""
        lines, query = [], ""
        while True:
            page = self.server.ok("GET", f"{self.path}/{run_id}/report{query}")
            lines += page["lines"]
            if not page.get("next_token"):
                return lines
            query = f"?next_token={page['next_token']}"

    def pass_days_with_sweeps(self, days):
        """At least one scheduled run a day."""
        for _ in range(days):
            self.server.advance_clock("25h")
            self.server.run_schedule()
            self.server.wait_idle()


def decisions(lines):
    """Key -> reason, from the lines of a report."""
    return {line["key"]: line["reason"] for line in lines if "key" in line}


@pytest.fixture
def iceberg(own_clients):
    catalog = own_clients.iceberg()
    catalog.create_namespace("sweeps")
    table = catalog.create_table("sweeps.orders", schema=rows().schema, location=f"s3://{LAKE}/iceberg/orders")
    for number in range(3):
        table.append(rows(number))
    return Swept(own_clients, "sweeps", "orders", "iceberg/orders")


def ids(clients, name="sweeps.orders"):
    return sorted(clients.iceberg().load_table(name).scan().to_arrow()["id"].to_pylist())


def plant_orphans(swept):
    """Files that look as if a writer had died; they should go."""
    return {
        swept.plant(f"data/00000-0-{uuid.uuid4()}.parquet"),
        swept.plant(f"data/dt=a b/00000-1-{uuid.uuid4()}.parquet"),
        swept.plant(f"metadata/{uuid.uuid4()}-m0.avro"),
    }


def plant_near_orphans(swept):
    """Files that nothing references either, and that must stay."""
    outside = swept.prefix + "_v2"
    swept.clients.s3.put_object(Bucket=LAKE, Key=f"{outside}/data/{uuid.uuid4()}.parquet", Body=b"of another table")
    return {swept.plant("metadata/version-hint.text", b"2"), swept.plant("notes/README.txt")}


def test_a_scheduled_run_removes_exactly_the_orphans(iceberg, own_clients):
    before_gate = iceberg.plant(f"data/00000-9-{uuid.uuid4()}.parquet")
    own_clients.server.advance_clock("1h")
    iceberg.create_optimizer()
    own_clients.server.advance_clock("1h")
    live = iceberg.keys()
    orphans = plant_orphans(iceberg)
    kept = plant_near_orphans(iceberg)
    sibling = set(own_clients.objects("iceberg/orders_v2/"))

    iceberg.pass_days_with_sweeps(1)
    assert iceberg.keys() == live | orphans | kept, "younger than the retention"

    own_clients.server.advance_clock("4d")
    young = iceberg.plant(f"data/00000-7-{uuid.uuid4()}.parquet")
    iceberg.pass_days_with_sweeps(2)
    assert iceberg.keys() == live | kept | {young}
    assert before_gate in iceberg.keys()
    assert set(own_clients.objects("iceberg/orders_v2/")) == sibling
    assert ids(own_clients) == [0, 1, 2]

    runs = own_clients.glue.list_table_optimizer_runs(**iceberg.optimizer())["TableOptimizerRuns"]
    deleted = [run["orphanFileDeletionMetrics"]["IcebergMetrics"]["NumberOfOrphanFilesDeleted"] for run in runs if run["eventType"] == "completed"]
    assert sum(deleted) == len(orphans), runs
    last = own_clients.glue.get_table_optimizer(**iceberg.optimizer())["TableOptimizer"]["lastRun"]
    assert last["eventType"] == "completed"


def test_a_dry_run_lists_sizes_and_reasons_and_deletes_nothing(iceberg, own_clients):
    iceberg.create_optimizer(enabled=False)
    own_clients.server.advance_clock("1h")
    orphans = plant_orphans(iceberg)
    kept = plant_near_orphans(iceberg)
    own_clients.server.advance_clock("4d")
    young = iceberg.plant(f"data/00000-7-{uuid.uuid4()}.parquet")
    before = iceberg.keys()
    run, lines = iceberg.dry_run()
    assert iceberg.keys() == before
    by_key = {line["key"]: line for line in lines if "key" in line}
    assert orphans <= set(by_key), lines
    assert all(by_key[key]["size_bytes"] == len(b"nobody knows me") for key in orphans)
    reasons = decisions(lines)
    assert {key for key, line in by_key.items() if line["decision"] == "delete"} == orphans
    assert {by_key[key]["decision"] for key in kept} == {"keep"}
    assert reasons[young] == "too_young"


def test_an_optimizer_is_managed_by_its_operations(iceberg, own_clients):
    glue = own_clients.glue
    iceberg.create_optimizer()
    found = glue.get_table_optimizer(**iceberg.optimizer())["TableOptimizer"]
    assert (found["type"], found["configuration"]["enabled"]) == ("orphan_file_deletion", True)
    kept_days = found["configuration"]["orphanFileDeletionConfiguration"]["icebergConfiguration"]["orphanFileRetentionPeriodInDays"]
    assert kept_days == 3
    with pytest.raises(ClientError) as again:
        iceberg.create_optimizer()
    assert again.value.response["Error"]["Code"] == "AlreadyExistsException"
    configuration = found["configuration"] | {"enabled": False}
    glue.update_table_optimizer(**iceberg.optimizer(), TableOptimizerConfiguration=configuration)
    assert glue.get_table_optimizer(**iceberg.optimizer())["TableOptimizer"]["configuration"]["enabled"] is False
    entry = {"catalogId": "000000000000", "databaseName": "sweeps", "tableName": "orders", "type": "orphan_file_deletion"}
    batch = glue.batch_get_table_optimizer(Entries=[entry, entry | {"tableName": "nosuch"}])
    assert (len(batch["TableOptimizers"]), len(batch["Failures"])) == (1, 1)
    glue.delete_table_optimizer(**iceberg.optimizer())
    with pytest.raises(ClientError) as gone:
        glue.get_table_optimizer(**iceberg.optimizer())
    assert gone.value.response["Error"]["Code"] == "EntityNotFoundException"


def test_a_broken_table_stops_the_run_instead_of_deleting(iceberg, own_clients):
    iceberg.create_optimizer()
    own_clients.server.advance_clock("1h")
    plant_orphans(iceberg)
    manifest = next(key for key in iceberg.keys() if key.endswith("-m0.avro") and is_live(own_clients, key))
    own_clients.s3.delete_object(Bucket=LAKE, Key=manifest)
    before = iceberg.keys()
    own_clients.server.advance_clock("4d")
    iceberg.pass_days_with_sweeps(2)
    assert iceberg.keys() == before
    runs = own_clients.glue.list_table_optimizer_runs(**iceberg.optimizer())["TableOptimizerRuns"]
    failed = [run for run in runs if run["eventType"] == "failed"]
    assert failed and all(run["error"] for run in failed), runs
    last = own_clients.glue.get_table_optimizer(**iceberg.optimizer())["TableOptimizer"]["lastRun"]
    assert last["eventType"] == "failed" and manifest in last["error"], last


def is_live(clients, key):
    """Whether the current snapshot of the table references this manifest."""
    table = clients.iceberg().load_table("sweeps.orders")
    return f"s3://{LAKE}/{key}" in {manifest.manifest_path for manifest in table.current_snapshot().manifests(table.io)}


def test_files_of_a_pending_delta_commit_are_kept(own_clients, tmp_path):
    table = Delta(own_clients, "pending")
    table.write(rows(1))
    own_clients.glue.create_database(DatabaseInput={"Name": "sweeps"})
    own_clients.glue.create_table(
        DatabaseName="sweeps",
        TableInput={
            "Name": "pending",
            "TableType": "EXTERNAL_TABLE",
            "Parameters": {"table_type": "DELTA"},
            "StorageDescriptor": {"Location": table.uri, "Columns": [{"Name": "id", "Type": "bigint"}]},
        },
    )
    swept = Swept(own_clients, "sweeps", "pending", table.prefix)
    swept.create_optimizer(enabled=False)
    own_clients.server.advance_clock("1h")
    orphan = swept.plant(f"part-00000-{uuid.uuid4()}-c000.snappy.parquet")
    own_clients.server.pause_events()
    proposal = table.fork_append(rows(2))
    table.stage(proposal, tmp_path)
    pending = f"{table.prefix}/{proposal.added()[0]['path']}"
    own_clients.server.advance_clock("8d")
    _run, lines = swept.dry_run()
    reasons = decisions(lines)
    assert reasons[pending] == "pending_commit", lines
    assert reasons[orphan] == "orphan", lines
    own_clients.server.resume_events()
    assert table.verdict(proposal.id)["status"] == "committed"
    assert table.ids() == [1, 2]

"""Sweeps of orphan files: days pass by moving the server's clock, so each test has a server of its own."""

import uuid

import pyarrow as pa
import pytest
from botocore.exceptions import ClientError

from conftest import LAKE
from delta import Delta
from swept import ROLE, Swept, decisions


def rows(*ids):
    return pa.table({"id": pa.array(ids, pa.int64())})


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
    run, lines = iceberg.dry_run(sightings=1)
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
    assert reasons[orphan] == "seen_once", lines
    own_clients.server.resume_events()
    assert table.verdict(proposal.id)["status"] == "committed"
    assert table.ids() == [1, 2]


def refused(swept, reason):
    run = swept.run(mode="ordinary", sightings=1)
    assert (run["state"], run["reason"], run["deleted"]["count"]) == ("failed", reason, 0), run
    return run


def test_a_lease_protects_until_a_retention_after_its_end(iceberg, own_clients):
    server = own_clients.server
    iceberg.create_optimizer(enabled=False)
    server.advance_clock("1h")
    announced = iceberg.plant(f"data/job-7/00000-0-{uuid.uuid4()}.parquet")
    returned = iceberg.plant(f"data/job-8/00000-0-{uuid.uuid4()}.parquet")
    orphan = iceberg.plant(f"data/00000-0-{uuid.uuid4()}.parquet")
    server.advance_clock("4d")
    body = {"prefixes": [f"s3://{LAKE}/{iceberg.prefix}/data/job-7/"], "ttl_seconds": 3600, "holder": "job 7"}
    lease = server.ok("POST", iceberg.leases(), body)
    other = server.ok("POST", iceberg.leases(), {"keys": [f"s3://{LAKE}/{returned}", f"s3://{LAKE}/{returned}.gone"]})
    assert other["missing"] == [f"s3://{LAKE}/{returned}.gone"]
    assert {found["lease_id"] for found in server.ok("GET", iceberg.leases())["leases"]} == {lease["lease_id"], other["lease_id"]}
    reasons = decisions(iceberg.dry_run(sightings=1)[1])
    assert (reasons[announced], reasons[returned], reasons[orphan]) == ("lease", "lease", "orphan")
    # One is given back, the other lives on by its heartbeat.
    assert server.request("DELETE", iceberg.leases(other["lease_id"])).status_code == 204
    assert server.request("PUT", iceberg.leases(other["lease_id"]), {}).status_code == 404
    renewed = server.ok("PUT", iceberg.leases(lease["lease_id"]), {"ttl_seconds": 604_800})
    assert renewed["expires_at_ms"] > lease["expires_at_ms"]
    server.advance_clock("6d")
    assert iceberg.run(mode="ordinary", sightings=1)["deleted"]["count"] == 2
    assert announced in iceberg.keys() and not {returned, orphan} & iceberg.keys()
    # Run out, it protects one retention more; then it is forgotten.
    server.advance_clock("3d")
    assert iceberg.explain(announced, sightings=1)["reason"] == "lease"
    server.advance_clock("2d")
    assert iceberg.explain(announced, sightings=1)["decision"] == "delete"
    assert iceberg.run(mode="ordinary", sightings=1)["deleted"]["count"] == 1
    assert server.ok("GET", iceberg.leases()) == {"leases": []}
    assert ids(own_clients) == [0, 1, 2]


def test_explain_says_of_each_key_what_the_dry_run_says(iceberg, own_clients):
    iceberg.create_optimizer(enabled=False)
    own_clients.server.advance_clock("1h")
    plant_orphans(iceberg)
    plant_near_orphans(iceberg)
    own_clients.server.advance_clock("4d")
    iceberg.plant(f"data/00000-7-{uuid.uuid4()}.parquet")
    for options in ({}, {"sightings": 1}):
        _run, lines = iceberg.dry_run(**options)
        for line in lines:
            found = iceberg.explain(line["key"], **options)
            assert {member: found[member] for member in line} == line, found
    assert {"seen_once"} <= set(decisions(iceberg.dry_run()[1]).values())
    missing = iceberg.explain(f"s3://{LAKE}/{iceberg.prefix}/data/nosuch.parquet")
    assert (missing["exists"], missing["held"]) == (False, "no")


def test_hours_are_taken_on_rest_and_refused_by_name_on_glue(iceberg, own_clients):
    server = own_clients.server
    path = iceberg.path.removesuffix("/sweeps") + "/optimizers"
    rules = {"orphanFileRetentionPeriodInHours": 30, "quarantineInHours": 48}
    configuration = {"roleArn": ROLE, "enabled": False, "orphanFileDeletionConfiguration": {"icebergConfiguration": rules}}
    body = {"Type": "orphan_file_deletion", "TableOptimizerConfiguration": configuration}
    assert server.request("POST", path, body).status_code == 201
    shown = server.ok("GET", f"{path}/orphan_file_deletion")["TableOptimizer"]["configuration"]
    found = shown["orphanFileDeletionConfiguration"]["icebergConfiguration"]
    assert found | rules == found and found["orphanFileRetentionPeriodInDays"] == 2
    target = {"x-amz-target": "AWSGlue.UpdateTableOptimizer", "content-type": "application/x-amz-json-1.1"}
    answer = server.http.post(server.endpoints["gateway"] + "/", json=iceberg.optimizer() | body, headers=target)
    assert (answer.status_code, answer.json()["__type"]) == (400, "InvalidInputException"), answer.text
    # A client that knows days only changes nothing that it cannot say.
    days = {"orphanFileDeletionConfiguration": {"icebergConfiguration": {"orphanFileRetentionPeriodInDays": 2}}, "roleArn": ROLE, "enabled": False}
    own_clients.glue.update_table_optimizer(**iceberg.optimizer(), TableOptimizerConfiguration=days)
    shown = server.ok("GET", f"{path}/orphan_file_deletion")["TableOptimizer"]["configuration"]
    assert shown["orphanFileDeletionConfiguration"]["icebergConfiguration"] | rules == found
    server.advance_clock("1h")
    orphan = iceberg.plant(f"data/00000-0-{uuid.uuid4()}.parquet")
    server.advance_clock("29h")
    assert iceberg.explain(orphan, sightings=1)["reason"] == "too_young"
    server.advance_clock("2h")
    assert iceberg.explain(orphan, sightings=1)["decision"] == "delete"


def hive_table(clients, name, location, keys=()):
    columns = [{"Name": "id", "Type": "bigint"}]
    clients.glue.create_table(
        DatabaseName="sweeps",
        TableInput={"Name": name, "StorageDescriptor": {"Location": location, "Columns": columns}, "PartitionKeys": [{"Name": key, "Type": "string"} for key in keys]},
    )


def test_partitions_and_former_places_of_other_tables_inside_ours_are_theirs(iceberg, own_clients):
    glue, server = own_clients.glue, own_clients.server
    iceberg.create_optimizer(enabled=False)
    server.advance_clock("1h")
    orphan = iceberg.plant(f"data/00000-0-{uuid.uuid4()}.parquet")
    theirs = {place: iceberg.plant(f"data/{place}/00000-0-{uuid.uuid4()}.parquet") for place in ("day=1", "day=2", "moved", "old")}
    here = f"s3://{LAKE}/{iceberg.prefix}/data"
    hive_table(own_clients, "hive", f"s3://{LAKE}/hive", ["day"])
    partition = {"Values": ["1"], "StorageDescriptor": {"Location": f"{here}/day=1"}}
    glue.create_partition(DatabaseName="sweeps", TableName="hive", PartitionInput=partition)
    # By an update, and by a move of the table that leaves its partition behind.
    glue.create_partition(DatabaseName="sweeps", TableName="hive", PartitionInput={"Values": ["2"], "StorageDescriptor": {"Location": f"s3://{LAKE}/hive/day=2"}})
    glue.update_partition(
        DatabaseName="sweeps",
        TableName="hive",
        PartitionValueList=["2"],
        PartitionInput={"Values": ["2"], "StorageDescriptor": {"Location": f"{here}/day=2/"}},
    )
    hive_table(own_clients, "moving", f"{here}/moved", ["day"])
    input = {"Name": "moving", "StorageDescriptor": {"Location": f"s3://{LAKE}/far"}, "PartitionKeys": [{"Name": "day", "Type": "string"}]}
    glue.update_table(DatabaseName="sweeps", TableInput=input)
    # Only its first version says that it once lay there; the entry that the move left is taken away.
    hive_table(own_clients, "older", f"{here}/old")
    glue.update_table(DatabaseName="sweeps", TableInput={"Name": "older", "StorageDescriptor": {"Location": f"s3://{LAKE}/far-away"}})
    uses = own_clients.dynamodb.query(
        TableName="lakewarden-catalog",
        KeyConditionExpression="pk = :pk",
        ExpressionAttributeValues={":pk": {"S": f"location-uses#{LAKE}"}},
    )["Items"]
    left = [use for use in uses if "old" in use["sk"]["S"]]
    assert len(left) == 1
    own_clients.dynamodb.delete_item(TableName="lakewarden-catalog", Key={name: left[0][name] for name in ("pk", "sk")})
    server.advance_clock("4d")
    reasons = decisions(iceberg.dry_run(sightings=1)[1])
    assert {reasons[key] for key in theirs.values()} == {"other_table_prefix"}, reasons
    assert iceberg.run(mode="ordinary", sightings=1)["deleted"]["count"] == 1
    assert orphan not in iceberg.keys() and set(theirs.values()) <= iceberg.keys()
    # A partition around the table: which files it needs nobody can tell.
    partition = {"Values": ["3"], "StorageDescriptor": {"Location": f"s3://{LAKE}/iceberg"}}
    glue.create_partition(DatabaseName="sweeps", TableName="hive", PartitionInput=partition)
    refused(iceberg, "shared_location")


def test_an_unreadable_table_elsewhere_stops_the_run_until_its_owner_speaks(iceberg, own_clients):
    iceberg.create_optimizer(enabled=False)
    own_clients.server.advance_clock("1h")
    orphan = iceberg.plant(f"data/00000-0-{uuid.uuid4()}.parquet")
    own_clients.server.advance_clock("4d")
    own_clients.s3.put_object(Bucket=LAKE, Key="far/metadata/v1.metadata.json", Body=b'{"format-version": 9}')
    parameters = {"table_type": "ICEBERG", "metadata_location": f"s3://{LAKE}/far/metadata/v1.metadata.json"}
    table = {"Name": "far", "StorageDescriptor": {"Location": f"s3://{LAKE}/far"}, "Parameters": parameters}
    own_clients.glue.create_table(DatabaseName="sweeps", TableInput=table)
    run = refused(iceberg, "other_table_unreadable")
    assert "lakewarden.files.at_location_only" in run["error"] and orphan in iceberg.keys()
    table["Parameters"] = parameters | {"lakewarden.files.at_location_only": "true"}
    own_clients.glue.update_table(DatabaseName="sweeps", TableInput=table)
    run = iceberg.run(mode="ordinary", sightings=1)
    assert (run["deleted"]["count"], len(run["findings"])) == (1, 1), run

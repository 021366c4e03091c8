"""Dry runs of a sweep beside what else finds orphans, over the same tables on the same embedded S3, in one run.

An Iceberg table with a manifest per commit, and a Delta table that ends with a checkpoint; as many files again that no table
names (`lakes.py` says how they come there). Each table is swept by

- ours: the function `orphan-sweeper` as it is deployed, in a process of its own. Its catalog (DynamoDB) and its S3 are the
  embedded ones, in the server's process;
- Delta: `DeltaTable(...).vacuum(dry_run=True, full=True)` of deltalake, and opening the table;
- Iceberg: a script with PyIceberg: every manifest of every snapshot once, boto3's listing, and the difference of two sets.

Every one has a process of its own. Memory is what it grew by: the most it held, less what it held when it was ready to begin (with
its libraries loaded). Ours lists twice and writes a line per object into a report; the others do neither. All must find the same
files. `cpu` is the processor time of the process, `server` that of the embedded servers meanwhile.

Then a day passes: one commit, then three, and after each a sweep by a new process, with its requests counted on the way.
"""

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import uuid

import boto3
from botocore.config import Config

from function import Function, forget_peak, memory_kib, processor_s, sqs_event

BUCKET, DATABASE = "lake", "bench"
RETENTION_HOURS = 72
AIMS = {"wall": 0.7, "memory": 0.25, "growth_mib": 64}


def client(endpoints, service, **config):
    return boto3.client(
        service,
        endpoint_url=endpoints["gateway" if service == "glue" else service],
        region_name=endpoints["region"],
        aws_access_key_id=endpoints["access_key"],
        aws_secret_access_key=endpoints["secret_key"],
        config=Config(**config),
    )


class Measured:
    """Time and memory of what a process does."""

    def __init__(self, pid, server_pid):
        self.pid, self.server_pid = pid, server_pid

    def __enter__(self):
        forget_peak(self.pid)
        self.before_kib, _ = memory_kib(self.pid)
        self.cpu_s, self.server_s = processor_s(self.pid), processor_s(self.server_pid)
        self.started = time.perf_counter()
        return self

    def __exit__(self, *_):
        self.wall_s = time.perf_counter() - self.started
        _, most_kib = memory_kib(self.pid)
        self.figures = {
            "wall_s": self.wall_s,
            "growth_mib": (most_kib - self.before_kib) / 1024,
            "most_mib": most_kib / 1024,
            "cpu_s": processor_s(self.pid) - self.cpu_s,
            "server_s": processor_s(self.server_pid) - self.server_s,
        }


# The peers, each in a process of its own.


def deltalake(endpoints, prefix):
    from deltalake import DeltaTable

    from lakes import storage_options

    table = DeltaTable(f"s3://{BUCKET}/{prefix}", storage_options=storage_options(endpoints))
    found = table.vacuum(retention_hours=RETENTION_HOURS, dry_run=True, enforce_retention_duration=False, full=True)
    return [name for name in found if not name.startswith("_delta_log/")]


def pyiceberg(endpoints, prefix):
    from lakes import iceberg_catalog

    table = iceberg_catalog(endpoints).load_table(f"{DATABASE}.iceberg")
    referenced = {table.metadata_location} | {entry.metadata_file for entry in table.metadata.metadata_log}
    read = set()
    for snapshot in table.metadata.snapshots:
        referenced.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in read:
                read.add(manifest.manifest_path)
                entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
                referenced.update(entry.data_file.file_path for entry in entries)
    referenced |= read
    oldest = time.time() - RETENTION_HOURS * 3600
    pages = client(endpoints, "s3", s3={"addressing_style": "path"}).get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix + "/")
    return [
        found["Key"]
        for page in pages
        for found in page.get("Contents", [])
        if found["LastModified"].timestamp() < oldest and f"s3://{BUCKET}/{found['Key']}" not in referenced
    ]


def be_peer(name, endpoints_file, prefix, server_pid):
    endpoints = json.loads(pathlib.Path(endpoints_file).read_text(encoding="utf-8"))
    # What it would load while it is timed.
    import deltalake as _deltalake  # noqa: F401

    import lakes  # noqa: F401

    client(endpoints, "s3")
    with Measured(os.getpid(), int(server_pid)) as measured:
        found = {"deltalake": deltalake, "pyiceberg": pyiceberg}[name](endpoints, prefix)
    print(json.dumps(measured.figures | {"found": len(found)}))


# Ours.


class World:
    """A Lakewarden with a data folder, and the sweeper beside it."""

    def __init__(self, folder, binary):
        from peers import lakewarden_server

        lakewarden_server.BINARY = binary
        self.sweeper = binary.parent / "orphan-sweeper"
        self.data_dir = pathlib.Path(folder, "data")
        self.server = lakewarden_server.Server(folder, data_dir=self.data_dir)

    def start(self):
        self.server.start()
        self.endpoints = self.server.endpoints
        self.pid = self.server.process.pid

    def glue(self):
        return client(self.endpoints, "glue")

    def s3(self):
        return client(self.endpoints, "s3", s3={"addressing_style": "path"})

    def catalog(self):
        from lakes import iceberg_catalog

        return iceberg_catalog(self.endpoints)

    def storage_options(self):
        from lakes import storage_options

        return storage_options(self.endpoints)

    def optimize(self, lake):
        """An optimizer of long ago: files from before it are kept."""
        from lakes import DAY_MS, ORPHANS_AGE_MS, ROLE

        rules = {"orphanFileRetentionPeriodInDays": RETENTION_HOURS // 24}
        configuration = {"roleArn": ROLE, "enabled": False, "orphanFileDeletionConfiguration": {"icebergConfiguration": rules}}
        names = {"CatalogId": "000000000000", "DatabaseName": DATABASE, "TableName": lake.name, "Type": "orphan_file_deletion"}
        self.glue().create_table_optimizer(**names, TableOptimizerConfiguration=configuration)
        dynamodb = client(self.endpoints, "dynamodb")
        created_ms = int(time.time() * 1000) - ORPHANS_AGE_MS - DAY_MS
        catalog = next(name for name in dynamodb.list_tables()["TableNames"] if name.endswith("catalog"))
        for shard in range(4):
            partition = {"S": f"sweep-optimizers#{shard}"}
            found = dynamodb.query(TableName=catalog, KeyConditionExpression="pk = :pk", ExpressionAttributeValues={":pk": partition})
            for item in found["Items"]:
                dynamodb.update_item(
                    TableName=catalog,
                    Key={"pk": item["pk"], "sk": item["sk"]},
                    UpdateExpression="SET created_at_ms = :ms",
                    ExpressionAttributeValues={":ms": {"N": str(created_ms)}},
                )

    def sweep(self, lake, s3_url=None):
        """Figures and record of a dry run in a process of its own."""
        environment = self.server.environment() | {"RUST_LOG": "warn"}
        # Queues of their own name: what a function sends nobody takes up.
        for queue, url in self.server.ok("GET", "/local/endpoints")["queues"].items():
            environment[f"LAKEWARDEN_{queue.replace('-', '_').upper()}_QUEUE_URL"] = url
        if s3_url:
            environment["AWS_ENDPOINT_URL_S3"] = s3_url
        run_id = f"{int(time.time() * 1000):013}-{uuid.uuid4().hex}"
        message = {"schema_version": 1, "run_id": run_id, "database": DATABASE, "table": lake.name, "mode": "dry_run"}
        with contextlib.closing(Function(self.sweeper, environment)) as function:
            # Up, connected and with its pools: a message of a table that there is not.
            function.invoke(sqs_event(json.dumps(message | {"table": "none"})))
            with Measured(function.pid, self.pid) as measured:
                answer = function.invoke(sqs_event(json.dumps(message)))
        run = self.server.ok("GET", f"/v1/databases/{DATABASE}/tables/{lake.name}/sweeps/{run_id}")
        if answer != {"batchItemFailures": []} or run["state"] != "completed" or run["attempts"] != 1:
            raise RuntimeError(f"{answer} {run}")
        reasons = run["by_reason"]
        found = sum(reasons.get(reason, {"count": 0})["count"] for reason in ("orphan", "seen_once"))
        return measured.figures | {"found": found}, run

    def peer(self, name, lake):
        command = [sys.executable, __file__, "--peer", name, str(self.server.folder / "endpoints.json"), lake.prefix, str(self.pid)]
        done = subprocess.run(command, env=self.server.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True)
        return json.loads(done.stdout.splitlines()[-1])


def shown(name, figures):
    words = f"{figures['wall_s']:8.1f} s {figures['growth_mib']:9.1f} MiB {figures['most_mib']:9.1f} MiB"
    print(f"  {name:22}{words}{figures['cpu_s']:8.1f} s{figures['server_s']:8.1f} s {figures['found']:>10} found", flush=True)


def compare(world, lake, peer, wanted):
    print(f"  {'':22}{'wall':>10} {'memory: growth':>13} {'at most':>13}{'cpu':>10}{'server':>10}")
    theirs = world.peer(peer, lake) if peer else None
    if theirs:
        shown(peer, theirs)
    ours, run = world.sweep(lake)
    shown("ours", ours)
    if {ours["found"], (theirs or ours)["found"]} != {wanted}:
        raise RuntimeError(f"{wanted} are orphans; found: {ours}, {theirs}; {run['by_reason']}")
    print(f"  growth {ours['growth_mib']:.0f} MiB (aim {AIMS['growth_mib']})", end="")
    if theirs:
        wall, memory = ours["wall_s"] / theirs["wall_s"], ours["growth_mib"] / theirs["growth_mib"]
        print(f"; ratio: wall {wall:.2f} (aim {AIMS['wall']}), memory {memory:.2f} (aim {AIMS['memory']})", end="")
    print(flush=True)


def difference(after, before):
    return {name: count - before.get(name, 0) for name, count in after.items()}


def daily(world, lake):
    from peers import Between

    between = Between(world.endpoints["s3"], 0)
    try:
        for commits in (1, 3):
            lake.days_later(commits)
            world.server.wait_idle()
            before = between.counts()
            figures, _run = world.sweep(lake, between.url)
            counts = difference(between.counts(), before)
            gets = counts.get("GET", 0) - counts.get("lists", 0)
            print(
                f"  another run after {commits} new commit{'s' * (commits > 1)}: {gets} GETs (aim {4 + commits}), {counts.get('lists', 0)} listings, "
                f"{counts.get('HEAD', 0)} HEADs, {counts.get('PUT', 0)} PUTs; grew by {figures['growth_mib']:.0f} MiB, {figures['cpu_s']:.1f} s of cpu",
                flush=True,
            )
    finally:
        between.close()


def prepare(world, lake):
    from lakes import place

    started = time.perf_counter()
    world.glue().create_database(DatabaseInput={"Name": DATABASE})
    world.s3().put_object(Bucket=BUCKET, Key="pattern", Body=b"x")
    lake.create()
    world.optimize(lake)
    world.server.wait_idle(600)
    world.server.stop()
    place(world.data_dir, [lake])
    world.start()
    world.server.wait_idle(600)
    print(f"\n{lake.name}: {lake.count} files in {lake.commits} commits, and {lake.count} that nothing names", end=" ")
    print(f"(made in {time.perf_counter() - started:.0f} s)", flush=True)
    return lake


def main():
    if sys.argv[1:2] == ["--peer"]:
        return be_peer(*sys.argv[2:6])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=1_000_000, help="half of them referenced")
    parser.add_argument("--commits", type=int, default=250, help="of the Iceberg table, each with a manifest")
    parser.add_argument("--delta-commits", type=int, default=50)
    parser.add_argument("--formats", nargs="+", default=["iceberg", "delta"], choices=["iceberg", "delta"])
    parser.add_argument("--alone", action="store_true", help="leave the peers out")
    parser.add_argument("--binary", type=pathlib.Path, default=pathlib.Path("target/release/lakewarden"))
    options = parser.parse_args()
    from lakes import DeltaLake, IcebergLake

    kinds = {"iceberg": (IcebergLake, options.commits, "pyiceberg"), "delta": (DeltaLake, options.delta_commits, "deltalake")}
    for kind, commits, peer in (kinds[name] for name in options.formats):
        # A catalog for each: a sweep asks the other tables of its catalog as well, which no peer does.
        with tempfile.TemporaryDirectory(prefix="lakewarden-bench-") as folder:
            world = World(folder, options.binary.resolve())
            world.start()
            try:
                lake = prepare(world, kind(world, options.objects // 2, commits))
                compare(world, lake, None if options.alone else peer, lake.count)
                daily(world, lake)
            finally:
                world.server.stop()


if __name__ == "__main__":
    main()

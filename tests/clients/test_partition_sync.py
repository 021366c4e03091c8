"""The catalog follows Delta logs: partitions with their numbers, whoever commits."""

import datetime
import subprocess

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import lakewarden
import lakewarden_server
from conftest import LAKE
from lakewarden import stage_append, stage_from_fork
from lakewarden_server import wait_until
from test_python_client import client_of


@pytest.fixture(scope="module")
def lake(server, clients):
    return client_of(server, clients)


class Table:
    """A table of the catalog with days as partitions, and its Delta table."""

    def __init__(self, clients, database, name):
        self.clients, self.database, self.name = clients, database, name
        self.uri = f"s3://{LAKE}/sync/{database}"
        self.options = clients.storage_options()

    def register(self, name="t", **parameters):
        columns = [{"Name": "id", "Type": "bigint"}]
        table = {"Name": name, "PartitionKeys": [{"Name": "day", "Type": "string"}], "Parameters": parameters,
                 "StorageDescriptor": {"Location": self.uri, "Columns": columns}}  # fmt: skip
        self.clients.glue.create_table(DatabaseName=self.database, TableInput=table)
        return self

    def write(self, day, *ids, mode="append"):
        write_deltalake(self.uri, rows(day, *ids), mode=mode, partition_by=["day"], storage_options=self.options)

    def open(self):
        return DeltaTable(self.uri, storage_options=self.options)

    def listed(self, name="t", **more):
        """Day -> files, rows, bytes as the catalog says."""
        pages = self.clients.glue.get_paginator("get_partitions").paginate(DatabaseName=self.database, TableName=name, **more)
        found = [partition for page in pages for partition in page["Partitions"]]
        return {
            one["Values"][0]: tuple(int(one["Parameters"].get(key, -1)) for key in ("numFiles", "numRows", "totalSize"))
            for one in found
        }

    def logged(self):
        """The same as deltalake reads it from the log."""
        found = {}
        for add in pa.table(self.open().get_add_actions(flatten=True)).to_pylist():
            day = add["partition.day"] if add["partition.day"] is not None else "__HIVE_DEFAULT_PARTITION__"
            files, count, size = found.get(day, (0, 0, 0))
            found[day] = (files + 1, count + add["num_records"], size + add["size_bytes"])
        return found

    def check(self, name="t"):
        expected = self.logged()
        wait_until(lambda: self.listed(name) == expected, f"{expected}, found {self.listed(name)}", 30)

    def parameters(self, name="t"):
        return self.clients.glue.get_table(DatabaseName=self.database, Name=name)["Table"]["Parameters"]


def rows(day, *ids):
    return pa.table({"id": pa.array(ids, pa.int64()), "day": pa.array([day] * len(ids), pa.string())})


@pytest.fixture
def table(clients, database, unique):
    return Table(clients, database, unique)


def test_partitions_come_change_and_go_with_staged_commits(table, lake):
    table.register()
    stage_append(lake, table.uri, pa.concat_tables([rows("a", 1, 2), rows("b c", 3), rows(None, 4)]), partition_by=["day"])
    table.check()
    assert set(table.listed()) == {"a", "b c", "__HIVE_DEFAULT_PARTITION__"}
    stage_append(lake, table.uri, rows("a", 5))
    stage_from_fork(lake, table.uri, lambda opened: opened.delete("id = 1"))
    table.check()
    assert table.listed()["a"][:2] == (2, 2)
    stage_from_fork(lake, table.uri, lambda opened: opened.optimize.compact())
    table.check()
    assert table.listed()["a"][:2] == (1, 2)
    stage_from_fork(lake, table.uri, lambda opened: opened.delete("day = 'a'"))
    table.check()
    assert "a" not in table.listed()
    wait_until(lambda: table.parameters().get("delta.lastUpdateVersion") == str(table.open().version()), "the version")


def test_a_transaction_reads_what_its_commit_left(table, lake):
    table.register()
    first = stage_append(lake, table.uri, rows("a", 1), partition_by=["day"])
    table.check()
    left = {first.proposal_id: table.listed()}
    for change in (
        lambda: stage_append(lake, table.uri, rows("b", 2)),
        lambda: stage_from_fork(lake, table.uri, lambda opened: opened.delete("day = 'a'")),
        lambda: stage_append(lake, table.uri, rows("c", 3)),
    ):
        verdict = change()
        table.check()
        left[verdict.proposal_id] = table.listed()
    for proposal, expected in left.items():
        assert table.listed(TransactionId=proposal) == expected
    with pytest.raises(table.clients.glue.exceptions.EntityNotFoundException):
        table.listed(TransactionId="6f1f3a52-0c1d-4a6b-9f8e-2f5b1c9d7e10")


def test_commits_of_other_writers_are_followed(table, lake):
    table.register()
    table.write("a", 1, 2)
    table.check()
    table.write("b", 3)
    table.open().delete("day = 'a'")
    table.check()
    # A table that is judged as well.
    stage_append(lake, table.uri, rows("c", 4))
    table.write("d", 5)
    table.open().update(updates={"id": "id + 1"}, predicate="day = 'c'")
    table.check()
    wait_until(lambda: table.parameters()["delta.lastUpdateVersion"] == str(table.open().version()), "the version followed")


def test_a_table_that_is_deleted_and_written_anew(table):
    table.register()
    for day in ("a", "b", "c"):
        table.write(day, 1)
    table.check()
    prefix = table.uri.removeprefix(f"s3://{LAKE}/") + "/"
    for key in table.clients.objects(prefix):
        table.clients.s3.delete_object(Bucket=LAKE, Key=key)
    table.write("c", 1, 2)
    table.write("d", 3)
    table.check()


def test_late_tables_several_at_a_place_and_one_that_is_switched_off(table, lake):
    table.write("a", 1)
    table.register().register("off", **{"lakewarden.partitionSync": "off"})
    stage_append(lake, table.uri, rows("b", 2))
    table.register("late")
    stage_append(lake, table.uri, rows("c", 3))
    table.check()
    table.check("late")
    assert table.listed("off") == {} and "delta.lastUpdateVersion" not in table.parameters("off")
    # Columns follow the schema.
    wider = pa.table({"id": pa.array([4], pa.int64()), "day": ["c"], "more": [datetime.date(2026, 1, 1)]})
    write_deltalake(table.uri, wider, mode="append", schema_mode="merge", storage_options=table.options)
    table.check()
    columns = lambda: table.clients.glue.get_table(DatabaseName=table.database, Name="t")["Table"]["StorageDescriptor"]["Columns"]  # noqa: E731
    wait_until(lambda: [column["Type"] for column in columns()] == ["bigint", "date"], "the new column")


def test_rebuild_from_the_command_line(table, lake, server):
    table.register()
    for day in range(40):
        table.write(f"{day:02}", day)
    table.check()
    glue, named = table.clients.glue, {"DatabaseName": table.database, "TableName": "t"}
    glue.delete_partition(**named, PartitionValues=["03"])
    glue.create_partition(**named, PartitionInput={"Values": ["made up"]})
    run = lambda *more: subprocess.run(  # noqa: E731
        [str(lakewarden_server.BINARY), "rebuild", table.database, *more, "--gateway", server.endpoints["gateway"]],
        env=server.environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    done = run("t")
    assert done.returncode == 0 and "Done: they are those of version 39." in done.stdout, done.stdout + done.stderr
    assert table.listed() == table.logged() | {"made up": (-1, -1, -1)}
    assert run("t", "--exact").returncode == 0
    assert table.listed() == table.logged()
    refused = run("nosuch")
    assert refused.returncode != 0 and "nosuch" in refused.stderr

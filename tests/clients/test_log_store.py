"""The simulator of Spark's log store against deltalake 1.6.0, a second implementation of the same lock table."""

import pytest

from conftest import LOCK_TABLE
from delta import Delta, rows
from engines import EngineError
from log_store import LogStore, VersionTaken, file_name, versions


class Shared:
    """A table at version 0 that a Spark session and deltalake 1.6.0 both write, under one spelling of its path."""

    def __init__(self, clients, name, lock_engine):
        self.table = Delta(clients, name)
        self.table.write(rows(1))
        self.spark = LogStore(clients, self.table.prefix, LOCK_TABLE, scheme="s3")
        self.lock_engine = lock_engine

    def body(self, *ids):
        return self.table.hand_made_append(*ids, version=0).body()

    def lock_write(self, *ids):
        return self.lock_engine.ask("write", uri=self.table.uri, ids=list(ids))

    def read(self):
        return self.lock_engine.ask("read", uri=self.table.uri)


@pytest.fixture
def shared(clients, unique, lock_engine):
    return Shared(clients, unique, lock_engine)


def test_they_write_one_after_the_other(shared):
    assert shared.spark.append(shared.body(2)) == 1
    assert shared.lock_write(3) == 2
    assert shared.spark.append(shared.body(4)) == 3
    assert shared.read() == {"version": 3, "ids": [1, 2, 3, 4]}
    assert shared.table.ids() == [1, 2, 3, 4]
    entries = shared.spark.entries()
    assert [entry["fileName"] for entry in entries] == [file_name(version) for version in (1, 2, 3)]
    assert all(entry["complete"] == "true" and int(entry["expireTime"]) > 0 for entry in entries)


def test_deltalake_finishes_what_spark_claimed(shared):
    write = shared.spark.write(1, shared.body(2))
    write.run(through="claim")
    assert shared.lock_write(3) == 2
    assert shared.read()["ids"] == [1, 2, 3]
    assert shared.spark.entry(1)["complete"] == "true"
    write.run()
    assert shared.read()["ids"] == [1, 2, 3], "what it does late changes nothing"


def test_deltalake_is_stuck_behind_an_entry_whose_file_is_there(shared):
    write = shared.spark.write(1, shared.body(2))
    write.run(through="copy")
    with pytest.raises(EngineError):
        shared.lock_write(3)
    write.run()
    assert shared.lock_write(3) == 2


def test_spark_finishes_what_spark_claimed(shared):
    first = shared.spark.write(1, shared.body(2))
    first.run(through="claim")
    second = shared.spark.write(1, shared.body(3))
    with pytest.raises(VersionTaken):
        second.run()
    assert shared.spark.append(shared.body(3)) == 2
    assert shared.table.ids() == [1, 2, 3]


def test_a_dead_session_leaves_what_its_last_step_says(shared):
    for step in ("check_absent", "settle_previous", "write_temp"):
        shared.spark.write(1, shared.body(2)).run(through=step)
        assert shared.spark.entries() == []
        assert shared.table.ids() == [1]


def test_a_plain_put_overtakes_spark_unseen(shared):
    """Why somebody has to look: Spark says that its commit was made, and the next session covers the traces."""
    write = shared.spark.write(1, shared.body(2))
    write.run(through="settle_previous")
    shared.table.write(rows(3), mode="append")
    write.run()
    assert write.is_acknowledged and shared.spark.entry(1)["complete"] == "false"
    assert shared.spark.latest() == 1
    assert shared.spark.entry(1)["complete"] == "true"
    assert shared.table.ids() == [1, 3]
    assert versions(shared.table.clients.s3, shared.spark.log) == [0, 1]

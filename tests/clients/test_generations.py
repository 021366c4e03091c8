"""Tables that are deleted and written anew at the same place, as people do every day."""

import json
import time
import uuid

import pyarrow as pa
import pytest

from conftest import LAKE, LOCK_TABLE
from delta import Delta, rows
from log_store import LogStore
from scene import SPELLINGS, Scene


def remove(table):
    """Every object of it, staged commits too."""
    for key in table.objects():
        table.clients.s3.delete_object(Bucket=LAKE, Key=key)


def committed(table, proposal):
    verdict = table.verdict(table.put_staged(proposal))
    if verdict.get("reason") == "TABLE_REPLACED":
        # Staged in the second in which the table was written anew: as the verdict advises, once more.
        assert "stage it again" in verdict["advice"], json.dumps(verdict)
        time.sleep(1)
        proposal.id = str(uuid.uuid4())
        verdict = table.verdict(table.put_staged(proposal))
    assert verdict["status"] == "committed", json.dumps(verdict)
    return verdict["version"]


@pytest.fixture
def table(clients, unique):
    return Delta(clients, unique)


def test_again_and_again(table):
    for generation in range(1, 4):
        first = generation * 100
        table.write(rows(first))
        for number in range(1, 3 + generation):
            assert committed(table, table.hand_made_append(first + number)) == number
        assert table.ids() == list(range(first, first + 3 + generation))
        remove(table)


def test_a_shorter_log_than_before_and_a_longer_one(table):
    table.write(rows(1))
    assert [committed(table, table.hand_made_append(number)) for number in (2, 3, 4, 5)] == [1, 2, 3, 4]
    remove(table)
    table.write(rows(10))
    for number in (11, 12, 13, 14, 15, 16, 17):
        table.write(rows(number), mode="append")
    assert committed(table, table.hand_made_append(18)) == 8
    assert table.ids() == list(range(10, 19))


def test_the_new_table_has_another_schema_and_partitions(table):
    table.write(rows(1, 2), partition_by=["dt"])
    assert committed(table, table.fork_append(rows(3))) == 1
    remove(table)
    table.write(pa.table({"id": pa.array([7], pa.int64()), "price": [1.5]}))
    assert committed(table, table.fork_append(pa.table({"id": pa.array([8], pa.int64()), "price": [2.5]}))) == 1
    verdict = table.verdict(table.put_staged(table.fork_append(pa.table({"id": pa.array([9], pa.int64()), "price": [3.5]}))))
    assert verdict["version"] == 2
    assert table.ids() == [7, 8, 9]


def test_created_anew_by_a_staged_commit(table, clients):
    """Without a direct writer: the commit that creates the table is staged as well."""
    table.write(rows(1))
    create = clients.s3.get_object(Bucket=LAKE, Key=f"{table.prefix}/_delta_log/{0:020}.json")["Body"].read()
    assert committed(table, table.hand_made_append(2)) == 1
    remove(table)
    actions = [json.loads(line) for line in create.decode().splitlines()]
    kept = [action for action in actions if "add" not in action]
    next(action for action in kept if "metaData" in action)["metaData"]["id"] = "0b5c2a53-6b0a-4f0c-8d6e-2f9d1f1c7a11"
    proposal = table.hand_made_append(3, version=0)
    proposal.actions = kept
    assert committed(table, proposal) == 0
    assert committed(table, table.hand_made_append(4)) == 1
    assert table.ids() == [4]


def test_what_was_staged_for_the_table_before_ends_with_its_name(own_clients, unique):
    clients, table = own_clients, Delta(own_clients, unique)
    table.write(rows(1))
    assert committed(table, table.hand_made_append(2)) == 1
    clients.server.pause_events()
    try:
        late = table.hand_made_append(3)
        table.put_staged(late)
        for key in table.objects():
            if "/_staged_commits/" not in key:
                clients.s3.delete_object(Bucket=LAKE, Key=key)
        # S3 tells the age of objects in whole seconds.
        clients.server.advance_clock("2s")
        table.write(rows(10))
        clients.server.advance_clock("1s")
        fresh = table.hand_made_append(11)
        table.put_staged(fresh)
    finally:
        clients.server.resume_events()
    assert table.verdict(fresh.id)["version"] == 1
    verdict = table.verdict(late.id)
    assert (verdict["status"], verdict["exception"]) == ("rejected", "TableReplacedException"), json.dumps(verdict)
    assert table.ids() == [10, 11]


def test_in_the_second_of_its_birth_a_table_takes_what_names_it(table):
    """S3 tells the age of objects in whole seconds: what may be of the table before must not reach the new one."""
    table.write(rows(1))
    assert committed(table, table.hand_made_append(2)) == 1
    remove(table)
    table.write(rows(10))
    named = table.hand_made_append(11)
    named.commit_info()["readTableId"] = table.open().metadata().id
    verdict = table.verdict(table.put_staged(named))
    assert verdict["status"] == "committed", json.dumps(verdict)
    assert committed(table, table.hand_made_append(12)) == 2
    other = table.hand_made_append(13)
    other.commit_info()["readTableId"] = str(uuid.uuid4())
    verdict = table.verdict(table.put_staged(other))
    assert (verdict["status"], verdict["reason"]) == ("rejected", "TABLE_REPLACED"), json.dumps(verdict)
    assert table.ids() == [10, 11, 12]


def test_ids_and_verdicts_of_the_table_before_are_not_those_of_the_new_one(table):
    table.write(rows(1))
    old = table.hand_made_append(2)
    assert committed(table, old) == 1
    remove(table)
    table.write(rows(10))
    time.sleep(1)
    again = table.hand_made_append(11)
    again.id = old.id
    verdict = table.verdict(table.put_staged(again))
    table.clients.server.wait_idle()
    assert table.ids() == [10, 11] or verdict["exception"] == "ProposalReusedException", json.dumps(verdict)
    assert committed(table, table.hand_made_append(12)) == table.version()


def test_entries_of_the_table_before_are_cleared(clients, unique, lock_engine):
    """A lock table that remembers the versions of a table that is gone stops every writer that believes it."""
    scene = Scene(clients, unique, LOCK_TABLE, lock_engine).create()
    assert scene.lock()
    scene.append_staged()
    assert scene.lock()
    remove(scene.table)
    scene = Scene(clients, unique, LOCK_TABLE, lock_engine).create()
    time.sleep(1)
    scene.append_staged()
    stores = [LogStore(clients, scene.table.prefix, LOCK_TABLE, scheme) for scheme in SPELLINGS]
    versions = {int(entry["fileName"][:20]) for store in stores for entry in store.entries()}
    assert versions <= {0, 1}, versions
    assert scene.lock()
    scene.settle()
    scene.check()
    assert not scene.unknown

"""Staged Delta commits, written by deltalake and uploaded with plain `aws s3 cp`."""

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import LAKE
from delta import Delta, rows


@pytest.fixture
def orders(clients, unique):
    """A table at version 0 with one file."""
    table = Delta(clients, unique)
    table.write(rows(1, 2, 3))
    return table


@pytest.fixture
def by_day(clients, unique):
    """A partitioned table at version 0 with a file in each of two partitions."""
    table = Delta(clients, unique)
    table.write(pa.concat_tables([rows(1, 2, dt="a"), rows(3, 4, dt="b")]), partition_by=["dt"])
    return table


def test_a_staged_append_becomes_the_next_version(orders, tmp_path):
    proposal = orders.fork_append(rows(4, 5))
    verdict = orders.verdict(orders.stage(proposal, tmp_path))
    assert (verdict["status"], verdict["version"]) == ("committed", 1), verdict
    assert (orders.version(), orders.ids()) == (1, [1, 2, 3, 4, 5])


def test_what_is_published_is_what_was_staged(orders, clients, tmp_path):
    proposal = orders.fork_append(rows(4))
    orders.verdict(orders.stage(proposal, tmp_path))
    published = clients.s3.get_object(Bucket=LAKE, Key=f"{orders.prefix}/_delta_log/{1:020}.json")["Body"].read()
    assert published == proposal.body()


def test_an_extra_column_is_refused_and_the_table_untouched(orders, clients, tmp_path):
    proposal = orders.fork_append(rows(4))
    added = proposal.added()[0]
    sink = io.BytesIO()
    pq.write_table(rows(4).append_column("extra", pa.array(["x"])), sink)
    clients.s3.put_object(Bucket=LAKE, Key=f"{orders.prefix}/{added['path']}", Body=sink.getvalue())
    added["size"] = len(sink.getvalue())
    added["stats"] = json.dumps({"numRecords": 1})
    orders.stage(proposal, tmp_path)
    staged = orders.objects()
    verdict = orders.verdict(proposal.id)
    assert verdict["status"] == "rejected", verdict
    assert "extra" in json.dumps(verdict), "the column is named"
    clients.server.wait_idle()
    assert orders.objects() == staged
    assert (orders.version(), orders.ids()) == (0, [1, 2, 3])


def test_two_appends_for_one_version_both_land(orders, clients, tmp_path):
    first, second = orders.fork_append(rows(4)), orders.fork_append(rows(5))
    assert first.version == second.version == 1
    clients.server.pause_events()
    try:
        orders.stage(first, tmp_path)
        orders.stage(second, tmp_path)
    finally:
        clients.server.resume_events()
    verdicts = [orders.verdict(first.id), orders.verdict(second.id)]
    assert [verdict["status"] for verdict in verdicts] == ["committed", "committed"], verdicts
    assert sorted(verdict["version"] for verdict in verdicts) == [1, 2]
    assert (orders.version(), orders.ids()) == (2, [1, 2, 3, 4, 5])


def test_two_deletes_of_one_file_conflict_by_name(by_day, tmp_path):
    first, second = by_day.fork_delete("dt = 'a'"), by_day.fork_delete("dt = 'a'")
    assert by_day.verdict(by_day.stage(first, tmp_path))["status"] == "committed"
    loser = by_day.verdict(by_day.stage(second, tmp_path))
    assert loser["status"] == "rejected", loser
    assert loser["exception"] in ("ConcurrentDeleteReadException", "ConcurrentDeleteDeleteException"), loser
    assert (by_day.version(), by_day.ids()) == (1, [3, 4])


def test_deletes_in_different_partitions_both_land_when_they_say_what_they_read(by_day, tmp_path):
    first, second = by_day.fork_delete("dt = 'a'"), by_day.fork_delete("dt = 'b'")
    for proposal, day in ((first, "a"), (second, "b")):
        proposal.commit_info()["readSet"] = {"v": 1, "predicates": [{"op": "=", "col": ["dt"], "value": day}]}
    assert by_day.verdict(by_day.stage(first, tmp_path))["status"] == "committed"
    verdict = by_day.verdict(by_day.stage(second, tmp_path))
    assert verdict["status"] == "committed", verdict
    assert (by_day.version(), by_day.ids()) == (2, [])


def test_a_delete_is_taken_to_have_read_what_its_recorded_predicate_selects(by_day, tmp_path):
    first, second = by_day.fork_delete("dt = 'a'"), by_day.fork_delete("dt = 'b' AND id > 0")
    assert by_day.verdict(by_day.stage(first, tmp_path))["status"] == "committed"
    verdict = by_day.verdict(by_day.stage(second, tmp_path))
    assert verdict["status"] == "committed", verdict
    assert (by_day.version(), by_day.ids()) == (2, [])


def test_a_delete_that_does_not_say_what_it_read_is_taken_to_have_read_everything(by_day, tmp_path):
    first, second = by_day.fork_delete("dt = 'a'"), by_day.fork_delete("dt = 'b'")
    del second.commit_info()["operationParameters"]["predicate"]
    assert by_day.verdict(by_day.stage(first, tmp_path))["status"] == "committed"
    loser = by_day.verdict(by_day.stage(second, tmp_path))
    assert (loser["status"], loser["exception"]) == ("rejected", "ConcurrentDeleteReadException"), loser
    assert by_day.ids() == [3, 4]


def test_a_commit_that_a_direct_writer_overtook_lands_behind_it(orders, tmp_path):
    proposal = orders.fork_append(rows(4))
    orders.write(rows(5), mode="append")
    verdict = orders.verdict(orders.stage(proposal, tmp_path))
    assert (verdict["status"], verdict["version"]) == ("committed", 2), verdict
    assert orders.ids() == [1, 2, 3, 4, 5]
    orders.write(rows(6), mode="append")
    assert (orders.version(), orders.ids()) == (3, [1, 2, 3, 4, 5, 6])


def test_the_same_upload_twice_is_one_commit(orders, clients, tmp_path):
    proposal = orders.fork_append(rows(4))
    first = orders.verdict(orders.stage(proposal, tmp_path))
    orders.stage(proposal, tmp_path)
    clients.server.wait_idle()
    assert orders.verdict(proposal.id) == first
    assert (orders.version(), orders.ids()) == (1, [1, 2, 3, 4])


def test_the_same_id_with_other_content_is_refused(orders, clients, tmp_path):
    proposal = orders.fork_append(rows(4))
    first = orders.verdict(orders.stage(proposal, tmp_path))
    proposal.actions = orders.fork_append(rows(5)).actions
    orders.stage(proposal, tmp_path)
    clients.server.wait_idle()
    assert orders.verdict(proposal.id)["version"] == first["version"]
    assert orders.ids() == [1, 2, 3, 4]


def test_a_table_that_was_deleted_and_written_anew_goes_on(orders, clients, tmp_path):
    assert orders.verdict(orders.stage(orders.fork_append(rows(4)), tmp_path))["version"] == 1
    for key in orders.objects():
        clients.s3.delete_object(Bucket=LAKE, Key=key)
    orders.write(rows(10))
    verdict = orders.verdict(orders.stage(orders.fork_append(rows(11)), tmp_path))
    assert (verdict["status"], verdict["version"]) == ("committed", 1), verdict
    assert orders.ids() == [10, 11]


@pytest.mark.parametrize("body", [b"", b"not json\n", b'{"add":{"path":7}}\n'], ids=["empty", "not json", "wrong type"])
def test_what_cannot_be_read_is_rejected_with_a_reason(orders, clients, tmp_path, body):
    proposal = orders.fork_append(rows(4))
    proposal.body = lambda: body
    verdict = orders.verdict(orders.stage(proposal, tmp_path))
    assert verdict["status"] == "rejected" and verdict["reason"], verdict
    assert orders.ids() == [1, 2, 3]


def test_an_id_that_nobody_proposed_is_not_found(server):
    answer = server.request("GET", "/v1/commits/00000000-0000-4000-8000-000000000000")
    assert answer.status_code == 404 and answer.json()


# Without staging: the actions in the request


def test_a_commit_is_proposed_with_its_actions_inline(orders, server):
    proposal = orders.fork_append(rows(4))
    request = {"location": orders.uri, "read_version": 0, "proposal_id": proposal.id, "actions": proposal.actions}
    verdict = server.ok("POST", "/v1/commits", request)
    assert (verdict["status"], verdict["version"]) == ("committed", 1), verdict
    assert orders.ids() == [1, 2, 3, 4]
    assert server.ok("GET", f"/v1/commits/{proposal.id}")["version"] == 1


def test_a_conflict_is_answered_at_once(by_day, server):
    first, second = by_day.fork_delete("dt = 'a'"), by_day.fork_delete("dt = 'a'")
    request = {"location": by_day.uri, "read_version": 0}
    server.ok("POST", "/v1/commits", request | {"proposal_id": first.id, "actions": first.actions})
    answer = server.request("POST", "/v1/commits", request | {"proposal_id": second.id, "actions": second.actions})
    assert answer.status_code == 409, answer.text
    assert "ConcurrentDelete" in answer.text
    assert by_day.ids() == [3, 4]


# Into the catalog


def test_new_partitions_appear_in_the_catalog(by_day, clients, database, tmp_path):
    clients.glue.create_table(
        DatabaseName=database,
        TableInput={
            "Name": "orders",
            "TableType": "EXTERNAL_TABLE",
            "Parameters": {"table_type": "DELTA"},
            "PartitionKeys": [{"Name": "dt", "Type": "string"}],
            "StorageDescriptor": {"Location": by_day.uri, "Columns": [{"Name": "id", "Type": "bigint"}]},
        },
    )
    for dt in ("c", "d e"):
        verdict = by_day.verdict(by_day.stage(by_day.fork_append(rows(9, dt=dt)), tmp_path))
        assert verdict["status"] == "committed", verdict
    clients.server.wait_idle()
    found = clients.glue.get_partitions(DatabaseName=database, TableName="orders")["Partitions"]
    assert {tuple(partition["Values"]) for partition in found} >= {("c",), ("d e",)}
    assert all(partition["StorageDescriptor"]["Location"].startswith(by_day.uri + "/dt=") for partition in found)


def test_the_catalog_can_be_read_as_of_a_commit(own_clients, unique, tmp_path):
    clients = own_clients
    clients.glue.create_database(DatabaseInput={"Name": unique})
    by_day = Delta(clients, unique)
    by_day.write(pa.concat_tables([rows(1, dt="a"), rows(3, dt="b")]), partition_by=["dt"])
    location = {"Location": by_day.uri, "Columns": [{"Name": "id", "Type": "bigint"}]}
    keys = [{"Name": "dt", "Type": "string"}]
    table = {"Name": "orders", "Parameters": {"table_type": "DELTA"}, "PartitionKeys": keys, "StorageDescriptor": location}
    clients.glue.create_table(DatabaseName=unique, TableInput=table)
    commits = {}
    for dt in ("c", "d"):
        commits[dt] = by_day.stage(by_day.fork_append(rows(9, dt=dt)), tmp_path)
        assert by_day.verdict(commits[dt])["status"] == "committed"
        clients.server.wait_idle()
    # What is younger than a few seconds is not the past yet.
    clients.server.advance_clock("1m")

    def as_of(commit, **more):
        asked = {"DatabaseName": unique, "TableName": "orders", "TransactionId": commit, **more}
        pages = clients.glue.get_paginator("get_partitions").paginate(**asked, PaginationConfig={"PageSize": 1})
        return {partition["Values"][0] for page in pages for partition in page["Partitions"]} - {"a", "b"}

    assert as_of(commits["c"]) == {"c"}
    assert as_of(commits["d"]) == {"c", "d"}
    assert as_of(commits["d"], Expression="dt in ('d', 'x')") == {"d"}
    assert as_of(commits["c"], Expression="dt in ('d', 'x')") == set()
    clients.glue.create_table(DatabaseName=unique, TableInput=table | {"Name": "other", "StorageDescriptor": {}})
    for table_name, commit in (("orders", "6f1f3a52-0c1d-4a6b-9f8e-2f5b1c9d7e10"), ("other", commits["c"])):
        with pytest.raises(clients.glue.exceptions.EntityNotFoundException):
            clients.glue.get_partitions(DatabaseName=unique, TableName=table_name, TransactionId=commit)

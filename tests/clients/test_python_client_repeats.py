"""The Python client, where the same thing is done again."""

import threading
import uuid

import pyarrow as pa
import pytest
from botocore.exceptions import ClientError
from deltalake import CommitProperties, Transaction, write_deltalake

import lakewarden
from conftest import LAKE
from lakewarden import stage_append, stage_from_fork
from test_python_client import client_of, ids, lake, numbers, objects, open_table, table, txn, uri  # noqa: F401
from test_unity import managed, unity  # noqa: F401


def prefix(uri):
    return uri.removeprefix(f"s3://{LAKE}/")


# Transactions of an application


def checkpoint(clients, uri, keep):
    """A checkpoint of the newest version, and the log before it gone but for `keep` versions."""
    opened = open_table(clients, uri)
    opened.create_checkpoint()
    for version in range(opened.version() - keep):
        clients.s3.delete_object(Bucket=LAKE, Key=f"{prefix(uri)}/_delta_log/{version:020}.json")


def refused_again(lake, uri, version, reason, winner):
    with pytest.raises(lakewarden.ConcurrentTransactionException) as refused:
        stage_append(lake, uri, numbers(9), app_transaction=("job", version))
    found = refused.value
    assert (found.reason, found.winner and found.winner.version) == (reason, winner), str(found)
    assert found.advice and found.error_class == "DELTA_CONCURRENT_TRANSACTION" and found.verdict.status == "rejected"


def test_an_append_is_not_repeated_under_its_applications_transaction(lake, clients, table):
    assert stage_append(lake, table, numbers(20), app_transaction=("job", 7)).version == 2
    before = objects(clients, table)
    refused_again(lake, table, 7, "ALREADY_APPLIED", 2)
    refused_again(lake, table, 6, "SAME_APPLICATION", 2)
    # Nothing was written for it.
    assert objects(clients, table) == before
    assert stage_append(lake, table, numbers(21), app_transaction=("another", 7)).version == 3
    assert stage_append(lake, table, numbers(22), app_transaction=("job", 8)).version == 4
    # Also one that is not the newest any more, and one that others have committed.
    refused_again(lake, table, 7, "ALREADY_APPLIED", 2)
    other = CommitProperties(app_transactions=[Transaction("job", 9)])
    write_deltalake(table, numbers(23), mode="append", storage_options=clients.storage_options(), commit_properties=other)
    refused_again(lake, table, 9, "ALREADY_APPLIED", 5)
    checkpoint(clients, table, keep=0)
    refused_again(lake, table, 9, "ALREADY_APPLIED", None)
    refused_again(lake, table, 8, "SAME_APPLICATION", None)
    assert stage_append(lake, table, numbers(24), app_transaction=("job", 10)).version == 6
    refused_again(lake, table, 10, "ALREADY_APPLIED", 6)
    assert ids(clients, table) == [1, 2, 3, 11, 12, 13, 20, 21, 22, 23, 24]


def test_the_transaction_that_creates_a_table_is_not_repeated(lake, clients, uri):
    stage_append(lake, uri, numbers(1), app_transaction=("job", 0))
    refused_again(lake, uri, 0, "ALREADY_APPLIED", 0)
    assert ids(clients, uri) == [1]


def test_appends_under_one_transaction_at_once_are_one(lake, server, clients, table):
    told = []

    def work():
        try:
            told.append(stage_append(client_of(server, clients), table, numbers(50), app_transaction=("job", 1)).version)
        except lakewarden.ConcurrentTransactionException as refused:
            told.append(refused.reason)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, told)) == ["2", "ALREADY_APPLIED", "ALREADY_APPLIED", "ALREADY_APPLIED"]
    assert ids(clients, table).count(50) == 1


def test_a_fork_does_not_repeat_a_transaction(lake, clients, table):
    def change(opened):
        properties = CommitProperties(app_transactions=[Transaction("job", 3)])
        write_deltalake(opened, numbers(60), mode="append", commit_properties=properties)

    assert stage_from_fork(lake, table, change).version == 2
    before = objects(clients, table)
    with pytest.raises(lakewarden.ConcurrentTransactionException) as refused:
        stage_from_fork(lake, table, change)
    assert refused.value.reason == "ALREADY_APPLIED" and objects(clients, table) == before


def test_a_log_that_is_not_whole_is_not_appended_to(lake, clients, table):
    """Who cannot read what was committed cannot say that a transaction was not."""
    clients.s3.delete_object(Bucket=LAKE, Key=f"{prefix(table)}/_delta_log/{0:020}.json")
    with pytest.raises(lakewarden.LakewardenError, match="lacks version 0"):
        stage_append(lake, table, numbers(9), app_transaction=("job", 1))


def test_a_checkpoint_in_parts_counts_where_all_are_there(lake, clients, table):
    stage_append(lake, table, numbers(20), app_transaction=("job", 7))
    open_table(clients, table).create_checkpoint()
    log = f"{prefix(table)}/_delta_log"
    one = {"Bucket": LAKE, "Key": f"{log}/{2:020}.checkpoint.parquet"}
    half = f"{log}/{2:020}.checkpoint.{1:010}.{2:010}.parquet"
    clients.s3.copy_object(Bucket=LAKE, Key=half, CopySource=one)
    clients.s3.delete_object(**one)
    # Half of it tells nothing; the commits do.
    refused_again(lake, table, 7, "ALREADY_APPLIED", 2)
    clients.s3.copy_object(Bucket=LAKE, Key=half.replace(f"{1:010}.{2:010}", f"{2:010}.{2:010}"), CopySource={"Bucket": LAKE, "Key": half})
    for version in range(2):
        clients.s3.delete_object(Bucket=LAKE, Key=f"{log}/{version:020}.json")
    refused_again(lake, table, 7, "ALREADY_APPLIED", None)


# Proposals under an id of one's own


def staged(clients, uri):
    """What lies staged: name -> bytes."""
    keys = [key for key in objects(clients, uri) if "/_staged_commits/" in key]
    return {key.rsplit("/", 1)[1]: clients.s3.get_object(Bucket=LAKE, Key=key)["Body"].read() for key in keys}


def large(app):
    return [{"commitInfo": {"operation": "STREAMING UPDATE", "note": "x" * 3_600_000}}, *txn(app)[1:]]


def stage_and_wait(lake, uri, actions, **more):
    return lake.stage_and_wait(uri, actions, **more)


def propose(lake, uri, actions, **more):
    return lake.propose(uri, actions, **more)


def stage_and_ask(lake, uri, actions, **more):
    proposal = lake.stage(uri, actions, **more)
    return lake.wait(proposal.id, location=uri, read_version=more["read_version"])


DOORS = {"stage_and_wait": stage_and_wait, "propose": propose, "stage, wait": stage_and_ask}


@pytest.mark.parametrize("second", DOORS)
@pytest.mark.parametrize("first", DOORS)
def test_other_content_under_a_used_id_is_refused(lake, clients, table, first, second):
    id = str(uuid.uuid4())
    assert DOORS[first](lake, table, txn("a"), read_version=1, proposal_id=id).version == 2
    lies = staged(clients, table)
    # The same through any door is the same.
    assert DOORS[second](lake, table, txn("a"), read_version=1, proposal_id=id).version == 2
    for read_version in (1, 2):
        with pytest.raises(lakewarden.ProposalReusedException) as refused:
            DOORS[second](lake, table, txn("b"), read_version=read_version, proposal_id=id)
        assert (refused.value.reason, refused.value.proposal_id) == ("PROPOSAL_REUSED", id) and refused.value.advice
    # What was staged first is untouched, and nothing else was committed.
    assert lies.items() <= staged(clients, table).items()
    assert lake.latest_version(table) == 2 and lake.verdict(id).version == 2


def test_other_content_under_the_id_of_a_large_commit_is_refused(lake, clients, table):
    id = str(uuid.uuid4())
    for _ in range(2):
        assert lake.propose(table, large("a"), read_version=1, proposal_id=id).version == 2
    lies = staged(clients, table)
    with pytest.raises(lakewarden.ProposalReusedException):
        lake.propose(table, large("b"), read_version=1, proposal_id=id)
    with pytest.raises(lakewarden.ProposalReusedException):
        lake.propose(table, large("a"), read_version=2, proposal_id=id)
    assert lies.items() <= staged(clients, table).items() and lake.latest_version(table) == 2


def test_a_refused_id_is_used_up(lake, clients, table):
    id = str(uuid.uuid4())
    with pytest.raises(lakewarden.InvalidRefused):
        lake.stage_and_wait(table, [{"add": {"path": 5}}], read_version=1, proposal_id=id)
    for read_version in (1, 0):
        with pytest.raises(lakewarden.ProposalReusedException):
            lake.stage_and_wait(table, txn("a"), read_version=read_version, proposal_id=id)
    assert lake.latest_version(table) == 1


def test_a_put_whose_answer_was_lost_is_no_other_content(lake, clients, table, monkeypatch):
    """And one that met another put is tried again."""
    real, told = lake.s3.put_object, []

    def put_object(**arguments):
        told.append(arguments["IfNoneMatch"])
        if len(told) == 1:
            raise ClientError({"Error": {"Code": "ConditionalRequestConflict"}, "ResponseMetadata": {"HTTPStatusCode": 409}}, "PutObject")
        real(**arguments)
        return real(**arguments)

    monkeypatch.setattr(lake.s3, "put_object", put_object)
    assert lake.stage_and_wait(table, txn("a"), read_version=1).version == 2
    assert told == ["*", "*"]


def test_the_same_staged_from_many_threads_at_once_is_one_commit(lake, server, clients, table):
    id, told = str(uuid.uuid4()), []

    def work(app):
        try:
            told.append(client_of(server, clients).stage_and_wait(table, txn(app), read_version=1, proposal_id=id).version)
        except lakewarden.ProposalReusedException:
            told.append("other")

    threads = [threading.Thread(target=work, args=[app]) for app in "aabb"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, told)) == ["2", "2", "other", "other"] and lake.latest_version(table) == 2


# Commits whose events do not come


def test_a_commit_whose_event_is_lost_is_told_of(lake, server, clients, table):
    server.pause_events()
    try:
        assert lake.stage_and_wait(table, txn("a"), read_version=1, timeout_s=20).version == 2
        unknown = lake.stage(table, txn("b"), read_version=2)
        with pytest.raises(lakewarden.NoVerdictYet) as late:
            lake.wait(unknown.id, timeout_s=0.3)
        assert late.value.proposal_id == unknown.id
    finally:
        server.resume_events()
    assert unknown.wait().version == 3


def test_a_catalog_managed_table_says_so(lake, clients, managed):
    """Events of such tables judge nothing."""
    commit = [managed.info(1), managed.file()]
    with pytest.raises(lakewarden.UnsupportedTableException) as refused:
        lake.stage_and_wait(managed.uri, commit, read_version=0, timeout_s=10)
    assert refused.value.reason == "CATALOG_MANAGED" and refused.value.advice
    with pytest.raises(lakewarden.UnsupportedTableException) as refused:
        lake.propose(managed.uri, commit, read_version=0)
    assert refused.value.reason == "CATALOG_MANAGED"
    before = objects(clients, managed.uri)
    with pytest.raises(lakewarden.UnsupportedTable, match="catalog-managed"):
        stage_append(lake, managed.uri, pa.table({"id": [1]}))
    with pytest.raises(lakewarden.UnsupportedTable, match="catalog-managed"):
        stage_from_fork(lake, managed.uri, lambda table: table.delete())
    assert objects(clients, managed.uri) == before

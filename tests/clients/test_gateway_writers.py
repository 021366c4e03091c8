"""Unmodified Delta and Iceberg writers on the guarded S3: the same outcome as on the plain one, and a judge before every commit."""

import concurrent.futures
import io
import json
import time
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, write_deltalake
from deltalake.transaction import AddAction

import engines
from conftest import LAKE, Clients
from delta import Delta
from guarded import Guarded, both
from log_store import versions


@pytest.fixture(scope="module")
def ways(server):
    return both(server)


@pytest.fixture(scope="module")
def guarded(server):
    return Clients(Guarded(server))


def rows(*ids, v="x"):
    return pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array([v] * len(ids), pa.string())})


def content(table):
    found = table.to_pyarrow_table().sort_by("id").to_pydict()
    return list(zip(found["id"], found["v"]))


def verdicts(server, uri):
    return server.ok("GET", f"/v1/commits?location={uri}")["commits"]


def bytes_of(clients, delta, version):
    return clients.s3.get_object(Bucket=LAKE, Key=f"{delta.prefix}/_delta_log/{version:020}.json")["Body"].read()


def test_deltalake_does_everything_as_on_plain_s3(ways, unique, server):
    told = {}
    for way, clients in ways.items():
        delta = Delta(clients, f"{unique}-{way}")
        options = clients.storage_options()
        seen = []

        def table():
            return DeltaTable(delta.uri, storage_options=options)

        delta.write(rows(1, 2, 3), configuration={"delta.logRetentionDuration": "interval 0 seconds", "delta.deletedFileRetentionDuration": "interval 0 hours"})
        delta.write(rows(4, 5), mode="append")
        table().delete("id = 2")
        table().update(updates={"v": "'u'"}, predicate="id = 3")
        source = rows(5, 6, v="m")
        table().merge(source, "s.id = t.id", source_alias="s", target_alias="t").when_matched_update_all().when_not_matched_insert_all().execute()
        seen.append(content(table()))
        seen.append(table().optimize.compact()["numFilesAdded"])
        seen.append(len(table().vacuum(0, dry_run=False, enforce_retention_duration=False)))
        seen.append(content(table()))
        table().create_checkpoint()
        delta.write(rows(7), mode="append")
        delta.write(rows(8, 9), mode="overwrite", schema_mode="overwrite")
        seen.append(content(table()))
        seen.append([step["operation"] for step in table().history()])
        table().create_checkpoint()
        time.sleep(1.1)
        delta.write(rows(10), mode="append")
        table().cleanup_metadata()
        left = versions(clients.s3, f"{delta.prefix}/_delta_log/")
        seen += [left, content(table()), table().version()]
        told[way] = seen
    assert told["guarded"] == told["plain"]
    assert told["plain"][-3][0] > 0, "the log was cleaned up by both ways"
    found = verdicts(server, f"s3://{LAKE}/delta/{unique}-guarded")
    assert {one["status"] for one in found} == {"committed"}
    assert sorted(one["version"] for one in found) == list(range(told["guarded"][-1] + 1)), "every version was judged first"


def test_what_is_published_is_what_was_put(guarded, unique, server):
    delta = Delta(guarded, unique)
    delta.write(rows(1))
    # Blanks, another order and numbers of another spelling stay as they are; no line end at the end.
    line = '{ "commitInfo" : {"operation":"X",\t"n":1.50,"ü":"\\u00fc"} }\n{"txn":{"appId":"a","version":1}}'
    key = f"{delta.prefix}/_delta_log/{1:020}.json"
    put = guarded.s3.put_object(Bucket=LAKE, Key=key, Body=line.encode(), IfNoneMatch="*")
    assert bytes_of(guarded, delta, 1) == line.encode()
    assert put["ETag"] == guarded.s3.head_object(Bucket=LAKE, Key=key)["ETag"]


def test_eight_appenders_at_once(guarded, unique, server):
    delta = Delta(guarded, unique)
    delta.write(rows(0))
    nothing_after = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
    # More of its own attempts than the default 15: eight writers on two cores lose to each other that often.
    patient = CommitProperties(max_commit_retries=200)

    def work(number):
        for turn in range(3):
            delta.write(rows(1 + number * 10 + turn), mode="append", commit_properties=patient, post_commithook_properties=nothing_after)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    expected = [0] + sorted(1 + number * 10 + turn for number in range(8) for turn in range(3))
    assert delta.ids() == expected
    assert delta.log() == list(range(25))


def broken_add(clients, delta):
    """A file whose column `id` is text, as an add of a transaction."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": ["no number"], "v": ["x"]}), sink)
    path = f"part-{uuid.uuid4()}.parquet"
    clients.s3.put_object(Bucket=LAKE, Key=f"{delta.prefix}/{path}", Body=sink.getvalue())
    return AddAction(path, len(sink.getvalue()), {}, int(time.time() * 1000), True, json.dumps({"numRecords": 1}))


def test_a_refused_commit_tells_its_writer_why(guarded, unique, server):
    delta = Delta(guarded, unique)
    delta.write(rows(1))
    table = delta.open()
    before = guarded.objects(f"{delta.prefix}/_delta_log/0")
    with pytest.raises(Exception) as refused:
        table.create_write_transaction([broken_add(guarded, delta)], "append", table.schema())
    text = str(refused.value)
    for part in ("Lakewarden refused this commit as version 1", "SchemaMismatchException", "id", "What to do"):
        assert part in text, text
    assert guarded.objects(f"{delta.prefix}/_delta_log/0") == before, "the log is as it was"
    assert delta.ids() == [1] and delta.version() == 0
    delta.write(rows(2), mode="append")
    assert delta.ids() == [1, 2]
    by_status = sorted(one["status"] for one in verdicts(server, delta.uri))
    assert by_status == ["committed", "committed", "rejected"]


def test_what_was_missing_may_be_brought(guarded, clients, unique):
    """The same bytes, put again after their reason to be refused is gone, are judged again."""
    delta = Delta(guarded, unique)
    delta.write(rows(1))
    proposal = Delta(clients, unique).fork_append(rows(2))
    key = f"{delta.prefix}/_delta_log/{1:020}.json"
    file = f"{delta.prefix}/{proposal.added()[0]['path']}"
    body = guarded.s3.get_object(Bucket=LAKE, Key=file)["Body"].read()
    guarded.s3.delete_object(Bucket=LAKE, Key=file)
    with pytest.raises(guarded.s3.exceptions.ClientError, match="FILE_MISSING"):
        guarded.s3.put_object(Bucket=LAKE, Key=key, Body=proposal.body(), IfNoneMatch="*")
    time.sleep(0.1)
    guarded.s3.put_object(Bucket=LAKE, Key=file, Body=body)
    guarded.s3.put_object(Bucket=LAKE, Key=key, Body=proposal.body(), IfNoneMatch="*")
    assert delta.ids() == [1, 2]


def test_a_large_commit(guarded, unique, server):
    delta = Delta(guarded, unique)
    delta.write(rows(1))
    body = json.dumps({"commitInfo": {"operation": "WRITE", "filler": "x" * 5_000_000}}) + "\n" + json.dumps({"txn": {"appId": "a", "version": 1}})
    key = f"{delta.prefix}/_delta_log/{1:020}.json"
    guarded.s3.put_object(Bucket=LAKE, Key=key, Body=body.encode(), IfNoneMatch="*")
    assert bytes_of(guarded, delta, 1) == body.encode()
    assert verdicts(server, delta.uri)[0]["status"] == "committed"


@pytest.fixture(scope="module")
def sails(server):
    both_ways = {"plain": engines.sail(server), "guarded": engines.sail(Guarded(server))}
    yield both_ways
    for engine in both_ways.values():
        engine.close()


def test_sail_does_the_same(sails, ways, unique, server):
    told = {}
    for way, engine in sails.items():
        uri = f"s3://{LAKE}/delta/sail-{unique}-{way}"
        name = f"t_{unique}_{way}"
        answers = [engine.ask("sql", statements=lines) for lines in (
            [f"CREATE TABLE {name} (id BIGINT, v STRING) USING delta LOCATION '{uri}'", f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b'), (3, 'c')", f"SELECT * FROM {name} ORDER BY id"],
            [f"DELETE FROM {name} WHERE id = 2", f"SELECT * FROM {name} ORDER BY id"],
            [f"INSERT INTO {name} VALUES (4, 'd')", f"SELECT * FROM {name} ORDER BY id"],
        )]
        told[way] = answers, versions(ways["plain"].s3, f"delta/sail-{unique}-{way}/_delta_log/")
    assert told["guarded"] == told["plain"]
    found = verdicts(server, f"s3://{LAKE}/delta/sail-{unique}-guarded")
    assert found and {one["status"] for one in found} == {"committed"}


def test_pyiceberg_does_the_same(ways, unique):
    told = {}
    for way, clients in ways.items():
        catalog = clients.iceberg()
        name = f"{unique}_{way}"
        catalog.create_namespace(name)
        table = catalog.create_table(f"{name}.t", schema=rows(1).schema, location=f"s3://{LAKE}/iceberg/{unique}/{way}")
        table.append(rows(1, 2))
        table.append(rows(3))
        table.delete("id = 1")
        table.overwrite(rows(9))
        again = clients.iceberg().load_table(f"{name}.t")
        told[way] = again.scan().to_arrow().to_pydict(), len(again.snapshots())
    assert told["guarded"] == told["plain"]

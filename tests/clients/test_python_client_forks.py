"""Forks of tables whose names have escapes, and changes that change nothing."""

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import lakewarden
from conftest import LAKE
from lakewarden import stage_append, stage_from_fork
from lakewarden.fork import fork
from lakewarden.location import Location
from test_python_client import CHANGES, forks, ids, lake, numbers, objects, table, uri  # noqa: F401

ROOTS = ["my table", "ünï", "a#b", "a?b", "a+b&c=d", "it's (a) table!", "p q/r s"]
# Of a name, what a partition can have: each ends up in a key and, escaped once more, in a path.
DAYS = ["a b", "ü%", "c/d", "e=f", "g:h", "100%25"]


def ids_of(clients, uri):
    opened = DeltaTable(Location.parse(uri).escaped_uri, storage_options=clients.storage_options())
    return sorted(opened.to_pyarrow_table()["id"].to_pylist())


@pytest.mark.parametrize("root", ROOTS)
def test_names_with_escapes_are_forked(lake, clients, uri, root):
    uri = f"{uri}/{root}"
    count = len(DAYS)
    data = pa.table({"id": range(count), "dt": DAYS})
    assert stage_append(lake, uri, data, partition_by=["dt"]).version == 0
    assert stage_append(lake, uri, pa.table({"id": range(count, 2 * count), "dt": DAYS})).version == 1
    assert stage_from_fork(lake, uri, lambda table: table.delete("id = 1 OR id = 2")).version == 2
    assert stage_from_fork(lake, uri, lambda table: table.optimize.compact()).version == 3
    merged = stage_from_fork(lake, uri, lambda table: table.update(updates={"id": "id + 100"}, predicate="dt = 'c/d'"))
    assert merged.version == 4 and forks(clients) == []
    expected = sorted(id + 100 * (DAYS[id % count] == "c/d") for id in range(2 * count) if id not in (1, 2))
    assert ids_of(clients, uri) == expected
    # No two spellings of one place.
    assert lake.latest_version(uri) == 4 and lake.latest_version(f"{uri}/") == 4


def test_a_fork_may_lie_where_names_have_escapes(lake, clients, table):
    with fork(lake, table, forks="my forks/ü") as made:
        made.table().delete("id = 1")
        commit = made.commit()
        assert lake.stage_and_wait(table, commit.actions, read_version=commit.read_version).version == 2
        assert clients.objects("my forks/ü/") != {}
    assert clients.objects("my forks/") == {} and ids(clients, table) == [2, 3, 11, 12, 13]


def test_a_name_that_deltalake_takes_for_another_is_not_forked(lake, clients, uri):
    """`a%20b` is none of `a b`'s."""
    stage_append(lake, f"{uri}/a b", numbers(1))
    stage_append(lake, f"{uri}/a%20b", numbers(2))
    before = objects(clients, uri)
    for more in ({}, {"forks": "f%20"}):
        with pytest.raises(lakewarden.UnsupportedTable, match="percent"):
            stage_from_fork(lake, f"{uri}/a%20b" if not more else f"{uri}/a b", lambda table: table.delete(), **more)
    assert objects(clients, uri) == before and forks(clients) == []


def test_keys_that_differ_by_an_escape_only_are_both_there(lake, clients, table):
    """The live file is the one that the path names; the other one does no harm."""
    write_deltalake(f"{table}-p", numbers(1, 2, dt="a b"), partition_by=["dt"], storage_options=clients.storage_options())
    (key,) = [key for key in objects(clients, f"{table}-p") if "dt=" in key]
    other = key.replace("dt=a b", "dt=a%20b") if "a b" in key else key.replace("a%20b", "a b")
    clients.s3.put_object(Bucket=LAKE, Key=other, Body=b"something else")
    assert stage_from_fork(lake, f"{table}-p", lambda opened: opened.delete("id = 1")).version == 1
    assert ids(clients, f"{table}-p") == [2]


NOTHING = {
    "delete": lambda table: table.delete("id = 999"),
    "update": lambda table: table.update(updates={"id": "0"}, predicate="id = 999"),
    "optimize": lambda table: [table.optimize.compact()],
    "no call": lambda _: None,
}


@pytest.mark.parametrize("name", NOTHING)
def test_nothing_to_do_is_no_failure(lake, clients, uri, name):
    write_deltalake(uri, numbers(1, 2, 3), storage_options=clients.storage_options())
    before = objects(clients, uri)
    verdict = stage_from_fork(lake, uri, NOTHING[name])
    assert (verdict.status, verdict.is_final, verdict.version, verdict.read_version) == ("superseded", True, None, 0)
    assert verdict.raise_if_refused() is verdict and verdict.location == uri
    assert ids(clients, uri) == [1, 2, 3] and forks(clients) == [] and objects(clients, uri) == before
    with fork(lake, uri) as made, pytest.raises(lakewarden.NothingCommitted):
        NOTHING[name](made.table())
        made.commit()


def test_a_merge_that_finds_nothing_is_no_failure(lake, clients, uri):
    write_deltalake(uri, numbers(1, 2), storage_options=clients.storage_options())

    def change(table):
        merging = table.merge(numbers(9), "target.id = source.id", source_alias="source", target_alias="target")
        merging.when_matched_delete().execute()

    assert stage_from_fork(lake, uri, change).status in ("superseded", "committed")
    assert ids(clients, uri) == [1, 2] and stage_from_fork(lake, uri, CHANGES["delete"][0]).status == "committed"

"""Staged objects that no well-meaning writer makes. Each gets a verdict that names what is wrong; the table stays as it is, other
tables' files stay out of reach, and what comes after is judged as if nothing had been.
"""

import json
import random

import pytest

from conftest import LAKE
from delta import Delta, rows

MEGABYTE = 1 << 20


@pytest.fixture
def table(clients, unique):
    table = Delta(clients, unique)
    table.write(rows(1))
    return table


def lines(proposal):
    return proposal.body().decode().splitlines()


def with_add(proposal, **members):
    add = next(json.loads(line) for line in lines(proposal) if "add" in json.loads(line))["add"] | members
    return "\n".join([lines(proposal)[0], json.dumps({"add": add})]).encode()


def torn(proposal):
    return proposal.body()[:-40]


def doubled_key(proposal):
    """Readers differ in which of the two they take."""
    return proposal.body().replace(b'{"add": {"path": ', b'{"add": {"path": "other.parquet", "path": ')


def doubled_action(proposal):
    add = json.dumps(proposal.added()[0])
    return f'{lines(proposal)[0]}\n{{"add": {add}, "add": {add}}}\n'.encode()


BODIES = {
    "nothing": lambda p: b"",
    "blank lines": lambda p: b"\n\n\n",
    "binary": lambda p: random.Random(1).randbytes(4096),
    "zero bytes": lambda p: p.body() + b"\0" * 100,
    "not UTF-8": lambda p: p.body().replace(b"WRITE", b"\xff\xfe\xff"),
    "half a surrogate": lambda p: p.body().replace(b"WRITE", b"\\ud800"),
    "torn": torn,
    "two actions in one line": lambda p: b"".join(p.body().split(b"\n")),
    "an array": lambda p: json.dumps(p.actions).encode(),
    "nested deeply": lambda p: p.body() + b'{"x":' * 100_000 + b"1" + b"}" * 100_000,
    "arrays nested deeply": lambda p: p.body() + b'{"commitInfo":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    "a key twice": doubled_key,
    "an action twice": doubled_action,
    "the same file twice": lambda p: p.body() + (lines(p)[1] + "\n").encode(),
    "two commitInfo": lambda p: (lines(p)[0] + "\n").encode() + p.body(),
    "too large": lambda p: p.body() + b'{"commitInfo":{"x":"' + b"y" * (33 * MEGABYTE) + b'"}}\n',
    "a number that is none": lambda p: with_add(p, size=float("nan")),
    "a size below zero": lambda p: with_add(p, size=-1),
    "a size beyond 64 bits": lambda p: with_add(p, size=1 << 70),
    "a path of another type": lambda p: with_add(p, path=7),
    "out of the table": lambda p: with_add(p, path="../secret/part.parquet"),
    "out of the table, encoded": lambda p: with_add(p, path="%2e%2e/secret/part.parquet"),
    "out of the table, through a folder": lambda p: with_add(p, path="a/../../secret/part.parquet"),
    "of another bucket": lambda p: with_add(p, path="s3://other/part.parquet"),
    "of another table, absolute": lambda p: with_add(p, path=f"s3://{LAKE}/delta/secret/part.parquet"),
    "a local file": lambda p: with_add(p, path="file:///etc/passwd"),
    "from the root": lambda p: with_add(p, path="/etc/passwd"),
    "the log itself": lambda p: with_add(p, path=f"_delta_log/{0:020}.json"),
    "a staged commit": lambda p: with_add(p, path=f"_delta_log/_staged_commits/{p.name()}"),
    "no path": lambda p: with_add(p, path=""),
    "a path with a line break": lambda p: with_add(p, path="a\nb.parquet"),
    "another size": lambda p: with_add(p, size=p.added()[0]["size"] + 1),
    "a file that is missing": lambda p: with_add(p, path="missing.parquet"),
    "a partition that the table has not": lambda p: with_add(p, partitionValues={"dt": "a"}),
    "statistics that are no JSON": lambda p: with_add(p, stats="{"),
    "more rows than the file has": lambda p: with_add(p, stats='{"numRecords": 1000}'),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_is_refused_by_name(table, clients, body):
    clients.s3.put_object(Bucket=LAKE, Key="delta/secret/part.parquet", Body=b"PAR1secretPAR1")
    proposal = table.hand_made_append(2)
    hostile = body(proposal)
    proposal.body = lambda: hostile
    table.put_staged(proposal)
    before = table.objects()
    verdict = table.verdict(proposal.id)
    assert verdict["status"] == "rejected", json.dumps(verdict)
    assert verdict["exception"] and verdict["reason"] and verdict["message"] and verdict["advice"], json.dumps(verdict)
    assert len(json.dumps(verdict)) < 20_000, "a verdict does not carry what it refuses"
    clients.server.wait_idle()
    assert table.objects() == before
    after = table.hand_made_append(3)
    assert table.verdict(table.put_staged(after))["status"] == "committed"
    assert table.ids() == [1, 3]
    assert clients.s3.get_object(Bucket=LAKE, Key="delta/secret/part.parquet")["Body"].read() == b"PAR1secretPAR1"


NAMES = [
    "00000000000000000001.json",
    "1.80a083e8-7026-4e79-81be-64bd76c43a11.json",
    "00000000000000000001.80a083e8.json",
    "99999999999999999999.80a083e8-7026-4e79-81be-64bd76c43a11.json",
    "00000000000000000001.80A083E8-7026-4E79-81BE-64BD76C43A11.JSON",
    "00000000000000000001.80a083e8-7026-4e79-81be-64bd76c43a11.json.json",
    "sub/00000000000000000001.80a083e8-7026-4e79-81be-64bd76c43a11.json",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_no_proposals_is_left_alone(table, clients, name):
    clients.s3.put_object(
        Bucket=LAKE, Key=f"{table.prefix}/_delta_log/_staged_commits/{name}", Body=table.hand_made_append(2).body()
    )
    clients.server.wait_idle()
    assert (table.version(), table.ids()) == (0, [1])
    assert clients.server.dead_letters()["dead_letters"] == []


@pytest.mark.parametrize("version", [0, 2, 9, 10**18])
def test_a_version_that_cannot_follow(table, version):
    """What exists is not created again, and from the future nothing comes."""
    proposal = table.hand_made_append(2, version=version)
    verdict = table.verdict(table.put_staged(proposal))
    assert verdict["status"] == "rejected", json.dumps(verdict)
    assert verdict["reason"] and verdict["advice"], json.dumps(verdict)
    assert table.ids() == [1]


@pytest.mark.parametrize("name", ["a b", "ä/ö", "plus+", "dots..in", "-"])
def test_tables_with_odd_names(clients, unique, name):
    table = Delta(clients, f"{unique}/{name}")
    table.write(rows(1))
    verdict = table.verdict(table.put_staged(table.hand_made_append(2)))
    assert verdict["status"] == "committed", json.dumps(verdict)
    assert table.ids() == [1, 2]

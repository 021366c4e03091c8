"""Several changes that all read one version, made by real engines, staged in any order. Whatever is admitted, the table must look
as if the admitted ones had been made one after the other: in the order of their versions where the table is serializable, in some
order where blind appends may stand before what did not see them.
"""

import itertools
import random

import pytest
from lakewarden.errors import NothingCommitted

from changes import BASE, Append, Delete, Optimize, Overwrite, OverwriteDay, Raise, create, fork

RUNS = 5
CHANGES = 5

PREDICATES = [
    ("id = 1", lambda n, dt: n == 1),
    ("id <= 3", lambda n, dt: n <= 3),
    ("id > 2 AND id < 12", lambda n, dt: 2 < n < 12),
    ("id IN (3, 13)", lambda n, dt: n in (3, 13)),
    ("dt = 'a'", lambda n, dt: dt == "a"),
    ("dt = 'b' AND id <> 12", lambda n, dt: dt == "b" and n != 12),
    ("dt = 'b' OR id = 2", lambda n, dt: dt == "b" or n == 2),
    ("NOT (id < 12)", lambda n, dt: not n < 12),
    ("id > 150", lambda n, dt: n > 150),
    ("dt = 'c'", lambda n, dt: dt == "c"),
]


def any_change(chance, number):
    day = chance.choice("abc")
    kind = chance.choice([Append, Append, Delete, Delete, Raise, Raise, Overwrite, OverwriteDay, Optimize])
    if kind is Optimize:
        return Optimize()
    if kind in (Delete, Raise):
        return kind(*chance.choice(PREDICATES))
    return kind(100 + number, day)


def changes_of(seed, kind):
    chance = random.Random(f"{kind} {seed}")
    made = []
    for number in range(CHANGES):
        change = any_change(chance, 10 * number)
        made.append((change, chance.choice(["deltalake", "sail"] if change.sql else ["deltalake"])))
    return made, chance


def in_order(changes):
    table = dict(BASE)
    for change in changes:
        table = change.effect(table)
    return sorted(table)


def describe(change):
    return type(change).__name__, {name: value for name, value in vars(change).items() if name != "goes"}


@pytest.mark.parametrize("seed", range(RUNS))
@pytest.mark.parametrize("kind", ["plain", "by day", "vectors", "plain, serializable", "by day, serializable"])
def test_what_is_admitted_has_a_serial_order(clients, sail, unique, kind, seed):
    table = create(kind, clients, unique, sail)
    made, chance = changes_of(seed, kind)
    proposals = []
    for change, engine in made:
        try:
            proposals.append((fork(table, change, engine, sail), change))
        except NothingCommitted:
            # A change of no row makes no commit.
            pass
    chance.shuffle(proposals)
    for proposal, _ in proposals:
        table.put_staged(proposal)
    admitted, story = {}, []
    for proposal, change in proposals:
        verdict = table.verdict(proposal.id)
        story.append((describe(change), verdict["status"], verdict.get("version"), verdict.get("message")))
        if verdict["status"] == "committed":
            admitted[verdict["version"]] = change
    found = table.ids()
    assert found == sail.ask("read", uri=table.uri)["ids"]
    changes = [admitted[version] for version in sorted(admitted)]
    if "serializable" in kind:
        assert found == in_order(changes), story
    else:
        assert found in map(in_order, itertools.permutations(changes)), story

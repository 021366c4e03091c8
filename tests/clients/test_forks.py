"""Two engines write version R + 1 of one table, each in a copy of its own, and both commits are staged: `first` lands, and the
verdict on `second` is what the conflict matrix says, whichever engines they were.
"""

import itertools
import json

import pytest

from changes import BASE, Append, Delete, Optimize, Overwrite, OverwriteDay, Raise, SetProperty, create, fork

APPEND, DELETE_READ = "ConcurrentAppendException", "ConcurrentDeleteReadException"
DELETE_DELETE, METADATA = "ConcurrentDeleteDeleteException", "MetadataChangedException"
# Nothing left to do: no version and no failure.
SUPERSEDED = "superseded"


def changed_too(second, first):
    """The same row, which the winner gave another image: where both mark rows, the image is what should have been read; a
    file that one of them rewrote is gone."""
    return APPEND if second == first == "sail" else DELETE_READ


def row(number):
    return f"id = {number}", lambda found, _: found == number


def day(dt):
    return f"dt = '{dt}'", lambda _, found: found == dt


def first_file():
    return "id <= 3", lambda found, _: found <= 3


# Kind of table, second (judged), first (the winner), the second's refusal.
CASES = {
    "append, append": ("plain", Append(100), Append(200), None),
    "append, delete": ("plain", Append(100), Delete(*row(1)), None),
    "append, overwrite": ("plain", Append(100), Overwrite(200), None),
    "append, optimize": ("plain", Append(100), Optimize(), None),
    "append, properties": ("plain", Append(100), SetProperty(), METADATA),
    "delete, append": ("plain", Delete(*row(1)), Append(200), None),
    "delete, append of such a row, serializable": ("serializable", Delete("id < 5", lambda n, _: n < 5), Append(4), APPEND),
    "delete, append of another row, serializable": ("serializable", Delete("id < 5", lambda n, _: n < 5), Append(200), None),
    "delete, delete in another file": ("plain", Delete(*row(1)), Delete(*row(12)), None),
    "delete, delete in the same file": ("plain", Delete(*row(1)), Delete(*row(3)), APPEND),
    "delete, delete of the same rows": ("plain", Delete(*first_file()), Delete(*first_file()), DELETE_READ),
    "delete, update in the same file": ("plain", Delete(*row(1)), Raise(*row(3)), APPEND),
    "update, update in another file": ("plain", Raise(*row(1)), Raise(*row(12)), None),
    "update, update in the same file": ("plain", Raise(*row(2)), Raise(*row(3)), APPEND),
    "delete, optimize": ("plain", Delete(*row(1)), Optimize(), DELETE_READ),
    "optimize, append": ("plain", Optimize(), Append(200), None),
    "optimize, delete": ("plain", Optimize(), Delete(*row(1)), DELETE_READ),
    "optimize, optimize": ("plain", Optimize(), Optimize(), DELETE_DELETE),
    "overwrite, append": ("plain", Overwrite(100), Append(200), None),
    "overwrite, append, serializable": ("serializable", Overwrite(100), Append(200), APPEND),
    "overwrite, delete": ("plain", Overwrite(100), Delete(*row(1)), APPEND),
    "overwrite, overwrite": ("plain", Overwrite(100), Overwrite(200), APPEND),
    "delete of a day, append to it": ("by day", Delete(*day("a")), Append(200, "a"), None),
    "delete of a day, append to it, serializable": ("by day, serializable", Delete(*day("a")), Append(200, "a"), APPEND),
    "delete of a day, append to another, serializable": ("by day, serializable", Delete(*day("a")), Append(200, "b"), None),
    "delete of a day, delete of another": ("by day", Delete(*day("a")), Delete(*day("b")), None),
    "delete of a day, delete of the same": ("by day", Delete(*day("a")), Delete(*day("a")), DELETE_READ),
    "update in a day, update in another": ("by day", Raise(*day("a")), Raise(*day("b")), None),
    "overwrite of a day, append to another": ("by day", OverwriteDay(100, "a"), Append(200, "b"), None),
    "overwrite of a day, delete of another": ("by day", OverwriteDay(100, "a"), Delete(*day("b")), None),
    "overwrite of a day, delete of the same": ("by day", OverwriteDay(100, "a"), Delete(*day("a")), DELETE_READ),
    "with vectors: append, delete": ("vectors", Append(100), Delete(*row(1)), None),
    "with vectors: delete, append": ("vectors", Delete(*row(1)), Append(200), None),
    "with vectors: delete, delete in another file": ("vectors", Delete(*row(1)), Delete(*row(12)), None),
    "with vectors: update, update in another file": ("vectors", Raise(*row(1)), Raise(*row(12)), None),
    "with vectors: delete, delete of the same row": ("vectors", Delete(*row(2)), Delete(*row(2)), DELETE_READ),
    "with vectors: delete, update of the same row": ("vectors", Delete(*row(2)), Raise(*row(2)), changed_too),
    "with vectors: update, delete of the same row": ("vectors", Raise(*row(2)), Delete(*row(2)), DELETE_READ),
    "with vectors: delete, optimize": ("vectors", Delete(*row(1)), Optimize(), None),
    "with vectors: optimize, append": ("vectors", Optimize(), Append(200), None),
    "with vectors: optimize, delete": ("vectors", Optimize(), Delete(*row(1)), SUPERSEDED),
    "with vectors: optimize, optimize": ("vectors", Optimize(), Optimize(), SUPERSEDED),
}


def with_engines():
    cases = []
    for name, (_, second, first, _) in CASES.items():
        can = [["deltalake"] + ["sail"] * (change.sql is not None) for change in (second, first)]
        for pair in itertools.product(*can):
            cases.append(pytest.param(name, *pair, id=f"{name} ({pair[0]}, {pair[1]})"))
    return cases


@pytest.mark.parametrize("name, second_engine, first_engine", with_engines())
def test_both_wrote_the_same_version(clients, sail, unique, name, second_engine, first_engine):
    kind, second, first, refusal = CASES[name]
    refusal = refusal(second_engine, first_engine) if callable(refusal) else refusal
    table = create(kind, clients, unique, sail)
    read = table.version()
    proposals = [fork(table, first, first_engine, sail), fork(table, second, second_engine, sail)]
    landed, verdict = [table.verdict(table.put_staged(proposal)) for proposal in proposals]
    assert (landed["status"], landed.get("version")) == ("committed", read + 1), json.dumps(landed)
    expected = first.effect(BASE)
    if refusal is None:
        assert (verdict["status"], verdict.get("version")) == ("committed", read + 2), json.dumps(verdict)
        # A change that did not see a blind append comes before it.
        is_before = type(first) is Append and "serializable" not in kind
        expected = first.effect(second.effect(BASE)) if is_before else second.effect(expected)
    elif refusal == SUPERSEDED:
        assert verdict["status"] == SUPERSEDED, json.dumps(verdict)
    else:
        assert (verdict["status"], verdict["exception"]) == ("rejected", refusal), json.dumps(verdict)
        assert verdict["winner"]["version"] == read + 1, json.dumps(verdict)
        assert verdict["reason"] and verdict["advice"], json.dumps(verdict)
    assert table.ids() == sorted(expected)
    assert sail.ask("read", uri=table.uri)["ids"] == sorted(expected)

"""Two engines change one file of a table with deletion vectors, each in a copy of its own, and both commits are staged. What
becomes of them is read back by both engines.
"""

import itertools
import json

import pytest

from changes import BASE, Append, Delete, Optimize, Raise, create, fork

# Sail marks rows in deletion vectors, deltalake rewrites files and reads vectors.
ONE, TWO, THREE = [(f"id = {number}", lambda found, _, number=number: found == number) for number in (1, 2, 3)]
FEW = ("id <= 2", lambda found, _: found <= 2)
ELEVEN = ("id = 11", lambda found, _: found == 11)


@pytest.fixture
def table(clients, unique, sail):
    return create("vectors", clients, unique, sail)


def stage(table, *changes, sail):
    """The verdicts on changes that all read the same version, in their order. Each is (change, engine)."""
    proposals = [fork(table, change, engine, sail) for change, engine in changes]
    return [table.verdict(table.put_staged(proposal)) for proposal in proposals]


def check(table, sail, expected):
    """Both engines read the same."""
    assert table.ids() == sorted(expected)
    assert sail.ask("read", uri=table.uri)["ids"] == sorted(expected)


def effect(changes, found=BASE):
    for change in changes:
        found = change.effect(found)
    return found


DISJOINT = {
    "delete, delete": (Delete(*ONE), Delete(*THREE)),
    "delete, update": (Delete(*ONE), Raise(*THREE)),
    "update, delete": (Raise(*TWO), Delete(*THREE)),
    "update, update": (Raise(*TWO), Raise(*THREE)),
    "update of several, delete": (Raise(*FEW), Delete(*THREE)),
}


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", DISJOINT)
def test_different_rows_of_one_file(sail, table, name, turned):
    changes = DISJOINT[name][:: -1 if turned else 1]
    read = table.version()
    verdicts = stage(table, *[(change, "sail") for change in changes], sail=sail)
    found = [(verdict["status"], verdict.get("version")) for verdict in verdicts]
    assert found == [("committed", read + 1), ("committed", read + 2)], json.dumps(verdicts)
    check(table, sail, effect(changes))


def test_three_changes_of_one_file_in_every_order(clients, unique, sail):
    changes = [Delete(*ONE), Raise(*TWO), Raise(*THREE)]
    for number, order in enumerate(itertools.permutations(changes)):
        table = create("vectors", clients, f"{unique}o{number}", sail)
        verdicts = stage(table, *[(change, "sail") for change in order], sail=sail)
        assert [verdict["status"] for verdict in verdicts] == ["committed"] * 3, json.dumps(verdicts)
        check(table, sail, effect(order))


@pytest.mark.parametrize(
    "first, second, exception",
    [
        (Delete(*TWO), Delete(*TWO), "ConcurrentDeleteReadException"),
        (Delete(*FEW), Raise(*TWO), "ConcurrentDeleteReadException"),
        (Raise(*FEW), Delete(*TWO), "ConcurrentAppendException"),
        (Raise(*TWO), Raise(*FEW), "ConcurrentAppendException"),
    ],
)
def test_the_same_row(sail, table, first, second, exception):
    landed, verdict = stage(table, (first, "sail"), (second, "sail"), sail=sail)
    assert landed["status"] == "committed", json.dumps(landed)
    assert (verdict["status"], verdict["exception"], verdict["reason"]) == ("rejected", exception, "ROW_LEVEL_CHANGES")
    # Row 1 of the file is id 2.
    assert [(rows["count"], rows["sample"]) for rows in verdict["same_rows"]] == [(1, [1])], json.dumps(verdict)
    check(table, sail, effect([first]))


def test_engines_go_on_from_merged_vectors(sail, table):
    verdicts = stage(table, (Delete(*ONE), "sail"), (Raise(*THREE), "sail"), sail=sail)
    assert [verdict["status"] for verdict in verdicts] == ["committed"] * 2, json.dumps(verdicts)
    found = effect([Delete(*ONE), Raise(*THREE)])
    for change, engine in [(Delete(*TWO), "sail"), (Append(500), "deltalake"), (Raise(*ELEVEN), "deltalake"), (Optimize(), "deltalake")]:
        verdict = stage(table, (change, engine), sail=sail)[0]
        assert verdict["status"] == "committed", json.dumps(verdict)
        found = change.effect(found)
        check(table, sail, found)


@pytest.mark.parametrize("change", [Delete(*ONE), Raise(*TWO)], ids=["delete", "update"])
@pytest.mark.parametrize("engine", ["sail", "deltalake"])
def test_a_change_after_files_were_put_together(sail, table, change, engine):
    """What the rearrangement did to the changed file is taken back."""
    read = table.version()
    verdicts = stage(table, (Optimize(), "deltalake"), (change, engine), sail=sail)
    assert [verdict.get("version") for verdict in verdicts] == [read + 1, read + 2], json.dumps(verdicts)
    check(table, sail, effect([change]))


@pytest.mark.parametrize("engine", ["sail", "deltalake"])
def test_files_put_together_after_a_change(sail, table, engine):
    landed, verdict = stage(table, (Delete(*ONE), engine), (Optimize(), "deltalake"), sail=sail)
    assert (landed["status"], verdict["status"]) == ("committed", "superseded"), json.dumps([landed, verdict])
    assert "exception" not in verdict and verdict["reason"] == "SAME_FILE", json.dumps(verdict)
    check(table, sail, effect([Delete(*ONE)]))


@pytest.mark.parametrize(
    "first, second, exception",
    [
        # The rewritten file holds the row that the second one looked for.
        ((Delete(*ONE), "deltalake"), (Delete(*THREE), "sail"), "ConcurrentAppendException"),
        ((Delete(*THREE), "sail"), (Delete(*ONE), "deltalake"), "ConcurrentDeleteReadException"),
    ],
    ids=["rewritten first", "rewritten second"],
)
def test_rows_of_a_file_that_one_engine_rewrites(sail, table, first, second, exception):
    landed, verdict = stage(table, first, second, sail=sail)
    assert landed["status"] == "committed", json.dumps(landed)
    assert (verdict["status"], verdict["exception"]) == ("rejected", exception), json.dumps(verdict)
    check(table, sail, effect([first[0]]))


def test_changes_of_different_files_by_both_engines(sail, table):
    verdicts = stage(table, (Delete(*ELEVEN), "deltalake"), (Raise(*TWO), "sail"), (Delete(*ONE), "sail"), sail=sail)
    assert [verdict["status"] for verdict in verdicts] == ["committed"] * 3, json.dumps(verdicts)
    check(table, sail, effect([Delete(*ELEVEN), Raise(*TWO), Delete(*ONE)]))


def test_a_broken_vector_refuses_the_commit(clients, sail, table):
    proposals = [fork(table, change, "sail", sail) for change in (Delete(*ONE), Delete(*THREE))]
    before = {key for key in table.objects() if key.endswith(".bin")}
    assert len(before) == 2
    for key in before:
        body = bytearray(clients.s3.get_object(Bucket="lake", Key=key)["Body"].read())
        body[-1] ^= 1
        clients.s3.put_object(Bucket="lake", Key=key, Body=bytes(body))
    verdict = table.verdict(table.put_staged(proposals[0]))
    assert (verdict["status"], verdict["reason"]) == ("rejected", "DELETION_VECTOR_CHECKSUM"), json.dumps(verdict)
    check(table, sail, BASE)


@pytest.mark.parametrize("flag", [None, True, False])
@pytest.mark.parametrize("second", [THREE, ELEVEN], ids=["one file", "two files"])
def test_write_skew_is_refused_whatever_the_writer_says(sail, table, second, flag):
    """Each reads rows that the other one changes, and changes another one."""
    reads = {"v": 1, "predicates": [{"op": "in", "col": "id", "values": [1, 3, 11]}]}
    if flag is not None:
        reads["matchedEqualsWritten"] = flag
    proposals = [fork(table, Delete(*rows), "sail", sail) for rows in (ONE, second)]
    for proposal in proposals:
        proposal.commit_info()["readSet"] = reads
    landed, verdict = [table.verdict(table.put_staged(proposal)) for proposal in proposals]
    assert landed["status"] == "committed", json.dumps(landed)
    assert (verdict["status"], verdict["exception"]) == ("rejected", "ConcurrentDeleteReadException"), json.dumps(verdict)
    check(table, sail, effect([Delete(*ONE)]))


@pytest.mark.parametrize("second", [Delete(*THREE), Raise(*ELEVEN)], ids=["the same file", "another file"])
def test_changes_after_one_that_took_back_what_was_put_together(sail, table, second):
    read = table.version()
    changes = [(Optimize(), "deltalake"), (Delete(*ONE), "sail"), (second, "sail")]
    verdicts = stage(table, *changes, sail=sail)
    assert [verdict.get("version") for verdict in verdicts] == [read + 1, read + 2, read + 3], json.dumps(verdicts)
    check(table, sail, effect([Delete(*ONE), second]))


def test_a_vector_of_another_version_refuses_the_commit(clients, sail, table):
    proposal = fork(table, Delete(*ONE), "sail", sail)
    key = next(key for key in table.objects() if key.endswith(".bin"))
    body = bytearray(clients.s3.get_object(Bucket="lake", Key=key)["Body"].read())
    body[0] = 2
    clients.s3.put_object(Bucket="lake", Key=key, Body=bytes(body))
    verdict = table.verdict(table.put_staged(proposal))
    assert (verdict["status"], verdict["reason"]) == ("rejected", "DELETION_VECTOR_FILE_VERSION"), json.dumps(verdict)
    check(table, sail, BASE)

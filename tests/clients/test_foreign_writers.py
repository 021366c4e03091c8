"""Others who write to the same table: deltalake 1.6.6 (conditional put), deltalake 1.6.0 and Spark (lock table), between
each other and between staged commits.

A script is a row of moves. `a2` takes two steps of Spark session a's append, `a` takes all that are left of it, `a!` kills the
session; `direct`, `lock` and `staged` are whole appends of deltalake 1.6.6, of deltalake 1.6.0, and of Lakewarden; `stage` stages
an append and does not wait.
"""

import random
import re
import threading

import pytest
from botocore.exceptions import BotoCoreError, ClientError

import engines
import lakewarden_server
from conftest import LAKE, LOCK_TABLE, Clients
from delta import Delta
from lakewarden_server import Server
from log_store import Write, file_name
from scene import SPELLINGS, Scene

STEPS = len(Write.STEPS)
RANDOM_RUNS = 8
RANDOM_MOVES = 24

# Spark sessions share one spelling with deltalake 1.6.0 here: two that do not see each other's entries lose commits among
# themselves, which is shown below.
RECORDED = {
    "one after the other": "lock a staged direct b staged lock",
    "staged between looking and claiming": "a1 staged a staged",
    "staged between the temporary file and the claim": "a3 staged a staged",
    "staged finishes what is claimed": "a4 staged a staged",
    "staged completes what is copied": "a5 staged a staged",
    "two sessions and staged": "a3 b3 staged a b staged",
    "both claim one after the other, staged between": "a4 staged b4 staged a b",
    "a put between looking and claiming": "a1 direct a staged",
    "a put over a claim": "a4 direct a staged lock",
    "a put over a claim, seen by another session first": "a4 direct b staged a",
    "two puts over a claim": "a4 direct direct staged lock a",
    "an old deltalake that is stuck goes on after staged": "a5 lock staged lock a",
    "staged in a burst": "a2 stage stage direct stage a stage lock staged",
}


def play(scene, script):
    for move in script.split():
        whole = re.fullmatch(r"([a-d])(\d*|!)", move)
        if whole is None:
            {"direct": scene.direct, "lock": scene.lock, "staged": scene.append_staged, "stage": scene.stage}[move]()
            continue
        session = scene.session(whole[1])
        if whole[2] == "!":
            session.die()
        else:
            session.go(int(whole[2]) if whole[2] else None)


class World:
    """A server whose clock is moved, and engines that talk to it."""

    def __init__(self, folder):
        self.server = Server(folder).start()
        try:
            self.clients = Clients(self.server)
            self.lock_engine = engines.deltalake_1_6_0(self.server, LOCK_TABLE)
            self.sail = engines.sail(self.server)
        except BaseException:
            self.server.kill()
            raise

    def close(self):
        self.lock_engine.close()
        self.sail.close()
        assert self.server.stop() == 0, self.server.tail()


@pytest.fixture(scope="module")
def world(binary, tmp_path_factory):
    world = World(tmp_path_factory.mktemp("world"))
    yield world
    world.close()


@pytest.fixture
def scene(world, unique):
    return Scene(world.clients, unique, LOCK_TABLE, world.lock_engine, world.sail).create()


@pytest.mark.parametrize("script", RECORDED.values(), ids=RECORDED.keys())
def test_everybody_ends_with_what_he_was_told(scene, script):
    play(scene, script)
    scene.settle()
    # A slow session may have claimed a version that others had gone past.
    scene.keep_house()
    scene.check()


@pytest.mark.parametrize("seed", range(RANDOM_RUNS))
def test_in_any_order(scene, seed):
    """What a seed does is fixed, but for the order of events."""
    chance = random.Random(seed)
    moves = ["a1", "a2", "b1", "b2", "c1", "c3", "direct", "lock", "staged", "stage", "stage"]
    play(scene, " ".join(chance.choice(moves) for _ in range(RANDOM_MOVES)))
    scene.settle()
    scene.keep_house()
    scene.check()


@pytest.mark.parametrize("follower", ["staged", "direct", "lock", "b"])
@pytest.mark.parametrize("steps", range(1, STEPS))
def test_a_session_that_dies_after_any_step(scene, steps, follower):
    """Whoever comes next: a claim becomes a commit, and what was not claimed never happened."""
    play(scene, f"lock a{steps} a! {follower}")
    scene.settle()
    scene.keep_house()
    scene.check()


@pytest.mark.parametrize("steps", range(1, STEPS))
def test_two_sessions_that_do_not_see_each_other(scene, steps):
    """Two spellings of one path are two lock tables for Spark. Our claims stand in both."""
    one, other = scene.session("a", "s3"), scene.session("b", "s3a")
    one.go(steps)
    other.go(steps)
    scene.append_staged()
    one.go()
    other.go()
    scene.settle()
    scene.keep_house()
    scene.check()


def test_our_versions_have_entries_under_both_spellings(scene):
    play(scene, "lock staged staged a staged")
    for version in (2, 3, 5):
        entries = scene.entries_of(version)
        assert all(entry is not None for entry in entries), f"version {version}: {entries}"
        assert [entry["complete"] for entry in entries] == ["true", "true"]
        assert all(int(entry["expireTime"]) > 0 for entry in entries)
        assert len({entry["tempPath"] for entry in entries}) == 1
    scene.check()


# What deltalake 1.6.0 writes encoded, and Hadoop does not.
ODD_PATHS = ["sp ace", "ä/日", 'a"<>`{}']


@pytest.mark.parametrize("path", ODD_PATHS)
@pytest.mark.parametrize(
    "script",
    [
        "lock staged staged lock direct staged lock",
        "staged a4 a! lock staged lock",
        "lock a4 direct lock staged a lock staged",
        "lock a5 lock staged a lock staged",
    ],
)
def test_paths_that_need_encoding(world, unique, path, script):
    """Spark claims under the path as it is, deltalake 1.6.0 under the encoded one: each finds our entries, and we find
    theirs."""
    scene = Scene(world.clients, f"{unique}/{path}", LOCK_TABLE, world.lock_engine).create()
    scene.session("a", "s3a")
    play(scene, script)
    scene.settle()
    scene.keep_house()
    assert scene.lock(), "deltalake 1.6.0 is not stuck"
    scene.check()


@pytest.mark.parametrize("path", ODD_PATHS)
def test_our_versions_have_entries_under_every_spelling(world, unique, path):
    scene = Scene(world.clients, f"{unique}/{path}", LOCK_TABLE, world.lock_engine).create()
    play(scene, "lock staged lock staged")
    its = [store.path for store in scene.stores() if store.entry(1) is not None]
    assert its == [scene.stores()[2].path], "what the other one writes"
    for version in (2, 4):
        entries = scene.entries_of(version)
        assert len(entries) == 4
        assert all(entry is not None and entry["complete"] == "true" for entry in entries), f"version {version}: {entries}"
        assert len({entry["tempPath"] for entry in entries}) == 1
    scene.check()


@pytest.mark.parametrize("odd", [{"complete": {"BOOL": False}}, {"complete": {"S": "maybe"}}, {"tempPath": None}])
def test_an_item_that_is_no_entry_stops_the_table_by_name(scene, odd):
    play(scene, "lock staged")
    key = scene.stores()[1].key(3)
    item = {"complete": {"S": "false"}, "tempPath": {"S": "x"}} | odd
    item = key | {name: value for name, value in item.items() if value is not None}
    scene.clients.dynamodb.put_item(TableName=LOCK_TABLE, Item=item)
    proposal = scene.table.hand_made_append(50)
    verdict = scene.table.verdict(scene.table.put_staged(proposal))
    assert (verdict["status"], verdict["reason"]) == ("rejected", "LOG_STORE_ITEM_UNREADABLE"), verdict
    (alarm,) = scene.alarms()
    assert (alarm["kind"], alarm["version"]) == ("LOG_STORE_ITEM_UNREADABLE", 3), alarm
    scene.clients.dynamodb.delete_item(TableName=LOCK_TABLE, Key=key)
    scene.settle()
    scene.check()


def test_a_table_that_nobody_shares_has_no_entries(scene):
    play(scene, "staged direct staged")
    assert all(scene.entries_of(version) == [None] * len(SPELLINGS) for version in range(4))
    scene.check()


def test_a_temporary_file_that_we_name_is_never_the_staged_object(scene):
    """deltalake 1.6.0 moves away what an entry names."""
    play(scene, "lock staged")
    for entry in scene.entries_of(2):
        assert "_staged_commits" not in entry["tempPath"], entry


# What is told


def test_a_commit_that_was_overtaken_is_named(scene):
    """Nobody commits afterwards: the hourly look finds it."""
    play(scene, "lock staged a1 direct a")
    scene.keep_house()
    (alarm,) = scene.alarms()
    assert (alarm["kind"], alarm["version"]) == ("COMMIT_OVERTAKEN", 3), alarm
    assert scene.table.verdict(alarm["proposal_id"])["status"] == "committed"
    scene.check()


def test_an_entry_whose_bytes_are_gone_stops_the_table_by_name(scene):
    play(scene, "lock staged a4 a!")
    store = scene.session("a").store
    (entry,) = [entry for entry in store.entries() if entry["complete"] == "false"]
    bytes_key = store.log + entry["tempPath"]
    scene.clients.s3.delete_object(Bucket=LAKE, Key=bytes_key)
    scene.claimed.clear()
    proposal = scene.table.hand_made_append(50)
    verdict = scene.table.verdict(scene.table.put_staged(proposal))
    assert (verdict["status"], verdict["reason"]) == ("rejected", "LOG_STORE_BYTES_MISSING"), verdict
    (alarm,) = scene.alarms()
    assert (alarm["kind"], alarm["version"]) == ("LOG_STORE_BYTES_MISSING", 3), alarm
    scene.clients.dynamodb.delete_item(TableName=LOCK_TABLE, Key=store.key(3))
    scene.settle()
    scene.check()


def test_a_version_that_is_put_late_is_told(scene):
    """A put without a condition, such as one that woke up long after its writer was given up."""
    play(scene, "staged direct staged")
    for version in (1, 2):
        key = f"{scene.table.prefix}/_delta_log/{file_name(version)}"
        written = scene.clients.s3.get_object(Bucket=LAKE, Key=key)["Body"].read()
        late = scene.table.hand_made_append(60 + version, version=version).body()
        scene.clients.s3.put_object(Bucket=LAKE, Key=key, Body=late)
        scene.clients.server.wait_idle()
        told = [alarm for alarm in scene.alarms() if alarm["version"] == version]
        assert [alarm["kind"] for alarm in told] == ["VERSION_REWRITTEN"], told
        scene.clients.s3.put_object(Bucket=LAKE, Key=key, Body=written)
    scene.settle()
    scene.check()


# A power cut


@pytest.mark.parametrize("seed", range(2))
def test_a_power_cut_during_a_burst_loses_nothing(binary, tmp_path, seed):
    """The process ends while commits are staged, judged and published; started again, it ends what it had begun, and old and
    new writers go on."""
    chance = random.Random(seed)
    folder = tmp_path / "server"
    server = Server(folder, data_dir=tmp_path / "data").start()
    scene = Scene(Clients(server), "cut", LOCK_TABLE).create()
    engine = engines.deltalake_1_6_0(server, LOCK_TABLE)
    try:
        engine.ask("write", uri=scene.table.uri, ids=[next(scene.ids)])
        scene.acknowledged.add(2)
    finally:
        engine.close()
    proposals = {}
    for number in range(100, 130):
        proposals[number] = scene.table.hand_made_append(number, version=2)
    uploaded, told = set(), set()
    begun = threading.Event()

    def upload(own, mine):
        table = Delta(own, "cut")
        for number in mine:
            try:
                table.put_staged(proposals[number])
            except (BotoCoreError, ClientError):
                return
            uploaded.add(number)
            begun.set()

    threads = [threading.Thread(target=upload, args=(Clients(server), range(100 + part, 130, 3))) for part in range(3)]
    for thread in threads:
        thread.start()
    assert begun.wait(60)
    wanted = chance.randrange(1, 8)
    while len(told) < wanted:
        for number in sorted(uploaded - told):
            answer = server.request("GET", f"/v1/commits/{proposals[number].id}")
            if answer.status_code == 200 and answer.json().get("final"):
                assert answer.json()["status"] == "committed", answer.text
                told.add(number)
    server.kill()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()

    server = Server(folder, data_dir=tmp_path / "data").start()
    engine = engines.deltalake_1_6_0(server, LOCK_TABLE)
    try:
        scene.clients = Clients(server)
        scene.table = Delta(scene.clients, "cut")
        scene.lock_engine = engine
        lakewarden_server.wait_until(lambda: told <= set(scene.table.ids()), "what was told is there")
        # Uploads of which nobody knows whether they arrived.
        for number in set(proposals) - uploaded:
            scene.table.put_staged(proposals[number])
        scene.acknowledged |= set(proposals)
        for proposal in proposals.values():
            verdict = scene.table.verdict(proposal.id)
            assert verdict["status"] == "committed", verdict
        play(scene, "lock a direct staged")
        scene.settle()
        scene.check()
    finally:
        engine.close()
        assert server.stop() == 0

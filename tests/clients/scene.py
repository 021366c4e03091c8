"""One table with everybody who writes to it, and what each of them was told."""

import itertools
import json
from urllib.parse import quote

from delta import Delta, rows
from engines import EngineError
from log_store import LogStore, VersionTaken, file_name

SPELLINGS = ("s3", "s3a")
# What deltalake leaves as it is in the path of a table.
NOT_ENCODED = "/~!$&'()*+,;=:@"


class Session:
    """A Spark session that makes appends, one after the other, step by step."""

    def __init__(self, scene, scheme):
        self.scene = scene
        self.store = LogStore(scene.clients, scene.table.prefix, scene.lock_table, scheme)
        self.write = self.id = self.body = None

    def go(self, steps=None):
        """So many steps of an append, or all that are left of it. A version that is taken costs the steps again."""
        while self.write is None or not self.write.is_finished:
            if steps == 0:
                return
            if self.write is None:
                self.begin()
            try:
                self.write.step()
            except VersionTaken:
                self.write = self.store.write(self.store.latest() + 1, self.body)
            steps = steps and steps - 1
        self.scene.acknowledged.add(self.id)
        self.write = None

    def begin(self):
        self.id = next(self.scene.ids)
        self.body = self.scene.table.hand_made_append(self.id, version=0).body()
        self.write = self.store.write(self.store.latest() + 1, self.body)

    def die(self):
        """The process is gone. What it had claimed is a commit, for everybody who knows of entries."""
        if self.write is not None:
            (self.scene.claimed if self.write.is_acknowledged else self.scene.given_up).add(self.id)
        self.write = None


class Scene:
    def __init__(self, clients, name, lock_table, lock_engine=None, sail=None):
        self.clients, self.lock_table = clients, lock_table
        self.lock_engine, self.sail = lock_engine, sail
        self.table = Delta(clients, name)
        self.ids = itertools.count(1)
        # Ids by what their writers know: told that they are in; claimed by one who died; begun and not claimed; unknown.
        self.acknowledged, self.claimed, self.given_up, self.unknown = set(), set(), set(), set()
        self.staged = {}
        self.sessions = {}

    # Who writes

    def create(self):
        first = next(self.ids)
        self.table.write(rows(first))
        self.acknowledged.add(first)
        return self

    def session(self, name, scheme="s3"):
        if name not in self.sessions:
            self.sessions[name] = Session(self, scheme)
        return self.sessions[name]

    def direct(self):
        """An append by deltalake 1.6.6, which puts the version if it is absent."""
        number = next(self.ids)
        self.table.write(rows(number), mode="append")
        self.acknowledged.add(number)

    def lock(self):
        """An append by deltalake 1.6.0. It can be stuck behind what others left, and then says so."""
        number = next(self.ids)
        try:
            self.lock_engine.ask("write", uri=self.table.uri, ids=[number])
        except EngineError:
            self.unknown.add(number)
            return False
        self.acknowledged.add(number)
        return True

    def stage(self):
        """Stages an append; the verdict comes when it comes."""
        number = next(self.ids)
        proposal = self.table.hand_made_append(number)
        self.staged[self.table.put_staged(proposal)] = number
        return proposal.id

    def append_staged(self):
        """Stages an append and waits for its verdict."""
        proposal_id = self.stage()
        self.await_verdict(proposal_id)
        return proposal_id

    def await_verdict(self, proposal_id):
        verdict = self.table.verdict(proposal_id)
        assert verdict["status"] == "committed", verdict
        self.acknowledged.add(self.staged.pop(proposal_id))
        return verdict

    # What must hold

    def settle(self):
        """Everybody who is alive ends, and Lakewarden looks at the table once more."""
        for session in self.sessions.values():
            if session.write is not None:
                session.go()
        for proposal_id in list(self.staged):
            self.await_verdict(proposal_id)
        self.append_staged()
        self.clients.server.wait_idle()
        # What was overtaken has been proposed again; that is looked after as well.
        self.append_staged()
        self.clients.server.wait_idle()

    def keep_house(self):
        """What is done once an hour, now."""
        self.clients.server.advance_clock("61m")
        self.clients.server.wait_idle()

    def alarms(self):
        return self.clients.server.ok("GET", f"/v1/commits/alarms?location={self.table.uri}")["alarms"]

    def check(self):
        self.check_log()
        self.check_entries()
        self.check_contents()

    def check_log(self):
        found = self.table.log()
        assert found == list(range(len(found))), f"the log has gaps: {found}"

    def check_contents(self):
        """Every reader finds what was acknowledged, once; and what was claimed, or said to be lost."""
        found = self.table.ids()
        assert len(found) == len(set(found)), f"rows twice: {found}"
        missing = self.acknowledged - set(found)
        assert not missing, f"acknowledged and gone: {missing}; {self.explain(missing)}"
        lost = self.claimed - set(found)
        assert not lost, f"claimed, and neither finished nor proposed again: {lost}; {self.explain(lost)}"
        beyond = set(found) - self.acknowledged - self.claimed - self.unknown
        assert not beyond, f"nobody committed {beyond}; {self.explain(beyond)}"
        for engine in filter(None, (self.lock_engine, self.sail)):
            assert engine.ask("read", uri=self.table.uri)["ids"] == found

    def stores(self):
        """Sessions that look at the table under every spelling of its path."""
        paths = dict.fromkeys((self.table.prefix, quote(self.table.prefix, safe=NOT_ENCODED)))
        return [
            LogStore(self.clients, self.table.prefix, self.lock_table, scheme, path)
            for path in paths
            for scheme in SPELLINGS
        ]

    def check_entries(self):
        """No entry stays incomplete once its version is there."""
        for store in self.stores():
            left = [entry for entry in store.entries() if entry["complete"] != "true" and store.exists(entry["fileName"])]
            assert not left, f"left incomplete: {left}"

    def entries_of(self, version):
        """The entries of a version under every spelling; None where there is none."""
        return [store.entry(version) for store in self.stores()]

    def explain(self, ids):
        """For whoever reads a failure: the log, version by version, and the entries."""
        lines = [f"looked for {ids}"]
        store = LogStore(self.clients, self.table.prefix, self.lock_table)
        for version in self.table.log():
            actions = [json.loads(line) for line in store.read(file_name(version)).splitlines()]
            engine = [action["commitInfo"].get("engineInfo") for action in actions if "commitInfo" in action]
            adds = [json.loads(action["add"]["stats"])["minValues"].get("id") for action in actions if "add" in action]
            lines.append(f"  {version}: {engine} {adds}")
        for store in self.stores():
            lines += [f"  {entry}" for entry in store.entries()]
        return "\n".join(lines)

"""S3 promises its events at least once, in no order, and late. Whatever comes: one proposal, one verdict, one version."""

import itertools
import json
import random
import urllib.parse

import pytest

from conftest import LAKE
from delta import Delta, rows


@pytest.fixture
def table(clients, unique):
    table = Delta(clients, unique)
    table.write(rows(1))
    return table


class Door:
    """The queue that the commit validator reads, as S3's notifications and EventBridge fill it."""

    def __init__(self, clients):
        self.clients = clients
        self.sqs = clients.boto("sqs")
        self.url = clients.server.ok("GET", "/local/endpoints")["queues"]["commits"]

    def s3_record(self, key, etag=None, time="2026-11-30T00:00:00.000Z", name="ObjectCreated:Put"):
        described = {"key": urllib.parse.quote_plus(key)} | ({"eTag": etag} if etag else {})
        return {
            "eventVersion": "2.1",
            "eventSource": "aws:s3",
            "eventName": name,
            "eventTime": time,
            "s3": {"bucket": {"name": LAKE}, "object": described},
        }

    def bridge_event(self, key, etag=None, time="2026-11-30T00:00:00Z"):
        described = {"key": key} | ({"etag": etag} if etag else {})
        detail = {"bucket": {"name": LAKE}, "object": described}
        return {"source": "aws.s3", "detail-type": "Object Created", "time": time, "detail": detail}

    def send(self, *bodies):
        for number, body in enumerate(bodies):
            text = body if isinstance(body, str) else json.dumps(body)
            self.sqs.send_message(QueueUrl=self.url, MessageBody=text)

    def records(self, *records):
        return {"Records": list(records)}


@pytest.fixture
def door(clients):
    return Door(clients)


def staged(table, *ids):
    """Appends that all propose version 1, uploaded while nobody listens."""
    proposals = [table.hand_made_append(number, version=1) for number in ids]
    for proposal in proposals:
        table.put_staged(proposal)
    return proposals


def check(table, proposals, ids):
    verdicts = [table.verdict(proposal.id) for proposal in proposals]
    assert [verdict["status"] for verdict in verdicts] == ["committed"] * len(proposals), json.dumps(verdicts)
    assert sorted(verdict["version"] for verdict in verdicts) == list(range(1, len(proposals) + 1))
    table.clients.server.wait_idle()
    assert (table.version(), table.ids()) == (len(proposals), ids)
    return verdicts


def test_one_event_many_times_and_in_every_shape(table, door):
    (proposal,) = staged(table, 2)
    key = table.staged_key(proposal)
    etag = table.objects()[key][0].strip('"')
    shapes = [door.records(door.s3_record(key, etag)), door.bridge_event(key, etag), door.records(door.s3_record(key))]
    door.send(*itertools.chain.from_iterable(itertools.repeat(shapes, 4)))
    (first,) = check(table, [proposal], [1, 2])
    door.send(*shapes)
    table.clients.server.wait_idle()
    assert table.verdict(proposal.id) == first, "the first verdict stands"
    assert table.version() == 1


def test_a_batch_with_everything_in_it(table, door, clients):
    """Several tables, duplicates, other keys and what cannot be read, in the order of nobody."""
    other = Delta(clients, f"{table.prefix.rsplit('/', 1)[1]}-other")
    other.write(rows(1))
    clients.server.pause_events()
    try:
        here, there = staged(table, 2, 3, 4), staged(other, 5, 6)
        keys = [table.staged_key(proposal) for proposal in here] + [other.staged_key(proposal) for proposal in there]
        records = [door.s3_record(key) for key in keys * 2]
        records += [
            door.s3_record(f"{table.prefix}/_delta_log/{1:020}.json"),
            door.s3_record(keys[0], name="ObjectRemoved:Delete"),
            door.s3_record(f"{table.prefix}/_delta_log/_staged_commits/{1:020}.rubbish.json"),
            door.s3_record(table.staged_key(table.hand_made_append(9, version=1))),
        ]
        random.Random(7).shuffle(records)
        door.send(door.records(*records), door.records(*reversed(records)), {"Event": "s3:TestEvent", "Bucket": LAKE})
    finally:
        clients.server.resume_events()
    check(table, here, [1, 2, 3, 4])
    check(other, there, [1, 5, 6])


@pytest.mark.parametrize("seed", range(3))
def test_events_in_any_order_and_again(table, door, clients, seed):
    chance = random.Random(seed)
    clients.server.pause_events()
    try:
        proposals = staged(table, *range(2, 14))
        events = [door.bridge_event(table.staged_key(proposal), time=f"2026-11-30T00:00:{chance.randrange(60):02}Z")
                  for proposal in proposals for _ in range(chance.randrange(1, 4))]
        chance.shuffle(events)
        door.send(*events)
    finally:
        clients.server.resume_events()
    check(table, proposals, list(range(1, 14)))


def test_an_event_that_is_late_finds_the_table_as_it_is_now(table, clients):
    clients.server.pause_events()
    try:
        append = staged(table, 2)[0]
        delete = table.fork_delete("id = 1")
        table.put_staged(delete)
        for number in (3, 4, 5):
            table.write(rows(number), mode="append")
    finally:
        clients.server.resume_events()
    assert table.verdict(append.id)["status"] == "committed"
    assert table.verdict(delete.id)["final"]
    clients.server.wait_idle()
    assert set(table.ids()) >= {2, 3, 4, 5}
    assert table.version() == len(table.log()) - 1


def test_an_event_of_content_that_was_replaced_since(table, door, clients):
    """The event names the content that it is about; what lies there now has an event of its own."""
    clients.server.pause_events()
    try:
        (proposal,) = staged(table, 2)
        key = table.staged_key(proposal)
        old = table.objects()[key][0].strip('"')
        proposal.actions = table.hand_made_append(3, version=1).actions
        table.put_staged(proposal)
        door.send(door.bridge_event(key, old))
    finally:
        clients.server.resume_events()
    check(table, [proposal], [1, 3])


def test_an_event_whose_object_is_gone(table, door, clients):
    proposal = table.hand_made_append(2, version=1)
    door.send(door.bridge_event(table.staged_key(proposal), "0" * 32))
    clients.server.wait_idle()
    assert clients.server.request("GET", f"/v1/commits/{proposal.id}").status_code == 404
    assert table.version() == 0


def test_the_two_doors_together(table, server, clients):
    """Staged, and proposed by request with the same id: one commit."""
    clients.server.pause_events()
    try:
        (proposal,) = staged(table, 2)
        request = {"location": table.uri, "staged_key": f"_delta_log/_staged_commits/{proposal.name()}"}
        verdict = server.ok("POST", "/v1/commits", request)
        assert (verdict["status"], verdict["version"]) == ("committed", 1)
    finally:
        clients.server.resume_events()
    check(table, [proposal], [1, 2])

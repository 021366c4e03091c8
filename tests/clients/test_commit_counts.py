"""What appends ask of S3 and DynamoDB, as whole numbers: they do not depend on the machine."""

import pytest

from conftest import LOCK_TABLE
from delta import Delta, rows
from log_store import LogStore

# Of the file that is added: its footer, and with it its length.
GETS_PER_FILE = 1
STAGED = 1
# The version that is put has an event of its own, which is compared with the head and with what was recorded of it.
AUDIT = {"gets": 1, "batch_gets": 1}
# Whether the catalog has a table here that follows.
FOLLOWED = 1


@pytest.fixture
def table(own_clients, unique):
    """Known: this process has committed to it before. The catalog knows nothing of it."""
    table = Delta(own_clients, unique)
    table.write(rows(1))
    commit(table, 2)
    commit(table, 3)
    return table


def commit(table, number):
    verdict = table.verdict(table.put_staged(table.hand_made_append(number)))
    assert verdict["status"] == "committed", verdict
    table.clients.server.wait_idle()


def cost(server, action):
    """What an action asked for."""
    server.wait_idle()
    before = server.ok("GET", "/local/usage")
    action()
    server.wait_idle()
    after = server.ok("GET", "/local/usage")
    return {store: {name: after[store][name] - before[store][name] for name in after[store]} for store in after}


def asked(counts):
    """The kinds of requests that were made, how many of each."""
    units = ("items_read", "read_half_units", "write_units", "bytes_read", "bytes_written")
    return {name: count for name, count in counts.items() if count and name not in units}


def test_an_append_on_a_known_table(table):
    proposal = table.hand_made_append(4)
    counts = cost(table.clients.server, lambda: table.put_staged(proposal))
    assert table.version() == 3
    assert asked(counts["objects"]) == {"gets": STAGED + GETS_PER_FILE, "lists": 1, "puts": 1}
    # The table is remembered, so nothing of it is read: the claim, and the verdict with the completion.
    assert asked(counts["items"]) == {"queries": FOLLOWED, "transactions": 2} | AUDIT


@pytest.mark.parametrize("winners", [1, 5])
def test_every_winner_is_read_once(table, winners):
    proposal = table.hand_made_append(4)
    for number in range(winners):
        table.write(rows(10 + number), mode="append")
    counts = cost(table.clients.server, lambda: table.put_staged(proposal))
    assert table.version() == 3 + winners
    assert asked(counts["objects"]) == {"gets": STAGED + GETS_PER_FILE + winners, "lists": 1, "puts": 1}


def test_a_burst_wastes_no_attempt(table):
    """However its events fall into batches: each of them is claimed once and put once."""
    proposals = [table.hand_made_append(10 + number) for number in range(12)]
    counts = cost(table.clients.server, lambda: [table.put_staged(proposal) for proposal in proposals])
    assert table.version() == 2 + len(proposals)
    assert counts["objects"]["puts"] == len(proposals)
    assert counts["items"]["transactions"] == 2 * len(proposals)


def test_an_append_on_a_table_that_is_shared_with_a_log_store(table):
    """Its bytes are copied, since others may move away what an entry names."""
    clients = table.clients
    store = LogStore(clients, table.prefix, LOCK_TABLE)
    store.append(table.hand_made_append(4, version=0).body())
    commit(table, 5)
    commit(table, 6)
    proposal = table.hand_made_append(7)
    counts = cost(clients.server, lambda: table.put_staged(proposal))
    assert table.version() == 6
    assert asked(counts["objects"]) == {"gets": STAGED + GETS_PER_FILE, "lists": 1, "puts": 2}
    assert asked(counts["items"]) == {"queries": 2 + FOLLOWED, "transactions": 2} | AUDIT

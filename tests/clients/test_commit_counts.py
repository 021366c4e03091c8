"""What an uncontended append asks of S3 and DynamoDB, as whole numbers: they do not depend on the machine."""

import pytest

from delta import Delta, rows

# Of the file that is added: its footer, and with it its length.
GETS_PER_FILE = 1


@pytest.fixture
def table(own_clients, unique):
    """Known: Lakewarden has committed to it before. The catalog knows nothing of it."""
    table = Delta(own_clients, unique)
    table.write(rows(1))
    for number in (2, 3):
        assert table.verdict(table.put_staged(table.hand_made_append(number)))["status"] == "committed"
    own_clients.server.wait_idle()
    return table


def usage(server):
    return {store: dict(counts) for store, counts in server.ok("GET", "/local/usage").items()}


def cost(server, action):
    """What an action asked for, as far as anything was asked."""
    server.wait_idle()
    before = usage(server)
    action()
    server.wait_idle()
    after = usage(server)
    return {store: {name: after[store][name] - before[store][name] for name in after[store]} for store in after}


def asked(counts):
    """Requests only, without those that were not made."""
    units = ("items_read", "read_half_units", "write_units", "bytes_read", "bytes_written")
    return {name: count for name, count in counts.items() if count and name not in units}


def test_an_append_on_a_known_table(table):
    proposal = table.hand_made_append(4)
    counts = cost(table.clients.server, lambda: table.put_staged(proposal))
    print(counts)
    assert table.version() == 3
    assert asked(counts["objects"]) == {"gets": 1 + GETS_PER_FILE, "lists": 1, "puts": 1}
    assert asked(counts["items"]) == {"gets": 1, "transactions": 2}

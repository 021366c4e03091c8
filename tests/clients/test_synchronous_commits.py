"""Commits by a call that waits for the verdict: across a power cut, and the same proposal at once from several callers."""

import json
import threading
import time

import pytest
import requests

from conftest import Clients
from delta import Delta, rows


def call(server, table, proposal):
    """The final verdict on the proposal; a call that the server answers before there is one is asked about."""
    body = {"location": table.uri, "read_version": proposal.version - 1, "proposal_id": proposal.id, "actions": proposal.actions}
    answer = server.request("POST", "/v1/commits", body)
    verdict = answer.json()
    while not verdict.get("final"):
        assert answer.status_code in (200, 202), answer.text
        time.sleep(0.1)
        verdict = server.ok("GET", f"/v1/commits/{proposal.id}")
    return verdict


def adds(clients, table, path):
    """How many versions of the log add a file."""
    return sum(path in clients.s3.get_object(Bucket="lake", Key=key)["Body"].read().decode() for key in log_files(table))


def log_files(table):
    return [f"{table.prefix}/_delta_log/{version:020}.json" for version in table.log()]


@pytest.mark.parametrize("told_before_the_cut", [1, 4])
def test_a_power_cut_under_waiting_callers(servers, told_before_the_cut):
    server = servers()
    table = Delta(Clients(server), "cut")
    table.write(rows(1))
    proposals = [table.hand_made_append(100 + number, version=1) for number in range(16)]
    told, enough = {}, threading.Event()

    def work(mine):
        for proposal in mine:
            try:
                told[proposal.id] = call(server, table, proposal)
            except (requests.RequestException, ValueError):
                return
            if len(told) >= told_before_the_cut:
                enough.set()

    threads = [threading.Thread(target=work, args=(proposals[part::4],)) for part in range(4)]
    for thread in threads:
        thread.start()
    assert enough.wait(120)
    server.kill()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert len(told) < len(proposals), "the cut came too late to show anything"

    server = servers()
    clients = Clients(server)
    table = Delta(clients, "cut")
    # Every caller calls again, as one does that got no answer; those that were told something are told the same.
    for proposal in proposals:
        verdict = call(server, table, proposal)
        assert verdict["status"] == "committed", json.dumps(verdict)
        if proposal.id in told:
            assert verdict["version"] == told[proposal.id]["version"]
    assert table.ids() == [1] + [100 + number for number in range(16)]
    for proposal in proposals:
        assert adds(clients, table, proposal.added()[0]["path"]) == 1
    assert server.stop() == 0


def test_the_same_proposal_at_once_is_one_commit(servers):
    server = servers()
    clients = Clients(server)
    table = Delta(clients, "twice")
    table.write(rows(1))
    for number in range(3):
        proposal = table.hand_made_append(10 + number)
        verdicts, start = [], threading.Barrier(4)

        def work():
            start.wait()
            verdicts.append(call(server, table, proposal))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert [(one["status"], one["version"]) for one in verdicts] == [("committed", number + 1)] * 4
        assert adds(clients, table, proposal.added()[0]["path"]) == 1
    # By a call and by staging it, and the same id for something else.
    proposal = table.hand_made_append(20)
    staged = threading.Thread(target=table.put_staged, args=(proposal,))
    staged.start()
    body = {"location": table.uri, "read_version": proposal.version - 1, "proposal_id": proposal.id, "actions": proposal.actions}
    answer = server.request("POST", "/v1/commits", body)
    staged.join(60)
    # What is staged differs by spelling, so that one of the two may be the one that counts.
    assert answer.status_code < 500, answer.text
    server.wait_idle()
    assert table.ids() == [1, 10, 11, 12, 20]
    assert server.stop() == 0

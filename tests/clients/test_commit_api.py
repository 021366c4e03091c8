"""Commits over HTTP, as any client sends them: `requests`, and curl for what the README prints."""

import json
import shutil
import subprocess
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

from conftest import LAKE
from delta import Delta, rows
from lakewarden_server import wait_until

LIMIT_BYTES = 4 * 1024 * 1024
CURL = shutil.which("curl")


@pytest.fixture
def table(clients, unique):
    table = Delta(clients, unique)
    table.write(rows(1))
    return table


def post(server, path, body, **headers):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"content-type": "application/json"} | headers
    return requests.post(server.endpoints["gateway"] + path, data=data, headers=headers, timeout=60)


def request_of(table, proposal, **members):
    return {"location": table.uri, "read_version": proposal.version - 1, "proposal_id": proposal.id, "actions": proposal.actions} | members


def of_size(request, size):
    """The request as `size` bytes of JSON."""
    body = json.dumps(request | {"note": ""}).encode()
    return body.replace(b'"note": ""', b'"note": "' + b"x" * (size - len(body)) + b'"')


def test_a_commit_is_made_and_asked_for(server, table):
    proposal = table.fork_append(rows(2))
    verdict = post(server, "/v1/commits", request_of(table, proposal))
    assert (verdict.status_code, verdict.json()["status"], verdict.json()["version"]) == (200, "committed", 1)
    assert post(server, "/v1/commits", request_of(table, proposal)).json() == verdict.json()
    assert server.ok("GET", f"/v1/commits/{proposal.id}") == verdict.json()
    assert table.ids() == [1, 2]
    page = server.ok("GET", f"/v1/commits?location={table.uri}&limit=1")
    assert page["commits"] == [verdict.json()]


def test_tables_of_the_catalog_have_their_commits_beneath_them(server, clients, table, database):
    descriptor = {"Location": table.uri, "Columns": [{"Name": "id", "Type": "bigint"}]}
    clients.glue.create_table(DatabaseName=database, TableInput={"Name": "t", "StorageDescriptor": descriptor})
    path = f"/v1/databases/{database}/tables/t/commits"
    proposal = table.fork_append(rows(2))
    request = request_of(table, proposal)
    del request["location"]
    verdict = post(server, path, request)
    assert (verdict.status_code, verdict.json()["version"]) == (200, 1), verdict.text
    assert server.ok("GET", f"{path}/{proposal.id}") == verdict.json()
    assert server.ok("GET", path)["commits"][0] == verdict.json()
    assert post(server, path, request | {"location": table.uri}).status_code == 422
    assert post(server, f"/v1/databases/{database}/tables/none/commits", request).status_code == 404


def test_one_call_many_times_at_once_is_one_commit(server, table):
    proposal = table.fork_append(rows(2))
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: post(server, "/v1/commits", request_of(table, proposal)), range(8)))
    settled = [answer.json().get("version") for answer in answers if answer.status_code == 200]
    assert {answer.status_code for answer in answers} <= {200, 202} and set(settled) == {1}
    assert table.log() == [0, 1] and table.ids() == [1, 2]


def test_a_conflict_is_named(server, table):
    table.write(rows(2, 3), mode="append")
    first, second = table.fork_delete("id = 2"), table.fork_delete("id = 3")
    assert post(server, "/v1/commits", request_of(table, first)).status_code == 200
    refused = post(server, "/v1/commits", request_of(table, second))
    assert refused.status_code == 409
    assert refused.json()["exception"].startswith("Concurrent")
    assert refused.json()["winner"]["version"] == first.version


def test_a_call_that_does_not_wait_says_where_to_ask(server, table):
    proposal = table.fork_append(rows(2))
    taken = post(server, "/v1/commits", request_of(table, proposal), prefer="respond-async")
    # Its event may have been faster.
    assert taken.status_code in (200, 202)
    ask = taken.headers.get("location", f"/v1/commits/{proposal.id}")

    def final():
        found = server.ok("GET", ask)
        return found if found["final"] else None

    assert wait_until(final, "a verdict")["version"] == 1


@pytest.mark.parametrize("content_type", ["application/json", "application/octet-stream"])
def test_just_below_the_limit_a_commit_is_taken(server, table, content_type):
    proposal = table.fork_append(rows(2))
    body = of_size(request_of(table, proposal), LIMIT_BYTES)
    assert len(body) == LIMIT_BYTES
    answer = post(server, "/v1/commits", body, **{"content-type": content_type})
    assert (answer.status_code, answer.json()["version"]) == (200, 1)


# 4,404,019 bytes and above are more than 6 MB as base64: there the function is not reached.
@pytest.mark.parametrize(("size", "content_type"), [
    (LIMIT_BYTES + 1, "application/json"),
    (LIMIT_BYTES + 1, "application/octet-stream"),
    (6_200_000, "application/json"),
])
def test_just_above_the_limit_there_is_an_address_for_it(server, table, size, content_type):
    proposal = table.fork_append(rows(2))
    answer = post(server, "/v1/commits", of_size(request_of(table, proposal), size), **{"content-type": content_type})
    assert answer.status_code == 413
    offered = answer.json()
    assert offered["proposal_id"] == proposal.id, offered
    upload_and_finish(server, table, proposal, offered)


def upload_and_finish(server, table, proposal, offered):
    upload = offered["upload"]
    put = requests.put(upload["url"], data=proposal.body(), headers=upload["headers"], timeout=60)
    assert put.status_code == 200, put.text
    again = requests.put(upload["url"], data=b"{}\n", headers=upload["headers"], timeout=60)
    assert again.status_code == 412, "what was uploaded cannot be overwritten"
    bare = requests.put(upload["url"], data=b"{}\n", timeout=60)
    assert bare.status_code == 403, "nor without the condition"
    verdict = post(server, "/v1/commits", offered["then"]["body"])
    assert (verdict.status_code, verdict.json()["version"]) == (200, 1), verdict.text
    assert table.ids() == [1, 2]


def test_what_the_gateway_itself_refuses_is_uploaded_after_asking(server, table):
    proposal = table.fork_append(rows(2))
    answer = post(server, "/v1/commits", of_size(request_of(table, proposal), 7_000_000))
    assert answer.status_code == 413 and set(answer.json()) == {"message"}, "API Gateway's own words"
    offered = post(server, "/v1/commits/uploads", {"location": table.uri, "read_version": 0})
    assert offered.status_code == 200
    upload_and_finish(server, table, proposal, offered.json())


def test_a_commit_above_four_megabytes_becomes_a_version(server, table):
    """Real bytes, and more of them than a call takes."""
    proposal = table.fork_append(rows(2))
    proposal.actions.append({"txn": {"appId": "x" * 5_000_000, "version": 1}})
    offered = post(server, "/v1/commits/uploads", {"location": table.uri, "read_version": 0}).json()
    upload_and_finish(server, table, proposal, offered)
    log = table.clients.s3.head_object(Bucket=LAKE, Key=f"{table.prefix}/_delta_log/{1:020}.json")
    assert log["ContentLength"] > 5_000_000


@pytest.mark.skipif(CURL is None, reason="no curl on this machine")
def test_curl_is_enough(server, table, tmp_path):
    proposal = table.fork_append(rows(2))
    body = tmp_path / "commit.json"
    body.write_text(json.dumps(request_of(table, proposal, proposal_id=str(uuid.uuid4()))))
    url = server.endpoints["gateway"] + "/v1/commits"
    command = [CURL, "--silent", "--show-error", "--json", f"@{body}", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout)["version"] == 1, done.stdout


def visible(server, table):
    found = server.ok("GET", f"/v1/commits?location={table.uri}")["commits"]
    return {commit["version"]: commit for commit in found if commit["status"] == "already_visible"}


def test_what_is_written_straight_to_the_log_is_judged_afterwards_and_reported(server, table):
    assert post(server, "/v1/commits", request_of(table, table.fork_append(rows(2)))).status_code == 200
    table.write(rows(3), mode="append")
    seen = wait_until(lambda: visible(server, table).get(2), "the other writer's commit judged")
    assert (seen["final"], seen["operation"], seen.get("exception")) == (True, "WRITE", None)
    assert server.ok("GET", f"/v1/commits/{seen['proposal_id']}") == seen
    # One that nobody would have let in: its file is not what it says.
    broken = table.hand_made_append(4, version=3)
    broken.added()[0]["size"] += 1
    table.clients.s3.put_object(Bucket=LAKE, Key=f"{table.prefix}/_delta_log/{3:020}.json", Body=broken.body())
    seen = wait_until(lambda: visible(server, table).get(3), "the broken commit judged")
    assert seen["exception"] and seen["message"] and "visible before it was judged" in seen["warnings"][0]
    alarms = server.ok("GET", f"/v1/commits/alarms?location={table.uri}")["alarms"]
    assert [(alarm["kind"], alarm["version"], alarm["seen"]) for alarm in alarms] == [("VISIBLE_VIOLATION", 3, 1)]
    assert alarms[0]["proposal_id"] == seen["proposal_id"]


def test_tables_of_the_catalog_are_watched_though_nobody_proposed_to_them(server, clients, table, database):
    descriptor = {"Location": table.uri, "Columns": [{"Name": "id", "Type": "bigint"}]}
    clients.glue.create_table(DatabaseName=database, TableInput={"Name": "t", "StorageDescriptor": descriptor})
    table.write(rows(2), mode="append")
    wait_until(lambda: visible(server, table).get(1), "the commit judged")
    assert server.ok("GET", f"/v1/commits/alarms?location={table.uri}")["alarms"] == []

"""The catalog's REST interface as any HTTP client sees it, and against its description in docs/openapi.yaml."""

import os
import subprocess
import sys

import pytest
import requests
import yaml

from lakewarden_server import ROOT
from test_catalog import partition_input, table_input

OPENAPI = ROOT / "docs" / "openapi.yaml"
FUZZ_TIMEOUT_S = 600


class Rest:
    """Requests of one database."""

    def __init__(self, server, database):
        self.base = f"{server.endpoints['gateway']}/v1/databases/{database}"

    def __call__(self, method, path="", params=None, headers=None, body=None, status=200):
        url = self.base + path
        answer = requests.request(method, url, params=params, headers=headers, json=body, timeout=60)
        assert answer.status_code == status, f"{method} {answer.url} -> {answer.status_code}: {answer.text}"
        return answer


@pytest.fixture
def rest(server, database):
    return Rest(server, database)


@pytest.fixture
def table(rest):
    body = {"TableInput": table_input("orders", keys=(("region", "string"), ("day", "string")))}
    rest("POST", "/tables", body=body, status=201)
    return "/tables/orders"


def test_partitions_of_any_values_have_an_address(rest, table):
    for values in (["a/b", "."], ["..", "//"], ["100%", "%2F"], ["ü 😀", "a+b&c=d;e#f?"], ["a,b", "\n"]):
        rest("POST", f"{table}/partitions", body={"PartitionInput": partition_input(*values)}, status=201)
        found = rest("GET", f"{table}/partition", params={"value": values})
        assert found.json()["Partition"]["Values"] == values
        rest("DELETE", f"{table}/partition", params={"value": values}, status=204)
        rest("GET", f"{table}/partition", params={"value": values}, status=404)


def test_a_partition_is_changed_only_as_it_was_read(rest, table):
    address = {"path": f"{table}/partition", "params": {"value": ["eu", "1"]}}
    rest("POST", f"{table}/partitions", body={"PartitionInput": partition_input("eu", "1")}, status=201)
    rest("POST", f"{table}/partitions", body={"PartitionInput": partition_input("eu", "1")}, status=409)
    read = rest("GET", **address)
    etag, change = read.headers["ETag"], {"PartitionInput": {"Parameters": {"a": "b"}}}
    assert read.headers["x-lakewarden-revision"] == etag.strip('"') == read.json()["Partition"]["Revision"]
    assert rest("GET", **address, headers={"If-None-Match": etag}, status=304).content == b""
    rest("PUT", **address, headers={"If-Match": etag}, body=change)
    stale = rest("PUT", **address, headers={"If-Match": etag}, body=change, status=412)
    assert stale.json()["__type"] == "ConcurrentModificationException"
    rest("DELETE", **address, headers={"If-Match": etag}, status=412)
    rest("DELETE", **address, headers={"If-Match": f'"other", {rest("GET", **address).headers["ETag"]}'}, status=204)


def test_entries_of_a_batch_state_what_was_read(rest, table):
    for value in ("1", "2"):
        rest("POST", f"{table}/partitions", body={"PartitionInput": partition_input("eu", value)}, status=201)
    partitions = rest("GET", f"{table}/partitions").json()["Partitions"]
    entries = [
        {
            "PartitionValueList": found["Values"],
            "PartitionInput": partition_input(*found["Values"]),
            "ExpectedRevision": found["Revision"],
        }
        for found in partitions
    ]
    entries[1]["ExpectedRevision"] = "another"
    answer = rest("POST", f"{table}/batch-update-partitions", body={"Entries": entries}).json()
    assert [error["PartitionValueList"] for error in answer["Errors"]] == [["eu", "2"]]
    assert answer["Errors"][0]["ErrorDetail"]["ErrorCode"] == "ConcurrentModificationException"


def test_a_table_is_changed_only_as_it_was_read(rest, table):
    etag = rest("GET", table).headers["ETag"]
    change = {"TableInput": table_input("orders") | {"Description": "changed"}}
    rest("PUT", table, headers={"If-Match": etag}, body=change)
    rest("PUT", table, headers={"If-Match": etag}, body=change, status=412)
    assert rest("GET", table).headers["ETag"] == '"1"'


def test_partition_specs_have_a_shared_descriptor_once(rest, table):
    inside, outside = partition_input("eu", "1"), partition_input("eu", "2", location="s3://elsewhere")
    for given in (inside, outside, partition_input("us", "1")):
        rest("POST", f"{table}/partitions", body={"PartitionInput": given}, status=201)
    shared, composing = rest("GET", f"{table}/partition-specs").json()["PartitionSpecs"]
    assert shared["RootPath"] == composing["RootPath"] == "s3://lake/catalog/orders"
    group = shared["PartitionSpecWithSharedSD"]
    assert group["StorageDescriptor"]["Columns"] == inside["StorageDescriptor"]["Columns"]
    assert [found["Values"] for found in group["Partitions"]] == [["eu", "1"], ["us", "1"]]
    assert group["Partitions"][0]["StorageDescriptor"] == {"Location": "s3://lake/catalog/orders/eu/1"}
    [alone] = composing["PartitionListComposingSpec"]["Partitions"]
    assert alone["StorageDescriptor"]["Location"] == "s3://elsewhere/eu/2"


def test_every_address_of_the_description_is_served(rest):
    """Also through the gateway: an address that exists answers another method with 405 and what it takes."""
    gateway = rest.base.split("/v1/")[0]
    methods = {"get", "put", "post", "delete"}
    for path, operations in yaml.safe_load(OPENAPI.read_text(encoding="utf-8"))["paths"].items():
        served = methods & set(operations)
        answer = requests.patch(gateway + path.replace("{", "").replace("}", ""), timeout=60)
        allowed = {method.strip().lower() for method in answer.headers.get("Allow", "").split(",")} - {"head"}
        assert (answer.status_code, allowed) == (405, served), path


def test_the_description_is_true(own_clients, tmp_path):
    """Requests that schemathesis makes from the description: answers are as described and never a fault of ours."""
    clients = own_clients
    glue = clients.glue
    keys = (("day", "date"), ("hour", "int"))
    for database in ("shop", "spare"):
        glue.create_database(DatabaseInput={"Name": database})
        glue.create_table(DatabaseName=database, TableInput=table_input("orders", "s3://lake/orders", keys))
    part = partition_input("2026-11-01", "7", location="s3://lake/orders")
    glue.create_partition(DatabaseName="shop", TableName="orders", PartitionInput=part)
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(ROOT / "tests/clients/schemathesis.toml")]
    command += ["run", str(OPENAPI), "--url", clients.server.endpoints["gateway"]]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | {"NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=FUZZ_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout[-20_000:]
    assert "cases:" in done.stdout, done.stdout
    log = clients.server.log.read_text(encoding="utf-8", errors="replace")
    assert "panicked" not in log
    assert " ERROR " not in log, "\n".join([line for line in log.splitlines() if " ERROR " in line][:20])

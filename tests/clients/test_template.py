"""The tables that template.yaml creates are the ones the program works with."""

import re

import pytest

import check_template

TEMPLATE = check_template.load(check_template.ROOT / "template.yaml")
NAMES = {"CatalogTable": "lakewarden-catalog", "PartitionsTable": "lakewarden-partitions", "CommitsTable": "lakewarden-commits"}


def by_name(pairs):
    return sorted(pairs, key=lambda pair: pair["AttributeName"])


@pytest.mark.parametrize("resource", ["CatalogTable", "PartitionsTable", "CommitsTable", "DeltaLog"])
def test_keys_and_expiry_are_the_same(clients, resource):
    wanted = TEMPLATE["Resources"][resource]["Properties"]
    existing = clients.dynamodb.list_tables()["TableNames"]
    names = [name for name in existing if name == NAMES.get(resource) or (resource == "DeltaLog" and name.endswith("delta_log"))]
    assert len(names) == 1, existing
    found = clients.dynamodb.describe_table(TableName=names[0])["Table"]
    assert found["KeySchema"] == wanted["KeySchema"]
    assert by_name(found["AttributeDefinitions"]) == by_name(wanted["AttributeDefinitions"])
    expiry = clients.dynamodb.describe_time_to_live(TableName=names[0])["TimeToLiveDescription"]
    assert expiry["AttributeName"] == wanted["TimeToLiveSpecification"]["AttributeName"]


def test_functions_that_write_partitions_are_short():
    """A partition index is taken for complete when they must have ended: `LONGEST_WRITER_MS`, and half of it for a request."""
    source = (check_template.ROOT / "shared/core/src/catalog/purge.rs").read_text()
    longest = re.search(r"LONGEST_WRITER_MS: i64 = (\d+) \* 1000;", source)
    timeout = {name: TEMPLATE["Resources"][name]["Properties"]["Timeout"] for name in ("CatalogApi", "CommitApi", "CommitValidator")}
    assert max(timeout.values()) <= int(longest[1])
    assert timeout["CatalogApi"] <= 30

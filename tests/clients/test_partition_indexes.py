"""Partition indexes as boto3 sees them: created on a table that has partitions, waited for, used."""

import time

import requests

from test_catalog import partition_input, table_input

KEYS = (("year", "int"), ("region", "string"), ("day", "string"))
REGIONS = [f"r{number:02}" for number in range(10)]
DAYS = [f"{number:02}" for number in range(1, 29)]


def fill(glue, table):
    values = [(str(year), region, day) for year in (2023, 2024) for region in REGIONS for day in DAYS]
    for at in range(0, len(values), 100):
        batch = [partition_input(*one) for one in values[at : at + 100]]
        assert not glue.batch_create_partition(**table, PartitionInputList=batch).get("Errors")


def status(glue, table):
    return {found["IndexName"]: found["IndexStatus"] for found in glue.get_partition_indexes(**table)["PartitionIndexDescriptorList"]}


def until_active(clients, table, name):
    """As Terraform waits, but for the clock, which is moved on: not further than it takes, for that is what others would wait."""
    seen, moved = [], 0
    ends = time.monotonic() + 300
    while time.monotonic() < ends:
        seen.append(status(clients.glue, table)[name])
        if seen[-1] == "ACTIVE":
            return seen
        if moved < 110:
            clients.server.advance_clock("5s")
            moved += 5
        time.sleep(0.5)
    raise AssertionError(f"not in time: {seen[-1]}")


def explained(clients, table, expression, page_size):
    """Values, and how the pages were found."""
    url = f"{clients.server.endpoints['gateway']}/v1/databases/{table['DatabaseName']}/tables/{table['TableName']}/partitions"
    query, values, pages = {"expression": expression, "max_results": page_size, "explain": "true"}, [], []
    while True:
        answer = requests.get(url, params=query, timeout=60)
        assert answer.status_code == 200, answer.text
        answer = answer.json()
        values += [found["Values"] for found in answer["Partitions"]]
        pages.append(answer["Explain"])
        if not answer.get("NextToken"):
            return values, pages
        query["next_token"] = answer["NextToken"]


def listed(glue, table, expression, page_size):
    pages = glue.get_paginator("get_partitions").paginate(
        **table, Expression=expression, PaginationConfig={"PageSize": page_size}
    )
    return [found["Values"] for page in pages for found in page["Partitions"]]


def test_an_index_is_waited_for_and_then_used(own_clients):
    clients, table = own_clients, {"DatabaseName": "shop", "TableName": "orders"}
    glue = clients.glue
    glue.create_database(DatabaseInput={"Name": "shop"})
    glue.create_table(DatabaseName="shop", TableInput=table_input("orders", keys=KEYS))
    fill(glue, table)
    expression = "region = 'r07' and day = '11'"
    wanted = [["2023", "r07", "11"], ["2024", "r07", "11"]]
    values, [page] = explained(clients, table, expression, 1000)
    assert values == wanted and page["Index"] is None and page["ItemsRead"] > 100

    glue.create_partition_index(**table, PartitionIndex={"IndexName": "by_region", "Keys": ["region", "day"]})
    # Nothing is promised before it is there, and nothing is missing meanwhile.
    assert status(glue, table) == {"by_region": "CREATING"}
    glue.create_partition(**table, PartitionInput=partition_input("2025", "r07", "11"))
    wanted.append(["2025", "r07", "11"])
    assert listed(glue, table, expression, 1) == wanted
    assert set(until_active(clients, table, "by_region")[:-1]) == {"CREATING"}

    values, [page] = explained(clients, table, expression, 1000)
    assert values == wanted and page["Index"] == "by_region"
    assert page["ItemsRead"] == 2 * len(wanted), "entries and partitions"
    for page_size in (1, 2, 3):
        values, pages = explained(clients, table, expression, page_size)
        assert values == wanted == listed(glue, table, expression, page_size)
        assert {found["Index"] for found in pages} == {"by_region"}

    # A prefix of its keys, in pages: each entry once and little more.
    expression = "region in ('r03', 'r04')"
    values, pages = explained(clients, table, expression, 20)
    wanted = [[year, region, day] for year in ("2023", "2024") for region in ("r03", "r04") for day in DAYS]
    assert values == wanted == listed(glue, table, expression, 50)
    assert {found["Index"] for found in pages} == {"by_region"}


def test_tables_that_begin_with_an_index_use_it_at_once(clients, database):
    table = {"DatabaseName": database, "TableName": "orders"}
    index = {"IndexName": "by_day", "Keys": ["day"]}
    clients.glue.create_table(
        DatabaseName=database, TableInput=table_input("orders", keys=KEYS), PartitionIndexes=[index]
    )
    assert status(clients.glue, table) == {"by_day": "ACTIVE"}
    fill(clients.glue, table)
    values, [page] = explained(clients, table, "day = '11' and year = 2024", 1000)
    assert values == [["2024", region, "11"] for region in REGIONS]
    assert page["Index"] == "by_day" and page["ItemsRead"] < 200

"""Partitions and column statistics through boto3 and the AWS CLI, unmodified."""

import concurrent.futures
import datetime
import decimal
import json
import math
import pathlib
import re

import pytest
from botocore.exceptions import ClientError

from test_catalog import code_of, descriptor, partition_input, table_input

README = pathlib.Path(__file__).resolve().parents[2] / "README.md"


@pytest.fixture
def table(clients, database):
    clients.glue.create_table(DatabaseName=database, TableInput=table_input("orders", keys=(("day", "date"), ("hour", "int"))))
    return {"DatabaseName": database, "TableName": "orders"}


def expecting():
    """The example in README, as it stands there."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (example,) = [block for block in blocks if "x-lakewarden-if-revision" in block]
    names = {}
    exec(example.split("# Use:")[0], names)
    return names["expecting"]


def read(clients, table, *values):
    answer = clients.glue.get_partition(**table, PartitionValues=list(values))
    return answer["Partition"], answer["ResponseMetadata"]["HTTPHeaders"]["x-lakewarden-revision"]


def update(clients, table, values, parameters, target=None):
    given = {"Values": target or values, "StorageDescriptor": descriptor("s3://lake/x"), "Parameters": parameters}
    return clients.glue.update_partition(**table, PartitionValueList=values, PartitionInput=given)


# Updates and moves


def test_an_update_replaces_and_keeps_the_creation_time(clients, table):
    clients.glue.create_partition(**table, PartitionInput=partition_input("2024-01-01", "1"))
    before, first = read(clients, table, "2024-01-01", "1")
    update(clients, table, ["2024-01-01", "1"], {"rows": "7"})
    after, second = read(clients, table, "2024-01-01", "1")
    assert after["Parameters"] == {"rows": "7"} and after["StorageDescriptor"]["Location"] == "s3://lake/x"
    assert after["CreationTime"] == before["CreationTime"] and first != second
    missing = {**table, "PartitionValueList": ["2024-01-01", "9"], "PartitionInput": {}}
    with pytest.raises(ClientError, match="Cannot find partition."):
        clients.glue.update_partition(**missing)


def test_a_move_keeps_statistics_and_never_overwrites(clients, table):
    for hour in ("1", "3"):
        clients.glue.create_partition(**table, PartitionInput=partition_input("2024-01-01", hour))
    set_statistics(clients, table, ["2024-01-01", "1"], long_statistics("id", 5))
    update(clients, table, ["2024-01-01", "1"], {}, target=["2024-01-01", "2"])
    assert code_of(clients.glue.get_partition, **table, PartitionValues=["2024-01-01", "1"]) == "EntityNotFoundException"
    found = get_statistics(clients, table, ["2024-01-01", "2"], ["id"])
    assert found["ColumnStatisticsList"][0]["StatisticsData"]["LongColumnStatisticsData"]["NumberOfDistinctValues"] == 5
    with pytest.raises(ClientError, match="Partition already exists."):
        update(clients, table, ["2024-01-01", "2"], {}, target=["2024-01-01", "3"])


def test_a_batch_update_applies_entries_in_order_and_names_the_others(clients, table):
    inputs = [partition_input("2024-01-01", str(hour)) for hour in range(100)]
    assert clients.glue.batch_create_partition(**table, PartitionInputList=inputs)["Errors"] == []
    entries = [
        {"PartitionValueList": ["2024-01-01", str(n % 50)], "PartitionInput": {"Values": ["2024-01-01", str(n % 50)], "Parameters": {"n": str(n)}}}
        for n in range(99)
    ]
    entries.append({"PartitionValueList": ["2024-01-01", "777"], "PartitionInput": {"Values": ["2024-01-01", "777"]}})
    (failed,) = clients.glue.batch_update_partition(**table, Entries=entries)["Errors"]
    assert failed["PartitionValueList"] == ["2024-01-01", "777"]
    assert failed["ErrorDetail"]["ErrorCode"] == "EntityNotFoundException"
    assert read(clients, table, "2024-01-01", "7")[0]["Parameters"] == {"n": "57"}
    assert read(clients, table, "2024-01-01", "49")[0]["Parameters"] == {"n": "49"}
    pages = clients.glue.get_paginator("get_partitions").paginate(**table)
    assert sum(len(page["Partitions"]) for page in pages) == 100


def test_the_cli_updates_and_deletes(clients, table):
    name = ["--database-name", table["DatabaseName"], "--table-name", table["TableName"]]
    clients.glue.create_partition(**table, PartitionInput=partition_input("2024-01-01", "1"))
    given = json.dumps({"Values": ["2024-01-01", "1"], "Parameters": {"by": "cli"}})
    clients.cli("glue", "update-partition", *name, "--partition-value-list", "2024-01-01", "1", "--partition-input", given)
    assert read(clients, table, "2024-01-01", "1")[0]["Parameters"] == {"by": "cli"}
    clients.cli("glue", "delete-partition", *name, "--partition-values", "2024-01-01", "1")
    refused = clients.cli("glue", "delete-partition", *name, "--partition-values", "2024-01-01", "1", check=False)
    assert refused.returncode != 0 and "EntityNotFoundException" in refused.stderr


# Revisions


def test_an_update_of_what_somebody_else_changed_is_refused(clients, table):
    guard = expecting()
    clients.glue.create_partition(**table, PartitionInput=partition_input("2024-01-01", "1"))
    _, revision = read(clients, table, "2024-01-01", "1")
    with guard(clients.glue, revision):
        update(clients, table, ["2024-01-01", "1"], {"by": "me"})
    for call in (
        lambda: update(clients, table, ["2024-01-01", "1"], {"by": "a late one"}),
        lambda: update(clients, table, ["2024-01-01", "1"], {}, target=["2024-01-01", "2"]),
        lambda: clients.glue.delete_partition(**table, PartitionValues=["2024-01-01", "1"]),
    ):
        with guard(clients.glue, revision), pytest.raises(clients.glue.exceptions.ConcurrentModificationException):
            call()
    assert read(clients, table, "2024-01-01", "1")[0]["Parameters"] == {"by": "me"}
    update(clients, table, ["2024-01-01", "1"], {"by": "anybody"})
    _, revision = read(clients, table, "2024-01-01", "1")
    with guard(clients.glue, revision):
        clients.glue.delete_partition(**table, PartitionValues=["2024-01-01", "1"])


def test_counting_with_revisions_loses_nothing(clients, table):
    """Many clients add to one number; each adds again when another one was faster."""
    guard, threads, times = expecting(), 4, 8
    clients.glue.create_partition(**table, PartitionInput={"Values": ["2024-01-01", "1"], "Parameters": {"n": "0"}})

    def add(_):
        own = type(clients)(clients.server)
        for _ in range(times):
            while True:
                partition, revision = read(own, table, "2024-01-01", "1")
                try:
                    with guard(own.glue, revision):
                        update(own, table, ["2024-01-01", "1"], {"n": str(int(partition["Parameters"]["n"]) + 1)})
                    break
                except own.glue.exceptions.ConcurrentModificationException:
                    pass

    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        list(pool.map(add, range(threads)))
    assert read(clients, table, "2024-01-01", "1")[0]["Parameters"] == {"n": str(threads * times)}


def test_thirty_two_clients_without_revisions_never_see_a_conflict(clients, table):
    clients.glue.create_partition(**table, PartitionInput=partition_input("2024-01-01", "1"))
    glue = clients.boto("glue", max_pool_connections=32)

    def change(at):
        given = {"Values": ["2024-01-01", "1"], "Parameters": {"by": str(at)}}
        glue.update_partition(**table, PartitionValueList=["2024-01-01", "1"], PartitionInput=given)
        outcomes = []
        for call, arguments in (
            (glue.create_partition, {"PartitionInput": partition_input("2024-01-01", "2")}),
            (glue.delete_partition, {"PartitionValues": ["2024-01-01", "2"]}),
        ):
            try:
                call(**table, **arguments)
                outcomes.append("done")
            except ClientError as refused:
                outcomes.append(refused.response["Error"]["Code"])
        return outcomes

    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        outcomes = list(pool.map(change, range(32)))
    assert {made for made, _ in outcomes} <= {"done", "AlreadyExistsException"}
    assert {deleted for _, deleted in outcomes} <= {"done", "EntityNotFoundException"}
    made = sum(made == "done" for made, _ in outcomes)
    deleted = sum(deleted == "done" for _, deleted in outcomes)
    there = code_of_or_none(clients.glue.get_partition, **table, PartitionValues=["2024-01-01", "2"]) is None
    assert made - deleted == int(there)


def code_of_or_none(call, **arguments):
    try:
        call(**arguments)
        return None
    except ClientError as refused:
        return refused.response["Error"]["Code"]


# Column statistics

ANALYZED = datetime.datetime(2024, 1, 2, 3, 4, 5, 678000, tzinfo=datetime.timezone.utc)
BOUNDS = {"NumberOfNulls": 1, "NumberOfDistinctValues": 2}
KINDS = {
    "BOOLEAN": {"NumberOfTrues": 1, "NumberOfFalses": 2, "NumberOfNulls": 3},
    "DATE": {**BOUNDS, "MinimumValue": datetime.datetime(1969, 12, 31, tzinfo=datetime.timezone.utc), "MaximumValue": ANALYZED},
    "DECIMAL": {**BOUNDS, "MinimumValue": {"UnscaledValue": b"\xff", "Scale": 2}, "MaximumValue": {"UnscaledValue": b"\x01\x02", "Scale": 0}},
    "DOUBLE": {**BOUNDS, "MinimumValue": -1e300, "MaximumValue": 1.5},
    "LONG": {**BOUNDS, "MinimumValue": -(2**63), "MaximumValue": 2**63 - 1},
    "STRING": {**BOUNDS, "MaximumLength": 9, "AverageLength": 4.25},
    "BINARY": {"MaximumLength": 9, "AverageLength": 4.25, "NumberOfNulls": 0},
}


def statistics(column, kind, data):
    member = f"{kind.capitalize()}ColumnStatisticsData"
    return {"ColumnName": column, "ColumnType": kind.lower(), "AnalyzedTime": ANALYZED, "StatisticsData": {"Type": kind, member: data}}


def long_statistics(column, distinct):
    return statistics(column, "LONG", {"NumberOfNulls": 0, "NumberOfDistinctValues": distinct})


def set_statistics(clients, table, values, *entries):
    return clients.glue.update_column_statistics_for_partition(**table, PartitionValues=values, ColumnStatisticsList=list(entries))["Errors"]


def get_statistics(clients, table, values, columns):
    return clients.glue.get_column_statistics_for_partition(**table, PartitionValues=values, ColumnNames=columns)


def test_statistics_of_every_kind_come_back(clients, table):
    values = ["2024-01-01", "1"]
    clients.glue.create_partition(**table, PartitionInput=partition_input(*values))
    given = [statistics(kind.lower(), kind, data) for kind, data in KINDS.items()]
    assert set_statistics(clients, table, values, *given) == []
    names = [kind.lower() for kind in KINDS]
    assert get_statistics(clients, table, values, names)["ColumnStatisticsList"] == given
    assert clients.glue.update_column_statistics_for_table(**table, ColumnStatisticsList=given)["Errors"] == []
    found = clients.glue.get_column_statistics_for_table(**table, ColumnNames=[*names, "none"])
    assert found["ColumnStatisticsList"] == given
    (missing,) = found["Errors"]
    assert missing == {"ColumnName": "none", "Error": {"ErrorCode": "EntityNotFoundException", "ErrorMessage": "Statistics do not exist for this column"}}
    # boto3 sends these as texts, as the protocol has them, and leaves them texts in answers.
    odd = statistics("double", "DOUBLE", {**BOUNDS, "MinimumValue": math.nan})
    infinite = statistics("infinite", "DOUBLE", {**BOUNDS, "MaximumValue": math.inf, "MinimumValue": -math.inf})
    assert clients.glue.update_column_statistics_for_table(**table, ColumnStatisticsList=[odd, infinite])["Errors"] == []
    (found,) = clients.glue.get_column_statistics_for_table(**table, ColumnNames=["infinite"])["ColumnStatisticsList"]
    data = found["StatisticsData"]["DoubleColumnStatisticsData"]
    assert (float(data["MinimumValue"]), float(data["MaximumValue"])) == (-math.inf, math.inf)
    (found,) = clients.glue.get_column_statistics_for_table(**table, ColumnNames=["double"])["ColumnStatisticsList"]
    data = found["StatisticsData"]["DoubleColumnStatisticsData"]
    assert math.isnan(float(data["MinimumValue"])) and "MaximumValue" not in data
    clients.glue.delete_column_statistics_for_table(**table, ColumnName="double")
    clients.glue.delete_column_statistics_for_table(**table, ColumnName="double")
    assert clients.glue.get_column_statistics_for_table(**table, ColumnNames=["double"])["ColumnStatisticsList"] == []


def test_chunks_of_columns_from_several_threads_do_not_overwrite_each_other(clients, table):
    """As the Hive client does it: 25 columns a call, calls side by side, 100 names a read."""
    values = ["2024-01-01", "1"]
    clients.glue.create_partition(**table, PartitionInput=partition_input(*values))
    chunks = [[long_statistics(f"c{chunk}_{at}", at) for at in range(25)] for chunk in range(8)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda chunk: set_statistics(clients, table, values, *chunk), chunks)) == [[]] * 8
    names = [entry["ColumnName"] for chunk in chunks for entry in chunk]
    found = [get_statistics(clients, table, values, names[at : at + 100]) for at in (0, 100)]
    assert [len(answer["ColumnStatisticsList"]) for answer in found] == [100, 100]
    clients.glue.delete_partition(**table, PartitionValues=values)
    clients.glue.create_partition(**table, PartitionInput=partition_input(*values))
    assert len(get_statistics(clients, table, values, names[:100])["Errors"]) == 100


def test_statistics_of_the_wrong_kind_are_reported_beside_good_ones(clients, table):
    values = ["2024-01-01", "1"]
    clients.glue.create_partition(**table, PartitionInput=partition_input(*values))
    wrong = long_statistics("wrong", 1)
    wrong["StatisticsData"]["Type"] = "STRING"
    (failed,) = set_statistics(clients, table, values, wrong, long_statistics("good", 1))
    assert failed["ColumnStatistics"]["ColumnName"] == "wrong" and failed["Error"]["ErrorCode"] == "InvalidInputException"
    assert len(get_statistics(clients, table, values, ["wrong", "good"])["ColumnStatisticsList"]) == 1
    nowhere = {**table, "PartitionValues": ["2024-01-01", "9"], "ColumnNames": ["a"]}
    assert code_of(clients.glue.get_column_statistics_for_partition, **nowhere) == "EntityNotFoundException"


def test_decimals_are_numbers_in_two_s_complement(clients, table):
    """What a client makes of them: an exact decimal."""
    values = ["2024-01-01", "1"]
    clients.glue.create_partition(**table, PartitionInput=partition_input(*values))
    unscaled = (-12345).to_bytes(4, "big", signed=True)
    set_statistics(clients, table, values, statistics("price", "DECIMAL", {**BOUNDS, "MinimumValue": {"UnscaledValue": unscaled, "Scale": 2}}))
    (found,) = get_statistics(clients, table, values, ["price"])["ColumnStatisticsList"]
    data = found["StatisticsData"]["DecimalColumnStatisticsData"]
    lowest = data["MinimumValue"]
    exact = decimal.Decimal(int.from_bytes(lowest["UnscaledValue"], "big", signed=True)).scaleb(-lowest["Scale"])
    assert exact == decimal.Decimal("-123.45") and "MaximumValue" not in data


# Batch reads


def test_a_batch_read_answers_in_order_until_nothing_is_left(clients, table):
    inputs = [partition_input("2024-01-01", str(hour)) for hour in range(40)]
    for given in inputs:
        given["Parameters"] = {"large": "x" * 150_000}
    for at in range(0, 40, 10):
        assert clients.glue.batch_create_partition(**table, PartitionInputList=inputs[at : at + 10])["Errors"] == []
    asked = [{"Values": ["2024-01-01", str(hour)]} for hour in reversed(range(60))]
    seen = []
    while asked:
        answer = clients.glue.batch_get_partition(**table, PartitionsToGet=asked)
        assert answer["Partitions"], "progress in every round"
        seen += [partition["Values"][1] for partition in answer["Partitions"]]
        asked = answer["UnprocessedKeys"]
    assert seen == [str(hour) for hour in reversed(range(40))]

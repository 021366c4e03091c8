"""The catalog through boto3 and the AWS CLI, unmodified."""

import json

import pytest
from botocore.exceptions import ClientError

COLUMNS = [{"Name": "id", "Type": "bigint"}, {"Name": "amount", "Type": "double"}]


def table_input(name, location="s3://lake/catalog/orders", keys=(("dt", "string"), ("hour", "int"))):
    return {
        "Name": name,
        "TableType": "EXTERNAL_TABLE",
        "PartitionKeys": [{"Name": key, "Type": kind} for key, kind in keys],
        "StorageDescriptor": descriptor(location),
        "Parameters": {"classification": "parquet"},
    }


def descriptor(location):
    return {
        "Columns": COLUMNS,
        "Location": location,
        "InputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
        "OutputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
        "SerdeInfo": {"SerializationLibrary": "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"},
    }


def partition_input(*values, location="s3://lake/catalog/orders"):
    return {"Values": list(values), "StorageDescriptor": descriptor(f"{location}/{'/'.join(values)}")}


@pytest.fixture
def table(clients, database):
    clients.glue.create_table(DatabaseName=database, TableInput=table_input("orders"))
    return {"DatabaseName": database, "TableName": "orders"}


def code_of(call, **arguments):
    """Name of the error that a call must end with."""
    with pytest.raises(ClientError) as refused:
        call(**arguments)
    return refused.value.response["Error"]["Code"]


# Databases and tables


def test_a_database_is_created_and_read_back(clients, unique):
    clients.glue.create_database(DatabaseInput={"Name": unique.upper(), "Description": "all orders", "Parameters": {"a": "b"}})
    found = clients.glue.get_database(Name=unique)["Database"]
    assert (found["Name"], found["Description"], found["Parameters"]) == (unique, "all orders", {"a": "b"})
    assert len(found["CatalogId"]) == 12 and found["CreateTime"].year >= 2024


def test_database_errors_have_their_exact_names(clients, database):
    glue = clients.glue
    assert code_of(glue.create_database, DatabaseInput={"Name": database}) == "AlreadyExistsException"
    assert code_of(glue.get_database, Name="nosuch") == "EntityNotFoundException"
    with pytest.raises(glue.exceptions.EntityNotFoundException, match="Database nosuch not found"):
        glue.get_database(Name="nosuch")


def test_a_table_is_read_back_as_it_was_written(clients, database):
    clients.glue.create_table(DatabaseName=database, TableInput=table_input("Orders"))
    found = clients.glue.get_table(DatabaseName=database, Name="ORDERS")["Table"]
    assert (found["Name"], found["DatabaseName"], found["VersionId"]) == ("orders", database, "0")
    assert found["PartitionKeys"] == table_input("x")["PartitionKeys"]
    assert found["Parameters"] == {"classification": "parquet"}
    given = descriptor("s3://lake/catalog/orders")
    for member in ("Columns", "Location", "InputFormat", "OutputFormat"):
        assert found["StorageDescriptor"][member] == given[member]
    assert found["StorageDescriptor"]["SerdeInfo"]["SerializationLibrary"] == given["SerdeInfo"]["SerializationLibrary"]


def test_table_errors_have_their_exact_names(clients, database, table):
    glue = clients.glue
    again = {"DatabaseName": database, "TableInput": table_input("orders")}
    assert code_of(glue.create_table, **again) == "AlreadyExistsException"
    assert code_of(glue.create_table, DatabaseName="nosuch", TableInput=table_input("x")) == "EntityNotFoundException"
    assert code_of(glue.get_table, DatabaseName=database, Name="nosuch") == "EntityNotFoundException"


def test_the_http_status_and_body_of_an_error_are_those_of_the_protocol(clients, server):
    answer = server.http.post(
        server.endpoints["gateway"] + "/",
        data=json.dumps({"Name": "nosuch", "MemberOfTheFuture": None}),
        headers={"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": "AWSGlue.GetDatabase"},
        timeout=30,
    )
    assert answer.status_code in (400, 403)
    if answer.status_code == 400:
        assert answer.json()["__type"] == "EntityNotFoundException"
        assert answer.headers["x-amzn-RequestId"]


# Partitions


def test_a_partition_is_created_read_and_deleted(clients, table):
    glue = clients.glue
    glue.create_partition(**table, PartitionInput=partition_input("2026-01-01", "7") | {"Parameters": {"rows": "10"}})
    found = glue.get_partition(**table, PartitionValues=["2026-01-01", "7"])["Partition"]
    assert found["Values"] == ["2026-01-01", "7"]
    assert (found["DatabaseName"], found["TableName"]) == (table["DatabaseName"], "orders")
    assert found["StorageDescriptor"]["Location"] == "s3://lake/catalog/orders/2026-01-01/7"
    assert found["StorageDescriptor"]["Columns"] == COLUMNS
    assert found["Parameters"] == {"rows": "10"}
    glue.delete_partition(**table, PartitionValues=["2026-01-01", "7"])
    assert code_of(glue.get_partition, **table, PartitionValues=["2026-01-01", "7"]) == "EntityNotFoundException"


def test_partition_errors_have_their_exact_names(clients, table):
    glue = clients.glue
    glue.create_partition(**table, PartitionInput=partition_input("a", "1"))
    assert code_of(glue.create_partition, **table, PartitionInput=partition_input("a", "1")) == "AlreadyExistsException"
    assert code_of(glue.create_partition, **table, PartitionInput=partition_input("a")) == "InvalidInputException"
    assert code_of(glue.delete_partition, **table, PartitionValues=["b", "1"]) == "EntityNotFoundException"
    elsewhere = table | {"TableName": "nosuch"}
    assert code_of(glue.create_partition, **elsewhere, PartitionInput=partition_input("a", "1")) == "EntityNotFoundException"
    assert code_of(glue.get_partitions, **elsewhere) == "EntityNotFoundException"


@pytest.mark.parametrize(
    "values",
    [["a b", "1"], ["ü/x=%20+", "01"], ["A", "1"], [" a", "1"], ["x" * 1024, "1"], ["line\nbreak", "-0"]],
    ids=["blank", "signs", "upper case", "leading blank", "1024 characters", "newline"],
)
def test_values_are_kept_to_the_letter(clients, table, values):
    clients.glue.create_partition(**table, PartitionInput={"Values": values})
    found = clients.glue.get_partition(**table, PartitionValues=values)["Partition"]
    assert found["Values"] == values
    assert found["Parameters"] == {} and isinstance(found["StorageDescriptor"], dict)


def test_a_batch_keeps_the_good_ones_and_names_the_others(clients, table):
    glue = clients.glue
    glue.create_partition(**table, PartitionInput=partition_input("a", "1"))
    batch = [partition_input("a", "1"), partition_input("a", "2"), partition_input("a", "2"), partition_input("a")]
    errors = glue.batch_create_partition(**table, PartitionInputList=batch)["Errors"]
    assert [(error["PartitionValues"], error["ErrorDetail"]["ErrorCode"]) for error in errors] == [
        (["a", "1"], "AlreadyExistsException"),
        (["a", "2"], "AlreadyExistsException"),
        (["a"], "InvalidInputException"),
    ]
    assert [found["Values"] for found in glue.get_partitions(**table)["Partitions"]] == [["a", "1"], ["a", "2"]]


def test_limits_are_validated_with_the_models_text(clients, table):
    glue = clients.glue
    too_many = [partition_input("a", str(number)) for number in range(101)]
    assert code_of(glue.batch_create_partition, **table, PartitionInputList=too_many) == "ValidationException"
    with pytest.raises(ClientError, match="Member must have value less than or equal to 1000"):
        glue.get_partitions(**table, MaxResults=1001)
    assert code_of(glue.get_partitions, **table, MaxResults=1001) == "ValidationException"
    assert code_of(glue.create_partition, **table, PartitionInput={"Values": ["x" * 1025, "1"]}) == "ValidationException"


def test_a_listing_pages_through_everything_once_in_order(clients, table):
    glue = clients.glue
    wanted = [[f"2026-{number // 25:03}", str(number % 25)] for number in range(1250)]
    for start in range(0, len(wanted), 100):
        batch = [partition_input(*values) for values in wanted[start : start + 100]]
        assert not glue.batch_create_partition(**table, PartitionInputList=batch).get("Errors")
    pages = list(glue.get_paginator("get_partitions").paginate(**table, PaginationConfig={"PageSize": 300}))
    assert [found["Values"] for page in pages for found in page["Partitions"]] == wanted
    assert len(pages) >= 5 and all(len(page["Partitions"]) <= 300 for page in pages)
    assert "NextToken" not in pages[-1]
    slim = glue.get_partitions(**table, ExcludeColumnSchema=True, MaxResults=3)["Partitions"]
    assert len(slim) == 3
    assert all(not found["StorageDescriptor"].get("Columns") and found["StorageDescriptor"]["Location"] for found in slim)


def test_segments_are_disjoint_and_complete(clients, table):
    glue = clients.glue
    wanted = [["d", str(number)] for number in range(60)]
    glue.batch_create_partition(**table, PartitionInputList=[partition_input(*values) for values in wanted])
    seen = []
    for number in range(4):
        pages = glue.get_paginator("get_partitions").paginate(**table, Segment={"SegmentNumber": number, "TotalSegments": 4})
        seen += [found["Values"] for page in pages for found in page["Partitions"]]
    assert sorted(seen) == sorted(wanted)


def test_a_token_of_another_listing_is_refused(clients, table, database):
    glue = clients.glue
    glue.create_table(DatabaseName=database, TableInput=table_input("other"))
    glue.batch_create_partition(**table, PartitionInputList=[partition_input("a", str(n)) for n in range(3)])
    token = glue.get_partitions(**table, MaxResults=1)["NextToken"]
    elsewhere = {"DatabaseName": database, "TableName": "other"}
    assert code_of(glue.get_partitions, **elsewhere, NextToken=token) == "InvalidInputException"
    assert code_of(glue.get_partitions, **table, NextToken="nonsense") == "InvalidInputException"


def test_a_filter_selects_and_a_blank_one_is_none(clients, table):
    glue = clients.glue
    glue.create_partition(**table, PartitionInput=partition_input("a", "1"))
    for expression, count in (("dt = 'a'", 1), ("dt like 'b%'", 0)):
        assert len(glue.get_partitions(**table, Expression=expression)["Partitions"]) == count
    assert code_of(glue.get_partitions, **table, Expression="nosuch = 1") == "InvalidInputException"
    for blank in ("", "  "):
        assert len(glue.get_partitions(**table, Expression=blank)["Partitions"]) == 1


def test_an_operation_that_is_not_there_is_refused_by_name(clients):
    code = code_of(clients.glue.get_crawlers)
    assert code in ("UnknownOperationException", "UnsupportedOperation", "UnsupportedOperationException")


def test_a_table_of_the_same_name_starts_empty(clients, table, database):
    glue = clients.glue
    glue.create_partition(**table, PartitionInput=partition_input("a", "1"))
    glue.delete_table(DatabaseName=database, Name="orders")
    glue.create_table(DatabaseName=database, TableInput=table_input("orders"))
    assert glue.get_partitions(**table)["Partitions"] == []


# The AWS CLI


def test_the_cli_walks_the_same_way(clients, unique):
    cli = clients.cli
    cli("glue", "create-database", "--database-input", json.dumps({"Name": unique}))
    cli("glue", "create-table", "--database-name", unique, "--table-input", json.dumps(table_input("orders")))
    at = ["--database-name", unique, "--table-name", "orders"]
    cli("glue", "create-partition", *at, "--partition-input", json.dumps(partition_input("2026-01-01", "1")))
    batch = json.dumps([partition_input("2026-01-01", "1"), partition_input("2026-01-01", "2")])
    errors = cli("glue", "batch-create-partition", *at, "--partition-input-list", batch)["Errors"]
    assert [error["ErrorDetail"]["ErrorCode"] for error in errors] == ["AlreadyExistsException"]
    assert cli("glue", "get-table", "--database-name", unique, "--name", "orders")["Table"]["Name"] == "orders"
    found = cli("glue", "get-partition", *at, "--partition-values", "2026-01-01", "2")["Partition"]
    assert found["Values"] == ["2026-01-01", "2"]
    assert len(cli("glue", "get-partitions", *at)["Partitions"]) == 2
    cli("glue", "delete-partition", *at, "--partition-values", "2026-01-01", "2")
    refused = cli("glue", "get-partition", *at, "--partition-values", "2026-01-01", "2", check=False)
    assert refused.returncode != 0 and "(EntityNotFoundException)" in refused.stderr

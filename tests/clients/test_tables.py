"""What stands around tables, through boto3 and the AWS CLI: versions, tags, functions, search, sizes."""

import concurrent.futures
import random

import pytest
from botocore.exceptions import ClientError

ACCOUNT = "000000000000"


def table_input(name, **members):
    return {"Name": name, "StorageDescriptor": {"Columns": [{"Name": "id", "Type": "bigint"}]}, **members}


def code_of(call, **arguments):
    """Name of the error that a call must end with."""
    with pytest.raises(ClientError) as refused:
        call(**arguments)
    return refused.value.response["Error"]["Code"]


@pytest.fixture
def table(clients, database):
    clients.glue.create_table(DatabaseName=database, TableInput=table_input("orders"))
    return {"DatabaseName": database, "TableName": "orders"}


def test_versions_are_kept_listed_and_deleted(clients, database, table):
    glue = clients.glue
    for number in (1, 2, 3):
        glue.update_table(DatabaseName=database, TableInput=table_input("orders", Description=f"v{number}"))
    glue.update_table(DatabaseName=database, TableInput=table_input("orders", Description="v4"), SkipArchive=True)
    pages = glue.get_paginator("get_table_versions").paginate(**table, PaginationConfig={"PageSize": 2})
    versions = [version for page in pages for version in page["TableVersions"]]
    # What version 4 replaced was not kept.
    assert [version["VersionId"] for version in versions] == ["4", "2", "1", "0"]
    assert [version["Table"].get("Description") for version in versions] == ["v4", "v2", "v1", None]
    assert glue.get_table_version(**table, VersionId="2")["TableVersion"]["Table"]["Description"] == "v2"
    assert glue.get_table_version(**table)["TableVersion"]["VersionId"] == "4"
    with pytest.raises(glue.exceptions.EntityNotFoundException, match="Version not found."):
        glue.get_table_version(**table, VersionId="3")
    assert code_of(glue.delete_table_version, **table, VersionId="4") == "InvalidInputException"
    glue.delete_table_version(**table, VersionId="2")
    answer = glue.batch_delete_table_version(**table, VersionIds=["0", "2"])
    assert [error["VersionId"] for error in answer["Errors"]] == ["2"]
    found = clients.cli("glue", "get-table-versions", "--database-name", database, "--table-name", "orders")
    assert [version["VersionId"] for version in found["TableVersions"]] == ["4", "1"]


def test_many_writers_without_a_version_all_get_through_and_with_one_a_single_one_does(clients, database, table):
    glue = clients.glue

    def update(number, **more):
        definition = table_input("orders", Description=str(number))
        return glue.update_table(DatabaseName=database, TableInput=definition, **more)

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(update, range(32)))
        assert glue.get_table(DatabaseName=database, Name="orders")["Table"]["VersionId"] == "32"

        def commit(number):
            try:
                update(number, VersionId="32", SkipArchive=True)
                return "landed"
            except glue.exceptions.ConcurrentModificationException as refused:
                return refused.response["Error"]["Message"]

        outcomes = list(pool.map(commit, range(16)))
    assert sorted(set(outcomes)) == ["Update table failed due to concurrent modifications.", "landed"]
    assert outcomes.count("landed") == 1


def test_a_batch_drops_tables_and_names_those_that_are_missing(clients, database, table):
    clients.glue.create_table(DatabaseName=database, TableInput=table_input("second"))
    answer = clients.glue.batch_delete_table(DatabaseName=database, TablesToDelete=["orders", "missing", "second"])
    missing = {"ErrorCode": "EntityNotFoundException", "ErrorMessage": "Table missing not found"}
    assert answer["Errors"] == [{"TableName": "missing", "ErrorDetail": missing}]
    assert clients.glue.get_tables(DatabaseName=database)["TableList"] == []


def test_databases_are_replaced_and_tagged(clients, unique):
    clients.cli("glue", "create-database", "--database-input", f"Name={unique}", "--tags", "team=a,stage=test")
    arn = f"arn:aws:glue:us-east-1:{ACCOUNT}:database/{unique}"
    assert clients.cli("glue", "get-tags", "--resource-arn", arn)["Tags"] == {"team": "a", "stage": "test"}
    clients.glue.tag_resource(ResourceArn=arn, TagsToAdd={"team": "b"})
    clients.glue.untag_resource(ResourceArn=arn, TagsToRemove=["stage"])
    assert clients.glue.get_tags(ResourceArn=arn)["Tags"] == {"team": "b"}
    clients.glue.update_database(Name=unique, DatabaseInput={"Name": unique, "Description": "new"})
    assert clients.glue.get_database(Name=unique)["Database"]["Description"] == "new"
    with pytest.raises(clients.glue.exceptions.InvalidInputException, match="Database cannot be renamed"):
        clients.glue.update_database(Name=unique, DatabaseInput={"Name": "else"})
    clients.glue.create_table(DatabaseName=unique, TableInput=table_input("t"))
    table = f"arn:aws:glue:us-east-1:{ACCOUNT}:table/{unique}/t"
    clients.glue.tag_resource(ResourceArn=table, TagsToAdd={"x": "y"})
    assert clients.glue.get_tags(ResourceArn=table)["Tags"] == {"x": "y"}


def test_functions_as_hive_and_trino_keep_them(clients, database):
    glue = clients.glue
    function = {
        "FunctionName": "Twice",
        "ClassName": "org.example.Twice",
        "OwnerName": "hive",
        "OwnerType": "USER",
        "ResourceUris": [{"ResourceType": "JAR", "Uri": "s3://lake/udf/twice.jar"}],
    }
    with pytest.raises(glue.exceptions.EntityNotFoundException):
        glue.get_user_defined_function(DatabaseName=database, FunctionName="twice")
    glue.create_user_defined_function(DatabaseName=database, FunctionInput=function)
    with pytest.raises(glue.exceptions.AlreadyExistsException):
        glue.create_user_defined_function(DatabaseName=database, FunctionInput=function)
    found = glue.get_user_defined_function(DatabaseName=database, FunctionName="twice")["UserDefinedFunction"]
    assert (found["FunctionName"], found["ResourceUris"]) == ("twice", function["ResourceUris"])
    pages = glue.get_paginator("get_user_defined_functions").paginate(DatabaseName=database, Pattern=".*")
    assert [one["FunctionName"] for page in pages for one in page["UserDefinedFunctions"]] == ["twice"]
    function["ClassName"] = "org.example.Other"
    glue.update_user_defined_function(DatabaseName=database, FunctionName="twice", FunctionInput=function)
    glue.delete_user_defined_function(DatabaseName=database, FunctionName="twice")
    assert glue.get_user_defined_functions(DatabaseName=database, Pattern="*")["UserDefinedFunctions"] == []


def test_tables_are_searched(clients, unique):
    glue = clients.glue
    for suffix, description in (("a", "all clicks"), ("b", "nothing")):
        database = f"{unique}_{suffix}"
        glue.create_database(DatabaseInput={"Name": database})
        for name in ("one", "two"):
            glue.create_table(DatabaseName=database, TableInput=table_input(name, Description=f"{unique} {description}"))
    found, more = [], {}
    while True:
        page = glue.search_tables(SearchText=f"{unique} clicks", MaxResults=1, **more)
        found += [(one["DatabaseName"], one["Name"]) for one in page["TableList"]]
        if "NextToken" not in page:
            break
        more = {"NextToken": page["NextToken"]}
    assert found == [(f"{unique}_a", "one"), (f"{unique}_a", "two")]
    answer = glue.search_tables(
        Filters=[{"Key": "DatabaseName", "Value": f"{unique}_b"}],
        SortCriteria=[{"FieldName": "Name", "Sort": "DESC"}],
    )
    assert [one["Name"] for one in answer["TableList"]] == ["two", "one"]


def test_the_largest_definitions_come_back(clients, database):
    noise = random.Random(7)

    def text(length):
        return "".join(noise.choices("abcdefghijklmnopqrstuvwxyz0123456789+-", k=length))

    given = table_input(
        "large",
        Parameters={"a": text(512_000), "b": text(512_000)},
        ViewOriginalText=text(409_600),
        ViewExpandedText=text(409_600),
        PartitionKeys=[{"Name": "k", "Type": text(131_072)}],
    )
    clients.glue.create_table(DatabaseName=database, TableInput=given)
    found = clients.glue.get_table(DatabaseName=database, Name="large")["Table"]
    for member in ("Parameters", "ViewOriginalText", "ViewExpandedText", "PartitionKeys"):
        assert found[member] == given[member], member
    clients.glue.update_table(DatabaseName=database, TableInput=table_input("large"))
    old = clients.glue.get_table_version(DatabaseName=database, TableName="large", VersionId="0")
    assert old["TableVersion"]["Table"]["ViewOriginalText"] == given["ViewOriginalText"]
    assert len(clients.objects("bodies/", bucket="lakewarden-reports")) > 0


def test_the_catalog_itself(clients):
    assert clients.glue.get_catalog_import_status()["ImportStatus"]["ImportCompleted"]
    assert clients.glue.get_catalog(CatalogId=ACCOUNT)["Catalog"]["CatalogId"] == ACCOUNT
    assert [catalog["CatalogId"] for catalog in clients.glue.get_catalogs()["CatalogList"]] == [ACCOUNT]


def test_constraints_are_told_in_one_message(clients, database):
    with pytest.raises(ClientError) as refused:
        clients.glue.get_tables(DatabaseName=database, Expression="x" * 2049, MaxResults=101)
    error = refused.value.response["Error"]
    assert error["Code"] == "ValidationException"
    assert error["Message"].startswith("2 validation errors detected: Value '")
    assert "at 'expression' failed to satisfy constraint: Member must have length less than or equal to 2048" in error["Message"]

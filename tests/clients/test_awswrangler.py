"""AWS SDK for pandas, unmodified: its catalog functions, and data sets that it registers itself."""

import awswrangler as wr
import boto3
import pandas as pd
import pytest


@pytest.fixture
def session(server):
    endpoints = server.endpoints
    before = (wr.config.glue_endpoint_url, wr.config.s3_endpoint_url)
    wr.config.glue_endpoint_url, wr.config.s3_endpoint_url = endpoints["gateway"], endpoints["s3"]
    yield boto3.Session(
        aws_access_key_id=endpoints["access_key"],
        aws_secret_access_key=endpoints["secret_key"],
        region_name=endpoints["region"],
    )
    wr.config.glue_endpoint_url, wr.config.s3_endpoint_url = before


def test_catalog_functions(session, unique):
    wr.catalog.create_database(unique, description="d", boto3_session=session)
    assert unique in [one["Name"] for one in wr.catalog.get_databases(boto3_session=session)]
    columns = {"id": "bigint", "note": "string"}
    for name in ("orders", "orders_old", "clicks"):
        wr.catalog.create_parquet_table(
            database=unique,
            table=name,
            path=f"s3://lake/wr/{unique}/{name}/",
            columns_types=columns,
            partitions_types={"dt": "string"},
            description=f"about {name}",
            parameters={"source": unique},
            columns_comments={"id": "the number"},
            boto3_session=session,
        )
    assert wr.catalog.does_table_exist(unique, "orders", boto3_session=session)
    assert not wr.catalog.does_table_exist(unique, "nosuch", boto3_session=session)
    assert wr.catalog.get_table_types(unique, "orders", boto3_session=session) == {**columns, "dt": "string"}

    def names(**filters):
        return sorted(one["Name"] for one in wr.catalog.get_tables(database=unique, boto3_session=session, **filters))

    assert names() == ["clicks", "orders", "orders_old"]
    assert names(name_prefix="ord") == ["orders", "orders_old"]
    assert names(name_suffix="old") == ["orders_old"]
    assert names(name_contains="rder") == ["orders", "orders_old"]
    found = wr.catalog.search_tables(text=unique, boto3_session=session)
    assert sorted(one["Name"] for one in found) == ["clicks", "orders", "orders_old"]
    frame = wr.catalog.tables(database=unique, boto3_session=session)
    assert sorted(frame["Table"]) == ["clicks", "orders", "orders_old"]
    wr.catalog.upsert_table_parameters({"owner": "me"}, unique, "orders", catalog_versioning=True, boto3_session=session)
    parameters = wr.catalog.get_table_parameters(unique, "orders", boto3_session=session)
    assert (parameters["owner"], parameters["source"]) == ("me", unique)
    assert wr.catalog.get_table_number_of_versions(unique, "orders", boto3_session=session) == 2
    assert wr.catalog.get_columns_comments(unique, "orders", boto3_session=session)["id"] == "the number"
    wr.catalog.add_column(unique, "orders", "extra", "double", "a comment", boto3_session=session)
    assert "extra" in wr.catalog.get_table_types(unique, "orders", boto3_session=session)
    wr.catalog.delete_column(unique, "orders", "extra", boto3_session=session)
    partitions = {f"s3://lake/wr/{unique}/orders/dt={day}/": [day] for day in ("2024-01-01", "2024-01-02")}
    for _ in range(2):
        wr.catalog.add_parquet_partitions(unique, "orders", partitions, boto3_session=session)
    assert wr.catalog.get_parquet_partitions(unique, "orders", boto3_session=session) == partitions
    wr.catalog.delete_partitions("orders", unique, [["2024-01-01"]], boto3_session=session)
    assert list(wr.catalog.get_partitions(unique, "orders", boto3_session=session).values()) == [["2024-01-02"]]
    wr.catalog.delete_all_partitions("orders", unique, boto3_session=session)
    assert wr.catalog.get_partitions(unique, "orders", boto3_session=session) == {}
    assert wr.catalog.delete_table_if_exists(unique, "orders", boto3_session=session)
    assert not wr.catalog.delete_table_if_exists(unique, "orders", boto3_session=session)
    wr.catalog.delete_database(unique, boto3_session=session)
    assert unique not in [one["Name"] for one in wr.catalog.get_databases(boto3_session=session)]


def test_a_data_set_is_written_and_registered(session, unique):
    wr.catalog.create_database(unique, boto3_session=session)
    path = f"s3://lake/wr/{unique}/sales/"
    for mode, days in (("append", ["a", "b"]), ("append", ["c"]), ("overwrite_partitions", ["c"])):
        frame = pd.DataFrame({"id": range(len(days)), "day": days})
        wr.s3.to_parquet(
            frame,
            path=path,
            dataset=True,
            database=unique,
            table="sales",
            partition_cols=["day"],
            mode=mode,
            boto3_session=session,
        )
    values = wr.catalog.get_partitions(unique, "sales", boto3_session=session).values()
    assert sorted(values) == [["a"], ["b"], ["c"]]
    frame = pd.DataFrame({"id": [9], "day": ["z"]})
    wr.s3.to_parquet(
        frame,
        path=path,
        dataset=True,
        database=unique,
        table="sales",
        partition_cols=["day"],
        mode="overwrite",
        boto3_session=session,
    )
    assert list(wr.catalog.get_partitions(unique, "sales", boto3_session=session).values()) == [["z"]]

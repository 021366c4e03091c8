"""PyIceberg's Glue catalog, unmodified, against the gateway and the embedded S3."""

import concurrent.futures

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError


def rows(*ids):
    days = [f"2026-01-{1 + number % 2:02}" for number in ids]
    return pa.table({"id": pa.array(ids, pa.int64()), "dt": pa.array(days, pa.string())})


def test_a_table_lives_from_creation_to_drop(clients, unique):
    catalog = clients.iceberg()
    catalog.create_namespace(unique)
    name = f"{unique}.orders"
    table = catalog.create_table(name, schema=rows().schema, location=f"s3://lake/iceberg/{unique}/orders")
    table.append(rows(1, 2, 3))
    table.append(rows(4))
    again = clients.iceberg().load_table(name)
    assert sorted(again.scan().to_arrow()["id"].to_pylist()) == [1, 2, 3, 4]
    assert len(again.snapshots()) == 2
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table(name, schema=rows().schema, location=f"s3://lake/iceberg/{unique}/orders")
    catalog.drop_table(name)
    with pytest.raises(NoSuchTableError):
        catalog.load_table(name)


def test_of_two_writers_with_one_base_both_land_or_one_is_told(clients, unique):
    catalog = clients.iceberg()
    catalog.create_namespace(unique)
    name = f"{unique}.orders"
    catalog.create_table(name, schema=rows().schema, location=f"s3://lake/iceberg/{unique}/orders")
    first, second = clients.iceberg().load_table(name), clients.iceberg().load_table(name)
    first.append(rows(1))
    landed = {1}
    try:
        second.append(rows(2))
        landed.add(2)
    except Exception as refused:
        assert type(refused).__name__ == "CommitFailedException", refused
    assert set(clients.iceberg().load_table(name).scan().to_arrow()["id"].to_pylist()) == landed


def test_a_table_is_renamed_and_namespaces_keep_their_properties(clients, unique):
    catalog = clients.iceberg()
    catalog.create_namespace(unique, {"comment": "all", "owner": "me"})
    assert catalog.load_namespace_properties(unique)["owner"] == "me"
    catalog.update_namespace_properties(unique, removals={"owner"}, updates={"stage": "test"})
    properties = catalog.load_namespace_properties(unique)
    assert properties["stage"] == "test" and "owner" not in properties
    catalog.create_table(f"{unique}.old", schema=rows().schema, location=f"s3://lake/iceberg/{unique}/old").append(rows(1))
    catalog.rename_table(f"{unique}.old", f"{unique}.new")
    assert catalog.list_tables(unique) == [(unique, "new")]
    assert catalog.load_table(f"{unique}.new").scan().to_arrow()["id"].to_pylist() == [1]
    with pytest.raises(NoSuchTableError):
        catalog.load_table(f"{unique}.old")
    catalog.drop_table(f"{unique}.new")
    catalog.drop_namespace(unique)


def test_many_appends_at_once_all_land_when_they_are_tried_again(clients, unique):
    catalog = clients.iceberg()
    catalog.create_namespace(unique)
    name = f"{unique}.orders"
    catalog.create_table(name, schema=rows().schema, location=f"s3://lake/iceberg/{unique}/orders")

    def append(number):
        for _ in range(50):
            try:
                clients.iceberg().load_table(name).append(rows(number))
                return
            except CommitFailedException:
                continue
        raise AssertionError(f"{number} never landed")

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(append, range(8)))
    table = clients.iceberg().load_table(name)
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(8))
    assert len(table.snapshots()) == 8
    # Every commit skipped the archive, as this client asks for.
    versions = clients.glue.get_table_versions(DatabaseName=unique, TableName="orders")["TableVersions"]
    assert [version["VersionId"] for version in versions] == ["8"]

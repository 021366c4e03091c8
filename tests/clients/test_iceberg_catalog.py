"""PyIceberg's Glue catalog, unmodified, against the gateway and the embedded S3."""

import pyarrow as pa
import pytest
from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError


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

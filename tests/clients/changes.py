"""Changes of a table that an engine makes in a copy, what they mean, and tables to make them on.

A table is a mapping of ids to days here: nothing else of a row matters.
"""

import uuid

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from delta import Delta, rows

# Ids 1 to 3 in one file, 11 to 13 in another.
BASE = {1: "a", 2: "a", 3: "a", 11: "b", 12: "b", 13: "b"}


class Append:
    def __init__(self, number, dt="a"):
        self.number, self.dt = number, dt

    def deltalake(self, uri, options):
        write_deltalake(uri, rows(self.number, dt=self.dt), mode="append", storage_options=options)

    def sql(self, name):
        return [f"INSERT INTO {name} VALUES ({self.number}, '{self.dt}')"]

    def effect(self, table):
        return table | {self.number: self.dt}


class Overwrite(Append):
    def deltalake(self, uri, options):
        write_deltalake(uri, rows(self.number, dt=self.dt), mode="overwrite", storage_options=options)

    def sql(self, name):
        return [f"INSERT OVERWRITE {name} VALUES ({self.number}, '{self.dt}')"]

    def effect(self, table):
        return {self.number: self.dt}


class OverwriteDay(Append):
    """Replaces one day."""

    def deltalake(self, uri, options):
        day = f"dt = '{self.dt}'"
        write_deltalake(uri, rows(self.number, dt=self.dt), mode="overwrite", predicate=day, storage_options=options)

    sql = None

    def effect(self, table):
        return {number: dt for number, dt in table.items() if dt != self.dt} | {self.number: self.dt}


class Delete:
    def __init__(self, predicate, goes):
        self.predicate, self.goes = predicate, goes

    def deltalake(self, uri, options):
        DeltaTable(uri, storage_options=options).delete(self.predicate)

    def sql(self, name):
        return [f"DELETE FROM {name} WHERE {self.predicate}"]

    def effect(self, table):
        return {number: dt for number, dt in table.items() if not self.goes(number, dt)}


class Raise(Delete):
    """UPDATE that adds a thousand to the ids."""

    def deltalake(self, uri, options):
        DeltaTable(uri, storage_options=options).update(updates={"id": "id + 1000"}, predicate=self.predicate)

    def sql(self, name):
        return [f"UPDATE {name} SET id = id + 1000 WHERE {self.predicate}"]

    def effect(self, table):
        return {number + 1000 * self.goes(number, dt): dt for number, dt in table.items()}


class Optimize:
    sql = None

    def deltalake(self, uri, options):
        DeltaTable(uri, storage_options=options).optimize.compact()

    def effect(self, table):
        return table


class SetProperty:
    sql = None

    def deltalake(self, uri, options):
        DeltaTable(uri, storage_options=options).alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"})

    def effect(self, table):
        return table


def create(kind, clients, name, sail):
    """A table with the rows of BASE. The kind: `plain`, `by day` (partitioned) or `vectors` (with deletion vectors), and
    `serializable` for the stricter isolation level."""
    table = Delta(clients, name)
    files = [rows(*[number for number, dt in BASE.items() if dt == day], dt=day) for day in ("a", "b")]
    if kind == "vectors":
        properties = "'delta.enableDeletionVectors'='true', 'delta.feature.deletionVectors'='supported'"
        create = f"CREATE TABLE {name} (id bigint, dt string) USING delta LOCATION '{table.uri}' TBLPROPERTIES({properties})"
        sail.ask("sql", statements=[create])
        for file in files:
            table.write(file, mode="append")
        return table
    configuration = {"delta.isolationLevel": "Serializable"} if "serializable" in kind else None
    if kind.startswith("by day"):
        table.write(pa.concat_tables(files), partition_by=["dt"], configuration=configuration)
    else:
        table.write(files[0], configuration=configuration)
        table.write(files[1], mode="append")
    return table


def fork(table, change, engine, sail):
    """A proposal."""
    if engine == "deltalake":
        return table.fork(change.deltalake)

    def by_sail(uri, _):
        name = f"f{uuid.uuid4().hex}"
        sail.ask("sql", statements=[f"CREATE TABLE {name} USING delta LOCATION '{uri}'", *change.sql(name)])

    return table.fork(by_sail)

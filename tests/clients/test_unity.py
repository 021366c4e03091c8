"""Catalog-managed tables: unmodified Sail through Unity Catalog's calls, and the calls themselves."""

import io
import json
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import requests

import engines
from conftest import LAKE
from engines import EngineError
from lakewarden_server import wait_until

BASE = "/api/2.1/unity-catalog"
MANAGED = {
    "delta.feature.catalogManaged": "supported",
    "delta.feature.inCommitTimestamp": "supported",
    "delta.enableInCommitTimestamps": "true",
    "delta.feature.deletionVectors": "supported",
    "delta.enableDeletionVectors": "true",
}


@pytest.fixture(scope="session")
def sessions(server):
    """Two Sail sessions of their own processes."""
    both = [engines.sail_with_unity(server) for _ in range(2)]
    yield both
    for engine in both:
        engine.close()


class Unity:
    """The calls, as a client of plain HTTP makes them."""

    def __init__(self, server):
        self.base = server.endpoints["gateway"] + BASE

    def __call__(self, method, path, body=None, status=200, **query):
        answer = requests.request(method, self.base + path, json=body, params=query, timeout=60)
        assert answer.status_code == status, f"{method} {path} -> {answer.status_code}: {answer.text}"
        return answer.json()


@pytest.fixture(scope="session")
def unity(server):
    return Unity(server)


def create(session, database, name, columns="id BIGINT, v STRING", rest=""):
    properties = ", ".join(f"'{key}'='{value}'" for key, value in MANAGED.items())
    session.ask("sql", statements=[f"CREATE TABLE sail.{database}.{name} ({columns}) USING delta {rest} TBLPROPERTIES ({properties})"])
    return f"sail.{database}.{name}"


def rows_of(session, table):
    return sorted(session.ask("sql", statements=[f"SELECT * FROM {table}"]))


def table_of(unity, database, name):
    return unity("GET", f"/tables/unity%2E{database}%2E{name}")


def log_of(clients, table):
    prefix = table["storage_location"].removeprefix(f"s3://{LAKE}/") + "/_delta_log/"
    names = [key.removeprefix(prefix) for key in clients.objects(prefix)]
    return sorted(int(name[:20]) for name in names if len(name) == 25 and name.endswith(".json"))


def commits_of(unity, table, **members):
    return unity("GET", "/delta/preview/commits", {"table_id": table["table_id"], "table_uri": table["storage_location"], **members})


def test_sail_creates_inserts_deletes_updates_and_merges(sessions, unity, clients, database, server):
    one, other = sessions
    table = create(one, database, "t")
    one.ask("sql", statements=[f"INSERT INTO {table} SELECT id, 'x' FROM range(0, 10)"])
    one.ask("sql", statements=[f"DELETE FROM {table} WHERE id = 3"])
    assert len(rows_of(other, table)) == 9, "another session sees what was ratified"
    other.ask("sql", statements=[f"UPDATE {table} SET v = 'y' WHERE id = 5"])
    one.ask("sql", statements=[f"""MERGE INTO {table} t USING (SELECT 7 AS id, 'm' AS v UNION ALL SELECT 100, 'n') s ON t.id = s.id
        WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *"""])
    expected = {id: "x" for id in range(10) if id != 3} | {5: "y", 7: "m", 100: "n"}
    assert dict(rows_of(one, table)) == dict(rows_of(other, table)) == expected
    info = table_of(unity, database, "t")
    assert (info["table_type"], info["data_source_format"]) == ("MANAGED", "DELTA")
    assert commits_of(unity, info)["latest_table_version"] == 4
    listed = server.ok("GET", f"/v1/databases/{database}/tables/t/commits")["commits"]
    assert [commit["version"] for commit in reversed(listed)] == [1, 2, 3, 4]
    # Sail published all but perhaps the last; what it leaves is done here.
    wait_until(lambda: not commits_of(unity, info)["commits"], "everything published", 60)
    assert log_of(clients, info) == [0, 1, 2, 3, 4]
    assert server.ok("GET", f"/v1/databases/{database}/tables/t/commits/alarms")["alarms"] == []


def test_two_sessions_race_and_nothing_is_lost(sessions, database, unity):
    table = create(sessions[0], database, "race")
    sessions[0].ask("sql", statements=[f"INSERT INTO {table} SELECT id, 'x' FROM range(0, 8)"])
    done, refused = [], []
    for turn in range(4):
        for at, session in enumerate(sessions):
            session.send("sql", statements=[f"DELETE FROM {table} WHERE id = {2 * turn + at}"])
        for at, session in enumerate(sessions):
            try:
                session.receive()
                done.append(2 * turn + at)
            except EngineError as error:
                assert "conflict" in error.text.lower(), error
                refused.append(2 * turn + at)
    assert len(done) >= 4, "in every turn somebody wins"
    assert [row[0] for row in rows_of(sessions[0], table)] == sorted(refused)
    assert commits_of(unity, table_of(unity, database, "race"))["latest_table_version"] == 1 + len(done)


def test_appends_of_two_sessions_all_arrive(sessions, database, server):
    table = create(sessions[0], database, "appends")
    for turn in range(3):
        for at, session in enumerate(sessions):
            session.send("sql", statements=[f"INSERT INTO {table} VALUES ({2 * turn + at}, 'x')"])
        for at, session in enumerate(sessions):
            try:
                session.receive()
            except EngineError as error:
                assert "conflict" in error.text.lower(), server.tail(40)
                session.ask("sql", statements=[f"INSERT INTO {table} VALUES ({2 * turn + at}, 'x')"])
    assert [row[0] for row in rows_of(sessions[1], table)] == list(range(6))


def test_partitions_of_managed_tables_are_in_the_catalog(sessions, clients, database):
    table = create(sessions[0], database, "parts", "id BIGINT, day STRING", "PARTITIONED BY (day)")
    sessions[0].ask("sql", statements=[f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')"])

    def partitions():
        found = clients.glue.get_partitions(DatabaseName=database, TableName="parts")["Partitions"]
        return sorted(partition["Values"][0] for partition in found)

    assert wait_until(lambda: partitions() == ["a", "b"], "both partitions registered")


def test_tables_are_listed_described_and_dropped(sessions, unity, database):
    table = create(sessions[0], database, "listed")
    names = [row[1] for row in sessions[1].ask("sql", statements=[f"SHOW TABLES IN sail.{database}"])]
    assert names == ["listed"]
    sessions[0].ask("sql", statements=[f"DROP TABLE {table}"])
    unity("GET", f"/tables/unity.{database}.listed", status=404)
    # One created again under the name is another table.
    create(sessions[1], database, "listed")
    assert rows_of(sessions[0], table) == []


class Managed:
    """A catalog-managed table that is written by hand, so that its commits can be anything."""

    def __init__(self, unity, clients, database, name):
        self.unity, self.clients = unity, clients
        place = {"catalog_name": "unity", "schema_name": database, "name": name}
        staged = unity("POST", "/staging-tables", place)
        self.id, self.uri = staged["id"], staged["staging_location"]
        self.prefix = self.uri.removeprefix(f"s3://{LAKE}/")
        fields = [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]
        schema = json.dumps({"type": "struct", "fields": fields})
        features = ["catalogManaged", "vacuumProtocolCheck"]
        self.log(0, [
            self.info(0, operation="CREATE TABLE"),
            {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features,
                          "writerFeatures": [*features, "inCommitTimestamp"]}},
            {"metaData": {"id": str(uuid.uuid4()), "format": {"provider": "parquet", "options": {}}, "schemaString": schema,
                          "partitionColumns": [],
                          "configuration": {"delta.enableInCommitTimestamps": "true", "io.unitycatalog.tableId": self.id}}},
        ])
        columns = [{"name": "id", "type_text": "bigint", "type_name": "LONG", "type_json": json.dumps(fields[0]), "position": 0, "nullable": True}]
        unity("POST", "/tables", place | {
            "table_type": "MANAGED", "data_source_format": "DELTA", "columns": columns, "storage_location": self.uri,
        })

    def info(self, version, **members):
        return {"commitInfo": {"operation": "WRITE", "operationParameters": {"mode": "Append"}, "isBlindAppend": True,
                               "inCommitTimestamp": 1_000 + version, "txnId": str(uuid.uuid4())} | members}

    def put(self, key, body):
        self.clients.s3.put_object(Bucket=LAKE, Key=f"{self.prefix}/{key}", Body=body)

    def log(self, version, actions):
        self.put(f"_delta_log/{version:020}.json", "".join(json.dumps(action) + "\n" for action in actions).encode())

    def file(self, column="id", values=(1,), kind=None):
        sink = io.BytesIO()
        pq.write_table(pa.table({column: pa.array(values, kind or pa.int64())}), sink)
        path = f"part-{uuid.uuid4()}.parquet"
        self.put(path, sink.getvalue())
        return {"add": {"path": path, "partitionValues": {}, "size": len(sink.getvalue()), "modificationTime": 1,
                        "dataChange": True, "stats": json.dumps({"numRecords": len(values)})}}

    def stage(self, version, actions=None, file_id=None):
        """A commit call for a staged file."""
        actions = actions or [self.info(version), self.file()]
        body = "".join(json.dumps(action) + "\n" for action in actions).encode()
        name = f"{version:020}.{file_id or uuid.uuid4()}.json"
        self.put(f"_delta_log/_staged_commits/{name}", body)
        return {"table_id": self.id, "table_uri": self.uri, "commit_info": {
            "version": version, "timestamp": 1_000 + version, "file_name": name, "file_size": len(body),
            "file_modification_timestamp": int(time.time() * 1000),
        }}

    def commit(self, call, status=200):
        return self.unity("POST", "/delta/preview/commits", call, status)

    def unpublished(self, **members):
        found = commits_of(self.unity, {"table_id": self.id, "storage_location": self.uri}, **members)
        return [commit["version"] for commit in found["commits"]], found["latest_table_version"]


@pytest.fixture
def managed(unity, clients, database, server):
    """Nothing is published but by the test."""
    server.pause_events()
    yield Managed(unity, clients, database, "m")
    server.resume_events()
    server.wait_idle()


def test_commits_are_ratified_in_order_and_once(managed):
    assert managed.unpublished() == ([], 0)
    first, rival = managed.stage(1), managed.stage(1)
    assert managed.commit(first) == {} == managed.commit(first), "a replay is the same commit"
    refused = managed.commit(rival, 409)
    assert refused["error_code"] == "ALREADY_EXISTS" and "VERSION_TAKEN" in refused["message"]
    assert managed.commit(rival, 409) == refused
    assert "VERSION_AHEAD" in managed.commit(managed.stage(5), 409)["message"]
    managed.commit(managed.stage(2))
    assert managed.unpublished() == ([1, 2], 2)
    assert managed.unpublished(start_version=2) == ([2], 2)
    assert managed.unpublished(start_version=1, end_version=1) == ([1], 2)


def test_the_same_call_many_times_at_once(managed):
    calls = [managed.stage(1) for _ in range(3)]
    with ThreadPoolExecutor(9) as pool:
        send = lambda call: requests.post(managed.unity.base + "/delta/preview/commits", json=call, timeout=60).status_code
        statuses = list(pool.map(send, calls * 3))
    first, second, third = statuses[0::3], statuses[1::3], statuses[2::3]
    assert sorted([set(first) - {503}, set(second) - {503}, set(third) - {503}], key=str) == [{200}, {409}, {409}], statuses


def test_ten_commits_may_be_unpublished(managed, clients, server):
    for version in range(1, 11):
        managed.commit(managed.stage(version))
    eleventh = managed.stage(11)
    assert managed.commit(eleventh, 429)["error_code"] == "RESOURCE_EXHAUSTED"
    # The client publishes two, and says so with its next commit.
    for version in (1, 2):
        source = f"{managed.prefix}/_delta_log/_staged_commits/"
        key = next(key for key in clients.objects(f"{source}{version:020}."))
        clients.s3.copy_object(Bucket=LAKE, Key=f"{managed.prefix}/_delta_log/{version:020}.json", CopySource={"Bucket": LAKE, "Key": key})
    assert managed.commit({"table_id": managed.id, "table_uri": managed.uri, "latest_backfilled_version": 2}) == {}
    assert managed.unpublished() == (list(range(3, 11)), 10)
    assert managed.unpublished(start_version=2, end_version=2) == ([2], 10), "asked for, and published"
    managed.commit(eleventh | {"latest_backfilled_version": 2})
    managed.commit({"table_id": managed.id, "latest_backfilled_version": 12}, 400)
    # What the client leaves undone is done here.
    server.resume_events()
    wait_until(lambda: managed.unpublished() == ([], 11), "all published", 90)
    for key in clients.objects(f"{managed.prefix}/_delta_log/_staged_commits/"):
        version = key.rsplit("/", 1)[1][:20]
        staged = clients.s3.get_object(Bucket=LAKE, Key=key)["Body"].read()
        assert staged == clients.s3.get_object(Bucket=LAKE, Key=f"{managed.prefix}/_delta_log/{version}.json")["Body"].read()


def test_a_schema_violation_is_refused_before_it_is_visible(managed, clients):
    wrong_type = managed.stage(1, [managed.info(1), managed.file(values=("x",), kind=pa.string())])
    refused = managed.commit(wrong_type, 400)
    assert refused["error_code"] == "INVALID_ARGUMENT" and "SchemaMismatchException" in refused["message"]
    extra = managed.stage(1, [managed.info(1), managed.file(column="other")])
    assert "SchemaMismatchException" in managed.commit(extra, 400)["message"]
    assert managed.unpublished() == ([], 0)
    assert log_of(clients, {"storage_location": managed.uri}) == [0]
    managed.commit(managed.stage(1))


def test_what_a_call_says_must_be_so(managed):
    def changed(call, **members):
        return call | {"commit_info": call["commit_info"] | members}

    good = managed.stage(1)
    for bad, text in (
        (changed(good, timestamp=5), "inCommitTimestamp"),
        (changed(good, file_size=1), "file_size"),
        (changed(good, version=2), "file_name"),
        (changed(good, file_name="../x.json"), "file_name"),
        (changed(good, file_name=f"{1:020}.{uuid.uuid4()}.json"), "no staged file"),
        (good | {"table_uri": "s3://lake/elsewhere"}, "lies at"),
        ({"table_id": managed.id}, "neither"),
    ):
        assert text in managed.commit(bad, 400)["message"]
    managed.commit(good | {"table_id": str(uuid.uuid4())}, 404)
    managed.commit(good | {"table_id": "no uuid"}, 404)
    early = managed.stage(1, [managed.info(1, inCommitTimestamp=1_000), managed.file()])
    early["commit_info"]["timestamp"] = 1_000
    assert "IN_COMMIT_TIMESTAMP" in managed.commit(early, 400)["message"]
    assert "TXN_ID_MISSING" in managed.commit(managed.stage(1, [managed.info(1, txnId=None), managed.file()]), 400)["message"]
    managed.commit(good)


def test_the_other_doors_do_not_judge_managed_tables(managed, server):
    call = managed.stage(1)
    key = f"_delta_log/_staged_commits/{call['commit_info']['file_name']}"
    server.resume_events()
    server.wait_idle()
    answer = requests.post(server.endpoints["gateway"] + "/v1/commits", json={"location": managed.uri, "staged_key": key}, timeout=60)
    assert (answer.status_code, answer.json()["reason"]) == (422, "CATALOG_MANAGED")
    assert managed.unpublished() == ([], 0)
    managed.commit(call)


def test_other_bytes_in_the_log_raise_an_alarm(managed, server):
    managed.commit(managed.stage(1))
    managed.log(1, [managed.info(1)])
    server.resume_events()
    path = f"/v1/commits/alarms?location={managed.uri}"
    alarms = wait_until(lambda: server.ok("GET", path)["alarms"], "an alarm")
    assert alarms[0]["kind"] == "PUBLISHED_OTHERWISE"
    assert managed.unpublished() == ([1], 1)


def test_names_arrive_encoded_and_unknown_things_are_named(unity, database):
    assert unity("GET", f"/schemas/unity%2E{database}")["full_name"] == f"unity.{database}"
    assert unity("GET", f"/schemas/unity.{database}")["name"] == database
    assert [catalog["name"] for catalog in unity("GET", "/catalogs")["catalogs"]] == ["unity"]
    assert unity("GET", "/catalogs/unity")["name"] == "unity"
    assert database in [schema["name"] for schema in unity("GET", "/schemas", catalog_name="unity")["schemas"]]
    for path in ("/catalogs/other", "/schemas/unity.none", f"/tables/unity.{database}.none", "/nothing"):
        assert unity("GET", path, status=404)["error_code"] == "NOT_FOUND"
    unity("POST", "/temporary-table-credentials", {"table_id": "x"}, status=400)
    answer = unity("POST", "/temporary-table-credentials", {"table_id": "x", "operation": "READ"})
    assert sorted(answer) == ["expiration_time", "url"], "no keys"
    unity("POST", "/staging-tables", {"name": "x"}, status=400)


def test_schemas_are_databases(unity, clients, unique):
    unity("POST", "/schemas", {"name": unique, "catalog_name": "unity", "comment": "c", "storage_root": f"s3://{LAKE}/own/{unique}"})
    assert clients.glue.get_database(Name=unique)["Database"]["LocationUri"] == f"s3://{LAKE}/own/{unique}"
    unity("POST", "/schemas", {"name": unique, "catalog_name": "unity"}, status=409)
    place = {"catalog_name": "unity", "schema_name": unique, "name": "t"}
    staged = unity("POST", "/staging-tables", place)
    assert staged["staging_location"] == f"s3://{LAKE}/own/{unique}/{staged['id']}"
    new = place | {"table_type": "MANAGED", "data_source_format": "DELTA", "columns": []}
    unity("POST", "/tables", new | {"storage_location": f"s3://{LAKE}/own/{unique}/x"}, status=400)
    unity("POST", "/tables", new | {"name": "other", "storage_location": staged["staging_location"]}, status=400)
    unity("POST", "/tables", new | {"storage_location": staged["staging_location"]})
    unity("POST", "/tables", new | {"storage_location": staged["staging_location"]}, status=409)
    unity("DELETE", f"/schemas/unity.{unique}", status=400)
    unity("DELETE", f"/schemas/unity.{unique}", force="true")
    unity("GET", f"/schemas/unity.{unique}", status=404)


def test_bodies_above_four_megabytes_are_refused_clearly(unity):
    body = {"table_id": "x", "note": "x" * (4 * 1024 * 1024)}
    assert "at most" in unity("POST", "/delta/preview/commits", body, status=413)["message"]

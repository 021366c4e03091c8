"""The Python client (clients/python) as a new user would use it: against a running server, and installed from its wheel."""

import datetime
import decimal
import io
import json
import subprocess
import sys
import threading
import uuid

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import lakewarden
import lakewarden_server
from conftest import LAKE
from lakewarden import Client, stage_append, stage_from_fork
from lakewarden.fork import fork

PACKAGE = lakewarden_server.ROOT / "clients" / "python"


def client_of(server, clients):
    endpoints = server.endpoints
    session = boto3.Session(endpoints["access_key"], endpoints["secret_key"], region_name=endpoints["region"])
    return Client(endpoints["gateway"], session, clients.s3)


@pytest.fixture(scope="module")
def lake(server, clients):
    return client_of(server, clients)


@pytest.fixture
def uri(unique):
    return f"s3://{LAKE}/client/{unique}"


def open_table(clients, uri):
    return DeltaTable(uri, storage_options=clients.storage_options())


def rows(clients, uri):
    return open_table(clients, uri).to_pyarrow_table()


def ids(clients, uri):
    return sorted(rows(clients, uri)["id"].to_pylist())


def numbers(*found, dt="a"):
    return pa.table({"id": pa.array(found, pa.int64()), "dt": [dt] * len(found)})


@pytest.fixture
def table(clients, uri):
    """Ids 1 to 3 in one file, 11 to 13 in another, by deltalake."""
    write_deltalake(uri, numbers(1, 2, 3), storage_options=clients.storage_options())
    write_deltalake(uri, numbers(11, 12, 13, dt="b"), mode="append", storage_options=clients.storage_options())
    return uri


def txn(app, note=""):
    return [{"commitInfo": {"operation": "STREAMING UPDATE", "note": note}}, {"txn": {"appId": app, "version": 1}}]


def objects(clients, uri):
    return clients.objects(uri.removeprefix(f"s3://{LAKE}/") + "/")


# Proposals and verdicts


def test_a_staged_commit_gets_its_verdict(lake, table):
    proposal = lake.stage(table, txn("a"), read_version=1)
    verdict = proposal.wait()
    assert (verdict.status, verdict.version, verdict.read_version, verdict.is_final) == ("committed", 2, 1, True)
    assert lake.verdict(proposal.id) == verdict == lake.verdict(proposal.id, location=table)
    assert lake.latest_version(table) == 2


def test_a_synchronous_proposal_is_carried_out_once(lake, table):
    id = str(uuid.uuid4())
    found = [lake.propose(table, txn("a"), read_version=1, proposal_id=id) for _ in range(2)]
    assert [verdict.version for verdict in found] == [2, 2]
    with pytest.raises(lakewarden.ProposalReusedException):
        lake.propose(table, txn("b"), read_version=1, proposal_id=id)
    assert lake.latest_version(table) == 2


def test_the_same_proposal_from_many_threads_at_once_is_one_commit(lake, table):
    id, found = str(uuid.uuid4()), []
    work = lambda: found.append(lake.propose(table, txn("a"), read_version=1, proposal_id=id).version)  # noqa: E731
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [2, 2, 2, 2] and lake.latest_version(table) == 2


def test_what_is_too_large_for_a_call_is_staged(lake, table):
    large = [{"commitInfo": {"operation": "STREAMING UPDATE", "note": "x" * 4_200_000}}, *txn("a")[1:]]
    assert lake.propose(table, large, read_version=1).version == 2


def test_tables_of_the_catalog_are_named(lake, clients, database, table):
    descriptor = {"Location": table, "Columns": [{"Name": "id", "Type": "bigint"}, {"Name": "dt", "Type": "string"}]}
    clients.glue.create_table(DatabaseName=database, TableInput={"Name": "t", "StorageDescriptor": descriptor})
    assert lake.location_of(database, "t") == table
    assert lake.propose((database, "t"), txn("a"), read_version=1).version == 2
    with pytest.raises(lakewarden.RequestError) as refused:
        lake.propose((database, "nosuch"), txn("a"), read_version=1)
    assert (refused.value.status, refused.value.name) == (404, "TableNotFound") and refused.value.advice


def test_a_refusal_has_the_name_reason_winner_and_advice(lake, table):
    lake.propose(table, txn("app"), read_version=1)
    with pytest.raises(lakewarden.ConcurrentTransactionException) as refused:
        lake.propose(table, txn("app", "another one"), read_version=1)
    error = refused.value
    assert isinstance(error, lakewarden.ConflictRefused)
    assert (error.reason, error.error_class) == ("ALREADY_APPLIED", "DELTA_CONCURRENT_TRANSACTION")
    assert error.winner.version == 2 and error.advice and error.advice in str(error)
    assert error.verdict.status == "rejected"


def test_a_commit_that_is_wrong_by_itself(lake, table):
    with pytest.raises(lakewarden.InvalidRefused) as refused:
        lake.stage_and_wait(table, [{"add": {"path": 5}}], read_version=1)
    assert type(refused.value) is lakewarden.InvalidCommitException
    with pytest.raises(lakewarden.RequestError):
        lake.propose("s3://" + "x" * 300, txn("a"), read_version=0)


def test_no_verdict_is_an_exception_that_names_the_proposal(lake):
    unknown = str(uuid.uuid4())
    assert lake.verdict(unknown) is None
    with pytest.raises(lakewarden.NoVerdictYet) as late:
        lake.wait(unknown, timeout_s=0.3)
    assert late.value.proposal_id == unknown and late.value.status is None


def test_a_server_that_is_away_is_no_verdict(table, clients):
    away = Client("http://127.0.0.1:9", boto3.Session("k", "s", region_name="us-east-1"), clients.s3)
    with pytest.raises(lakewarden.NoVerdictYet):
        away.propose(table, txn("a"), read_version=1, timeout_s=0.3)


def test_requests_are_signed_for_the_api(lake, monkeypatch):
    sent = []
    real = lake._http.send
    monkeypatch.setattr(lake._http, "send", lambda request: sent.append(request) or real(request))
    lake.verdict(str(uuid.uuid4()))
    authorization = sent[0].headers["Authorization"]
    authorization = authorization.decode() if isinstance(authorization, bytes) else authorization
    assert authorization.startswith("AWS4-HMAC-SHA256") and "/execute-api/aws4_request" in authorization


def test_a_gateway_must_be_named(monkeypatch):
    monkeypatch.delenv("LAKEWARDEN_GATEWAY", raising=False)
    with pytest.raises(ValueError, match="LAKEWARDEN_GATEWAY"):
        Client()


# Leases


def test_a_lease_is_taken_renewed_and_given_back(lake, server, clients, database, table):
    descriptor = {"Location": table, "Columns": [{"Name": "id", "Type": "bigint"}]}
    clients.glue.create_table(DatabaseName=database, TableInput={"Name": "t", "StorageDescriptor": descriptor})
    with lake.lease(database, "t", prefixes=[f"{table}/new"], keys=[f"{table}/x.parquet"], ttl_s=600, holder="job") as lease:
        assert lease.missing == [f"{table}/x.parquet"]
        before = lease.expires_at_ms
        lease.renew(3600)
        assert lease.expires_at_ms > before
        held = server.ok("GET", f"/v1/databases/{database}/tables/t/leases")["leases"]
        assert [one["lease_id"] for one in held] == [lease.id]
    assert server.ok("GET", f"/v1/databases/{database}/tables/t/leases")["leases"] == []
    lease.release()
    with pytest.raises(lakewarden.RequestError):
        lake.lease(database, "t", prefixes=["s3://elsewhere/x"])


# Appends of Arrow tables

MOMENT = datetime.datetime(2026, 11, 1, 12, 0, 0, 123456, datetime.timezone.utc)


def every_type():
    return pa.table(
        {
            "id": pa.array([1, 2, None], pa.int64()),
            "i": pa.array([1, -5, 3], pa.int32()),
            "s": pa.array([1, 2, 3], pa.int16()),
            "b": pa.array([1, 2, 3], pa.int8()),
            "d": pa.array([1.5, -0.25, None]),
            "f": pa.array([1.5, float("nan"), 0.0], pa.float32()),
            "t": pa.array(["a", "ü" * 50, None]),
            "flag": [True, None, False],
            "bytes": pa.array([b"x", None, b"\x00"]),
            "day": pa.array([datetime.date(2026, 1, 1), None, datetime.date(1969, 12, 31)]),
            "at": pa.array([MOMENT, None, MOMENT.replace(year=1965)], pa.timestamp("us", "UTC")),
            "n": pa.array([decimal.Decimal("1.10"), decimal.Decimal("-99.99"), None], pa.decimal128(6, 2)),
            "list": pa.array([[1, 2], None, []], pa.list_(pa.int64())),
            "deep": pa.array([{"x": 1, "y": "a"}, None, {"x": None, "y": "b"}]),
            "void": pa.array([None, None, None], pa.string()),
        }
    )


def test_an_append_creates_a_table_and_goes_on(lake, clients, uri):
    data = every_type()
    assert stage_append(lake, uri, data).version == 0
    assert stage_append(lake, uri, data).version == 1
    found = rows(clients, uri).sort_by("i")
    assert found.num_rows == 6
    for name in data.column_names:
        assert str(found.column(name).to_pylist()[1]) == str(data.sort_by("i").column(name).to_pylist()[0]), name
    # Its statistics let deltalake skip files, and never too many.
    table = open_table(clients, uri)
    assert pa.table(table.get_add_actions(flatten=True))["num_records"].to_pylist() == [3, 3]
    assert table.to_pyarrow_table(filters=[("id", "=", 2)]).num_rows == 2
    assert table.to_pyarrow_table(filters=[("at", "=", MOMENT)]).num_rows == 2
    assert table.to_pyarrow_table(filters=[("t", "=", "ü" * 50)]).num_rows == 2


PARTITIONS = [("a", 1), ("a b", 2), ("c/d=é%", 3), (None, 4), ("__HIVE_DEFAULT_PARTITION__x", 5), ("'", 6), ("a", 7)]


def test_rows_go_into_their_partitions(lake, clients, uri):
    data = pa.table({"d": [d for d, _ in PARTITIONS], "n": pa.array([n % 2 for _, n in PARTITIONS], pa.int32()),
                     "id": [n for _, n in PARTITIONS]})  # fmt: skip
    stage_append(lake, uri, data, partition_by=["d", "n"])
    stage_append(lake, uri, data.slice(0, 3))
    found = rows(clients, uri)
    assert sorted(found["id"].to_pylist()) == sorted([n for _, n in PARTITIONS] + [1, 2, 3])
    assert {(row["d"], row["id"]) for row in found.to_pylist()} == set(PARTITIONS)
    # deltalake goes on with it.
    write_deltalake(uri, data.slice(1, 1), mode="append", storage_options=clients.storage_options())
    open_table(clients, uri).delete("d = 'a b'")
    assert 2 not in ids(clients, uri)
    with pytest.raises(ValueError, match="partition columns"):
        stage_append(lake, uri, data.drop_columns(["n"]))
    with pytest.raises(ValueError, match="partitioned by"):
        stage_append(lake, uri, data, partition_by=["d"])


def test_widths_are_brought_to_the_tables_and_nothing_else(lake, clients, table):
    narrow = pa.table({"dt": pa.array(["n"], pa.large_string()), "id": pa.array([7], pa.int8())})
    stage_append(lake, table, narrow)
    stage_append(lake, table, pa.table({"id": [8]}))
    assert ids(clients, table) == [1, 2, 3, 7, 8, 11, 12, 13]
    for wrong in ({"id": ["9"]}, {"id": [9.0]}, {"id": [9], "more": [1]}, {"ID": [9]}):
        with pytest.raises(lakewarden.SchemaMismatchException) as refused:
            stage_append(lake, table, pa.table(wrong))
        assert refused.value.place.column in ("id", "more", "ID") and refused.value.advice
    assert lake.latest_version(table) == 3
    with pytest.raises(ValueError, match="no rows"):
        stage_append(lake, table, narrow.slice(0, 0))


def test_a_table_with_checkpoints_is_read_from_them(lake, clients, table):
    for number in range(100, 104):
        write_deltalake(table, numbers(number), mode="append", storage_options=clients.storage_options())
    opened = open_table(clients, table)
    opened.create_checkpoint()
    for version in range(5):
        clients.s3.delete_object(Bucket=LAKE, Key=f"{table.removeprefix(f's3://{LAKE}/')}/_delta_log/{version:020}.json")
    assert lake.latest_version(table) == 5
    assert stage_append(lake, table, numbers(200)).version == 6
    assert ids(clients, table)[-1] == 200


def test_an_append_with_its_applications_transaction_lands_once(lake, clients, table):
    stage_append(lake, table, numbers(20), app_transaction=("job", 1))
    with pytest.raises(lakewarden.ConcurrentTransactionException) as refused:
        lake.propose(table, txn("job"), read_version=1)
    assert refused.value.reason == "ALREADY_APPLIED"


def test_appends_at_once_all_land(lake, server, clients, table):
    def work(number):
        stage_append(client_of(server, clients), table, numbers(number))

    threads = [threading.Thread(target=work, args=[number]) for number in range(100, 106)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ids(clients, table) == [1, 2, 3, 11, 12, 13, *range(100, 106)]


# Forks


def optimize(table):
    table.optimize.compact()


def merge(table):
    source = pa.table({"id": pa.array([2, 500], pa.int64()), "dt": ["m", "m"]})
    merging = table.merge(source, "target.id = source.id", source_alias="source", target_alias="target")
    merging.when_matched_update_all().when_not_matched_insert_all().execute()


CHANGES = {
    "delete": (lambda table: table.delete("id = 1"), [2, 3, 11, 12, 13]),
    "update": (lambda table: table.update(updates={"id": "id + 100"}, predicate="id = 1"), [2, 3, 11, 12, 13, 101]),
    "merge": (merge, [1, 2, 3, 11, 12, 13, 500]),
    "optimize": (optimize, [1, 2, 3, 11, 12, 13]),
    "overwrite": (lambda table: write_deltalake(table, numbers(9), mode="overwrite"), [9]),
}


def forks(clients):
    return [key for key in clients.objects("_lakewarden_forks/") if not key.endswith("/")]


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("partitioned", [False, True], ids=["plain", "by day"])
def test_deltalakes_changes_are_proposed(lake, clients, uri, name, partitioned):
    days = {"partition_by": ["dt"]} if partitioned else {}
    data = pa.concat_tables([numbers(1, 2, 3, dt="a b"), numbers(11, 12, dt="c/d")])
    write_deltalake(uri, data, storage_options=clients.storage_options(), **days)
    write_deltalake(uri, numbers(13, dt="a b"), mode="append", storage_options=clients.storage_options())
    change, expected = CHANGES[name]
    verdict = stage_from_fork(lake, uri, change)
    assert (verdict.status, verdict.version) == ("committed", 2)
    assert ids(clients, uri) == expected
    assert forks(clients) == []
    # The next change begins with what this one made.
    raised = stage_from_fork(lake, uri, lambda table: table.update(updates={"id": "id + 1000"}, predicate="id > 8"))
    assert raised.version == 3
    assert ids(clients, uri) == sorted(number + 1000 * (number > 8) for number in expected)


def test_a_conflict_is_an_exception_and_the_fork_goes(lake, clients, table):
    def too_late(opened):
        opened.delete("id = 1")
        open_table(clients, table).delete("id = 3")

    with pytest.raises(lakewarden.ConflictRefused) as refused:
        stage_from_fork(lake, table, too_late)
    assert refused.value.winner.version == 2
    assert ids(clients, table) == [1, 2, 11, 12, 13] and forks(clients) == []


def test_a_change_that_fails_or_commits_twice_leaves_nothing(lake, clients, table):
    before = objects(clients, table)

    def fails(_):
        raise ZeroDivisionError

    def twice(opened):
        opened.delete("id = 1")
        opened.delete("id = 2")

    for change, error in ((fails, ZeroDivisionError), (twice, lakewarden.LakewardenError)):
        with pytest.raises(error):
            stage_from_fork(lake, table, change)
    assert objects(clients, table) == before and forks(clients) == []


def test_a_table_with_vectors_of_sail_is_forked(lake, clients, sail, table, unique):
    name = f"v{unique}"
    uri = f"{table}-v"
    properties = "'delta.enableDeletionVectors'='true', 'delta.feature.deletionVectors'='supported'"
    sail.ask("sql", statements=[f"CREATE TABLE {name} (id bigint, dt string) USING delta LOCATION '{uri}' TBLPROPERTIES({properties})"])
    write_deltalake(uri, numbers(1, 2, 3), mode="append", storage_options=clients.storage_options())
    sail.ask("sql", statements=[f"DELETE FROM {name} WHERE id = 1"])
    # A vector that Sail writes on a fork comes along.
    with fork(lake, uri) as made:
        other = f"f{uuid.uuid4().hex}"
        sail.ask("sql", statements=[f"CREATE TABLE {other} USING delta LOCATION '{made.uri}'", f"DELETE FROM {other} WHERE id = 2"])
        commit = made.commit()
        assert any(key.endswith(".bin") for key in commit.new_keys)
        lake.stage_and_wait(uri, commit.actions, read_version=commit.read_version)
    assert sail.ask("read", uri=uri)["ids"] == [3] and forks(clients) == []
    stage_from_fork(lake, uri, lambda opened: opened.delete("id = 3"))
    assert sail.ask("read", uri=uri)["ids"] == []


def test_which_rows_are_the_trouble_is_told():
    place = {"file": "part-1.parquet", "column": "id", "rows": {"first": 2, "last": 3}}
    raw = {"proposal_id": "x", "status": "rejected", "final": True, "exception": "InvalidCommitException", "place": place}
    with pytest.raises(lakewarden.InvalidCommitException) as refused:
        lakewarden.Verdict.from_json(raw).raise_if_refused()
    found = refused.value.place
    assert (found.file, found.column, found.rows) == ("part-1.parquet", "id", (2, 3))


def test_a_commit_says_which_table_it_read(lake, clients, table):
    read = str(open_table(clients, table).metadata().id)
    assert lake.propose(table, txn("a"), read_version=1, read_table_id=read).version == 2
    staged = lake.stage(table, [{"txn": {"appId": "b", "version": 1}}], read_version=2, read_table_id=read)
    assert staged.wait().version == 3
    for propose in (lake.propose, lake.stage_and_wait):
        with pytest.raises(lakewarden.TableReplacedException):
            propose(table, txn("c"), read_version=3, read_table_id=str(uuid.uuid4()))
    assert lake.latest_version(table) == 3


# What the READMEs print


def run_script(script, server):
    # As after `pip install`: a child does not inherit the path that pytest gives its own process.
    environment = server.environment() | {"LAKEWARDEN_GATEWAY": server.endpoints["gateway"], "PYTHONPATH": str(PACKAGE / "src")}
    return subprocess.run([sys.executable, "-"], input=script, env=environment, text=True, capture_output=True, timeout=120)


def test_the_main_readmes_python_runs_as_printed(server, clients, uri):
    readme = (lakewarden_server.ROOT / "README.md").read_text()
    (script,) = (block.split("\nPY\n")[0] for block in readme.split("python3 - <<'PY'\n")[1:] if "stage_from_fork" in block)
    # As the README's first steps leave it: version 1, partitioned by the day.
    for first in (1, 2):
        rows = pa.table({"id": pa.array([first], pa.int64()), "day": [datetime.date(2026, 11, 1)]})
        write_deltalake(uri, rows, mode="append", partition_by=["day"], storage_options=clients.storage_options())
    expected = [line.rsplit("# ", 1)[1].strip() for line in script.splitlines() if "# " in line]
    done = run_script(script.replace("s3://lake/orders", uri), server)
    assert done.stdout.split("\n")[:-1] == expected, done.stderr
    assert len(expected) == 3 and ids(clients, uri) == [1, 2, 5]


def test_the_packages_readme_runs_as_printed(server, clients, uri):
    blocks = [part.split("```")[0] for part in (PACKAGE / "README.md").read_text().split("```python\n")[1:]]
    assert len(blocks) == 3
    plain, parted = f"{uri}/plain", f"{uri}/parted"
    write_deltalake(plain, pa.table({"id": pa.array([1], pa.int64())}), storage_options=clients.storage_options())
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": pa.array([2], pa.int64())}), sink)
    clients.s3.put_object(Bucket=LAKE, Key=f"{plain.removeprefix(f's3://{LAKE}/')}/part-1.parquet", Body=sink.getvalue())
    # Its one example of numbers that depend on the file.
    first = blocks[0].replace('"size": 1234', f'"size": {len(sink.getvalue())}').replace("s3://lake/orders", plain)
    # Something to compact.
    more = f'stage_append(lake, "{parted}", pa.table({{"id": [4], "day": ["2026-11-01"]}}))'
    script = "\n".join([first, blocks[1].replace("s3://lake/orders", parted), more, blocks[2].replace("s3://lake/orders", parted)])
    done = run_script(script.replace("http://127.0.0.1:8700", server.endpoints["gateway"]), server)
    assert (done.stdout, ids(clients, plain)) == ("1\n", [1, 2]), done.stderr
    # Created, appended to, deleted from, compacted.
    assert (open_table(clients, parted).version(), ids(clients, parted)) == (3, [1, 3, 4]), done.stderr


# The recipe with the AWS CLI alone


def test_the_recipe_works_as_printed(server, clients, table, tmp_path):
    readme = (PACKAGE / "README.md").read_text()
    recipe = readme.split("## With the AWS CLI alone")[1].split("```sh\n")[1].split("```")[0]
    aws = f'aws() {{ "{sys.executable}" -m awscli "$@"; }}\npython3() {{ "{sys.executable}" "$@"; }}\n'
    environment = server.environment() | {"TABLE": table, "LAKEWARDEN_GATEWAY": server.endpoints["gateway"]}
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", aws + recipe], cwd=tmp_path, env=environment, text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=120)  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    verdict = json.loads(done.stdout.strip().splitlines()[-1])
    assert (verdict["status"], verdict["version"]) == ("committed", 2)
    assert ids(clients, table) == [1, 2, 3, 11, 12, 13, 100, 101]


# The package


def test_the_wheel_needs_boto3_only_and_is_typed(server, table, tmp_path):
    python = tmp_path / "env" / "bin" / "python"
    run = lambda *command, **more: subprocess.run(command, check=True, stdin=subprocess.DEVNULL, text=True, capture_output=True, timeout=300, **more)  # noqa: E731
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(PACKAGE))
    (wheel,) = tmp_path.glob("lakewarden-*.whl")
    run(sys.executable, "-m", "venv", str(tmp_path / "env"))
    run(str(python), "-m", "pip", "install", "--quiet", str(wheel))
    script = f"""
import importlib.util, pathlib, lakewarden
assert (pathlib.Path(lakewarden.__file__).parent / "py.typed").exists()
assert importlib.util.find_spec("pyarrow") is None and importlib.util.find_spec("deltalake") is None
lake = lakewarden.Client()
actions = [{{"commitInfo": {{"operation": "STREAMING UPDATE"}}}}, {{"txn": {{"appId": "wheel", "version": 1}}}}]
print(lake.stage_and_wait("{table}", actions, read_version=lake.latest_version("{table}")).version)
"""
    environment = server.environment() | {"LAKEWARDEN_GATEWAY": server.endpoints["gateway"]}
    environment.pop("PYTHONPATH", None)
    assert run(str(python), "-c", script, env=environment, cwd=tmp_path).stdout.strip() == "2"


def test_its_types_are_complete():
    done = subprocess.run([sys.executable, "-m", "mypy", "--no-incremental"], cwd=PACKAGE, stdin=subprocess.DEVNULL, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr

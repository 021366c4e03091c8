"""`lakewarden import` and `lakewarden discover`, from one local Lakewarden to another and on the embedded S3."""

import http.server
import json
import os
import pty
import subprocess
import threading

import pytest

from lakewarden_server import BINARY, Server
from test_catalog import descriptor, partition_input, table_input


class Tools:
    """The command, without anybody's AWS settings."""

    def __init__(self, server, folder):
        self.server = server
        self.folder = folder

    def environment(self):
        environment = {name: value for name, value in self.server.environment().items() if "ENDPOINT" not in name}
        environment["LAKEWARDEN_GATEWAY"] = self.server.endpoints["gateway"]
        environment["LAKEWARDEN_DATA_DIR"] = str(self.folder / "tools")
        return environment

    def run(self, *arguments, check=True):
        done = subprocess.run(
            [str(BINARY), *arguments],
            env=self.environment(),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
        )
        assert (done.returncode == 0) == check, f"{arguments}: {done.stdout}\n{done.stderr}"
        return done

    def run_on_terminal(self, *arguments):
        """With a terminal as standard error: what was drawn there, and standard output."""
        terminal, end = pty.openpty()
        with open(self.folder / "stdout.txt", "w+", encoding="utf-8") as output:
            process = subprocess.Popen(
                [str(BINARY), *arguments], env=self.environment(), cwd=self.folder, stdin=subprocess.DEVNULL, stdout=output, stderr=end
            )
            os.close(end)
            drawn = b""
            try:
                # The last end that is closed makes reading fail.
                while piece := os.read(terminal, 4096):
                    drawn += piece
            except OSError:
                pass
            os.close(terminal)
            assert process.wait(120) == 0, drawn
            output.seek(0)
            return drawn.decode(), output.read()

    def journals(self):
        return list((self.folder / "tools").rglob("*.jsonl"))


@pytest.fixture(scope="session")
def source(binary, tmp_path_factory):
    """A second Lakewarden, which is copied from."""
    from conftest import Clients

    server = Server(tmp_path_factory.mktemp("source")).start()
    yield Clients(server)
    assert server.stop() == 0, server.tail()


@pytest.fixture
def tools(server, tmp_path):
    return Tools(server, tmp_path)


def values_of(clients, database, table):
    pages = clients.glue.get_paginator("get_partitions").paginate(DatabaseName=database, TableName=table)
    return sorted(tuple(found["Values"]) for page in pages for found in page["Partitions"])


@pytest.fixture(scope="session")
def original(source):
    """A database of the source: a table of 1,203 partitions, one with odd values, one that is not partitioned."""
    name = "to_be_copied"
    glue = source.glue
    glue.create_database(DatabaseInput={"Name": name, "Description": "to be copied", "Parameters": {"a": "b"}})
    glue.create_table(DatabaseName=name, TableInput=table_input("many"))
    glue.create_table(DatabaseName=name, TableInput=table_input("odd", keys=(("k", "string"),)))
    glue.create_table(DatabaseName=name, TableInput=table_input("plain", keys=()))
    many = [partition_input(f"d{n % 7}", str(n)) for n in range(1203)]
    for at in range(0, len(many), 100):
        assert not glue.batch_create_partition(
            DatabaseName=name, TableName="many", PartitionInputList=many[at : at + 100]
        )["Errors"]
    for value in ("a/b", "100%", " ", "ü😀", "__HIVE_DEFAULT_PARTITION__"):
        glue.create_partition(DatabaseName=name, TableName="odd", PartitionInput=partition_input(value))
    return name


@pytest.fixture
def copied(clients, original):
    """Its name, and no such database where it is copied to."""
    yield original
    clients.glue.delete_database(Name=original)


def test_a_catalog_is_copied_and_copying_again_changes_nothing(source, clients, tools, copied):
    command = ["import", "--from", source.server.endpoints["gateway"], "--database", copied]
    dry = tools.run(*command, "--dry-run")
    assert "Would create 1 databases, 3 tables, 1208 partitions." in dry.stdout, dry.stdout
    assert copied not in [found["Name"] for found in clients.glue.get_databases()["DatabaseList"]]
    assert not tools.journals()

    done = tools.run(*command)
    assert "Created 1 databases, 3 tables, 1208 partitions." in done.stdout, done.stdout
    assert not tools.journals(), "a run that ended well leaves nothing behind"
    for table in ("many", "odd"):
        assert values_of(clients, copied, table) == values_of(source, copied, table)
    for name in ("many", "odd", "plain"):
        there, here = (
            side.glue.get_table(DatabaseName=copied, Name=name)["Table"] for side in (source, clients)
        )
        for table in (there, here):
            for member in ("CreateTime", "UpdateTime", "VersionId"):
                table.pop(member, None)
        assert there == here
    there, here = (
        side.glue.get_partition(DatabaseName=copied, TableName="odd", PartitionValues=["a/b"])["Partition"]
        for side in (source, clients)
    )
    assert there["StorageDescriptor"] == here["StorageDescriptor"]

    again = tools.run(*command)
    assert "Created 0 databases, 0 tables, 0 partitions." in again.stdout, again.stdout
    assert "There already: 1 databases, 3 tables, 1208 partitions." in again.stdout
    assert clients.glue.get_table(DatabaseName=copied, Name="many")["Table"]["VersionId"] == "0"
    assert "another definition" not in again.stderr


def test_only_what_is_named_is_copied(source, clients, tools, copied):
    command = ["import", "--from", source.server.endpoints["gateway"], "--database", copied.upper()]
    assert "Created 1 databases, 1 tables, 5 partitions." in tools.run(*command, "--table", "Odd").stdout
    assert [found["Name"] for found in clients.glue.get_tables(DatabaseName=copied)["TableList"]] == ["odd"]
    assert "no table `nope`" in tools.run(*command, "--table", "nope", check=False).stderr
    assert "no database `nope`" in tools.run(*command[:-1], "nope", check=False).stderr


def test_a_stopped_import_goes_on_and_what_differs_is_told(source, clients, tools, copied):
    """A table here with other partition keys is refused; the rest is copied, and not again by the next run."""
    glue = clients.glue
    glue.create_database(DatabaseInput={"Name": copied})
    other = table_input("many", keys=(("other", "string"),))
    glue.create_table(DatabaseName=copied, TableInput=other)
    glue.create_table(DatabaseName=copied, TableInput=table_input("plain", keys=()) | {"Description": "mine"})
    command = ["import", "--from", source.server.endpoints["gateway"], "--database", copied]
    first = tools.run(*command, check=False)
    assert "many has other partition keys here" in first.stderr, first.stderr
    assert "plain is there with another definition" in first.stderr
    assert "Created 0 databases, 1 tables, 5 partitions." in first.stdout
    [journal] = tools.journals()
    assert {json.loads(line)["Done"][1] for line in journal.read_text().split("\n") if line} == {"odd", "plain"}

    glue.delete_table(DatabaseName=copied, Name="many")
    second = tools.run(*command)
    assert "An earlier run was stopped after 2 tables" in second.stdout
    assert "Created 0 databases, 1 tables, 1203 partitions." in second.stdout
    assert "There already: 1 databases, 0 tables, 0 partitions." in second.stdout
    assert values_of(clients, copied, "many") == values_of(source, copied, "many")
    assert glue.get_table(DatabaseName=copied, Name="plain")["Table"]["Description"] == "mine"
    assert not tools.journals()


def test_a_listing_goes_on_at_the_page_that_was_next(source, clients, tools, copied):
    glue = clients.glue
    glue.create_database(DatabaseInput={"Name": copied})
    glue.create_table(DatabaseName=copied, TableInput=table_input("many"))
    page = source.glue.get_partitions(DatabaseName=copied, TableName="many", MaxResults=1000)
    command = ["import", "--from", source.server.endpoints["gateway"], "--database", copied, "--table", "many"]
    journal = tools.folder / "journal.jsonl"
    journal.write_text(json.dumps({"At": [[copied, "many"], page["NextToken"]]}) + '\n{"At": [["', encoding="utf-8")
    done = tools.run(*command, "--journal", str(journal))
    assert "Created 0 databases, 0 tables, 203 partitions." in done.stdout, done.stdout
    assert not journal.exists()
    # A token that the source does not take any more: from the beginning.
    journal.write_text(json.dumps({"At": [[copied, "many"], "stale"]}) + "\n", encoding="utf-8")
    done = tools.run(*command, "--journal", str(journal))
    assert "Created 0 databases, 0 tables, 1000 partitions." in done.stdout, done.stdout
    assert values_of(clients, copied, "many") == values_of(source, copied, "many")


class Pages(http.server.BaseHTTPRequestHandler):
    """A catalog of one table whose first page of partitions has one that nobody can take."""

    pages = [[["1"], ["one", "too many"]], [["2"]], [["3"]]]

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        table = {"Name": "t", "PartitionKeys": [{"Name": "k", "Type": "string"}]}
        at = int(asked.get("NextToken", 0))
        partitions = {"Partitions": [{"Values": values} for values in self.pages[at]]}
        answer = {
            "GetDatabases": {"DatabaseList": [{"Name": "paged", "Description": "the source's"}]},
            "GetTables": {"TableList": [table]},
            "GetTable": {"Table": table},
            "GetPartitions": partitions | ({"NextToken": str(at + 1)} if at + 1 < len(self.pages) else {}),
        }[self.headers["X-Amz-Target"].split(".")[1]]
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def test_what_could_not_be_copied_is_tried_again_although_later_pages_were_copied(clients, tools):
    clients.glue.create_database(DatabaseInput={"Name": "paged", "Description": "mine"})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages) as source:
        threading.Thread(target=source.serve_forever, daemon=True).start()
        command = ["import", "--from", f"http://127.0.0.1:{source.server_port}"]
        first = tools.run(*command, check=False)
        assert "Created 0 databases, 1 tables, 3 partitions." in first.stdout, first.stdout
        assert "database paged is there with another definition" in first.stderr
        again = tools.run(*command, check=False)
        assert 'not copied: partition ["one","too many"]' in again.stderr, again.stderr
        assert "There already: 1 databases, 1 tables, 3 partitions." in again.stdout, again.stdout
        source.shutdown()
    clients.glue.delete_database(Name="paged")


def test_an_import_needs_two_catalogs(server, tools):
    assert "both source and target" in tools.run("import", "--from", server.endpoints["gateway"], check=False).stderr
    gone = tools.run("import", "--from", "http://127.0.0.1:9", check=False)
    assert "cannot be reached" in gone.stderr


@pytest.fixture
def lake_table(clients, database):
    """A table on S3 with two keys, and a function that puts files below it."""
    location = f"s3://lake/discover/{database}/sales"
    keys = (("day", "date"), ("shop", "string"))
    clients.glue.create_table(DatabaseName=database, TableInput=table_input("sales", f"{location}/", keys))

    def put(*names):
        for name in names:
            clients.s3.put_object(Bucket="lake", Key=f"discover/{database}/sales/{name}", Body=b"x")

    return database, location, put


def test_partitions_on_s3_are_found_and_registered(clients, tools, lake_table):
    database, location, put = lake_table
    put(
        "day=2026-11-01/shop=north/a.parquet",
        "day=2026-11-01/shop=a%2Fb %3A%25/a.parquet",
        "DAY=2026-11-02/Shop=ü+😀/a.parquet",
        "day=2026-11-03/shop=__HIVE_DEFAULT_PARTITION__/a.parquet",
        "day=2026-11-03/shop=x/deeper/a.parquet",
        "day=2026-11-04/shop=marker/",
    )
    expected = [
        ("2026-11-01", "a/b :%"),
        ("2026-11-01", "north"),
        ("2026-11-02", "ü+😀"),
        ("2026-11-03", "__HIVE_DEFAULT_PARTITION__"),
        ("2026-11-03", "x"),
        ("2026-11-04", "marker"),
    ]
    dry = tools.run("discover", database, "sales", "--dry-run")
    assert "Would register 6 partitions; 0 are registered already." in dry.stdout
    assert f'would register ["2026-11-01","north"] at {location}/day=2026-11-01/shop=north' in dry.stdout
    assert values_of(clients, database, "sales") == []
    done = tools.run("discover", database, "sales")
    assert "Registered 6 partitions; 0 were registered already." in done.stdout
    assert done.stderr == ""
    assert values_of(clients, database, "sales") == expected
    found = clients.glue.get_partition(
        DatabaseName=database, TableName="sales", PartitionValues=["2026-11-01", "a/b :%"]
    )["Partition"]["StorageDescriptor"]
    assert found["Location"] == f"{location}/day=2026-11-01/shop=a%2Fb %3A%25"
    table = clients.glue.get_table(DatabaseName=database, Name="sales")["Table"]["StorageDescriptor"]
    assert found == table | {"Location": found["Location"]}
    again = tools.run("discover", database, "sales")
    assert "Registered 0 partitions; 6 were registered already." in again.stdout


def test_folders_that_do_not_fit_are_told_and_nothing_is_guessed(clients, tools, lake_table):
    database, location, put = lake_table
    put(
        "day=2026-11-01/shop=good/a.parquet",
        "day=2026-11-01/SHOP=good/a.parquet",
        "shop=x/day=2026-11-01/a.parquet",
        "day=yesterday/shop=x/a.parquet",
        "day=2026-11-02/a.parquet",
        "day=2026-11-03/shop=/a.parquet",
        "day=2026-11-04/shop=%FF/a.parquet",
        "_temporary/0/a.parquet",
        "notes/a.txt",
        "readme.txt",
    )
    glue = clients.glue
    for values, at in (
        (["2026-01-01", "gone"], f"{location}/day=2026-01-01/shop=gone"),
        (["2026-01-01", "far"], "s3://elsewhere/far"),
    ):
        part = {"Values": values, "StorageDescriptor": descriptor(at)}
        glue.create_partition(DatabaseName=database, TableName="sales", PartitionInput=part)
    done = tools.run("discover", database, "sales")
    assert "Registered 1 partitions; 0 were registered already." in done.stdout
    lines = done.stderr.splitlines()
    for start, reason in (
        ("foreign folder", "shop=x/: names the key `shop` where `day` should be"),
        ("foreign folder", "day=yesterday/: has a value that is no date"),
        ("foreign folder", "day=2026-11-02/: has no folder `shop=…`"),
        ("foreign folder", "shop=/: has no value"),
        ("foreign folder", "shop=%FF/: has an escape that stands for no character"),
        ("foreign folder", "notes/: a folder `day=…` should be here"),
        ("foreign folder", "has the same values as"),
        ("missing folder", 'of the registered partition ["2026-01-01","gone"]'),
    ):
        assert [line for line in lines if line.startswith(start) and reason in line], (reason, done.stderr)
    assert "elsewhere" not in done.stderr
    assert "2 files lie beside the folders" in done.stderr
    assert "1 hidden folders" in done.stderr


def test_a_table_that_folders_say_nothing_about_is_refused(clients, tools, lake_table):
    database, location, put = lake_table
    put("_delta_log/00000000000000000000.json", "day=2026-11-01/shop=x/a.parquet")
    assert "format Delta" in tools.run("discover", database, "sales", check=False).stderr
    clients.glue.create_table(DatabaseName=database, TableInput=table_input("plain", keys=()))
    assert "no partition keys" in tools.run("discover", database, "plain", check=False).stderr
    assert "no table `nope`" in tools.run("discover", database, "nope", check=False).stderr
    iceberg = table_input("berg", f"{location}_berg") | {"Parameters": {"table_type": "ICEBERG"}}
    clients.glue.create_table(DatabaseName=database, TableInput=iceberg)
    assert "format Iceberg" in tools.run("discover", database, "berg", check=False).stderr

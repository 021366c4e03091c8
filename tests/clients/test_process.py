"""The process itself: restart, power cut, and refusals to start."""

import socket
import subprocess
import threading

import pytest
from botocore.exceptions import BotoCoreError, ClientError

import lakewarden_server
from conftest import LAKE, Clients

TABLE = {
    "Name": "orders",
    "PartitionKeys": [{"Name": "dt", "Type": "string"}],
    "StorageDescriptor": {"Location": "s3://lake/process/orders", "Columns": [{"Name": "id", "Type": "bigint"}]},
}
NAMES = {"DatabaseName": "process", "TableName": "orders"}


def run_to_the_end(command, **options):
    """Runs a server that is expected to refuse; answers exit code and what it said."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, **options
    )
    return done.returncode, done.stdout


def test_a_restart_continues_where_it_stopped(servers):
    server = servers()
    clients = Clients(server)
    clients.glue.create_database(DatabaseInput={"Name": "process"})
    clients.glue.create_table(DatabaseName="process", TableInput=TABLE)
    clients.glue.create_partition(**NAMES, PartitionInput={"Values": ["a"]})
    clients.s3.put_object(Bucket=LAKE, Key="process/small", Body=b"small")
    clients.s3.put_object(Bucket=LAKE, Key="process/large", Body=b"x" * 1_000_000)
    etag = clients.s3.head_object(Bucket=LAKE, Key="process/large")["ETag"]
    server.advance_clock("4d")
    moved = server.ok("GET", "/local/clock")
    assert server.stop() == 0

    server = servers()
    clients = Clients(server)
    assert [found["Values"] for found in clients.glue.get_partitions(**NAMES)["Partitions"]] == [["a"]]
    assert clients.s3.get_object(Bucket=LAKE, Key="process/small")["Body"].read() == b"small"
    assert clients.s3.head_object(Bucket=LAKE, Key="process/large")["ETag"] == etag
    assert server.ok("GET", "/local/clock")["now_ms"] >= moved["now_ms"], "the clock does not go back"
    assert server.stop() == 0


def test_a_listing_goes_on_after_a_restart(servers):
    server = servers()
    clients = Clients(server)
    clients.glue.create_database(DatabaseInput={"Name": "process"})
    clients.glue.create_table(DatabaseName="process", TableInput=TABLE)
    clients.glue.batch_create_partition(**NAMES, PartitionInputList=[{"Values": [str(number)]} for number in range(10)])
    first = clients.glue.get_partitions(**NAMES, MaxResults=4)
    assert server.stop() == 0
    rest = Clients(servers()).glue.get_partitions(**NAMES, NextToken=first["NextToken"])
    values = [found["Values"][0] for found in first["Partitions"] + rest["Partitions"]]
    assert sorted(values) == sorted(map(str, range(10)))


def test_a_power_cut_loses_nothing_that_was_acknowledged(servers):
    server = servers()
    clients = Clients(server)
    clients.glue.create_database(DatabaseInput={"Name": "process"})
    clients.glue.create_table(DatabaseName="process", TableInput=TABLE)
    acknowledged = [[], [], []]
    enough = threading.Event()

    def work(worker, own):
        number = 0
        try:
            while True:
                name = f"{worker}-{number}"
                own.s3.put_object(Bucket=LAKE, Key=f"process/{name}", Body=name.encode() * (1 + number % 7 * 3000))
                own.glue.create_partition(**NAMES, PartitionInput={"Values": [name]})
                acknowledged[worker].append(name)
                number += 1
                if number == 60:
                    enough.set()
        except (BotoCoreError, ClientError):
            enough.set()

    threads = [threading.Thread(target=work, args=(worker, Clients(server))) for worker in range(3)]
    for thread in threads:
        thread.start()
    assert enough.wait(120)
    server.kill()
    for thread in threads:
        thread.join(120)
    names = sum(acknowledged, [])
    assert len(names) >= 60

    server = servers()
    clients = Clients(server)
    pages = clients.glue.get_paginator("get_partitions").paginate(**NAMES)
    found = {partition["Values"][0] for page in pages for partition in page["Partitions"]}
    assert set(names) <= found
    for name in names:
        number = int(name.split("-")[1])
        body = clients.s3.get_object(Bucket=LAKE, Key=f"process/{name}")["Body"].read()
        assert body == name.encode() * (1 + number % 7 * 3000), name
    assert server.stop() == 0


def test_a_commit_staged_before_a_power_cut_is_judged_after_it(servers, tmp_path):
    import pyarrow as pa

    from delta import Delta

    def rows(number):
        return pa.table({"id": pa.array([number], pa.int64())})

    server = servers()
    table = Delta(Clients(server), "orders")
    table.write(rows(1))
    proposal = table.fork_append(rows(2))
    server.pause_events()
    table.stage(proposal, tmp_path)
    server.kill()

    server = servers()
    table = Delta(Clients(server), "orders")
    server.resume_events()
    verdict = table.verdict(proposal.id)
    assert (verdict["status"], verdict["version"]) == ("committed", 1), verdict
    assert table.ids() == [1, 2]
    assert server.stop() == 0


@pytest.mark.parametrize("service", ["gateway", "s3", "dynamodb", "sqs"])
def test_a_taken_port_is_a_clear_line(binary, tmp_path, service):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, said = run_to_the_end(lakewarden_server.arguments(tmp_path, ports={service: port}), cwd=tmp_path)
    assert code != 0
    assert str(port) in said and len(said.strip().splitlines()) == 1, said


def test_a_data_folder_that_cannot_be_used_is_a_clear_line(binary, tmp_path):
    in_the_way = tmp_path / "data"
    in_the_way.write_text("a file, not a folder")
    code, said = run_to_the_end(lakewarden_server.arguments(tmp_path, data_dir=in_the_way), cwd=tmp_path)
    assert code != 0
    assert str(in_the_way) in said and len(said.strip().splitlines()) == 1, said


def test_a_data_folder_that_cannot_be_made_is_a_clear_line(binary, tmp_path):
    # Nobody makes folders here, root included.
    locked = "/proc/lakewarden"
    code, said = run_to_the_end(lakewarden_server.arguments(tmp_path, data_dir=locked), cwd=tmp_path)
    assert code != 0
    assert locked in said and len(said.strip().splitlines()) == 1, said


def test_two_servers_do_not_share_a_data_folder(servers, tmp_path):
    servers()
    code, said = run_to_the_end(lakewarden_server.arguments(tmp_path, data_dir=tmp_path / "data"), cwd=tmp_path)
    assert code != 0
    assert str(tmp_path / "data") in said and len(said.strip().splitlines()) == 1, said

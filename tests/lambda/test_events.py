"""Every sample of events/ through `cargo lambda`: the real bootstraps, on the embedded servers.

`tests/it/events.rs` runs the same samples against the handlers; what is expected stands in events/expected.json.
"""

import base64
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys

import boto3
import pytest
from botocore.config import Config

import lakewarden_server
from lakewarden_server import ROOT, Server, wait_until

EVENTS = ROOT / "events"
EXPECTED = json.loads((EVENTS / "expected.json").read_text(encoding="utf-8"))
SAMPLES = {sample["file"]: sample for sample in EXPECTED["samples"]}
CARGO_LAMBDA = pathlib.Path(sys.executable).parent / "cargo-lambda"
QUEUES = {
    "commits": "LAKEWARDEN_COMMITS_QUEUE_URL",
    "log-work": "LAKEWARDEN_LOG_WORK_QUEUE_URL",
    "sweeps": "LAKEWARDEN_SWEEPS_QUEUE_URL",
    "catalog-work": "LAKEWARDEN_CATALOG_WORK_QUEUE_URL",
}


def free_ports(count):
    """Ports that were free a moment ago, all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def children(pid):
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], check=True, stdout=subprocess.PIPE, text=True).stdout
    return [int(child) for child, parent in map(str.split, listed.splitlines()) if int(parent) == pid]


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Emulator:
    """`cargo lambda watch`, with functions that talk to servers on fixed ports."""

    def __init__(self, folder, environment):
        self.port = free_ports(1)[0]
        self.log = folder / "watch.txt"
        command = [CARGO_LAMBDA, "lambda", "watch", "--ignore-changes", "--invoke-address", "127.0.0.1"]
        command += ["--invoke-port", str(self.port)]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        wait_until(self.listens, "cargo lambda watch listens", 30)

    def listens(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def invoke(self, function, file):
        command = [CARGO_LAMBDA, "lambda", "invoke", function, "--invoke-address", "127.0.0.1"]
        command += ["--invoke-port", str(self.port), "--data-file", str(EVENTS / file)]
        done = subprocess.run(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300
        )
        assert done.returncode == 0, f"{function} {file}: {done.stderr}\n{self.tail()}"
        return json.loads(done.stdout)

    def tail(self):
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-20:])

    def stop(self):
        functions = children(self.process.pid)
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)
        wait_until(lambda: not any(is_running(pid) for pid in functions), "the functions have ended", 15)


class Bench:
    """An emulator and, for each sample, servers with nothing in them."""

    def __init__(self, folder):
        self.folder = folder
        gateway, s3, dynamodb, sqs = free_ports(4)
        self.ports = {"gateway": gateway, "s3": s3, "dynamodb": dynamodb, "sqs": sqs}
        self.server = None
        self.emulator = None

    def start(self):
        self.server = Server(self.folder / "server", ports=self.ports).start()
        # What is staged is judged by the sample's function, not by this process.
        self.server.pause_events()
        if self.emulator is None:
            environment = self.server.environment() | {"CARGO_NET_OFFLINE": "true"}
            for queue, url in self.server.ok("GET", "/local/endpoints")["queues"].items():
                environment[QUEUES[queue]] = url
            self.emulator = Emulator(self.folder, environment)

    def stop_server(self):
        server, self.server = self.server, None
        if server is not None:
            assert server.stop() == 0, server.tail()

    def s3(self):
        endpoints = self.server.endpoints
        return boto3.client(
            "s3",
            endpoint_url=endpoints["s3"],
            region_name=endpoints["region"],
            aws_access_key_id=endpoints["access_key"],
            aws_secret_access_key=endpoints["secret_key"],
            config=Config(s3={"addressing_style": "path"}),
        )

    def put_folder(self, name):
        root = EVENTS / "objects" / name
        for path in sorted(root.rglob("*")):
            if path.is_file():
                bucket, key = path.relative_to(root).as_posix().split("/", 1)
                self.s3().put_object(Bucket=bucket, Key=key, Body=path.read_bytes())

    def prepare(self, setup):
        for step in EXPECTED["setups"][setup]:
            if "put" in step:
                self.put_folder(step["put"])
            else:
                answer = self.handle(step["event"])
                assert answer.get("statusCode", 200) < 300, f"setup {step['event']}: {answer}"

    def handle(self, file):
        answer = self.emulator.invoke(SAMPLES[file]["function"], file)
        if isinstance(answer, dict) and "statusCode" in answer and answer.get("body"):
            body = base64.b64decode(answer["body"]) if answer.get("isBase64Encoded") else answer["body"]
            answer["body"] = json.loads(body)
        return answer

    def keys(self):
        pages = self.s3().get_paginator("list_objects_v2").paginate(Bucket="lake")
        return {found["Key"] for page in pages for found in page.get("Contents", [])}


def difference(expected, found, place="answer"):
    """What is wrong, or None. The rules stand in events/samples.py."""
    if isinstance(expected, dict) and len(expected) == 1 and next(iter(expected)).startswith("$"):
        (word, argument), = expected.items()
        holds = {
            "$any": lambda: found is not None,
            "$absent": lambda: found is None,
            "$contains": lambda: isinstance(found, str) and argument in found,
            "$each": lambda: isinstance(found, list) and all(any(difference(one, entry) is None for entry in found) for one in argument),
        }[word]()
        return None if holds else f"{place} is {found!r}; expected {expected}"
    if isinstance(expected, dict) and isinstance(found, dict):
        parts = (difference(value, found.get(name), f"{place}.{name}") for name, value in expected.items())
        return next((part for part in parts if part), None)
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        parts = (difference(one, entry, f"{place}[{index}]") for index, (one, entry) in enumerate(zip(expected, found)))
        return next((part for part in parts if part), None)
    return None if expected == found else f"{place} is {found!r}; expected {expected!r}"


@pytest.fixture(scope="module")
def emulated(tmp_path_factory):
    lakewarden_server.build()
    bench = Bench(tmp_path_factory.mktemp("lambda"))
    yield bench
    if bench.emulator is not None:
        bench.emulator.stop()


@pytest.fixture
def bench(emulated):
    emulated.start()
    yield emulated
    emulated.stop_server()


@pytest.mark.parametrize("file", SAMPLES)
def test_a_sample_answers_as_expected(bench, file):
    sample = SAMPLES[file]
    bench.prepare(sample["setup"])
    answer = bench.handle(file)
    assert difference(sample["expect"], answer) is None, bench.emulator.tail()
    for then in sample.get("then", []):
        assert difference(then["expect"], bench.handle(then["file"])) is None, then["file"]
    keys = bench.keys()
    assert set(sample.get("there", [])) <= keys
    assert keys.isdisjoint(sample.get("missing", []))

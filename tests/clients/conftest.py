"""What the tests with real clients share: a running server and clients that know where it is."""

import itertools
import json
import subprocess
import sys

import boto3
import pytest
from botocore.config import Config

import engines
import lakewarden_server
from lakewarden_server import Server

LAKE = "lake"
# Of writers that claim Delta versions in DynamoDB.
LOCK_TABLE = "delta_log"
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def binary():
    lakewarden_server.build()
    return lakewarden_server.BINARY


@pytest.fixture(scope="session")
def server(binary, tmp_path_factory):
    """The server most tests share. Whoever moves the clock starts one of their own (`own_server`)."""
    server = Server(tmp_path_factory.mktemp("server")).start()
    yield server
    assert server.stop() == 0, server.tail()


@pytest.fixture
def own_server(binary, tmp_path):
    """A server for one test alone."""
    server = Server(tmp_path / "server").start()
    yield server
    if server.process is not None:
        assert server.stop() == 0, server.tail()


@pytest.fixture
def servers(binary, tmp_path):
    """Makes servers on one data folder; none outlives the test. What is killed had a power cut."""
    started = []

    def start():
        server = Server(tmp_path / "server", data_dir=tmp_path / "data").start()
        started.append(server)
        return server

    yield start
    for server in started:
        server.kill()


@pytest.fixture
def unique():
    """A name that no other test uses."""
    return f"t{next(_numbers)}"


class Clients:
    """Unmodified clients of one server."""

    def __init__(self, server):
        self.server = server
        self.glue = self.boto("glue")
        self.s3 = self.boto("s3", s3={"addressing_style": "path"})
        self.dynamodb = self.boto("dynamodb")

    def boto(self, service, **config):
        endpoints = self.server.endpoints
        return boto3.client(
            service,
            endpoint_url=endpoints["gateway" if service == "glue" else service],
            region_name=endpoints["region"],
            aws_access_key_id=endpoints["access_key"],
            aws_secret_access_key=endpoints["secret_key"],
            config=Config(retries={"max_attempts": 3, "mode": "standard"}, **config),
        )

    def cli(self, *arguments, check=True):
        """Runs the AWS CLI; answers its JSON (None where it prints nothing), or with check=False what it said."""
        done = subprocess.run(
            [sys.executable, "-m", "awscli", *arguments],
            env=self.server.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
        )
        if not check:
            return done
        assert done.returncode == 0, f"aws {' '.join(arguments)}: {done.stderr}"
        return json.loads(done.stdout) if done.stdout.lstrip().startswith(("{", "[")) else None

    def storage_options(self):
        """For deltalake."""
        endpoints = self.server.endpoints
        return {
            "AWS_ENDPOINT_URL": endpoints["s3"],
            "AWS_ACCESS_KEY_ID": endpoints["access_key"],
            "AWS_SECRET_ACCESS_KEY": endpoints["secret_key"],
            "AWS_REGION": endpoints["region"],
            "AWS_ALLOW_HTTP": "true",
        }

    def iceberg(self):
        """PyIceberg's own Glue catalog."""
        from pyiceberg.catalog import load_catalog

        endpoints = self.server.endpoints
        return load_catalog(
            "lakewarden",
            **{
                "type": "glue",
                "glue.endpoint": endpoints["gateway"],
                "glue.region": endpoints["region"],
                "glue.access-key-id": endpoints["access_key"],
                "glue.secret-access-key": endpoints["secret_key"],
                "s3.endpoint": endpoints["s3"],
                "s3.region": endpoints["region"],
                "s3.access-key-id": endpoints["access_key"],
                "s3.secret-access-key": endpoints["secret_key"],
                "s3.path-style-access": "true",
                "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
            },
        )

    def objects(self, prefix, bucket=LAKE):
        """Key -> (ETag, size) of everything below a prefix."""
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return {found["Key"]: (found["ETag"], found["Size"]) for page in pages for found in page.get("Contents", [])}


@pytest.fixture(scope="session")
def clients(server):
    return Clients(server)


@pytest.fixture(scope="session")
def lock_engine(server):
    """deltalake 1.6.0, which claims versions in DynamoDB."""
    engine = engines.deltalake_1_6_0(server, LOCK_TABLE)
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def sail(server):
    """Sail, which has a Delta implementation of its own."""
    engine = engines.sail(server)
    yield engine
    engine.close()


@pytest.fixture
def own_clients(own_server):
    return Clients(own_server)


@pytest.fixture
def database(clients, unique):
    """A database of this test's own."""
    clients.glue.create_database(DatabaseInput={"Name": unique})
    return unique

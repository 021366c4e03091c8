"""`lakewarden gateway` as a process of its own: options, signatures, crashes of writer, gateway and service."""

import json
import os
import random
import signal
import socket
import subprocess
import threading
import time

import boto3
import pyarrow as pa
import pytest
import requests
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from deltalake import DeltaTable

import lakewarden_server
from conftest import LAKE, Clients
from delta import Delta
from guarded import Guarded
from lakewarden_server import Server, wait_until

WRITERS, COMMITS_EACH, KILLS = 3, 8, 6


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class GatewayProcess:
    """A running `lakewarden gateway`."""

    def __init__(self, folder, server, *options, port=0, environment=None):
        self.folder, self.server = folder, server
        self.file = folder / f"gateway-{time.monotonic_ns()}.json"
        self.log = folder / "gateway.txt"
        self.command = [
            str(lakewarden_server.BINARY), "gateway", "--port", str(port), "--endpoints-file", str(self.file), *options,
        ]
        if "--service" not in options:
            self.command += ["--service", server.endpoints["gateway"]]
        self.environment = environment

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment)
        wait_until(lambda: self.file.exists() or self.process.poll() is not None, "the gateway answers")
        assert self.process.poll() is None, self.log.read_text()
        self.endpoints = json.loads(self.file.read_text())
        return self

    def clients(self, **more):
        return Clients(Guarded(self.server, self.endpoints | more))

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def gateway(server, tmp_path):
    started = []

    def start(*options, **more):
        started.append(GatewayProcess(tmp_path, server, *options, **more).start())
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.kill()


def rows(*ids):
    return pa.table({"id": pa.array(ids, pa.int64()), "dt": ["a"] * len(ids)})


def status_of(call, **arguments):
    try:
        return call(**arguments)["ResponseMetadata"]["HTTPStatusCode"]
    except ClientError as error:
        return error.response["ResponseMetadata"]["HTTPStatusCode"]


def test_a_gateway_beside_a_laptop(gateway, unique):
    one = gateway()
    delta = Delta(one.clients(), unique)
    delta.write(rows(1))
    delta.write(rows(2), mode="append")
    assert delta.ids() == [1, 2]
    assert len(one.endpoints["secret_key"]) == 64 and one.endpoints["access_key"] not in delta.uri
    assert status_of(one.clients(secret_key="wrong").s3.list_objects_v2, Bucket=LAKE) == 403
    assert one.stop() == 0
    said = one.log.read_text()
    assert one.endpoints["s3"] in said and one.endpoints["secret_key"] in said


def test_keys_of_ones_own_and_any(gateway, unique):
    own = {"LAKEWARDEN_S3_ACCESS_KEY": "MINE", "LAKEWARDEN_S3_SECRET_KEY": "mine-secret"}
    one = gateway(environment=os.environ | own)
    assert (one.endpoints["access_key"], one.endpoints["secret_key"]) == ("MINE", "mine-secret")
    assert status_of(one.clients().s3.list_objects_v2, Bucket=LAKE, MaxKeys=1) == 200
    any_key = gateway("--any-signature")
    assert "secret_key" not in any_key.endpoints
    clients = any_key.clients(access_key="WHO", secret_key="knows")
    delta = Delta(clients, unique)
    delta.write(rows(1))
    clients.s3.put_object(Bucket=LAKE, Key=f"{delta.prefix}/x", Body=b"123", ChecksumAlgorithm="SHA256")
    address = clients.s3.generate_presigned_url("get_object", Params={"Bucket": LAKE, "Key": f"{delta.prefix}/x"})
    assert requests.get(address, timeout=60).content == b"123"
    assert requests.get(f"{any_key.endpoints['s3']}/{LAKE}/{delta.prefix}/x", timeout=60).content == b"123"
    assert status_of(clients.s3.put_object, Bucket=LAKE, Key=f"{delta.prefix}/_delta_log/{0:020}.json", Body=b"{}") == 403


def test_chunked_uploads_with_and_without_signatures(gateway, unique, server):
    """What SDKs send over TLS, and those of Java: aws-chunked, with trailers or signatures in the body."""
    any_key = gateway("--any-signature")
    url = f"{any_key.endpoints['s3']}/{LAKE}/chunked/{unique}"
    body = b"4\r\nabcd\r\n5\r\nefghi\r\n0\r\nx-amz-checksum-crc32:jYca/g==\r\n\r\n"

    import base64
    import zlib

    crc = base64.b64encode(zlib.crc32(b"abcdefghi").to_bytes(4, "big"))
    body = body.replace(b"jYca/g==", crc)
    head = {"x-amz-decoded-content-length": "9", "content-encoding": "aws-chunked"}
    unsigned = head | {"x-amz-content-sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER", "x-amz-trailer": "x-amz-checksum-crc32"}
    assert requests.put(url, data=body, headers=unsigned, timeout=60).status_code == 200
    answer = requests.get(url, headers={"x-amz-checksum-mode": "ENABLED"}, timeout=60)
    assert answer.content == b"abcdefghi" and answer.headers["x-amz-checksum-crc32"].encode() == crc
    assert "content-encoding" not in answer.headers
    signed = body.replace(b"4\r\n", b"4;chunk-signature=" + b"0" * 64 + b"\r\n", 1)
    trailing = unsigned | {"x-amz-content-sha256": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"}
    assert requests.put(url + "2", data=signed, headers=trailing, timeout=60).status_code == 200
    answer = requests.get(url + "2", headers={"x-amz-checksum-mode": "ENABLED"}, timeout=60)
    assert answer.content == b"abcdefghi" and answer.headers["x-amz-checksum-crc32"].encode() == crc
    plain = b"9;chunk-signature=" + b"0" * 64 + b"\r\nabcdefghi\r\n0;chunk-signature=" + b"0" * 64 + b"\r\n\r\n"
    chunks = head | {"x-amz-content-sha256": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"}
    assert requests.put(url + "3", data=plain, headers=chunks, timeout=60).status_code == 200
    assert requests.get(url + "3", timeout=60).content == b"abcdefghi"
    # Where keys are known, so are the signatures of chunks.
    wrong = crc.replace(crc[:1], b"A" if crc[:1] != b"A" else b"B")
    assert requests.put(url + "4", data=body.replace(crc, wrong), headers=unsigned, timeout=60).status_code == 400
    assert requests.get(url + "4", timeout=60).status_code == 404


def test_places_that_are_guarded_and_places_that_are_not(gateway, unique):
    one = gateway("--guard", f"s3://{LAKE}/gold/{unique}", "--pass", f"s3://{LAKE}/gold/{unique}/raw")
    s3 = one.clients().s3
    for place, status in ((f"gold/{unique}/t", 403), (f"gold/{unique}/raw/t", 200), (f"silver/{unique}/t", 200)):
        at = {"Bucket": LAKE, "Key": f"{place}/_delta_log/{0:020}.json"}
        assert status_of(s3.put_object, **at, Body=b"no commit") == status, place


def test_options_that_make_no_sense_are_refused(server):
    for options, told in (
        (["--guard", "/tmp"], "is not an S3 location"),
        (["--service", "nonsense", "--s3-endpoint", "http://127.0.0.1:1"], "nonsense"),
        (["--any-signature", "--access-key", "a", "--secret-key", "b"], "cannot be used with"),
        (["--access-key", "a"], "--secret-key"),
    ):
        service = [] if "--service" in options else ["--service", server.endpoints["gateway"]]
        environment = os.environ | {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}
        done = subprocess.run(
            [str(lakewarden_server.BINARY), "gateway", "--port", "0", *service, *options],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, env=environment,
        )
        assert done.returncode != 0 and told in done.stdout, (options, done.stdout)


def test_empty_keys_are_refused(server):
    for empty in ({"LAKEWARDEN_S3_ACCESS_KEY": "", "LAKEWARDEN_S3_SECRET_KEY": ""}, {"LAKEWARDEN_S3_ACCESS_KEY": "K", "LAKEWARDEN_S3_SECRET_KEY": ""}):
        done = run_briefly(["--service", server.endpoints["gateway"]], os.environ | empty)
        assert done.returncode != 0 and "a value is required" in done.stdout, (empty, done.stdout)
    for blank in ({"LAKEWARDEN_S3_ACCESS_KEY": " ", "LAKEWARDEN_S3_SECRET_KEY": " "}, {"LAKEWARDEN_S3_ACCESS_KEY": "K", "LAKEWARDEN_S3_SECRET_KEY": "\t"}):
        done = run_briefly(["--service", server.endpoints["gateway"]], os.environ | blank)
        assert done.returncode != 0 and "is blank" in done.stdout, (blank, done.stdout)
    done = run_briefly(["--access-key", "K", "--secret-key", "hush-hush\n"], os.environ)
    assert done.returncode != 0 and "around the secret key" in done.stdout and "hush" not in done.stdout, done.stdout


def run_briefly(options, environment, port=0):
    """A gateway that is to end by itself, with an error."""
    return subprocess.run(
        [str(lakewarden_server.BINARY), "gateway", "--port", str(port), *options],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, env=environment,
    )


AWS_KEYS = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}


def test_what_answers_on_loopback_must_be_a_lakewarden(server):
    """Otherwise commits would be judged for one S3 and read from another: no guess is made, and nobody waits for ever."""
    port = free_port()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for options, told in (
            (["--service", f"http://localhost:{port}"], "is where this gateway is to listen"),
            (["--service", server.endpoints["s3"]], "is no Lakewarden of a laptop"),
            (["--service", server.endpoints["guarded_s3"]], "is no Lakewarden of a laptop"),
            (["--service", f"http://127.0.0.1:{silent.getsockname()[1]}"], "has said nothing for 15s"),
        ):
            done = run_briefly(options, os.environ | AWS_KEYS, port)
            assert done.returncode != 0 and told in done.stdout, (options, done.stdout)


def test_a_service_that_writes_to_another_s3_is_not_believed(gateway, server, tmp_path, unique):
    """The commit is in a log that the writer does not see: it is told so, again and again, and never 200 or 412."""
    other = Server(tmp_path / "other").start()
    try:
        keys = {"AWS_ACCESS_KEY_ID": server.endpoints["access_key"], "AWS_SECRET_ACCESS_KEY": server.endpoints["secret_key"]}
        one = gateway("--s3-endpoint", other.endpoints["s3"], "--any-signature", environment=other.environment() | keys)
        schema = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
        table = {"id": unique, "format": {"provider": "parquet", "options": {}}, "schemaString": json.dumps(schema), "partitionColumns": [], "configuration": {}}
        lines = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": table}
        body = "\n".join(map(json.dumps, lines)).encode()
        url = f"{one.endpoints['s3']}/{LAKE}/elsewhere/{unique}/_delta_log/{0:020}.json"
        for _ in range(3):
            answer = requests.put(url, data=body, headers={"if-none-match": "*"}, timeout=60)
            assert answer.status_code == 503 and "--s3-endpoint" in answer.text, answer.text
        assert ".. " not in answer.text
        assert requests.get(url, timeout=60).status_code == 404
    finally:
        other.kill()


def test_a_service_that_does_not_tell_the_truth_is_not_believed(gateway, server, unique):
    import http.server

    class Liar(http.server.BaseHTTPRequestHandler):
        earlier = False

        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            body = json.dumps({"status": "committed", "final": True, "version": 0, "earlier": self.earlier}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Liar) as liar:
        threading.Thread(target=liar.serve_forever, daemon=True).start()
        keys = {"AWS_ACCESS_KEY_ID": server.endpoints["access_key"], "AWS_SECRET_ACCESS_KEY": server.endpoints["secret_key"]}
        one = gateway(
            "--s3-endpoint", server.endpoints["s3"], "--service", f"http://127.0.0.1:{liar.server_port}", "--any-signature",
            environment=server.environment() | keys,
        )
        url = f"{one.endpoints['s3']}/{LAKE}/lies/{unique}/_delta_log/{0:020}.json"
        for Liar.earlier in (False, True):
            answer = requests.put(url, data=b'{"txn":{"appId":"a","version":1}}', timeout=60)
            assert answer.status_code == 503, answer.text
        assert requests.get(url, timeout=60).status_code == 404
        liar.shutdown()


def test_hosts_and_paths_that_lead_elsewhere(gateway, unique):
    """A bucket before the host would be lost, and dots may lead into a guarded bucket."""
    import http.client

    one = gateway("--any-signature", "--guard", f"s3://{LAKE}")
    host = one.endpoints["s3"].removeprefix("http://")
    port = host.split(":")[1]
    for name in (f"{LAKE}.localhost:{port}", f"{LAKE}.{host}", f"{LAKE}.s3.amazonaws.com"):
        answer = requests.put(f"http://{host}/{LAKE}/hosts/{unique}", data=b"x", headers={"host": name}, timeout=60)
        assert answer.status_code == 400 and "by path" in answer.text, (name, answer.text)
    assert requests.get(f"http://localhost:{port}/{LAKE}/hosts/{unique}", timeout=60).status_code == 404
    for path in (f"/scratch/../{LAKE}", f"/./{LAKE}", f"//{LAKE}", f"/scratch/%2e%2e/{LAKE}"):
        connection = http.client.HTTPConnection(host, timeout=60)
        connection.request("PUT", f"{path}/hosts/{unique}/_delta_log/{0:020}.json", body=b"{}")
        answer = connection.getresponse()
        # What has no bucket's name before the first slash is not even looked at.
        told, by_name = answer.read(), path.startswith("/scratch")
        assert answer.status == (403 if by_name else 400) and (b"could take it for" in told) == by_name, (path, told)
        connection.close()


def test_wrong_keys_are_told_what_is_wrong(gateway):
    one = gateway()
    with pytest.raises(ClientError) as refused:
        one.clients(secret_key="wrong").s3.list_objects_v2(Bucket=LAKE)
    assert "secret key" in refused.value.response["Error"]["Message"]
    assert refused.value.response["Error"]["Code"] == "SignatureDoesNotMatch"


def test_a_gateway_in_a_shell_that_points_at_it_says_so(gateway, server):
    port = free_port()
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        one = gateway(
            "--service", "https://api.example.invalid", "--any-signature", port=port,
            environment=server.environment() | AWS_KEYS | {"AWS_ENDPOINT_URL": "", "AWS_ENDPOINT_URL_S3": ""} | {name: f"http://127.0.0.1:{port}"},
        )
        answer = requests.get(f"http://127.0.0.1:{port}/{LAKE}/a", timeout=60)
        assert answer.status_code == 400 and "--s3-endpoint" in answer.text, (name, answer.text)
        assert one.stop() == 0


def test_a_gateway_that_is_its_own_s3_says_so(gateway, server):
    port = free_port()
    s3 = ["--s3-endpoint", f"http://localhost:{port}", "--service", server.endpoints["gateway"], "--any-signature"]
    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y"}
    one = gateway(*s3, port=port, environment=server.environment() | keys)
    with pytest.raises(ClientError) as refused:
        one.clients(access_key="x", secret_key="y").s3.get_object(Bucket=LAKE, Key="a")
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert "--s3-endpoint" in refused.value.response["Error"]["Message"]
    # Also where the gateway asks S3 itself before it passes anything on.
    url = f"{one.endpoints['s3']}/{LAKE}"
    name, checkpoint = f"t/_delta_log/{0:020}.json", f"t/_delta_log/{0:020}.checkpoint.parquet"
    batch = f"<Delete><Object><Key>{name}</Key></Object></Delete>"
    for call, arguments in (
        (requests.put, {"url": f"{url}/{name}", "data": b"{}"}),
        (requests.put, {"url": f"{url}/{name}", "data": b"{}", "headers": {"if-match": "*"}}),
        (requests.delete, {"url": f"{url}/{name}"}),
        (requests.put, {"url": f"{url}/{checkpoint}", "data": b"x"}),
        (requests.delete, {"url": f"{url}/{checkpoint}"}),
        (requests.post, {"url": f"{url}?delete", "data": batch}),
    ):
        answer = call(**arguments, timeout=60)
        assert answer.status_code == 400 and "--s3-endpoint" in answer.text, (call, arguments, answer.text)


def test_without_a_service_nothing_is_committed(gateway, unique, server, clients):
    """Data passes, a commit is answered 503; the same bytes are taken once there is a service."""
    port = free_port()
    s3 = ["--s3-endpoint", server.endpoints["s3"], "--service", f"http://127.0.0.1:{port}"]
    keys = {"AWS_ACCESS_KEY_ID": server.endpoints["access_key"], "AWS_SECRET_ACCESS_KEY": server.endpoints["secret_key"]}
    one = gateway(*s3, environment=server.environment() | keys)
    lonely = boto3.client(
        "s3", endpoint_url=one.endpoints["s3"], region_name="us-east-1", aws_access_key_id=one.endpoints["access_key"],
        aws_secret_access_key=one.endpoints["secret_key"], config=Config(retries={"max_attempts": 1}, s3={"addressing_style": "path"}),
    )
    delta = Delta(clients, unique)
    delta.write(rows(1))
    before = clients.objects(f"{delta.prefix}/_delta_log/")
    lonely.put_object(Bucket=LAKE, Key=f"{delta.prefix}/data", Body=b"x")
    at = {"Bucket": LAKE, "Key": f"{delta.prefix}/_delta_log/{1:020}.json"}
    body = b'{"commitInfo":{"operation":"X"}}\n{"txn":{"appId":"a","version":1}}'
    with pytest.raises(ClientError) as refused:
        lonely.put_object(**at, Body=body, IfNoneMatch="*")
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503
    assert "does not answer" in refused.value.response["Error"]["Message"]
    assert clients.objects(f"{delta.prefix}/_delta_log/") == before
    Clients(Guarded(server)).s3.put_object(**at, Body=body, IfNoneMatch="*")
    assert delta.version() == 1


def commit(number):
    """A commit that no other one equals."""
    lines = {"commitInfo": {"operation": "X"}}, {"txn": {"appId": f"writer-{number}", "version": 1}}
    return "\n".join(map(json.dumps, lines)).encode()


class Writer:
    """Commits by conditional puts, as an unmodified writer does, and remembers what it was told."""

    def __init__(self, number, client, prefix):
        self.number, self.client, self.prefix = number, client, prefix
        self.acknowledged, self.denied = {}, []

    def work(self, stop):
        made = 0
        while made < COMMITS_EACH and not stop.is_set():
            body = commit(self.number * 1000 + made)
            version = self.next_version()
            while version is not None and not stop.is_set():
                status = self.put(version, body)
                if status == 200:
                    self.acknowledged[version] = body
                    break
                if status == 412:
                    self.denied.append((version, body))
                    version = self.next_version()
                else:
                    # Unknown: the same again, until it is known.
                    time.sleep(0.05)
            made += 1

    def put(self, version, body):
        try:
            answer = self.client.put_object(Bucket=LAKE, Key=f"{self.prefix}/_delta_log/{version:020}.json", Body=body, IfNoneMatch="*")
            return answer["ResponseMetadata"]["HTTPStatusCode"]
        except ClientError as error:
            return error.response["ResponseMetadata"]["HTTPStatusCode"]
        except BotoCoreError:
            return None

    def next_version(self):
        for _ in range(600):
            try:
                pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=LAKE, Prefix=f"{self.prefix}/_delta_log/0")
                return max(int(entry["Key"][-25:-5]) for page in pages for entry in page.get("Contents", [])) + 1
            except (ClientError, BotoCoreError):
                time.sleep(0.05)
        return None


def s3_client(endpoints):
    config = Config(retries={"max_attempts": 1}, s3={"addressing_style": "path"}, connect_timeout=5, read_timeout=60)
    return boto3.client(
        "s3", endpoint_url=endpoints["s3"], region_name="us-east-1", aws_access_key_id=endpoints["access_key"],
        aws_secret_access_key=endpoints["secret_key"], config=config,
    )


@pytest.mark.parametrize("victim", ["gateway", "service"])
def test_what_writers_believe_is_what_the_log_holds(binary, tmp_path, victim):
    """Gateway or service are killed again and again while writers commit."""
    ports = {name: free_port() for name in ("gateway", "s3", "dynamodb", "sqs")}
    server = Server(tmp_path / "server", data_dir=tmp_path / "data", ports=ports).start()
    port, dice = free_port(), random.Random(7)
    keys = ["--access-key", "K", "--secret-key", "S"]
    # The service's own S3, so that the gateway outlives it.
    behind = ["--s3-endpoint", server.endpoints["s3"]]
    gateway = GatewayProcess(tmp_path, server, *keys, *behind, port=port, environment=server.environment()).start()
    try:
        delta = Delta(Clients(server), "crashes")
        delta.write(rows(1))
        writers = [Writer(number, s3_client(gateway.endpoints), delta.prefix) for number in range(1, WRITERS + 1)]
        stop = threading.Event()
        threads = [threading.Thread(target=writer.work, args=(stop,)) for writer in writers]
        for thread in threads:
            thread.start()
        for _ in range(KILLS):
            time.sleep(dice.uniform(0.2, 1.2))
            if victim == "gateway":
                gateway.kill()
                gateway = GatewayProcess(tmp_path, server, *keys, *behind, port=port, environment=server.environment()).start()
            else:
                server.kill()
                server = Server(tmp_path / "server", data_dir=tmp_path / "data", ports=ports).start()
        for thread in threads:
            thread.join(180)
            stop.set() if thread.is_alive() else None
        assert not stop.is_set(), "the writers did not come to an end"
        server.wait_idle()
        check(Clients(server), delta, writers)
        # A message that was killed with its service five times waits for somebody; it is late and does no harm.
        server.ok("POST", "/local/dead-letters/redrive")
        server.wait_idle()
        check(Clients(server), delta, writers)
        assert server.dead_letters()["dead_letters"] == []
    finally:
        gateway.kill()
        server.kill()


def check(clients, delta, writers):
    held = {}
    for version in delta.log():
        held[version] = clients.s3.get_object(Bucket=LAKE, Key=f"{delta.prefix}/_delta_log/{version:020}.json")["Body"].read()
    assert sorted(held) == list(range(len(held))), "no version is missing"
    for writer in writers:
        assert len(writer.acknowledged) == COMMITS_EACH
        for version, body in writer.acknowledged.items():
            assert held[version] == body, version
        for version, body in writer.denied:
            assert held.get(version) != body, version
    bodies = [body for version, body in held.items() if version > 0]
    assert len(set(bodies)) == len(bodies), "nothing is there twice"
    assert len(bodies) == len(writers) * COMMITS_EACH


def test_a_writer_that_dies_leaves_all_or_nothing(server, unique, tmp_path):
    """deltalake is killed in the middle of its commits; what it said that it did is there, and the table is sound."""
    delta = Delta(Clients(Guarded(server)), unique)
    delta.write(rows(0))
    script = tmp_path / "writer.py"
    script.write_text(
        "import sys, json, pyarrow as pa\nfrom deltalake import write_deltalake\n"
        "uri, options, first = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])\n"
        "for number in range(first, first + 1000):\n"
        "    write_deltalake(uri, pa.table({'id': pa.array([number], pa.int64()), 'dt': ['a']}), mode='append', storage_options=options)\n"
        "    print(number, flush=True)\n"
    )
    dice, said, first = random.Random(11), set(), 1
    import sys

    for _ in range(4):
        command = [sys.executable, str(script), delta.uri, json.dumps(delta.clients.storage_options()), str(first)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        said.add(int(process.stdout.readline()))
        time.sleep(dice.uniform(0.0, 0.8))
        process.kill()
        said |= {int(line) for line in process.stdout.read().split("\n") if line.strip()}
        process.wait()
        first += 1000
    server.wait_idle()
    ids = delta.ids()
    assert len(ids) == len(set(ids)), "nothing is there twice"
    assert said <= set(ids), "what was acknowledged is there"
    assert DeltaTable(delta.uri, storage_options=delta.clients.storage_options()).version() + 1 == len(ids)
    delta.write(rows(5), mode="overwrite")
    assert delta.ids() == [5]

"""Engines that live in processes of their own, since two versions of one package, or a server, do not fit into ours."""

import json
import pathlib
import subprocess
import sys
import tempfile

import lakewarden_server

FOLDER = pathlib.Path(__file__).resolve().parent
LOCK_RELEASE = lakewarden_server.ROOT / ".venv-deltalake-1.6.0"


class EngineError(Exception):
    """What the engine raised: the name of the exception and its text."""

    def __init__(self, name, text):
        super().__init__(f"{name}: {text}")
        self.name, self.text = name, text


class Engine:
    """One child process. Ends with `close`, or with its stdin."""

    def __init__(self, script, environment):
        self.log = tempfile.TemporaryFile("w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [sys.executable, str(FOLDER / script)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        try:
            self._answer()
        except BaseException:
            self.close()
            raise

    def send(self, do, **request):
        """Begins something; `receive` waits for its answer."""
        print(json.dumps({"do": do, **request}), file=self.process.stdin, flush=True)

    def receive(self):
        return self._answer()

    def ask(self, do, **request):
        self.send(do, **request)
        return self.receive()

    def _answer(self):
        line = self.process.stdout.readline()
        if not line:
            self.log.seek(0)
            raise AssertionError(f"the engine ended:\n{self.log.read()[-4000:]}")
        answer = json.loads(line)
        if "error" in answer:
            raise EngineError(answer["error"], answer["text"])
        return answer["ok"]

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.log.close()


def deltalake_1_6_0(server, lock_table):
    """Claims versions in `lock_table`."""
    assert LOCK_RELEASE.is_dir(), f"{LOCK_RELEASE.name} is missing: `tests/run clients` makes it"
    settings = {
        "PYTHONPATH": str(LOCK_RELEASE),
        "AWS_ENDPOINT_URL": server.endpoints["s3"],
        "AWS_ALLOW_HTTP": "true",
        "AWS_S3_LOCKING_PROVIDER": "dynamodb",
        "DELTA_DYNAMO_TABLE_NAME": lock_table,
    }
    return Engine("deltalake_1_6_0.py", server.environment() | settings)


def sail(server):
    settings = {"AWS_ENDPOINT_URL": server.endpoints["s3"], "AWS_ALLOW_HTTP": "true", "RUST_LOG": "error"}
    return Engine("sail.py", server.environment() | settings)


def sail_with_unity(server):
    """The same with a catalog named `sail`: Unity Catalog's calls, as the server answers them."""
    uri = server.endpoints["gateway"] + "/api/2.1/unity-catalog"
    catalog = f'[{{type="unity", name="sail", uri="{uri}", default_catalog="unity"}}]'
    settings = {
        "AWS_ENDPOINT_URL": server.endpoints["s3"],
        "AWS_ALLOW_HTTP": "true",
        "RUST_LOG": "error",
        "UNITY_ALLOW_HTTP_URL": "true",
        "SAIL_CATALOG__LIST": catalog,
    }
    return Engine("sail.py", server.environment() | settings)

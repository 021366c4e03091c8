"""Two servers of the same wire, each in its own process, and raw HTTP to both."""

import http.client
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
import lakewarden_server  # noqa: E402

START_TIMEOUT_S = 60


class Lakewarden:
    """The optimised binary, keeping nothing; the whole way through gateway, handler, SDK and embedded stores."""

    name = "lakewarden"

    def __init__(self, binary):
        lakewarden_server.BINARY = pathlib.Path(binary).resolve()
        self.folder = tempfile.TemporaryDirectory(prefix="lakewarden-bench-")
        self.server = lakewarden_server.Server(self.folder.name)

    def __enter__(self):
        self.server.start()
        self.url = self.server.endpoints["gateway"]
        return self

    def __exit__(self, *_):
        self.server.stop()
        self.folder.cleanup()

    def usage(self):
        return self.server.ok("GET", "/local/usage")["items"]

    def settle(self):
        self.server.wait_idle()


class Moto:
    """moto_server, as its own command starts it."""

    name = "moto_server"

    def __enter__(self):
        self.log = tempfile.TemporaryFile()
        command = [str(pathlib.Path(sys.executable).parent / "moto_server"), "-H", "127.0.0.1", "-p", "0"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env=os.environ)
        self.url = lakewarden_server.wait_until(self._address, "moto_server listens", START_TIMEOUT_S)
        return self

    def _address(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"moto_server ended with {self.process.returncode}")
        self.log.seek(0)
        for line in self.log.read().decode(errors="replace").splitlines():
            if "Running on http://" in line:
                return "http://" + line.split("Running on http://")[1].split()[0]
        return None

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.log.close()

    def usage(self):
        return None

    def settle(self):
        pass


class Raw:
    """One connection and requests that were serialised before the clock starts; bodies are drained, not parsed."""

    def __init__(self, url):
        self.address = urllib.parse.urlsplit(url).netloc
        self.connection = http.client.HTTPConnection(self.address, timeout=600)

    @staticmethod
    def serialise(operation, members):
        body = json.dumps(members).encode()
        headers = {
            "Content-Type": "application/x-amz-json-1.1",
            "X-Amz-Target": f"AWSGlue.{operation}",
            "Authorization": "AWS4-HMAC-SHA256 Credential=bench/20260101/us-east-1/glue/aws4_request, SignedHeaders=host, Signature=0",
        }
        return body, headers

    def send(self, request):
        """Seconds until the last byte of the answer, and the answer."""
        body, headers = request
        started = time.perf_counter()
        self.connection.request("POST", "/", body, headers)
        answer = self.connection.getresponse()
        content = answer.read()
        took = time.perf_counter() - started
        if answer.status != 200:
            raise RuntimeError(f"{headers['X-Amz-Target']}: {answer.status} {content[:500]!r}")
        return took, content


class Between:
    """A process of its own that stands before a server."""

    def __init__(self, url, delay_ms):
        script = pathlib.Path(__file__).with_name("between.py")
        command = [sys.executable, str(script), urllib.parse.urlsplit(url).netloc, str(delay_ms)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()

    def counts(self):
        print(file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

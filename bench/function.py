"""One of the Lambda functions in a process of its own: the bootstrap as it is deployed, and the runtime API that it asks for events."""

import http.server
import json
import pathlib
import queue
import subprocess
import tempfile
import threading
import time
import uuid

ACCOUNT = "000000000000"
ARN = f"arn:aws:lambda:us-east-1:{ACCOUNT}:function:"


def memory_kib(pid):
    """What a process holds now, and the most it has held since [`forget_peak`]."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    values = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith(("VmRSS:", "VmHWM:"))}
    return values["VmRSS"], values["VmHWM"]


def forget_peak(pid):
    pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="utf-8")


def processor_s(pid):
    """Time of the processor that a process has taken."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


class Api(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """A bootstrap that was ended leaves its connections as they are."""


class Function:
    """A bootstrap, and its runtime API: https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html"""

    def __init__(self, binary, environment, memory_mb=2048):
        self.events, self.answers = queue.Queue(), queue.Queue()
        self.api = Api(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self.api.serve_forever, daemon=True).start()
        self.name = pathlib.Path(binary).name
        lambda_s = {
            "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{self.api.server_port}",
            "AWS_LAMBDA_FUNCTION_NAME": self.name,
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(memory_mb),
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_LOG_GROUP_NAME": "bench",
            "AWS_LAMBDA_LOG_STREAM_NAME": "bench",
        }
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [str(binary)], env=environment | lambda_s, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log
        )
        self.pid = self.process.pid

    def _handler(function):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                """The bootstrap asks for its next event."""
                event, deadline_s = function.events.get()
                body = json.dumps(event).encode()
                self.send_response(200)
                self.send_header("Lambda-Runtime-Aws-Request-Id", str(uuid.uuid4()))
                self.send_header("Lambda-Runtime-Deadline-Ms", str(int((time.time() + deadline_s) * 1000)))
                self.send_header("Lambda-Runtime-Invoked-Function-Arn", ARN + function.name)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self):
                """It answers."""
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length) if length else self._chunks()
                function.answers.put((self.path.endswith("/response"), body))
                self.send_response(202)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def _chunks(self):
                body = b""
                while size := int(self.rfile.readline().split(b";")[0] or b"0", 16):
                    body += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
                return body

            def log_message(self, *_):
                pass

        return Handler

    def invoke(self, event, deadline_s=3600):
        """The answer to an event."""
        self.events.put((event, deadline_s))
        while True:
            try:
                is_good, body = self.answers.get(timeout=1)
                break
            except queue.Empty:
                if self.process.poll() is not None:
                    raise RuntimeError(f"{self.name} ended with {self.process.returncode}:\n{self.tail()}") from None
        if not is_good:
            raise RuntimeError(f"{self.name}: {body.decode()}\n{self.tail()}")
        return json.loads(body)

    def tail(self):
        self.log.seek(0)
        return "\n".join(self.log.read().decode(errors="replace").splitlines()[-20:])

    def close(self):
        self.process.kill()
        self.process.wait()
        self.api.shutdown()
        self.api.server_close()
        self.log.close()


def sqs_event(body):
    """An event of a queue with one message."""
    record = {"messageId": str(uuid.uuid4()), "receiptHandle": "1", "body": body, "attributes": {}, "messageAttributes": {}}
    record |= {"eventSource": "aws:sqs", "eventSourceARN": f"arn:aws:sqs:us-east-1:{ACCOUNT}:sweeps", "awsRegion": "us-east-1"}
    return {"Records": [record]}

"""Starts and stops the product as a process, and talks to what only the laptop has (clock, events, dead letters)."""

import json
import os
import pathlib
import signal
import subprocess
import time

import requests

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
BINARY = TARGET / "debug" / "lakewarden"
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 30


def build():
    """Builds every binary, with the features that the Rust tests use, so that nothing is compiled twice."""
    command = ["cargo", "build", "--locked", "--quiet", "--workspace", "--bins", "--tests"]
    subprocess.run(command, cwd=ROOT, check=True, stdin=subprocess.DEVNULL)


def wait_until(probe, what, timeout_s=60, pause_s=0.05):
    """Calls `probe` until it answers something true, and returns that."""
    ends = time.monotonic() + timeout_s
    while True:
        answer = probe()
        if answer:
            return answer
        if time.monotonic() > ends:
            raise AssertionError(f"after {timeout_s} s still not: {what}")
        time.sleep(pause_s)


def arguments(folder, data_dir=None, ports=None):
    """Command line of a server; without `data_dir` it keeps nothing, without `ports` it takes free ones."""
    ports = ports or {}
    command = [str(BINARY)]
    command += ["--data-dir", str(data_dir)] if data_dir else ["--ephemeral"]
    for service in ("gateway", "s3", "dynamodb", "sqs"):
        command += [f"--{service}-port", str(ports.get(service, 0))]
    command += ["--guarded-s3-port", str(ports.get("guarded_s3", 0))]
    return command + ["--endpoints-file", str(pathlib.Path(folder, "endpoints.json"))]


class Server:
    """One running Lakewarden. `folder` takes its log and its endpoints."""

    def __init__(self, folder, data_dir=None, ports=None):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log = self.folder / "log.txt"
        self.command = arguments(self.folder, data_dir, ports)
        self.process = None
        self.endpoints = None
        self.http = None

    def start(self):
        endpoints = self.folder / "endpoints.json"
        endpoints.unlink(missing_ok=True)
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )

        def written():
            if self.process.poll() is not None:
                raise AssertionError(f"the server ended with {self.process.returncode}:\n{self.tail()}")
            return endpoints.exists() and endpoints.read_text(encoding="utf-8").endswith(("}", "}\n"))

        try:
            wait_until(written, "endpoints written", START_TIMEOUT_S)
            self.endpoints = json.loads(endpoints.read_text(encoding="utf-8"))
        except BaseException:
            self.kill()
            raise
        self.http = requests.Session()
        return self

    def stop(self):
        """Ends it as Ctrl-C does and returns its exit code."""
        if self.process is None:
            return None
        process, self.process = self.process, None
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        try:
            return process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"the server did not end within {STOP_TIMEOUT_S} s:\n{self.tail()}") from None

    def kill(self):
        """Ends it as a power cut does."""
        if self.process is not None:
            process, self.process = self.process, None
            process.kill()
            process.wait()

    def tail(self, lines=40):
        text = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    # HTTP on the gateway

    def request(self, method, path, body=None):
        url = self.endpoints["gateway"] + path
        return self.http.request(method, url, json=body, timeout=60)

    def ok(self, method, path, body=None):
        """The JSON of an answer that must be a 2xx."""
        answer = self.request(method, path, body)
        assert answer.ok, f"{method} {path} -> {answer.status_code}: {answer.text}\n{self.tail()}"
        return answer.json() if answer.content else None

    # What only the laptop has

    def advance_clock(self, duration):
        return self.ok("POST", "/local/clock", {"advance": duration})

    def pause_events(self):
        self.ok("POST", "/local/events/pause")

    def resume_events(self):
        self.ok("POST", "/local/events/resume")

    def dead_letters(self):
        return self.ok("GET", "/local/dead-letters")

    def run_schedule(self):
        return self.ok("POST", "/local/schedule/run")

    def wait_idle(self, timeout_s=60):
        """Until no event or message is waiting or being worked on."""
        seen = {}

        def idle():
            seen.update(self.ok("GET", "/local/idle"))
            return seen["idle"]

        try:
            wait_until(idle, "nothing left to do", timeout_s)
        except AssertionError as late:
            raise AssertionError(f"{late}: {seen['state']}\n{self.tail(15)}") from None

    # What clients are told

    def environment(self):
        """Environment for the AWS CLI and other SDKs, with nothing of the caller's own settings."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        return kept | {
            "AWS_ACCESS_KEY_ID": self.endpoints["access_key"],
            "AWS_SECRET_ACCESS_KEY": self.endpoints["secret_key"],
            "AWS_REGION": self.endpoints["region"],
            "AWS_DEFAULT_REGION": self.endpoints["region"],
            "AWS_ENDPOINT_URL_GLUE": self.endpoints["gateway"],
            "AWS_ENDPOINT_URL_S3": self.endpoints["s3"],
            "AWS_ENDPOINT_URL_DYNAMODB": self.endpoints["dynamodb"],
            "AWS_ENDPOINT_URL_SQS": self.endpoints["sqs"],
            # Functions that run beside the server look for the log store's items where it made the table.
            "LAKEWARDEN_DELTA_LOG_TABLE": self.endpoints["delta_log_table"],
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_PAGER": "",
        }

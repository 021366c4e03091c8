"""Objects through the guarded S3 beside the plain one, on the same embedded S3 in one run: throughput of large objects and what the
gateway's process spends of the processor on them, latency of small requests, and its memory while a gigabyte streams through.

Both ways take turns, so that what else the machine does meets both. The client is plain HTTP on one connection with requests that are
signed as an SDK signs them (the hash of a body is computed before the clock starts): an SDK's own time would be most of what is measured.
"""

import argparse
import datetime
import hashlib
import hmac
import http.client
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.parse

from peers import lakewarden_server

BUCKET, REGION = "lake", "us-east-1"
MEGABYTE = 1_000_000


class Client:
    """One connection that is kept."""

    def __init__(self, url, keys):
        self.host = urllib.parse.urlsplit(url).netloc
        self.keys = keys
        self.http = http.client.HTTPConnection(self.host, timeout=600)

    def send(self, method, path, body=b"", digest=None, query=""):
        now = datetime.datetime.now(datetime.timezone.utc)
        stamp, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
        digest = digest or hashlib.sha256(body).hexdigest()
        headers = {"host": self.host, "x-amz-content-sha256": digest, "x-amz-date": stamp}
        names = ";".join(headers)
        lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
        canonical = "\n".join([method, path, query, lines, names, digest])
        scope = f"{day}/{REGION}/s3/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
        key = ("AWS4" + self.keys[1]).encode()
        for part in (day, REGION, "s3", "aws4_request"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
        headers["authorization"] = f"AWS4-HMAC-SHA256 Credential={self.keys[0]}/{scope}, SignedHeaders={names}, Signature={signature}"
        self.http.request(method, path + ("?" + query if query else ""), body or None, headers)
        answer = self.http.getresponse()
        size = 0
        while data := answer.read(1 << 20):
            size += len(data)
        if answer.status not in (200, 204):
            raise RuntimeError(f"{method} {path}: {answer.status}")
        return size


def timed(call, *arguments, **named):
    began = time.perf_counter()
    call(*arguments, **named)
    return time.perf_counter() - began


def memory_kb(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    raise RuntimeError("no VmRSS")


def processor_seconds(pid):
    """What a process has spent so far, in itself and in the kernel."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return tuple(int(field) / os.sysconf("SC_CLK_TCK") for field in fields[11:13])


class Memory:
    """The largest resident size of a process while this is entered."""

    def __init__(self, pid):
        self.pid, self.most, self.ended = pid, memory_kb(pid), threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def watch(self):
        while not self.ended.wait(0.02):
            self.most = max(self.most, memory_kb(self.pid))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


def throughput(ways, size, rounds, pid):
    body = os.urandom(size)
    digest = hashlib.sha256(body).hexdigest()
    times = {way: {"put": [], "get": []} for way in ways}
    spent = {"put": (0, 0), "get": (0, 0)}

    def measured(kind, client, *arguments):
        before = processor_seconds(pid)
        took = timed(client.send, kind.upper(), *arguments)
        spent[kind] = tuple(sum(parts) for parts in zip(spent[kind], processor_seconds(pid), (-part for part in before)))
        return took

    for number in range(rounds + 1):
        for way, client in ways.items():
            put = measured("put", client, f"/{BUCKET}/bench/{way}", body, digest)
            get = measured("get", client, f"/{BUCKET}/bench/{way}")
            if number:  # the first one is not counted
                times[way]["put"].append(put)
                times[way]["get"].append(get)
    print(f"  {size / MEGABYTE:6.1f} MB", end="")
    for kind in ("put", "get"):
        rates = {way: size / statistics.median(times[way][kind]) / MEGABYTE for way in ways}
        print(f"   {kind} {rates['plain']:7.0f} {rates['guarded']:7.0f} MB/s ({rates['guarded'] / rates['plain']:4.0%})", end="")
    gigabytes = size * (rounds + 1) / 1000 / MEGABYTE
    for kind, (own, kernel) in spent.items():
        print(f"   {kind} {own / gigabytes:.2f} + {kernel / gigabytes:.2f} s/GB", end="")
    print()


def latency(ways, rounds):
    body = b"x" * 100
    requests = {
        "put 100 bytes": ("PUT", f"/{BUCKET}/bench/small", body, ""),
        "get 100 bytes": ("GET", f"/{BUCKET}/bench/small", b"", ""),
        "head": ("HEAD", f"/{BUCKET}/bench/small", b"", ""),
        "list": ("GET", f"/{BUCKET}", b"", "list-type=2&max-keys=10"),
    }
    for name, (method, path, content, query) in requests.items():
        times = {way: [] for way in ways}
        for _ in range(rounds):
            for way, client in ways.items():
                times[way].append(timed(client.send, method, path, content, query=query) * 1000)
        plain, guarded = (statistics.median(times[way]) for way in ("plain", "guarded"))
        print(f"  {name:14} {plain:6.2f} {guarded:6.2f} ms (median; {guarded - plain:+.2f})")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(lakewarden_server.ROOT / "target" / "release" / "lakewarden"))
    parser.add_argument("--megabytes", type=float, nargs="*", default=[1, 8, 64])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--small", type=int, default=500, help="rounds of small requests")
    parser.add_argument("--stream", type=int, default=1000, help="megabytes of the object whose memory is watched")
    options = parser.parse_args()
    lakewarden_server.BINARY = pathlib.Path(options.binary).resolve()
    with tempfile.TemporaryDirectory(prefix="lakewarden-bench-") as folder:
        server = lakewarden_server.Server(folder).start()
        file = pathlib.Path(folder, "gateway.json")
        command = [str(lakewarden_server.BINARY), "gateway", "--port", "0", "--service", server.endpoints["gateway"]]
        command += ["--access-key", server.endpoints["access_key"], "--secret-key", server.endpoints["secret_key"]]
        gateway = subprocess.Popen([*command, "--endpoints-file", str(file)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            lakewarden_server.wait_until(file.exists, "the gateway answers")
            keys = server.endpoints["access_key"], server.endpoints["secret_key"]
            guarded = json.loads(file.read_text(encoding="utf-8"))["s3"]
            ways = {"plain": Client(server.endpoints["s3"], keys), "guarded": Client(guarded, keys)}
            print("Throughput, plain and through the gateway (a process of its own), medians; the gateway's processor time, own and in the kernel:")
            for megabytes in options.megabytes:
                throughput(ways, int(megabytes * MEGABYTE), options.rounds, gateway.pid)
            print("Small requests:")
            latency(ways, options.small)
            body = os.urandom(MEGABYTE) * options.stream
            digest = hashlib.sha256(body).hexdigest()
            before = memory_kb(gateway.pid)
            with Memory(gateway.pid) as memory:
                put = timed(ways["guarded"].send, "PUT", f"/{BUCKET}/bench/stream", body, digest)
                get = timed(ways["guarded"].send, "GET", f"/{BUCKET}/bench/stream")
            print(f"{options.stream} MB in {put:.1f} s, out {get:.1f} s; the gateway's memory: {before / 1000:.1f} MB before, {memory.most / 1000:.1f} MB at most")
        finally:
            gateway.kill()
            gateway.wait()
            server.stop()


if __name__ == "__main__":
    main()

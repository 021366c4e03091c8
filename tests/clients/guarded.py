"""One server seen by way of its guarded S3, and things that are done both ways and compared."""

import datetime
import hashlib
import hmac
import re
import socket
import urllib.parse

from conftest import Clients


class Guarded:
    """A server whose S3 is the guarded one."""

    def __init__(self, server, s3=None):
        self.server = server
        self.endpoints = server.endpoints | {"s3": server.endpoints["guarded_s3"]} | (s3 or {})

    def environment(self):
        keys = {"AWS_ACCESS_KEY_ID": self.endpoints["access_key"], "AWS_SECRET_ACCESS_KEY": self.endpoints["secret_key"]}
        return self.server.environment() | keys | {"AWS_ENDPOINT_URL_S3": self.endpoints["s3"]}

    def __getattr__(self, name):
        return getattr(self.server, name)


def both(server):
    """Clients of the plain and of the guarded S3."""
    return {"plain": Clients(server), "guarded": Clients(Guarded(server))}


class Raw:
    """Signed requests whose path is what a test says, byte for byte."""

    def __init__(self, server):
        self.server = server
        self.host = server.endpoints["guarded_s3"].removeprefix("http://")

    def key(self, day):
        key = ("AWS4" + self.server.endpoints["secret_key"]).encode()
        for part in (day, self.server.endpoints["region"], "s3", "aws4_request"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        return key

    def head(self, method, path, length, headers=(), query="", payload=None, unsigned=()):
        """The head of a request; `unsigned` has lines that the signature does not cover. Also what chunks are signed with."""
        endpoints = self.server.endpoints
        now = datetime.datetime.now(datetime.timezone.utc)
        stamp, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
        signed = {"host": self.host, "x-amz-content-sha256": payload, "x-amz-date": stamp} | dict(headers)
        canonical_path = urllib.parse.quote(urllib.parse.unquote_to_bytes(path), safe="/~-_.")
        pairs = sorted(urllib.parse.parse_qsl(query, keep_blank_values=True))
        canonical_query = "&".join(f"{urllib.parse.quote(k, safe='-_.~')}={urllib.parse.quote(v, safe='-_.~')}" for k, v in pairs)
        names = ";".join(sorted(signed))
        lines = "".join(f"{name}:{signed[name].strip()}\n" for name in sorted(signed))
        canonical = "\n".join([method, canonical_path, canonical_query, lines, names, payload])
        scope = f"{day}/{endpoints['region']}/s3/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
        signature = hmac.new(self.key(day), text.encode(), hashlib.sha256).hexdigest()
        signed["authorization"] = f"AWS4-HMAC-SHA256 Credential={endpoints['access_key']}/{scope}, SignedHeaders={names}, Signature={signature}"
        target = path + ("?" + query if query else "")
        head = f"{method} {target} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in signed.items())
        head += "".join(line + "\r\n" for line in unsigned)
        head += "" if length is None else f"content-length: {length}\r\n"
        return head, (self.key(day), stamp, scope, signature)

    def send(self, data):
        """Everything that comes back until the other side closes."""
        host, port = self.host.split(":")
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            connection.sendall(data)
            answer = b""
            while data := connection.recv(65536):
                answer += data
        return answer

    def __call__(self, method, path, body=b"", headers=(), query="", unsigned=()):
        payload = hashlib.sha256(body).hexdigest()
        head, _ = self.head(method, path, len(body), headers, query, payload, unsigned)
        answer = self.send((head + "connection: close\r\n\r\n").encode("latin-1") + body)
        return int(answer.split(b" ", 2)[1]), answer


CHANGING = re.compile(r"date|last-modified|amz-id|request-?id|host-?id|upload-?id|retryattempts|server|connection|keep-alive", re.I)


def steady(value):
    """An answer of boto3 without what differs each time."""
    if isinstance(value, dict):
        return {name: steady(value[name]) for name in sorted(value) if not CHANGING.search(name)}
    if isinstance(value, (list, tuple)):
        return [steady(member) for member in value]
    if hasattr(value, "read"):
        return value.read()
    return None if hasattr(value, "isoformat") else value

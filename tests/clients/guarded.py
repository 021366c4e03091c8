"""One server seen by way of its guarded S3, and things that are done both ways and compared."""

import re

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

"""Places on S3, and names in a Delta log."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

LOG = "_delta_log"
STAGED = "_staged_commits"
_COMMIT = re.compile(r"^(\d{20})\.json$")


@dataclass(frozen=True)
class Location:
    """The root of a table: a bucket and a prefix without slashes at its ends."""

    bucket: str
    prefix: str

    @classmethod
    def parse(cls, uri: str) -> Location:
        """Reads ``s3://bucket/path`` (also ``s3a://``, ``s3n://``), with or without a slash at the end."""
        found = re.match(r"^s3[an]?://([^/]+)/*(.*?)/*$", uri)
        if not found:
            raise ValueError(f"{uri!r} is not of the form s3://bucket/path")
        return cls(found.group(1), found.group(2))

    def key(self, relative: str) -> str:
        return f"{self.prefix}/{relative}" if self.prefix else relative

    def relative(self, key: str) -> str | None:
        """What of a key is below the root."""
        start = f"{self.prefix}/" if self.prefix else ""
        return key[len(start) :] if key.startswith(start) else None

    def relative_uri(self, uri: str) -> str | None:
        """What of a URI is below the root, spelled as it is there. The root itself may have escapes or not."""
        found = re.match(r"^s3[an]?://([^/]+)/(.*)$", uri)
        if not found or found.group(1) != self.bucket:
            return None
        parts, depth = found.group(2).split("/"), self.prefix.count("/") + 1 if self.prefix else 0
        root = "/".join(parts[:depth])
        return "/".join(parts[depth:]) if self.prefix in (root, unquote(root)) else None

    @property
    def escaped_uri(self) -> str:
        """For engines that take the name of a table for a URI."""
        return f"s3://{self.bucket}/{quote(self.prefix)}".rstrip("/")

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")


def staged_name(version: int, proposal_id: str) -> str:
    """Relative key of a staged commit."""
    return f"{LOG}/{STAGED}/{version:020}.{proposal_id}.json"


def key_of_path(path: str) -> str:
    """Relative key that a path of a log names: paths are URIs, keys are not."""
    return unquote(path)


def commit_version(key: str) -> int | None:
    """Version of ``…/_delta_log/<20 digits>.json``."""
    found = _COMMIT.match(posixpath.basename(key))
    return int(found.group(1)) if found and posixpath.basename(posixpath.dirname(key)) == LOG else None


def list_keys(s3: Any, bucket: str, prefix: str, start_after: str = "") -> list[str]:
    """All keys below a prefix, in order."""
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix, StartAfter=start_after)
    return [found["Key"] for page in pages for found in page.get("Contents", [])]

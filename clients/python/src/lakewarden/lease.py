"""Writers' leases."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from .errors import RequestError

if TYPE_CHECKING:
    from .client import Client


class Lease:
    """Protects what a writer announced from sweeps. Made by :meth:`Client.lease`; ends with ``with``, or by
    :meth:`release`. One that is not given back runs out by itself.

    Attributes:
        id: the lease's id.
        expires_at_ms: until when it holds, in milliseconds since 1970 by the server's clock.
        missing: of the keys that were named, those that do not exist (yet).
    """

    def __init__(self, client: Client, path: str, granted: Mapping[str, Any]) -> None:
        self._client = client
        self.id = str(granted["lease_id"])
        self._path = f"{path}/{quote(self.id, safe='')}"
        self.expires_at_ms = int(granted["expires_at_ms"])
        self.missing = [str(key) for key in granted.get("missing") or ()]

    def renew(self, ttl_s: int | None = None) -> None:
        """Extends it from now on."""
        renewed = self._client.request("PUT", self._path, {} if ttl_s is None else {"ttl_seconds": ttl_s})
        self.expires_at_ms = int(renewed["expires_at_ms"])

    def release(self) -> None:
        """Gives it back: its files are committed, or not wanted."""
        try:
            self._client.request("DELETE", self._path)
        except RequestError as error:
            # It ran out so long ago that it is forgotten.
            if error.status != 404:
                raise

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

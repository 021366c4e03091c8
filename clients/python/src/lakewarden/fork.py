"""Commits that an unmodified deltalake makes on a fork of a table, proposed for the table itself.

deltalake publishes what it commits; it has no way to stage it. So it is given a fork: the table's log and live files, copied
on the server's side below another prefix. What it commits there is new files and one log file. The files are copied below
the real root, again on the server's side, and the log file's actions are staged for the real table.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ._refusals import check_transaction
from .client import DEFAULT_TIMEOUT_S, Client
from .errors import LakewardenError, NothingCommitted, UnsupportedTable
from .location import LOG, STAGED, Location, commit_version, key_of_path, list_keys
from .verdict import Verdict

if TYPE_CHECKING:
    from deltalake import DeltaTable

FORKS = "_lakewarden_forks"
_COPIES_AT_ONCE = 16
_DELETES_AT_ONCE = 1000


@dataclass
class ForkedCommit:
    """A commit that was made on a fork, ready to be staged for the real table. ``actions`` may still be changed."""

    location: str
    read_version: int
    actions: list[dict[str, Any]]
    new_keys: list[str] = field(default_factory=list)
    """Keys of the data and vector files that were brought below the real root."""


class Fork:
    """A fork of a table. Made by :func:`fork`, which removes it at the end.

    Attributes:
        uri: give it to the engine.
        storage_options: for deltalake, with the credentials of the client.
        read_version: the table's version that was forked.
    """

    def __init__(self, client: Client, root: Location, at: Location) -> None:
        self._client, self._root, self._at = client, root, at
        self.uri = at.escaped_uri
        self.storage_options = storage_options(client)
        self.read_version = -1
        self.table_id = ""
        self._copied: set[str] = set()

    def table(self) -> DeltaTable:
        """The fork as deltalake opens it."""
        from deltalake import DeltaTable

        return DeltaTable(self.uri, storage_options=self.storage_options)

    def _fill(self) -> None:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        s3, root = self._client.s3, self._root
        try:
            found = DeltaTable(root.escaped_uri, storage_options=self.storage_options)
        except TableNotFoundError:
            raise
        except DeltaError as error:
            # Catalog-managed tables, for example.
            raise UnsupportedTable(f"deltalake cannot open {root.uri}: {error}") from error
        self.read_version, self.table_id = found.version(), str(found.metadata().id)
        there = set(list_keys(s3, root.bucket, root.key("")))
        log = root.key(f"{LOG}/")
        keys = {key for key in there if key.startswith(log) and _is_of_log(key, self.read_version)}
        keys |= set(_live_keys(root, found.get_add_actions().column("path").to_pylist(), there))
        # deltalake does not say which vectors are in use.
        keys |= {key for key in there if key.endswith(".bin") and "/deletion_vector_" in f"/{key}"}
        self._copied = {self._at.key(root.relative(key) or "") for key in keys}
        self._copy((key, self._at.key(root.relative(key) or "")) for key in keys)

    def commit(self) -> ForkedCommit:
        """What the engine committed here since the fork was made; its files are brought below the real root.

        Raises:
            NothingCommitted: there is no new commit.
            LakewardenError: there is more than one.
            ConcurrentTransactionException: it has an application's transaction that is in the table already.
        """
        s3, at, root = self._client.s3, self._at, self._root
        made = [key for key in list_keys(s3, at.bucket, at.key("")) if key not in self._copied]
        logs = [key for key in made if (commit_version(key) or -1) > self.read_version]
        if not logs:
            raise NothingCommitted("nothing was committed on the fork")
        if len(logs) != 1:
            raise LakewardenError(f"one commit was expected on the fork, {len(logs)} were made")
        body = s3.get_object(Bucket=at.bucket, Key=logs[0])["Body"].read()
        actions = [json.loads(line) for line in body.decode().splitlines() if line.strip()]
        self._check_transactions(actions)
        files = [key for key in made if not key.startswith(at.key(f"{LOG}/"))]
        new_keys = [root.key(at.relative(key) or "") for key in files]
        self._copy(zip(files, new_keys))
        rebased = [_rebased(action, at) for action in actions]
        return ForkedCommit(root.uri, self.read_version, _with_read(rebased, self.read_version, self.table_id), new_keys)

    def _check_transactions(self, actions: Iterable[Mapping[str, Any]]) -> None:
        """deltalake records the transactions of an application, and does not look whether they are there already."""
        from deltalake import DeltaTable

        written = [action["txn"] for action in actions if "txn" in action]
        if not written:
            return
        before = DeltaTable(self.uri, version=self.read_version, storage_options=self.storage_options)
        for txn in written:
            found = before.transaction_version(txn["appId"])
            there = [] if found is None else [(found, None)]
            check_transaction(self._root.uri, self.read_version, txn["appId"], int(txn["version"]), there)

    def remove(self) -> None:
        """Deletes the fork's objects, all of them."""
        s3, at = self._client.s3, self._at
        keys = list_keys(s3, at.bucket, at.key(""))
        for first in range(0, len(keys), _DELETES_AT_ONCE):
            objects = [{"Key": key} for key in keys[first : first + _DELETES_AT_ONCE]]
            answer = s3.delete_objects(Bucket=at.bucket, Delete={"Objects": objects, "Quiet": True})
            if answer.get("Errors"):
                raise LakewardenError(f"the fork {at.uri} was not removed whole: {answer['Errors'][0]}")

    def _copy(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Inside the bucket, in parts where an object is large."""
        s3, bucket = self._client.s3, self._root.bucket

        def copy(pair: tuple[str, str]) -> None:
            s3.copy({"Bucket": bucket, "Key": pair[0]}, bucket, pair[1])

        with ThreadPoolExecutor(_COPIES_AT_ONCE) as pool:
            for _ in pool.map(copy, list(pairs)):
                pass


@contextmanager
def fork(client: Client, uri: str, *, forks: str = FORKS) -> Iterator[Fork]:
    """A fork of a table, removed at the end, also after a failure. It lies in the table's bucket below ``forks``."""
    root = Location.parse(uri)
    if "%" in f"{root.prefix}{forks}":
        # It takes the escapes that name such a place away twice, and looks at another one then.
        raise UnsupportedTable(f"deltalake cannot open a place whose name has a percent sign: {uri}, {forks}")
    made = Fork(client, root, Location(root.bucket, f"{forks.strip('/')}/{uuid.uuid4()}"))
    try:
        made._fill()
        yield made
    finally:
        made.remove()


def stage_from_fork(
    client: Client,
    uri: str,
    change: Callable[[DeltaTable], Any],
    *,
    read_set: Mapping[str, Any] | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    forks: str = FORKS,
) -> Verdict:
    """Lets deltalake change a fork of a table, and proposes what it did for the table. Needs the extra ``[deltalake]``.

    >>> stage_from_fork(lake, "s3://lake/orders", lambda table: table.delete("id = 7"))

    Live files are copied to the fork on the server's side: a request for each of them, no bytes through this process.

    Args:
        uri: root of the table.
        change: called with the fork as a ``DeltaTable``; must commit once at most (DELETE, UPDATE, MERGE, OPTIMIZE, an
            append or overwrite with ``write_deltalake(table, …)``).
        read_set: what was read, where it says more than the predicate that deltalake records.

    Returns:
        The verdict. Where there was nothing to do, so that deltalake committed nothing, one that is ``superseded`` and has
        no proposal id: nothing was proposed.

    Raises:
        CommitRefused: the subclass that the verdict names. The table is as it was.
        LakewardenError: ``change`` made several commits.
        UnsupportedTable: deltalake cannot open the table, or the fork would not be complete.
    """
    with fork(client, uri, forks=forks) as made:
        change(made.table())
        try:
            commit = made.commit()
        except NothingCommitted:
            return Verdict("", Location.parse(uri).uri, "superseded", True, None, made.read_version, None, (), {})
        if read_set is not None:
            for action in commit.actions:
                if "commitInfo" in action:
                    action["commitInfo"]["readSet"] = dict(read_set)
        return client.stage_and_wait(uri, commit.actions, read_version=commit.read_version, timeout_s=timeout_s)


def storage_options(client: Client) -> dict[str, str]:
    """What deltalake needs to reach the same S3 with the same credentials."""
    endpoint = str(client.s3.meta.endpoint_url)
    options = {"AWS_REGION": client.s3.meta.region_name or client.region}
    if "amazonaws.com" not in endpoint:
        options |= {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": str(endpoint.startswith("http://")).lower()}
    credentials = client.session.get_credentials()
    if credentials is not None:
        frozen = credentials.get_frozen_credentials()
        options |= {"AWS_ACCESS_KEY_ID": frozen.access_key, "AWS_SECRET_ACCESS_KEY": frozen.secret_key}
        if frozen.token:
            options["AWS_SESSION_TOKEN"] = frozen.token
    return options


def _is_of_log(key: str, version: int) -> bool:
    """Whether a key of the log belongs to the version that is forked: no staged commits, and nothing newer."""
    inside = key.split(f"{LOG}/", 1)[1]
    found = commit_version(key)
    is_newer = found is not None and found > version
    return not is_newer and not inside.startswith((f"{STAGED}/", ".tmp/")) and not inside.endswith(".crc")


def _live_keys(root: Location, paths: Iterable[str], there: set[str]) -> Iterator[str]:
    for path in paths:
        inside = root.relative_uri(path) if "://" in path else path
        # What the log has are URIs; there are writers that put keys there.
        found = {root.key(one) for one in (key_of_path(inside), inside)} & there if inside else set()
        if not found:
            raise UnsupportedTable(f"{path} is not found below {root.uri}: the table cannot be forked")
        yield from found


def _rebased(action: dict[str, Any], at: Location) -> dict[str, Any]:
    """Paths below the fork, where they are whole, become relative ones; relative ones hold for both roots."""
    for kind in ("add", "remove", "cdc"):
        file = action.get(kind)
        if not file:
            continue
        file["path"] = at.relative_uri(file["path"]) or file["path"]
        vector = file.get("deletionVector")
        if vector and vector.get("storageType") == "p" and at.prefix in unquote(vector["pathOrInlineDv"]):
            raise UnsupportedTable("the fork has a deletion vector with a path of its own: use relative vectors")
    return action


def _with_read(actions: list[dict[str, Any]], read_version: int, table_id: str) -> list[dict[str, Any]]:
    """What was read: version and table. An engine that says it keeps what it says."""
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"].setdefault("readVersion", read_version)
            action["commitInfo"].setdefault("readTableId", table_id)
    return actions

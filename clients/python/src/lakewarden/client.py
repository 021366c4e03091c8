"""Proposing commits and reading verdicts. Needs boto3 only."""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import boto3
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as NoConnection
from botocore.httpsession import URLLib3Session

from ._refusals import reused
from .errors import NoVerdictYet, RequestError, is_refusal_name, refusal_of
from .lease import Lease
from .location import LOG, Location, commit_version, list_keys, staged_name
from .verdict import Verdict

Action = Mapping[str, Any]
"""One action of a Delta commit: ``{"add": {…}}``, ``{"commitInfo": {…}}``, …"""

DEFAULT_TIMEOUT_S = 60.0
# Larger bodies are staged on S3: the API takes 4 MB, and signing or the gateway may add to them.
INLINE_MAX_BYTES = 3_500_000
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0
_REQUEST_TIMEOUT_S = 35
# After that long without a sign of a staged commit the server is told of it.
_UNSEEN_S = 5.0
_CONFLICT_PAUSES_S = (0.1, 0.5, 2.0)


@dataclass(frozen=True)
class Proposal:
    """A commit that was staged. Its verdict is found under its id, by whoever asks."""

    client: Client
    id: str
    location: str
    version: int
    """The version it proposes: one more than it read."""

    def wait(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> Verdict:
        """See :meth:`Client.wait`. A verdict that the id got for another proposal is not taken for this one's:
        ``ProposalReusedException``. Where nothing is seen of it for some seconds the server is told of it: its event was
        lost, or the table is one whose events are not listened to, which is refused as ``CATALOG_MANAGED`` then."""
        return self.client._wait(self.id, timeout_s, self.location, self.version - 1, self)


class Client:
    """Speaks to one Lakewarden.

    Args:
        gateway: address of the HTTP API; without it ``LAKEWARDEN_GATEWAY`` of the environment.
        session: credentials and region, as boto3 finds them if there is none. Requests to the API are signed with
            Signature Version 4 for ``execute-api``; without credentials they go unsigned, which the laptop takes.
        s3: the client that objects are staged and read with; made from the session if there is none (boto3 reads
            ``AWS_ENDPOINT_URL_S3``).

    Safe to share between threads as far as boto3's clients are.
    """

    def __init__(self, gateway: str | None = None, session: Any = None, s3: Any = None) -> None:
        gateway = gateway or os.environ.get("LAKEWARDEN_GATEWAY")
        if not gateway:
            raise ValueError("name the gateway: Client(gateway=…), or LAKEWARDEN_GATEWAY in the environment")
        self.gateway = gateway.rstrip("/")
        self.session = session or boto3.Session()
        self.region: str = self.session.region_name or "us-east-1"
        self.s3 = s3 or self.session.client("s3", region_name=self.region)
        self._http = URLLib3Session(timeout=_REQUEST_TIMEOUT_S)

    # Commits

    def stage(
        self,
        location: str,
        actions: Iterable[Action],
        *,
        read_version: int,
        read_table_id: str | None = None,
        proposal_id: str | None = None,
    ) -> Proposal:
        """Puts a commit where Lakewarden finds it: one object below ``_delta_log/_staged_commits/``. Its S3 event has it
        judged. The data files must be there already.

        Args:
            location: root of the table, ``s3://bucket/path``.
            actions: the commit's lines.
            read_version: the version that the commit read; -1 creates the table.
            read_table_id: the ``metaData.id`` of the table that was read. With it the commit is never taken for one of another
                table that stands at the place by then.
            proposal_id: a UUID of your own, so that staging again is the same proposal.

        Raises:
            ProposalReusedException: the id is that of other content; what was staged under it stays as it was.
        """
        actions = _with_info(actions, {"readTableId": read_table_id})
        root = Location.parse(location)
        proposal_id = str(uuid.UUID(proposal_id)) if proposal_id else str(uuid.uuid4())
        key = root.key(staged_name(read_version + 1, proposal_id))
        if not self._put_once(root.bucket, key, encode(actions)):
            raise reused(proposal_id, root.uri, read_version)
        return Proposal(self, proposal_id, root.uri, read_version + 1)

    def _put_once(self, bucket: str, key: str, body: bytes) -> bool:
        """Whether the object has this content now: it is put where there is none, and never over another one."""
        for pause in (*_CONFLICT_PAUSES_S, None):
            try:
                self.s3.put_object(Bucket=bucket, Key=key, Body=body, ContentType="application/json", IfNoneMatch="*")
                return True
            except ClientError as error:
                status = error.response["ResponseMetadata"]["HTTPStatusCode"]
                # 409: another put under this key was under way, so that it is not known what will be there.
                if status not in (409, 412) or (status == 409 and pause is None):
                    raise
            if status == 412:
                try:
                    # An earlier try may have come through, and its answer may have been lost.
                    return bool(self.s3.get_object(Bucket=bucket, Key=key)["Body"].read() == body)
                except self.s3.exceptions.NoSuchKey:
                    if pause is None:
                        raise
            time.sleep(pause or 0)
        return False

    def stage_and_wait(
        self,
        location: str,
        actions: Iterable[Action],
        *,
        read_version: int,
        read_table_id: str | None = None,
        proposal_id: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Verdict:
        """:meth:`stage`, then :meth:`wait`."""
        staged = self.stage(
            location, actions, read_version=read_version, read_table_id=read_table_id, proposal_id=proposal_id
        )
        return staged.wait(timeout_s)

    def propose(
        self,
        location: str | tuple[str, str],
        actions: Sequence[Action],
        *,
        read_version: int,
        read_set: Mapping[str, Any] | None = None,
        read_table_id: str | None = None,
        proposal_id: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Verdict:
        """Has a commit judged by a call that answers with the verdict. Called again under the same id, also after a
        crash, it is carried out once. What is too large for a call is staged first.

        Args:
            location: root of the table, or ``(database, table)`` of the catalog.
            read_set: what the commit read, as ``commitInfo.readSet`` holds it.
            read_table_id: see :meth:`stage`.

        Raises:
            CommitRefused: the subclass that the verdict names.
            NoVerdictYet: not within ``timeout_s``; it may still come.
            RequestError: the request itself was wrong.
        """
        actions = _with_info(actions, {"readTableId": read_table_id})
        proposal_id = str(uuid.UUID(proposal_id)) if proposal_id else str(uuid.uuid4())
        path, body = "/v1/commits", {"proposal_id": proposal_id}
        if isinstance(location, tuple):
            path = f"{_table_path(*location)}/commits"
        else:
            body["location"] = Location.parse(location).uri
        request: dict[str, Any] = {**body, "read_version": read_version, "actions": actions}
        if read_set is not None:
            request["read_set"] = read_set
        if len(_json(request)) > INLINE_MAX_BYTES:
            root = self.location_of(*location) if isinstance(location, tuple) else str(location)
            staged = self.stage(
                root, _with_info(actions, {"readSet": read_set}), read_version=read_version, proposal_id=proposal_id
            )
            request = {**body, "staged_key": staged_name(staged.version, proposal_id)}
        return self._judge(path, request, proposal_id, read_version, timeout_s)

    def _judge(
        self, path: str, request: Mapping[str, Any], proposal_id: str, read_version: int, timeout_s: float
    ) -> Verdict:
        ends, pause = time.monotonic() + timeout_s, _FIRST_PAUSE_S
        while True:
            trouble: Exception
            try:
                status, answer = self._send("POST", path, request)
            except (NoConnection, HTTPClientError) as error:
                # Whether it was carried out is not known: the same call again finds out.
                status, answer, trouble = 0, {}, error
            if status and "status" in answer and "proposal_id" in answer:
                verdict = Verdict.from_json(answer)
                if verdict.is_final:
                    return verdict.raise_if_refused()
                left = max(0.0, ends - time.monotonic())
                return self.wait(
                    proposal_id, timeout_s=left, location=verdict.location or None, read_version=read_version
                )
            if status == 202:
                left = max(0.0, ends - time.monotonic())
                return self.wait(proposal_id, timeout_s=left, read_version=read_version)
            if status not in (0, 429, 500, 502, 503, 504):
                raise _error(status, answer, proposal_id)
            if time.monotonic() + pause > ends:
                if status == 0:
                    raise NoVerdictYet(proposal_id, timeout_s, None) from trouble
                raise NoVerdictYet(proposal_id, timeout_s, str(answer.get("error") or status))
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    # Verdicts

    def verdict(self, proposal_id: str, *, location: str | None = None) -> Verdict | None:
        """The verdict on a proposal, or how far it is; ``None`` while the server has not seen it. Raises nothing for a
        refused one: see :meth:`Verdict.raise_if_refused`."""
        query = f"?{urlencode({'location': location})}" if location else ""
        status, answer = self._send("GET", f"/v1/commits/{quote(proposal_id, safe='')}{query}")
        if status == 404 and answer.get("error") == "ProposalNotFound":
            return None
        if status != 200:
            raise _error(status, answer, proposal_id)
        return Verdict.from_json(answer)

    def wait(
        self,
        proposal_id: str,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        location: str | None = None,
        read_version: int | None = None,
    ) -> Verdict:
        """Waits for the final verdict.

        Args:
            location: the table, where several have a proposal of this id.
            read_version: what the proposal read, where that is known; a verdict on one that read another version is that
                of another proposal.

        Raises:
            CommitRefused: the subclass that the verdict names; ``ProposalReusedException`` also where the verdict is on
                another proposal.
            NoVerdictYet: not within ``timeout_s``; it may still come.
        """
        return self._wait(proposal_id, timeout_s, location, read_version, None)

    def _wait(
        self,
        proposal_id: str,
        timeout_s: float,
        location: str | None,
        read_version: int | None,
        unseen: Proposal | None,
    ) -> Verdict:
        began, pause, seen = time.monotonic(), _FIRST_PAUSE_S, None
        ends = began + timeout_s
        while True:
            try:
                found = self.verdict(proposal_id, location=location)
                if found is None and unseen and time.monotonic() - began > min(_UNSEEN_S, timeout_s / 2):
                    found, unseen = self._tell(unseen), None
            except RequestError as error:
                if error.status not in (429, 500, 502, 503, 504):
                    raise
                found = None
            except (NoConnection, HTTPClientError):
                found = None
            if found is not None:
                if read_version is not None and found.read_version != read_version:
                    raise reused(proposal_id, found.location, read_version)
                seen = found.status
                if found.is_final:
                    return found.raise_if_refused()
            if time.monotonic() + pause > ends:
                raise NoVerdictYet(proposal_id, timeout_s, seen)
            time.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE_S)

    def _tell(self, staged: Proposal) -> Verdict | None:
        """Has a staged commit judged whose event does not come."""
        key = staged_name(staged.version, staged.id)
        status, answer = self._send("POST", "/v1/commits", {"location": staged.location, "staged_key": key})
        if "status" in answer and "proposal_id" in answer:
            return Verdict.from_json(answer)
        if is_refusal_name(str(answer.get("error"))):
            raise _error(status, answer, staged.id)
        # Whatever else it says, the event may still come.
        return None

    def latest_version(self, location: str) -> int:
        """The newest version that the table's log has; -1 where there is no table. One or two requests to S3."""
        root = Location.parse(location)
        keys = list_keys(self.s3, root.bucket, root.key(f"{LOG}/0"), self._checkpoint_before(root))
        return max((version for version in map(commit_version, keys) if version is not None), default=-1)

    def _checkpoint_before(self, root: Location) -> str:
        """A key before which nothing is of interest."""
        try:
            hint = self.s3.get_object(Bucket=root.bucket, Key=root.key(f"{LOG}/_last_checkpoint"))["Body"].read()
            version = int(json.loads(hint)["version"])
        except (self.s3.exceptions.NoSuchKey, ValueError, KeyError, TypeError):
            return ""
        newest = root.key(f"{LOG}/{version:020}.")
        # A hint that is stale, or of a table that is gone, must not hide the log.
        found = self.s3.list_objects_v2(Bucket=root.bucket, Prefix=newest, MaxKeys=5).get("Contents", [])
        return newest if any(one["Key"].endswith(f"{version:020}.json") for one in found) else ""

    # The catalog

    def location_of(self, database: str, table: str) -> str:
        """Where a table of the catalog lies."""
        answer = self.request("GET", _table_path(database, table))
        found = (answer.get("Table") or answer).get("StorageDescriptor") or {}
        if not found.get("Location"):
            raise RequestError(404, "TableNotFound", f"{database}.{table} has no location in the catalog")
        return Location.parse(str(found["Location"])).uri

    def lease(
        self,
        database: str,
        table: str,
        *,
        prefixes: Sequence[str] = (),
        keys: Sequence[str] = (),
        ttl_s: int | None = None,
        holder: str | None = None,
    ) -> Lease:
        """Announces what is about to be written, so that no sweep takes it, however late the commit is. Name prefixes or
        keys as URIs inside the table's location. Give it back when the commit has its verdict, or use it in ``with``."""
        body: dict[str, Any] = {"prefixes": list(prefixes), "keys": list(keys)}
        if ttl_s is not None:
            body["ttl_seconds"] = ttl_s
        if holder is not None:
            body["holder"] = holder
        path = f"{_table_path(database, table)}/leases"
        return Lease(self, path, self.request("POST", path, body))

    # HTTP

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """One signed request to the API. Its JSON, where it succeeded.

        Raises:
            RequestError: anything but a 2xx.
        """
        status, answer = self._send(method, path, body)
        if not 200 <= status < 300:
            raise _error(status, answer, None)
        return answer

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        data = _json(body) if body is not None else None
        headers = {"Content-Type": "application/json"} if data is not None else {}
        request = AWSRequest(method=method, url=self.gateway + path, data=data, headers=headers)
        credentials = self.session.get_credentials()
        if credentials is not None:
            SigV4Auth(credentials.get_frozen_credentials(), "execute-api", self.region).add_auth(request)
        answer = self._http.send(request.prepare())
        try:
            content = json.loads(answer.content) if answer.content else {}
        except ValueError:
            content = {"message": answer.text[:500]}
        return int(answer.status_code), content if isinstance(content, dict) else {"answer": content}


def _table_path(database: str, table: str) -> str:
    return f"/v1/databases/{quote(database, safe='')}/tables/{quote(table, safe='')}"


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def encode(actions: Iterable[Action]) -> bytes:
    """A commit's bytes: one action per line."""
    return b"".join(_json(action) + b"\n" for action in actions)


def _with_info(actions: Iterable[Action], more: Mapping[str, Any]) -> list[Action]:
    """A staged commit says by itself what it read: in its ``commitInfo``, which is made where there is none. Members that
    are ``None`` are not said."""
    actions = list(actions)
    said = {name: value for name, value in more.items() if value is not None}
    if not said:
        return actions
    info: dict[str, Any] = {}
    for action in actions:
        info.update(action.get("commitInfo", {}))
    rest = [action for action in actions if "commitInfo" not in action]
    return [{"commitInfo": {**info, **said}}, *rest]


def _error(status: int, answer: Mapping[str, Any], proposal_id: str | None) -> Exception:
    name = str(answer.get("error") or answer.get("__type") or "Error")
    message = str(answer.get("message") or answer.get("Message") or f"HTTP {status}")
    advice = str(answer.get("advice") or "")
    if is_refusal_name(name):
        raw = {**answer, "proposal_id": proposal_id or "", "status": "rejected", "exception": name, "reason": name}
        # CamelCase of the exception, in the capitals of reasons.
        raw["reason"] = answer.get("reason") or re.sub(r"(?<!^)(?=[A-Z])", "_", name.removesuffix("Exception")).upper()
        return refusal_of(Verdict.from_json(raw))
    return RequestError(status, name, message, advice, proposal_id)

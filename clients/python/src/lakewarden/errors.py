"""What can go wrong. Refused commits are exceptions with the names that Delta writers know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .verdict import Verdict


class LakewardenError(Exception):
    """Everything that this package raises by itself."""


class RequestError(LakewardenError):
    """The server answered a request with an error that is no verdict.

    Attributes:
        status: status of HTTP.
        name: the error's name, for example ``TableNotFound``.
        advice: what to do now; empty where the server had none.
        proposal_id: the proposal that the request was about, where there is one. Calling again with it is safe.
    """

    def __init__(self, status: int, name: str, message: str, advice: str = "", proposal_id: str | None = None) -> None:
        super().__init__(f"{name} ({status}): {message}" + (f"; {advice}" if advice else ""))
        self.status, self.name, self.message, self.advice, self.proposal_id = status, name, message, advice, proposal_id


class NoVerdictYet(LakewardenError):
    """There was no final verdict within the time that the caller had. Nothing is lost: ask again with the id.

    Attributes:
        proposal_id: find the verdict with ``Client.wait``.
        status: how far the proposal was seen to be, ``None`` where nothing was seen of it.
    """

    def __init__(self, proposal_id: str, timeout_s: float, status: str | None) -> None:
        seen = f"it is {status}" if status else "its event was not handled yet"
        super().__init__(f"no verdict on {proposal_id} within {timeout_s:g} s: {seen}; ask again with this id")
        self.proposal_id, self.status = proposal_id, status


class ProposalExpired(LakewardenError):
    """The proposal never got a verdict and was deleted for its age. Stage it anew under another id."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(f"proposal {verdict.proposal_id} expired without a verdict")
        self.verdict = verdict


class NothingCommitted(LakewardenError):
    """There was nothing to do on a fork, so that nothing was committed there."""


class UnsupportedTable(LakewardenError):
    """The table needs something that this package cannot write."""


@dataclass(frozen=True)
class Winner:
    """The commit that is in the way."""

    version: int
    operation: str | None = None


@dataclass(frozen=True)
class Place:
    """Where in the commit the trouble is."""

    file: str | None = None
    column: str | None = None
    expected: str | None = None
    found: str | None = None
    rows: tuple[int, int] | None = None
    """First and last row of the file that are the trouble, counted from 0, where that is known."""


class CommitRefused(LakewardenError):
    """A commit was refused; the table is as it was. Catch a subclass for one kind of refusal.

    Attributes:
        name: the exception's name as the server says it (also where this package has no class for it).
        error_class: Delta's error class, for example ``DELTA_CONCURRENT_APPEND``.
        reason: one of a fixed list of names in capitals.
        message: what is wrong. advice: what to do now.
        winner: the commit that is in the way, if there is one.
        place: where in the commit the trouble is.
        more: further problems of the same kind.
        verdict: the whole verdict.
    """

    def __init__(self, verdict: Verdict) -> None:
        raw = verdict.raw
        self.verdict = verdict
        self.proposal_id = verdict.proposal_id
        self.name = str(raw.get("exception") or type(self).__name__)
        self.error_class = str(raw.get("error_class") or "")
        self.reason = str(raw.get("reason") or "")
        self.message = str(raw.get("message") or "the commit was refused")
        self.advice = str(raw.get("advice") or "")
        self.winner = _winner(raw.get("winner"))
        self.place = _place(raw.get("place"))
        self.more = [str(one) for one in raw.get("more") or []]
        super().__init__(f"{self.reason}: {self.message}" + (f"; {self.advice}" if self.advice else ""))


class ConflictRefused(CommitRefused):
    """Somebody else's commit is in the way: read the table again and retry. Base of the concurrency exceptions."""


class InvalidRefused(CommitRefused):
    """The commit is wrong by itself: retrying does not help."""


class ConcurrentAppendException(ConflictRefused):
    """A winner added files that this commit should have read."""


class ConcurrentDeleteReadException(ConflictRefused):
    """A winner removed a file that this commit read."""


class ConcurrentDeleteDeleteException(ConflictRefused):
    """A winner removed a file that this commit removes too."""


class MetadataChangedException(ConflictRefused):
    """A winner changed the table's metadata."""


class ProtocolChangedException(ConflictRefused):
    """A winner changed the table's protocol."""


class ConcurrentTransactionException(ConflictRefused):
    """A winner has the same application id; or the table is past this transaction; ``ALREADY_APPLIED``: it holds this very one."""


class ConcurrentWriteException(ConflictRefused):
    """Conflict detection gave up, or the winner is not known; the reason says which."""


class ProposalReusedException(ConflictRefused):
    """The same id was used for other content before."""


class TableReplacedException(ConflictRefused):
    """The table at this place is another one by now."""


class SchemaMismatchException(InvalidRefused):
    """The data does not fit the table's schema."""


class InvalidCommitException(InvalidRefused):
    """The commit is malformed, or breaks a rule of the table."""


class UnsupportedTableException(InvalidRefused):
    """The table needs something that the server cannot verify."""


class DamagedLogException(InvalidRefused):
    """The table's log cannot be read."""


_CLASSES: dict[str, type[CommitRefused]] = {
    one.__name__: one
    for one in (
        ConcurrentAppendException,
        ConcurrentDeleteReadException,
        ConcurrentDeleteDeleteException,
        MetadataChangedException,
        ProtocolChangedException,
        ConcurrentTransactionException,
        ConcurrentWriteException,
        ProposalReusedException,
        TableReplacedException,
        SchemaMismatchException,
        InvalidCommitException,
        UnsupportedTableException,
        DamagedLogException,
    )
}


def refusal_of(verdict: Verdict) -> CommitRefused:
    """The exception for a refused proposal: of the class with the server's name, else :class:`CommitRefused`."""
    return _CLASSES.get(str(verdict.raw.get("exception")), CommitRefused)(verdict)


def is_refusal_name(name: str) -> bool:
    """Whether the server uses this name for refusals."""
    return name in _CLASSES


def _text(members: Mapping[str, Any], name: str) -> str | None:
    value = members.get(name)
    return value if isinstance(value, str) else None


def _winner(raw: Any) -> Winner | None:
    return Winner(int(raw["version"]), _text(raw, "operation")) if isinstance(raw, Mapping) else None


def _place(raw: Any) -> Place:
    members = raw if isinstance(raw, Mapping) else {}
    rows = members.get("rows")
    span = (int(rows["first"]), int(rows["last"])) if isinstance(rows, Mapping) else None
    file, column, expected, found = (_text(members, name) for name in ("file", "column", "expected", "found"))
    return Place(file, column, expected, found, span)

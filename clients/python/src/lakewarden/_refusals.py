"""Refusals that need no server: what would be refused is known before anything is written. They look as the server's do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .errors import CommitRefused, refusal_of
from .verdict import Verdict


def reused(proposal_id: str, location: str, read_version: int) -> CommitRefused:
    """A proposal's id that was used for other content before."""
    return _refused(
        location,
        read_version,
        exception="ProposalReusedException",
        error_class="LAKEWARDEN_PROPOSAL_REUSED",
        reason="PROPOSAL_REUSED",
        message=f"the id {proposal_id} was used for other content before",
        advice="give every proposal an id of its own; ask for the first one's verdict by its id",
        proposal_id=proposal_id,
    )


def check_transaction(
    location: str, read_version: int, app_id: str, version: int, found: Iterable[tuple[int, int | None]]
) -> None:
    """Refuses an application's transaction that the table has, or that is below its newest.

    Args:
        read_version: the table's version that was looked at.
        found: the application's transactions, and the versions of the table that hold them where that is known.
    """
    there = list(found)
    same = next((one for one in there if one[0] == version), None)
    newest = max(there, default=None, key=lambda one: one[0])
    common: dict[str, Any] = {
        "exception": "ConcurrentTransactionException",
        "error_class": "DELTA_CONCURRENT_TRANSACTION",
    }
    if same is not None:
        where = "the table" if same[1] is None else f"version {same[1]}"
        raise _refused(
            location,
            read_version,
            reason="ALREADY_APPLIED",
            message=f"{where} holds transaction {version} of the application `{app_id}` already; skip it",
            advice="nothing: it is in the table",
            winner=same[1],
            **common,
        )
    if newest is not None and newest[0] > version:
        raise _refused(
            location,
            read_version,
            reason="SAME_APPLICATION",
            message=f"the table holds transaction {newest[0]} of the application `{app_id}`, which is above {version}",
            advice=f"find out whether the rows of {version} are there; if not, append them under a version above {newest[0]}",
            winner=newest[1],
            **common,
        )


def _refused(location: str, read_version: int, *, winner: int | None = None, **members: Any) -> CommitRefused:
    raw: dict[str, Any] = {
        "proposal_id": "", "location": location, "status": "rejected", "final": True, "read_version": read_version, **members
    }  # fmt: skip
    if winner is not None:
        raw["winner"] = {"version": winner}
    return refusal_of(Verdict.from_json(raw))

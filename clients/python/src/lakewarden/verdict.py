"""What became of a proposal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .errors import ProposalExpired, refusal_of


@dataclass(frozen=True)
class Verdict:
    """The verdict on a proposal, or how far it is.

    ``status`` is ``committed``, ``rejected``, ``superseded`` (nothing was left to do: no version, no failure, no exception),
    ``expired``, or that of a proposal without a final verdict. ``version`` is what it became.
    """

    proposal_id: str
    location: str
    status: str
    is_final: bool
    version: int | None
    read_version: int
    operation: str | None
    warnings: tuple[str, ...]
    raw: Mapping[str, Any]
    """All members, as the server sent them."""

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Verdict:
        version = raw.get("version")
        return cls(
            proposal_id=str(raw["proposal_id"]),
            location=str(raw.get("location", "")),
            status=str(raw["status"]),
            is_final=bool(raw.get("final")),
            version=version if isinstance(version, int) else None,
            read_version=int(raw.get("read_version", -1)),
            operation=raw.get("operation"),
            warnings=tuple(str(one) for one in raw.get("warnings") or ()),
            raw=raw,
        )

    def raise_if_refused(self) -> Verdict:
        """Itself, unless it was refused.

        Raises:
            CommitRefused: the subclass that the verdict names.
            ProposalExpired: it was deleted for its age before there was a verdict.
        """
        if self.status == "rejected":
            raise refusal_of(self)
        if self.status == "expired":
            raise ProposalExpired(self)
        return self

"""Proposing Delta commits to Lakewarden, which judges them before they are visible.

>>> from lakewarden import Client, ConcurrentAppendException
>>> lake = Client("http://127.0.0.1:8700")
>>> verdict = lake.stage_and_wait("s3://lake/orders", actions, read_version=4)

``stage_append`` needs the extra ``[arrow]``, ``stage_from_fork`` the extra ``[deltalake]``.
"""

from .arrow import stage_append
from .client import Action, Client, Proposal
from .errors import (
    CommitRefused,
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    ConflictRefused,
    DamagedLogException,
    InvalidCommitException,
    InvalidRefused,
    LakewardenError,
    MetadataChangedException,
    NothingCommitted,
    NoVerdictYet,
    Place,
    ProposalExpired,
    ProposalReusedException,
    ProtocolChangedException,
    RequestError,
    SchemaMismatchException,
    TableReplacedException,
    UnsupportedTable,
    UnsupportedTableException,
    Winner,
)
from .fork import Fork, ForkedCommit, stage_from_fork
from .lease import Lease
from .verdict import Verdict

__version__ = "0.1.0"

__all__ = [
    "Action",
    "Client",
    "CommitRefused",
    "ConcurrentAppendException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentDeleteReadException",
    "ConcurrentTransactionException",
    "ConcurrentWriteException",
    "ConflictRefused",
    "DamagedLogException",
    "Fork",
    "ForkedCommit",
    "InvalidCommitException",
    "InvalidRefused",
    "LakewardenError",
    "Lease",
    "MetadataChangedException",
    "NoVerdictYet",
    "NothingCommitted",
    "Place",
    "Proposal",
    "ProposalExpired",
    "ProposalReusedException",
    "ProtocolChangedException",
    "RequestError",
    "SchemaMismatchException",
    "TableReplacedException",
    "UnsupportedTable",
    "UnsupportedTableException",
    "Verdict",
    "Winner",
    "stage_append",
    "stage_from_fork",
]

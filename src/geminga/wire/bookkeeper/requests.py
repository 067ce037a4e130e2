"""What clients ask of a bookie, as values: the same for every version of the protocol.

``version`` is that of the request, 0 to 3, and decides the form of its answer; ``txn_id`` is what a client of version 3
tells answers apart by (0 in the versions before, where ledger and entry id serve for that). Ids of requests that a
decoder gives out are good: ledger ids from 0, entry ids of adds from 0, of reads from -1. What can not be asked of a
bookie comes as :class:`RefusedRequest` with its answer.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias


class AddRequest(NamedTuple):
    """Store an entry. Its first 16 bytes are the two ids, its next 8 the last add confirmed."""

    version: int
    txn_id: int
    ledger_id: int
    entry_id: int
    master_key: bytes
    entry: bytes
    #: Made by recovery or replication: goes into a fenced ledger, too.
    recovery: bool
    #: May be answered before it is on stable storage; FORCE_LEDGER follows. Version 3 only.
    deferred_sync: bool = False
    #: In front of others, and into a read-only bookie that has some room left.
    high_priority: bool = False


class AddRunRequest:
    """Plain adds of version 2 that came in one read: entries of one ledger that follow each other, with one master key.

    What :class:`AddRequest` says one by one, for a bookie that is sent most of its entries so.
    """

    __slots__ = ("entries", "first", "ledger_id", "master_key", "size_bytes", "stop")

    def __init__(self, ledger_id: int, first: int, master_key: bytes) -> None:
        self.ledger_id = ledger_id
        self.master_key = master_key
        #: Entries are ``first`` to ``stop - 1``.
        self.first = self.stop = first
        self.entries: list[bytes] = []
        #: Of all entries.
        self.size_bytes = 0


class EntryReadRequest(NamedTuple):
    """Read an entry; ``entry_id`` -1 is the last one."""

    version: int
    txn_id: int
    ledger_id: int
    entry_id: int
    #: Fence the ledger before. Refused with EUA without ``master_key``.
    fence: bool = False
    master_key: bytes | None = None
    #: Long poll, version 3 only: answered when the last add confirmed is beyond it, or after ``timeout_ms``.
    previous_lac: int | None = None
    timeout_ms: int | None = None
    #: Give the entry behind ``previous_lac`` along with it.
    piggyback: bool = False
    high_priority: bool = False

    @property
    def is_long_poll(self) -> bool:
        """Whether it waits for the last add confirmed: a fence never does."""
        return self.previous_lac is not None and not self.fence


class BatchReadRequest(NamedTuple):
    """Read entries from ``entry_id`` on, as many as are there, up to both limits, the first whatever its size.

    There is none in version 3.
    """

    version: int
    #: Chosen by the client, echoed (``requestId``).
    txn_id: int
    ledger_id: int
    entry_id: int
    #: 0 or less: no limit.
    entries_max: int
    #: Of the frame of the answer.
    bytes_max: int
    fence: bool = False
    master_key: bytes | None = None
    high_priority: bool = False


class WriteLacRequest(NamedTuple):
    """Keep the last add confirmed that a writer announces: ``body`` is ledger id, LAC and digest."""

    version: int
    txn_id: int
    ledger_id: int
    lac: int
    master_key: bytes
    body: bytes


class ReadLacRequest(NamedTuple):
    """Give the announced last add confirmed and the last entry."""

    version: int
    txn_id: int
    ledger_id: int


class ForceLedgerRequest(NamedTuple):
    """Bring to stable storage what was added to a ledger before."""

    version: int
    txn_id: int
    ledger_id: int


class ListEntriesRequest(NamedTuple):
    """Which entries of a ledger are here (GET_LIST_OF_ENTRIES_OF_LEDGER)."""

    version: int
    txn_id: int
    ledger_id: int


class BookieInfoRequest(NamedTuple):
    """How much room there is; both numbers only if asked for."""

    version: int
    txn_id: int
    total: bool
    free: bool


class AuthRequest(NamedTuple):
    """A step of an authentication handshake."""

    version: int
    txn_id: int
    plugin: str
    payload: bytes


class StartTlsRequest(NamedTuple):
    """Go on with TLS. Version 3 only."""

    version: int
    txn_id: int


class RefusedRequest(NamedTuple):
    """What no bookie does: the answer, a whole frame, and for the log why."""

    answer: bytes
    story: str


class TracedRequest(NamedTuple):
    """A request of version 3 with the trace id of what caused it: a pair of ``requestContext``."""

    #: 32 hexadecimal digits.
    trace: str
    request: Request


Request: TypeAlias = (
    AddRequest
    | AddRunRequest
    | EntryReadRequest
    | BatchReadRequest
    | WriteLacRequest
    | ReadLacRequest
    | ForceLedgerRequest
    | ListEntriesRequest
    | BookieInfoRequest
    | AuthRequest
    | StartTlsRequest
    | RefusedRequest
    | TracedRequest
)

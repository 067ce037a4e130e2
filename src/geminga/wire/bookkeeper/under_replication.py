"""Auto-recovery in the metadata store: BookKeeper's paths and bytes of marks, locks, votes and switches.

::

    /ledgers/underreplication/LAYOUT
    /ledgers/underreplication/ledgers/0000/0000/0001/0203/urL0000066051    a mark
    /ledgers/underreplication/locks/urL0000066051                          ephemeral
    /ledgers/underreplication/auditorelection/V_0000000000                 ephemeral, sequential
    /ledgers/underreplication/disable, lostBookieRecoveryDelay, checkallledgersctime

docs/formats/under-replication.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple, TypeVar

from google.protobuf import text_format
from google.protobuf.message import DecodeError, Message

from geminga.model.errors import CorruptionError
from geminga.wire._generated import bookkeeper_metadata_pb2 as pb
from geminga.wire.bookkeeper.ledger_path import LEDGERS_ROOT

UNDER_REPLICATION_ROOT: Final = f"{LEDGERS_ROOT}/underreplication"
REREPLICATION_LAYOUT_PATH: Final = f"{UNDER_REPLICATION_ROOT}/LAYOUT"
MARKS_PATH: Final = f"{UNDER_REPLICATION_ROOT}/ledgers"
LOCKS_PATH: Final = f"{UNDER_REPLICATION_ROOT}/locks"
#: While this node is there nothing is marked and nothing restored.
DISABLE_PATH: Final = f"{UNDER_REPLICATION_ROOT}/disable"
LOST_BOOKIE_RECOVERY_DELAY_PATH: Final = f"{UNDER_REPLICATION_ROOT}/lostBookieRecoveryDelay"
CHECK_ALL_LEDGERS_PATH: Final = f"{UNDER_REPLICATION_ROOT}/checkallledgersctime"
ELECTION_PATH: Final = f"{UNDER_REPLICATION_ROOT}/auditorelection"
VOTE_PREFIX: Final = "V_"

#: What ``LAYOUT`` must say.
LAYOUT_TYPE: Final = "BASIC"
LAYOUT_VERSION: Final = 1
#: Levels between ``MARKS_PATH`` and a mark.
MARK_LEVELS: Final = 4
#: Longest delay that is believed: ten years.
RECOVERY_DELAY_S_MAX: Final = 10 * 365 * 86400

_LEVEL_BITS: Final = 16
_LEVEL: Final = re.compile(r"^[0-9a-f]{4}$")
_MARK: Final = re.compile(r"^urL(\d{10,19})$")
_VOTE: Final = re.compile(r"^V_(\d{1,19})$")
_ID_END: Final = 1 << 63

_M = TypeVar("_M", bound=Message)


class UnderReplicatedLedger(NamedTuple):
    """The value of a mark."""

    #: Ids of bookies whose copies are missing, in the order they were found.
    replicas: tuple[str, ...]
    #: When the mark was made or grew, ms since the epoch; None: not said.
    marked_ms: int | None = None

    def with_replicas(self, replicas: Iterable[str], marked_ms: int | None) -> UnderReplicatedLedger:
        """The same mark with these bookies too; unchanged, time and all, if it names them."""
        added = tuple(dict.fromkeys(replica for replica in replicas if replica not in self.replicas))
        return UnderReplicatedLedger(self.replicas + added, marked_ms) if added else self


def mark_name(ledger_id: int) -> str:
    """The last part of the path of a mark, and of its lock. Raises ValueError."""
    if not 0 <= ledger_id < _ID_END:
        raise ValueError(f"ledger id {ledger_id} is not in [0, 2^63)")
    return f"urL{ledger_id:010d}"


def mark_path(ledger_id: int) -> str:
    """Where a ledger's mark is."""
    name = mark_name(ledger_id)
    levels = [ledger_id >> shift & 0xFFFF for shift in range(3 * _LEVEL_BITS, -1, -_LEVEL_BITS)]
    return "/".join([MARKS_PATH, *(f"{level:04x}" for level in levels), name])


def lock_path(ledger_id: int) -> str:
    """Where the lock of a ledger's mark is."""
    return f"{LOCKS_PATH}/{mark_name(ledger_id)}"


def ledger_id_of_mark(name: str) -> int | None:
    """The ledger that a mark or lock is for, by its last part; None: it is neither."""
    match = _MARK.match(name)
    ledger_id = -1 if match is None else int(match.group(1))
    # One ledger has one name: with more zeros it would be another node.
    return ledger_id if 0 <= ledger_id < _ID_END and mark_name(ledger_id) == name else None


def is_mark_level(name: str) -> bool:
    """Whether a node above the marks is one of their levels."""
    return _LEVEL.match(name) is not None


def vote_number(name: str) -> int | None:
    """The number of a candidate's vote; the smallest is the auditor's. None: it is no vote."""
    match = _VOTE.match(name)
    return None if match is None else int(match.group(1))


# ---- values


def encode_mark(mark: UnderReplicatedLedger) -> bytes:
    """The value of a mark."""
    message = pb.UnderreplicatedLedgerFormat(replica=mark.replicas)
    if mark.marked_ms is not None:
        message.ctime = mark.marked_ms
    return _encode(message)


def decode_mark(data: bytes, place: str) -> UnderReplicatedLedger:
    """Raises CorruptionError that names ``place``."""
    message = _decode(pb.UnderreplicatedLedgerFormat(), data, place)
    return UnderReplicatedLedger(tuple(message.replica), message.ctime if message.HasField("ctime") else None)


def encode_lock(owner: str) -> bytes:
    """The value of a lock; ``owner`` names the process."""
    return _encode(pb.LockDataFormat(bookieId=owner))


def decode_lock(data: bytes, place: str) -> str:
    """Who holds the lock; empty if that is not said. Raises CorruptionError that names ``place``."""
    return _decode(pb.LockDataFormat(), data, place).bookieId


def encode_vote(candidate: str) -> bytes:
    """The value of a vote, and of the election's node."""
    return _encode(pb.AuditorVoteFormat(bookieId=candidate))


def decode_vote(data: bytes, place: str) -> str:
    """The candidate; empty if that is not said. Raises CorruptionError that names ``place``."""
    return _decode(pb.AuditorVoteFormat(), data, place).bookieId


def encode_rereplication_layout() -> bytes:
    """The value of ``LAYOUT``."""
    return _encode(pb.LedgerRereplicationLayoutFormat(type=LAYOUT_TYPE, version=LAYOUT_VERSION))


def check_rereplication_layout(data: bytes, place: str) -> None:
    """Raises CorruptionError if the nodes are laid out in another way than here."""
    message = _decode(pb.LedgerRereplicationLayoutFormat(), data, place)
    if (message.type, message.version) != (LAYOUT_TYPE, LAYOUT_VERSION):
        raise CorruptionError(
            f"{place} says layout {message.type[:40]!r} {message.version}; "
            f"this program knows {LAYOUT_TYPE} {LAYOUT_VERSION}"
        )


def encode_check_all_ledgers(checked_ms: int) -> bytes:
    """The value of ``checkallledgersctime``."""
    return pb.CheckAllLedgersFormat(checkAllLedgersCTime=checked_ms).SerializeToString()


def decode_check_all_ledgers(data: bytes, place: str) -> int | None:
    """When all ledgers were checked, ms since the epoch; None: not said. Raises CorruptionError."""
    try:
        message = pb.CheckAllLedgersFormat.FromString(data)
    except DecodeError as error:
        raise CorruptionError(f"{place} holds no time of a check: {error}") from error
    return message.checkAllLedgersCTime if message.HasField("checkAllLedgersCTime") else None


def encode_recovery_delay(seconds: int) -> bytes:
    """The value of ``lostBookieRecoveryDelay``."""
    return str(seconds).encode("ascii")


def decode_recovery_delay(data: bytes, place: str) -> int:
    """Seconds; raises CorruptionError that names ``place`` and what it should say."""
    text = data.strip()
    if not text.isdigit() or len(text) > len(str(RECOVERY_DELAY_S_MAX)) or int(text) > RECOVERY_DELAY_S_MAX:
        raise CorruptionError(f"{place}: expected seconds, 0 to {RECOVERY_DELAY_S_MAX}, found {data[:40]!r}")
    return int(text)


def _encode(message: Message) -> bytes:
    return text_format.MessageToString(message, as_utf8=False).encode("ascii")


def _decode(message: _M, data: bytes, place: str) -> _M:
    try:
        text_format.Parse(data.decode("utf-8"), message, allow_unknown_field=True)
    except (UnicodeDecodeError, text_format.ParseError) as error:
        raise CorruptionError(f"{place} holds no {message.DESCRIPTOR.name}: {error}") from error
    return message

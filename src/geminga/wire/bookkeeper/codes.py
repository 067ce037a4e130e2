"""Numbers of BookKeeper's wire protocol: status codes, operations, flags, and which error each code means."""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final

from geminga.model.errors import (
    DiskFullError,
    DiskIOError,
    LedgerFencedError,
    NoSuchEntryError,
    NoSuchLedgerError,
    StorageError,
    UnknownEntryError,
)


class StatusCode(IntEnum):
    """``StatusCode`` of BookkeeperProtocol.proto."""

    EOK = 0
    ENOLEDGER = 402
    ENOENTRY = 403
    EBADREQ = 404
    EIO = 501
    EUA = 502
    EBADVERSION = 503
    EFENCED = 504
    EREADONLY = 505
    ETOOMANYREQUESTS = 506
    EUNKNOWNLEDGERSTATE = 507


class OperationType(IntEnum):
    """``OperationType`` of BookkeeperProtocol.proto."""

    READ_ENTRY = 1
    ADD_ENTRY = 2
    RANGE_READ_ENTRY = 3
    RANGE_ADD_ENTRY = 4
    AUTH = 5
    WRITE_LAC = 6
    READ_LAC = 7
    GET_BOOKIE_INFO = 8
    START_TLS = 9
    FORCE_LEDGER = 10
    GET_LIST_OF_ENTRIES_OF_LEDGER = 11
    BATCH_READ_ENTRY = 12


class ReadFlag(IntFlag):
    """``ReadRequest.Flag``."""

    NONE = 0
    FENCE_LEDGER = 1
    ENTRY_PIGGYBACK = 2


class AddFlag(IntFlag):
    """``AddRequest.Flag``."""

    NONE = 0
    RECOVERY_ADD = 1


#: Entry id that asks a bookie for its last entry (BookKeeper's LAST_ADD_CONFIRMED).
ENTRY_ID_LAST: Final = -1

_ERROR_OF_STATUS: Final[dict[StatusCode, type[StorageError]]] = {
    StatusCode.ENOLEDGER: NoSuchLedgerError,
    StatusCode.ENOENTRY: NoSuchEntryError,
    StatusCode.EIO: DiskIOError,
    StatusCode.EFENCED: LedgerFencedError,
    StatusCode.EREADONLY: DiskFullError,
    StatusCode.EUNKNOWNLEDGERSTATE: UnknownEntryError,
}


def error_of_status(status: int, story: str) -> StorageError | None:
    """The error a bookie's status means, None for EOK; a code we do not know is a plain StorageError, never "no"."""
    if status == StatusCode.EOK:
        return None
    for code, error_class in _ERROR_OF_STATUS.items():
        if code == status:
            return error_class(story)
    return StorageError(f"{story} (bookie status {status})")


def status_of_error(error: StorageError | None) -> StatusCode:
    """The status a bookie answers for an error value; what has no code of its own is EIO, never "no such entry"."""
    if error is None:
        return StatusCode.EOK
    for code, error_class in _ERROR_OF_STATUS.items():
        if isinstance(error, error_class):
            return code
    return StatusCode.EIO

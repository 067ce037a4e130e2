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
    WrongMasterKeyError,
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


class V2Operation(IntEnum):
    """Operation codes of versions 0 to 2 (``BookieProtocol``); the three without a message there are left out."""

    ADD_ENTRY = 1
    READ_ENTRY = 2
    AUTH = 3
    BATCH_READ_ENTRY = 7


class V2Flag(IntFlag):
    """Flags in the packet header of versions 1 and 2."""

    NONE = 0
    DO_FENCING = 1
    RECOVERY_ADD = 2
    HIGH_PRIORITY = 4


#: The version of the hand-laid protocol that clients and bookies speak now; 0 and 1 are read, too.
VERSION_2: Final = 2
#: The version with protobuf messages.
VERSION_3: Final = 3
#: A master key in versions 0 to 2 has this many bytes, always.
MASTER_KEY_BYTES: Final = 20
#: ``AddRequest.writeFlags``: may be answered before it is on stable storage.
WRITE_FLAG_DEFERRED_SYNC: Final = 1
#: The priority that Apache's client gives to recovery's requests in version 3; any above 0 counts.
HIGH_PRIORITY: Final = 100
#: A frame with the four bytes of its size, if nothing else is said (``nettyMaxFrameSizeBytes``).
FRAME_BYTES_MAX: Final = 5 * 1024 * 1024
#: What a bookie without authentication calls its plugin; a client that hears it counts as let in.
AUTH_DISABLED_PLUGIN: Final = "AuthDisabledPlugin"

#: Entry id that asks a bookie for its last entry (BookKeeper's LAST_ADD_CONFIRMED).
ENTRY_ID_LAST: Final = -1

_ERROR_OF_STATUS: Final[dict[StatusCode, type[StorageError]]] = {
    StatusCode.ENOLEDGER: NoSuchLedgerError,
    StatusCode.ENOENTRY: NoSuchEntryError,
    StatusCode.EIO: DiskIOError,
    StatusCode.EUA: WrongMasterKeyError,
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
            return error_class(f"{story}: {code.name}")
    return StorageError(f"{story} (bookie status {status})")


def status_of_error(error: StorageError | None) -> StatusCode:
    """The status a bookie answers for an error value; what has no code of its own is EIO, never "no such entry"."""
    if error is None:
        return StatusCode.EOK
    for code, error_class in _ERROR_OF_STATUS.items():
        if isinstance(error, error_class):
            return code
    return StatusCode.EIO


#: Status codes of version 3 as error codes of versions 0 to 2. EUNKNOWNLEDGERSTATE has a number there (107) at which
#: Apache's client breaks its connection off with all that is outstanding: EIO says no absence either, and harms nobody.
_V2_CODES: Final[dict[int, int]] = {
    StatusCode.EOK: 0,
    StatusCode.ENOLEDGER: 1,
    StatusCode.ENOENTRY: 2,
    StatusCode.EBADREQ: 100,
    StatusCode.EIO: 101,
    StatusCode.EUA: 102,
    StatusCode.EBADVERSION: 103,
    StatusCode.EFENCED: 104,
    StatusCode.EREADONLY: 105,
    StatusCode.ETOOMANYREQUESTS: 106,
    StatusCode.EUNKNOWNLEDGERSTATE: 101,
}
#: Of both numbers for one code, each is read.
_STATUS_OF_V2_CODE: Final[dict[int, int]] = {
    **{code: int(status) for status, code in _V2_CODES.items()},
    101: int(StatusCode.EIO),
    107: int(StatusCode.EUNKNOWNLEDGERSTATE),
}


def v2_code(status: int) -> int:
    """The error code that stands for a status in versions 0 to 2."""
    return _V2_CODES[status]


def status_of_v2_code(code: int) -> int:
    """The status that an error code of versions 0 to 2 stands for; one that we do not know is given as it is.

    No such code is the number of a status: :func:`error_of_status` makes a plain StorageError of it.
    """
    return _STATUS_OF_V2_CODE.get(code, code)

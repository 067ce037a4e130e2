"""Requests that are no adds or reads: one function each, from the request to its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from geminga.model.bookie_port import BookieInfo, LacResult
from geminga.model.errors import StorageError
from geminga.runtime import get_logger
from geminga.wire.bookkeeper import v2, v3_answers
from geminga.wire.bookkeeper.availability import encode_availability
from geminga.wire.bookkeeper.codes import AUTH_DISABLED_PLUGIN, VERSION_3, StatusCode, status_of_error
from geminga.wire.bookkeeper.requests import (
    AuthRequest,
    BookieInfoRequest,
    ForceLedgerRequest,
    ListEntriesRequest,
    ReadLacRequest,
    StartTlsRequest,
    TracedRequest,
    WriteLacRequest,
)

if TYPE_CHECKING:
    from geminga.bookie.serving.connection import BookieConnection

#: Room in a frame for all of an answer but the list of entries.
_LIST_ROOM_BYTES: Final = 1024

_log = get_logger(__name__)


def write_lac(connection: BookieConnection, request: WriteLacRequest) -> None:
    """Keep an announced LAC; those who wait for it are told."""

    def done(error: StorageError | None) -> None:
        connection.answer(request, v3_answers.encode_write_lac_answer(request, status_of_error(error)))
        if error is None:
            connection.server.polls.grew(request.ledger_id, request.lac)

    connection.bookie.write_lac(request.ledger_id, request.body, master_key=request.master_key, done=done)


def read_lac(connection: BookieConnection, request: ReadLacRequest) -> None:
    """What was announced, and the last entry."""

    def done(result: LacResult | StorageError) -> None:
        if isinstance(result, StorageError):
            answer = v3_answers.encode_read_lac_answer(request, status_of_error(result))
        else:
            is_there = result.explicit_lac is not None or result.last_entry is not None
            status = StatusCode.EOK if is_there else StatusCode.ENOENTRY
            answer = v3_answers.encode_read_lac_answer(request, status, result.explicit_lac, result.last_entry)
        connection.answer(request, answer)

    connection.bookie.read_lac(request.ledger_id, done=done)


def force_ledger(connection: BookieConnection, request: ForceLedgerRequest) -> None:
    """Nothing is left to do: whatever was answered is on stable storage."""
    connection.answer(request, v3_answers.encode_force_answer(request, StatusCode.EOK))


def list_entries(connection: BookieConnection, request: ListEntriesRequest) -> None:
    """Which entries are here."""

    def done(result: Sequence[range] | StorageError) -> None:
        if isinstance(result, StorageError):
            answer = v3_answers.encode_list_answer(request, status_of_error(result))
        else:
            listed = encode_availability(result)
            if len(listed) + _LIST_ROOM_BYTES > connection.server.frame_bytes_max:
                _log.error("the list of entries of ledger %d has %d bytes", request.ledger_id, len(listed))
                answer = v3_answers.encode_list_answer(request, StatusCode.EIO)
            else:
                answer = v3_answers.encode_list_answer(request, StatusCode.EOK, listed)
        connection.answer(request, answer)

    connection.bookie.list_entries(request.ledger_id, done=done)


def bookie_info(connection: BookieConnection, request: BookieInfoRequest) -> None:
    """How much room there is."""

    def done(result: BookieInfo | StorageError) -> None:
        if isinstance(result, StorageError):
            answer = v3_answers.encode_info_answer(request, status_of_error(result))
        else:
            answer = v3_answers.encode_info_answer(
                request,
                StatusCode.EOK,
                total_bytes=result.total_bytes,
                free_bytes=result.free_bytes,
                added_bytes=result.added_bytes,
            )
        connection.answer(request, answer)

    connection.bookie.read_info(done=done)


def authenticate(connection: BookieConnection, request: AuthRequest) -> None:
    """There is no authentication: whoever asks is told so, and counts himself as let in."""
    if request.version == VERSION_3:
        answer = v3_answers.encode_auth_answer(request, StatusCode.EOK, AUTH_DISABLED_PLUGIN, b"")
    else:
        answer = v2.encode_auth(AUTH_DISABLED_PLUGIN, b"")
    connection.answer(request, answer)


def start_tls(connection: BookieConnection, request: StartTlsRequest) -> None:
    """There is no TLS."""
    connection.answer(request, v3_answers.encode_start_tls_answer(request, StatusCode.EBADREQ))


def traced(connection: BookieConnection, request: TracedRequest) -> None:
    """What it is about, with its trace id."""
    connection.serve_traced(request)


#: Each called with the connection and a request of its type.
LEDGER_HANDLERS: Final[dict[type, Callable[[Any, Any], None]]] = {
    WriteLacRequest: write_lac,
    ReadLacRequest: read_lac,
    ForceLedgerRequest: force_ledger,
    ListEntriesRequest: list_entries,
    BookieInfoRequest: bookie_info,
    AuthRequest: authenticate,
    StartTlsRequest: start_tls,
    TracedRequest: traced,
}

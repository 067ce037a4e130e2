"""Answers in the version of their requests, and which status an error of the bookie is for which request."""

from __future__ import annotations

from collections.abc import Sequence

from geminga.model.bookie_port import EntryData
from geminga.model.errors import NoSuchLedgerError, StorageError
from geminga.wire.bookkeeper import v2, v3
from geminga.wire.bookkeeper.codes import VERSION_3, StatusCode, status_of_error
from geminga.wire.bookkeeper.requests import AddRequest, BatchReadRequest, EntryReadRequest


def add_status(error: StorageError | None) -> StatusCode:
    """Of an add: a ledger that was deleted takes no entries for good, as a fenced one."""
    return StatusCode.EFENCED if isinstance(error, NoSuchLedgerError) else status_of_error(error)


def add_answers(requests: Sequence[AddRequest], status: int) -> bytes:
    """Answers of adds of one connection that ended alike, one behind the other."""
    if requests[0].version == VERSION_3:
        return v3.encode_add_answers(requests, status)
    return v2.encode_add_answers(requests, status)


def as_bytes(results: Sequence[EntryData | StorageError]) -> list[bytes | StorageError]:
    """What was found, views copied: an answer of one entry is put together of bytes."""
    return [bytes(result) if isinstance(result, memoryview) else result for result in results]


def read_answer(
    request: EntryReadRequest, result: bytes | StorageError, *, entry_id: int | None = None, max_lac: int | None = None
) -> bytes:
    """The answer of a read with what was found; ``max_lac`` -1 or more is told to a client of version 3."""
    if isinstance(result, StorageError):
        return read_refusal(request, status_of_error(result))
    if request.version == VERSION_3:
        return v3.encode_read_answer(request, StatusCode.EOK, result, entry_id=entry_id, max_lac=max_lac)
    return v2.encode_read_answer(request, StatusCode.EOK, result)


def read_refusal(request: EntryReadRequest | BatchReadRequest, status: int) -> bytes:
    """The answer of a read with a status and nothing else."""
    if isinstance(request, BatchReadRequest):
        return v2.encode_batch_read_answer(request, status)
    if request.version == VERSION_3:
        return v3.encode_read_answer(request, status)
    return v2.encode_read_answer(request, status)


def lac_of(entry: bytes) -> int:
    """The last add confirmed that an entry carries; what is no number of an entry is -1."""
    lac = int.from_bytes(entry[16:24], "big", signed=True)
    return max(lac, -1)


def batch_entries(
    request: BatchReadRequest, results: Sequence[EntryData | StorageError], bytes_max: int
) -> list[EntryData]:
    """The entries of the answer: the first ones, as long as they are there and fit into a frame of ``bytes_max``."""
    size = v2.BATCH_ANSWER_BYTES + v2.ENTRY_SIZE_BYTES
    entries: list[EntryData] = []
    for result in results:
        if isinstance(result, StorageError):
            break
        size += len(result) + v2.ENTRY_SIZE_BYTES
        if entries and size > bytes_max:
            break
        entries.append(result)
    return entries

"""Adds in version 2 in bulk, as clients send and bookies answer them: no value per entry. Pure.

A request is 28 bytes and the entry, an answer has 28 bytes whatever it says (``docs/formats/bookkeeper-protocol.md``),
and a bookie answers what was stored together one behind the other: so both are told as runs of entries that follow
each other. A connection on which nothing but adds is sent gets nothing but such answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, NamedTuple

from geminga.model.errors import ProtocolError
from geminga.wire.bookkeeper.codes import MASTER_KEY_BYTES, VERSION_2, V2Operation, status_of_v2_code, v2_code
from geminga.wire.bookkeeper.requests import AddRunRequest
from geminga.wire.bookkeeper.v2 import ANSWER_BYTES, ENTRY_HEAD_BYTES, packet_header

_REQUEST: Final = Struct(">II")
#: Header, master key, and the ids that an entry begins with.
_REQUEST_BODY: Final = Struct(f">I{MASTER_KEY_BYTES}sqq")
#: Frame size, header, error code, ledger id, entry id.
_ANSWER: Final = Struct(">IIiqq")
_HEADER: Final = packet_header(VERSION_2, int(V2Operation.ADD_ENTRY))
#: What stands before each entry.
ADD_HEAD_BYTES: Final = _REQUEST.size + MASTER_KEY_BYTES
_HEADER_AND_KEY_BYTES: Final = ADD_HEAD_BYTES - 4


class AddRun(NamedTuple):
    """Answers to adds of entries ``first`` to ``stop - 1`` of a ledger; ``status`` is a ``StatusCode`` by number."""

    ledger_id: int
    first: int
    stop: int
    status: int


def add_parts(master_key: bytes, entries: Sequence[bytes]) -> list[bytes]:
    """Requests for whole entries, whose ids are in them, to be written one behind the other: a head, an entry, ..."""
    parts: list[bytes] = []
    size, head = -1, b""
    for entry in entries:
        if len(entry) != size:
            size = len(entry)
            head = _REQUEST.pack(_HEADER_AND_KEY_BYTES + size, _HEADER) + master_key
        parts += (head, entry)
    return parts


class AddRuns:
    """Gathers the plain adds of one read, by ledger."""

    __slots__ = ("_by_ledger",)

    def __init__(self) -> None:
        #: The run that the next entry of a ledger may continue.
        self._by_ledger: dict[int, AddRunRequest] = {}

    def take(self, data: bytes, start: int, end: int) -> AddRunRequest | bool:
        """A frame, as ``data[start:end]``: a new run that it begins, True if it continued one, False if it is neither.

        Any other frame, and an add with flags or of ids below 0, is neither.
        """
        entry_start = start + _HEADER_AND_KEY_BYTES
        if end - entry_start < ENTRY_HEAD_BYTES:
            return False
        header, master_key, ledger_id, entry_id = _REQUEST_BODY.unpack_from(data, start)
        if header != _HEADER or ledger_id < 0 or entry_id < 0:
            return False
        run = self._by_ledger.get(ledger_id)
        is_new = run is None or run.stop != entry_id or run.master_key != master_key
        if is_new or run is None:
            run = self._by_ledger[ledger_id] = AddRunRequest(ledger_id, entry_id, master_key)
        run.stop = entry_id + 1
        run.entries.append(data[entry_start:end])
        run.size_bytes += end - entry_start
        return run if is_new else True

    def end(self) -> None:
        """What follows is begun after what came until now: no run goes on."""
        self._by_ledger.clear()


def encode_run_answers(ledger_id: int, entry_ids: Iterable[int], status: int) -> bytes:
    """The answers to adds of version 2 that ended alike, one behind the other."""
    pack, code = _ANSWER.pack, v2_code(status)
    return b"".join([pack(ANSWER_BYTES, _HEADER, code, ledger_id, entry_id) for entry_id in entry_ids])


class AddAnswerDecoder:
    """The answers on one connection; never raises."""

    __slots__ = ("_tail", "error")

    def __init__(self) -> None:
        #: The beginning of the next answer.
        self._tail = b""
        #: Why the connection must be closed; what came before was given. None while it may go on.
        self.error: ProtocolError | None = None

    def feed(self, data: bytes) -> list[AddRun]:
        """The answers that are whole with ``data``, in order; none after an error."""
        if self.error is not None:
            return []
        if self._tail:
            data = self._tail + data
        whole = len(data) - len(data) % _ANSWER.size
        self._tail = data[whole:]
        runs: list[AddRun] = []
        ledger_id = first = stop = code = -1
        for size, header, found_code, found_ledger, entry_id in _ANSWER.iter_unpack(memoryview(data)[:whole]):
            if size != ANSWER_BYTES or header != _HEADER:
                self.error = ProtocolError(
                    f"an answer of {size} bytes with header {header:#010x}: {ANSWER_BYTES} and {_HEADER:#010x} were "
                    "expected where only adds of version 2 were sent"
                )
                break
            if entry_id == stop and found_ledger == ledger_id and found_code == code:
                stop += 1
                continue
            if stop > first:
                runs.append(AddRun(ledger_id, first, stop, status_of_v2_code(code)))
            ledger_id, first, stop, code = found_ledger, entry_id, entry_id + 1, found_code
        if stop > first:
            runs.append(AddRun(ledger_id, first, stop, status_of_v2_code(code)))
        return runs

"""Adds in version 2 in bulk, as a client sends them and reads their answers: no value per entry. Pure.

A request is 28 bytes and the entry, an answer has 28 bytes whatever it says (``docs/formats/bookkeeper-protocol.md``),
and a bookie answers what was stored together one behind the other: so answers are told as runs of entries that follow
each other and ended alike. A connection on which nothing but adds is sent gets nothing but such answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from geminga.model.errors import ProtocolError
from geminga.wire.bookkeeper.codes import MASTER_KEY_BYTES, VERSION_2, V2Operation, status_of_v2_code
from geminga.wire.bookkeeper.v2 import ANSWER_BYTES, packet_header

_REQUEST: Final = Struct(">II")
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

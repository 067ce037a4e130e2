"""What goes over the pipes between a broker and a process of filters. Pure.

A frame is its size without these 4 bytes, then as much; all integers big endian. To the process:

==== ===================================================================
size what
==== ===================================================================
4    size of the header
..   header, JSON: ``{"filters": [name, ...], "target": {...}}``
4    how many entries
..   entries: 8 bytes ledger id, 8 entry id, 4 size, ``MessageMetadata``
==== ===================================================================

From the process, one byte that says what it is, then

==== ===================================================================
R    nothing: it runs
L    nothing: the filters of this batch are loaded, and are asked now
V    a byte for each entry: the value of its :class:`~.FilterVerdict`
E    JSON: ``{"filter": name, "entry": index or -1, "error": text}``
==== ===================================================================

What a filter says is not trusted: :func:`parse_answer` takes no byte that it does not expect.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from struct import Struct
from typing import Final, NamedTuple

from geminga.entry_filters import FilterTarget, FilterVerdict

#: Bytes of an answer: of the verdicts of a batch, or of an error.
ANSWER_BYTES_MAX: Final = 1 << 20
#: Characters of an error that are passed on.
ERROR_CHARACTERS_MAX: Final = 500
READY: Final = b"R"
LOADED: Final = b"L"
VERDICTS: Final = b"V"
ERROR: Final = b"E"
_SIZE: Final = Struct(">I")
_ENTRY: Final = Struct(">qqI")
_VERDICTS: Final = frozenset(verdict.value for verdict in FilterVerdict)


class PipeError(Exception):
    """What came over the pipe is no frame of this protocol."""


class AskedEntry(NamedTuple):
    """An entry that filters are asked about."""

    ledger_id: int
    entry_id: int
    #: Its ``MessageMetadata`` as they are stored.
    metadata: bytes


class FilterBatch(NamedTuple):
    """The entries of one read, and by what they are judged, in this order."""

    filters: tuple[str, ...]
    target: FilterTarget
    entries: Sequence[AskedEntry]
    #: What is held while they are judged, bytes; it does not go over the pipe.
    size_bytes: int = 0


class FilterAnswer(NamedTuple):
    """From a process: ``kind`` and, of verdicts or an error, what they are."""

    kind: bytes
    verdicts: bytes = b""
    error: str = ""


def framed(body: bytes) -> bytes:
    """A frame around ``body``."""
    return _SIZE.pack(len(body)) + body


def encode_batch(batch: FilterBatch) -> bytes:
    """The frame of a batch."""
    header = json.dumps({"filters": batch.filters, "target": asdict(batch.target)}).encode()
    parts = [_SIZE.pack(len(header)), header, _SIZE.pack(len(batch.entries))]
    for ledger_id, entry_id, metadata in batch.entries:
        parts += (_ENTRY.pack(ledger_id, entry_id, len(metadata)), metadata)
    return framed(b"".join(parts))


def decode_batch(body: bytes) -> FilterBatch:
    """A batch from the body of its frame. Raises PipeError."""
    try:
        view = memoryview(body)
        end = _SIZE.size + int.from_bytes(view[: _SIZE.size], "big")
        header = json.loads(bytes(view[_SIZE.size : end]))
        count = int.from_bytes(view[end : end + _SIZE.size], "big")
        target = header["target"]
        target["consumers"] = tuple(target["consumers"])
        questions = list(_questions(view[end + _SIZE.size :], count))
        return FilterBatch(tuple(header["filters"]), FilterTarget(**target), questions)
    except (ValueError, TypeError, KeyError) as error:
        raise PipeError(f"a frame of {len(body)} bytes is no batch: {error}") from error


def _questions(view: memoryview, count: int) -> Iterator[AskedEntry]:
    at = 0
    for _ in range(count):
        if len(view) < at + _ENTRY.size:
            raise ValueError(f"it ends within {count} entries")
        ledger_id, entry_id, size = _ENTRY.unpack_from(view, at)
        at += _ENTRY.size
        if len(view) < at + size:
            raise ValueError(f"it ends within {count} entries")
        yield AskedEntry(ledger_id, entry_id, bytes(view[at : at + size]))
        at += size


def encode_error(filter_name: str, entry: int, error: str) -> bytes:
    """The frame of what went wrong; ``entry``: which of the batch, -1: none of them."""
    told = {"filter": filter_name, "entry": entry, "error": error[:ERROR_CHARACTERS_MAX]}
    return framed(ERROR + json.dumps(told).encode())


def parse_answer(body: bytes, entries: int) -> FilterAnswer:
    """What a process said; ``entries``: how many it was asked about. Raises PipeError."""
    kind, rest = body[:1], body[1:]
    if kind in (READY, LOADED) and not rest:
        return FilterAnswer(kind)
    if kind == VERDICTS and len(rest) == entries and _VERDICTS.issuperset(rest):
        return FilterAnswer(kind, rest)
    if kind == ERROR:
        try:
            told = json.loads(rest)
            name, entry, error = str(told["filter"]), int(told["entry"]), str(told["error"])
        except (ValueError, TypeError, KeyError) as wrong:
            raise PipeError("an error that can not be read") from wrong
        whose = f" of entry {entry} of its batch" if entry >= 0 else ""
        return FilterAnswer(kind, error=f"{name}{whose}: {error}"[: 2 * ERROR_CHARACTERS_MAX])
    raise PipeError(f"{len(body)} bytes that are no answer about {entries} entries")


class Frames:
    """Bodies of frames out of bytes as they come."""

    __slots__ = ("_bytes_max", "_data")

    def __init__(self, bytes_max: int = ANSWER_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Those that are complete now. Raises PipeError for one that is longer than allowed."""
        self._data += data
        while len(self._data) >= _SIZE.size:
            size = int.from_bytes(self._data[: _SIZE.size], "big")
            if size > self._bytes_max:
                raise PipeError(f"a frame of {size} bytes, at most {self._bytes_max} are taken")
            end = _SIZE.size + size
            if len(self._data) < end:
                return
            body = bytes(self._data[_SIZE.size : end])
            del self._data[:end]
            yield body

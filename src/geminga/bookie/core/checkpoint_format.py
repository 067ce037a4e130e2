"""The checkpoint file and the cookies. Pure; ``docs/formats/checkpoint.md`` is the specification.

The checkpoint names everything that counts: the mark (every journal group up to ``mark_sequence`` is in the entry
logs), the index runs in order, the entry logs with their durable sizes, and the deleted ledgers. It is replaced
atomically; what it does not name is left over from an interrupted step and removed at the next start.

::

    0   4  magic "GMCP"        4   4  format version (1)    8  16  bookie instance id
    24  4  CRC32C of bytes 0..24 and 28..end
    28  8  serial              36  8  mark: group sequence  44  8  mark: journal id
    52  8  next log id         60  8  next run id
    68  4  runs (R)   72  4  logs (L)   76  4  deleted bitmap's length (D)   80  4  limbo bitmap's length (M)
    84     8*R run ids, 16*L (log id, durable size), D bytes, M bytes (64-bit roaring bitmaps)
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from geminga.model.crc32c import crc32c

MAGIC: Final = b"GMCP"
FORMAT_VERSION: Final = 1
_PREFIX: Final = struct.Struct(">4sI16s")
_FIELDS: Final = struct.Struct(">QQQQQIIII")
_BODY_AT: Final = _PREFIX.size + 4


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What the file says."""

    #: Grows by one with each checkpoint written.
    serial: int = 0
    #: Groups up to this sequence need no replay. Never goes back.
    mark_sequence: int = 0
    #: Journals before this one need no replay; it must exist.
    mark_journal_id: int = 0
    next_log_id: int = 1
    next_run_id: int = 1
    #: Index runs, oldest first.
    run_ids: Sequence[int] = ()
    #: (log id, durable size in bytes), ascending.
    logs: Sequence[tuple[int, int]] = ()
    deleted: bytes = b""
    limbo: bytes = b""


def encode_checkpoint(checkpoint: Checkpoint, instance_id: bytes) -> bytes:
    """The whole file."""
    c = checkpoint
    fields = _FIELDS.pack(
        c.serial,
        c.mark_sequence,
        c.mark_journal_id,
        c.next_log_id,
        c.next_run_id,
        len(c.run_ids),
        len(c.logs),
        len(c.deleted),
        len(c.limbo),
    )
    runs = struct.pack(f">{len(c.run_ids)}Q", *c.run_ids)
    logs = struct.pack(f">{2 * len(c.logs)}Q", *(number for log in c.logs for number in log))
    prefix = _PREFIX.pack(MAGIC, FORMAT_VERSION, instance_id)
    body = b"".join((fields, runs, logs, c.deleted, c.limbo))
    return prefix + crc32c(body, crc32c(prefix)).to_bytes(4, "big") + body


def decode_checkpoint(data: bytes, instance_id: bytes) -> Checkpoint | None:
    """The checkpoint, or None if these are not the bytes of one of this bookie."""
    if len(data) < _BODY_AT + _FIELDS.size:
        return None
    prefix, body = data[: _PREFIX.size], data[_BODY_AT:]
    if crc32c(body, crc32c(prefix)) != int.from_bytes(data[_PREFIX.size : _BODY_AT], "big"):
        return None
    if _PREFIX.unpack(prefix) != (MAGIC, FORMAT_VERSION, instance_id):
        return None
    serial, sequence, journal_id, next_log, next_run, runs, logs, deleted, limbo = _FIELDS.unpack_from(body)
    run_ids = struct.unpack_from(f">{runs}Q", body, _FIELDS.size)
    numbers = struct.unpack_from(f">{2 * logs}Q", body, _FIELDS.size + 8 * runs)
    at = _FIELDS.size + 8 * runs + 16 * logs
    return Checkpoint(
        serial=serial,
        mark_sequence=sequence,
        mark_journal_id=journal_id,
        next_log_id=next_log,
        next_run_id=next_run,
        run_ids=run_ids,
        logs=tuple(zip(numbers[::2], numbers[1::2], strict=True)),
        deleted=body[at : at + deleted],
        limbo=body[at + deleted : at + deleted + limbo],
    )


class Cookie(NamedTuple):
    """Identity of a directory: a wiped, swapped or foreign one must not pass for ours."""

    instance_id: bytes
    #: "journal" or "ledgers"; with "-2-of-3" behind it where the bookie has several of each.
    role: str
    format_version: int = FORMAT_VERSION


def encode_cookie(cookie: Cookie) -> bytes:
    """Readable lines, the last one a checksum of those before."""
    return with_checksum(
        [
            "geminga bookie",
            f"format-version: {cookie.format_version}",
            f"instance-id: {cookie.instance_id.hex()}",
            f"role: {cookie.role}",
        ]
    )


def decode_cookie(data: bytes) -> Cookie | None:
    """The cookie, or None if the file is damaged."""
    values = checked_lines(data)
    try:
        if values is None:
            return None
        return Cookie(bytes.fromhex(values["instance-id"]), values["role"], int(values["format-version"]))
    except (KeyError, ValueError):
        return None


def with_checksum(lines: Iterable[str]) -> bytes:
    """The lines, and a last one with their checksum."""
    text = "".join(f"{line}\n" for line in lines)
    return f"{text}crc32c: {crc32c(text.encode()):08x}\n".encode()


def checked_lines(data: bytes) -> dict[str, str] | None:
    """The values of ``name: value`` lines below the first, or None if the checksum is not theirs."""
    head, separator, tail = data.rpartition(b"crc32c: ")
    if not separator or tail != f"{crc32c(head):08x}\n".encode():
        return None
    lines = head.decode(errors="replace").splitlines()
    return dict(line.split(": ", 1) for line in lines[1:] if ": " in line)

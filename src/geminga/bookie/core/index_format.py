"""The bytes of an index run's file. Pure; ``docs/formats/index.md`` is the specification.

::

    0   4  magic "GMIX"        4   4  format version (1)    8   8  run id
    16 16  bookie instance id  32  4  ledgers (L)           36  4  rows (R)
    40  4  states' length (S)  44  4  states' ledgers (T)   48  4  CRC32C of bytes 0..48 and 64..end
    52 12  zero
    64     S  table of ledger states, then columns, little endian: 8*T states' ledger ids, 8*L ledger ids,
           4*(L+1) starts, 8*R first entry ids, 4*R counts, 4*R sizes, 8*R locations
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable
from typing import Final

from geminga.bookie.core.index import IndexRun
from geminga.bookie.core.ledger_states import LedgerStateRow, decode_states, encode_states
from geminga.model.crc32c import crc32c

MAGIC: Final = b"GMIX"
FORMAT_VERSION: Final = 1
HEADER_BYTES: Final = 64
_FIELDS: Final = struct.Struct("<4sIQ16sIIII")


def _column_bytes(column: array[int]) -> bytes:
    if sys.byteorder == "big":
        column = array(column.typecode, column)
        column.byteswap()
    return column.tobytes()


def encode_run(run: IndexRun, run_id: int, states: Iterable[LedgerStateRow], instance_id: bytes) -> bytes:
    """The whole file."""
    table = encode_states(states)
    fields = _FIELDS.pack(
        MAGIC, FORMAT_VERSION, run_id, instance_id, len(run.ledger_ids), len(run), len(table), len(run.state_ids)
    )
    columns = (run.state_ids, run.ledger_ids, run.starts, run.firsts, run.counts, run.sizes, run.locations)
    body = b"".join((table, *map(_column_bytes, columns)))
    header = fields + crc32c(body, crc32c(fields)).to_bytes(4, "little")
    return header.ljust(HEADER_BYTES, b"\0") + body


def decode_run(data: bytes, run_id: int, instance_id: bytes) -> tuple[IndexRun, list[LedgerStateRow]] | None:
    """The run and the states its file carries, or None if these are not the bytes of this run."""
    if len(data) < HEADER_BYTES:
        return None
    fields = data[: _FIELDS.size]
    magic, version, found_id, found_instance, ledgers, rows, table_bytes, state_count = _FIELDS.unpack(fields)
    view = memoryview(data)
    crc = int.from_bytes(data[_FIELDS.size : _FIELDS.size + 4], "little")
    if (magic, version, found_id, found_instance) != (MAGIC, FORMAT_VERSION, run_id, instance_id):
        return None
    if crc32c(view[HEADER_BYTES:], crc32c(fields)) != crc or any(data[_FIELDS.size + 4 : HEADER_BYTES]):
        return None
    run = IndexRun(run_id)
    at = HEADER_BYTES + table_bytes
    columns: list[tuple[str, str, int]] = [
        ("state_ids", "q", state_count),
        ("ledger_ids", "q", ledgers),
        ("starts", "I", ledgers + 1),
        ("firsts", "q", rows),
        ("counts", "I", rows),
        ("sizes", "I", rows),
        ("locations", "Q", rows),
    ]
    for name, typecode, length in columns:
        column: array[int] = array(typecode)
        size = length * column.itemsize
        column.frombytes(view[at : at + size])
        if sys.byteorder == "big":
            column.byteswap()
        setattr(run, name, column)
        at += size
    return run, list(decode_states(view[HEADER_BYTES : HEADER_BYTES + table_bytes]))

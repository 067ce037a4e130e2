"""What the bookie knows of each ledger beside its entries: master key, fence, deletion, limbo. Pure.

A ledger is *known* from its first add or fence. *Deleted* ids are kept for ever as a bitmap (ledger ids are never
used again), so that a late writer of a deleted ledger fails. A ledger is in *limbo* when the bookie
lost part of its journal and was started all the same: what it does not find there may have existed.

Table of states (in index runs and entry logs), big endian: key count (2), per key length (2) and bytes; then
rows of ledger id (8), flags (1, bit 0 = fenced), key number (2).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from pyroaring import BitMap64

from geminga.model.bookie_port import IDS_END

_ROW: Final = struct.Struct(">qBH")
_FENCED: Final = 1
#: Different master keys that a bookie takes: the key number has 16 bits.
KEYS_MAX: Final = 65_535
#: Bytes of a master key; BookKeeper's have 20. Its length has 16 bits, and each key is in every entry log.
KEY_BYTES_MAX: Final = 256


class LedgerStateRow(NamedTuple):
    """One row."""

    ledger_id: int
    master_key: bytes
    is_fenced: bool


class LedgerStates:
    """The states of all ledgers of one bookie; ``master_keys`` and ``fenced`` are read on the hot path."""

    __slots__ = ("_has_unused_keys", "_interned", "deleted", "dirty", "fenced", "limbo", "master_keys")

    def __init__(self) -> None:
        #: Known ledgers and their master keys.
        self.master_keys: dict[int, bytes] = {}
        #: Known ledgers that take no ordinary adds.
        self.fenced: set[int] = set()
        self.deleted = BitMap64()
        self.limbo = BitMap64()
        #: Known ledgers whose state changed since it was last checkpointed.
        self.dirty: set[int] = set()
        self._interned: dict[bytes, bytes] = {}
        #: Ledgers were deleted since the keys were last gone through: some may be nobody's.
        self._has_unused_keys = False

    def has_room_for(self, master_key: bytes) -> bool:
        """Whether a ledger with this key can be noted: the table of states numbers keys with 16 bits."""
        if master_key in self._interned or len(self._interned) < KEYS_MAX:
            return True
        if self._has_unused_keys:
            self._has_unused_keys = False
            self._interned = {key: key for key in self.master_keys.values()}
        return len(self._interned) < KEYS_MAX

    def know(self, ledger_id: int, master_key: bytes) -> bool:
        """Note a ledger; True if it was not known before."""
        if ledger_id in self.master_keys:
            return False
        self.master_keys[ledger_id] = self._interned.setdefault(master_key, master_key)
        self.dirty.add(ledger_id)
        return True

    def fence(self, ledger_id: int) -> None:
        """Refuse ordinary adds from now on; the ledger must be known."""
        if ledger_id not in self.fenced:
            self.fenced.add(ledger_id)
            self.dirty.add(ledger_id)

    def is_in_limbo(self, ledger_id: int) -> bool:
        """Whether what is absent of it may have existed; any int may be asked for."""
        return bool(self.limbo) and 0 <= ledger_id < IDS_END and ledger_id in self.limbo

    def delete(self, ledger_ids: Iterable[int]) -> None:
        """Forget ledgers for ever."""
        self._has_unused_keys = True
        for ledger_id in ledger_ids:
            self.master_keys.pop(ledger_id, None)
            self.fenced.discard(ledger_id)
            self.dirty.discard(ledger_id)
            self.limbo.discard(ledger_id)
            self.deleted.add(ledger_id)

    def restore(self, states: Iterable[LedgerStateRow]) -> None:
        """Apply rows read from disk: fences add up, deleted ledgers stay deleted; nothing becomes dirty."""
        for ledger_id, master_key, is_fenced in states:
            if ledger_id in self.deleted:
                continue
            self.master_keys[ledger_id] = self._interned.setdefault(master_key, master_key)
            if is_fenced:
                self.fenced.add(ledger_id)

    def take_dirty(self) -> set[int]:
        """The ledgers to checkpoint; they are clean afterwards (give them back if that fails)."""
        dirty, self.dirty = self.dirty, set()
        return dirty

    def rows(self, ledger_ids: Iterable[int]) -> list[LedgerStateRow]:
        """States of those of ``ledger_ids`` that are known, sorted."""
        keys, fenced = self.master_keys, self.fenced
        return [LedgerStateRow(i, keys[i], i in fenced) for i in sorted(ledger_ids) if i in keys]


def encode_states(states: Iterable[LedgerStateRow]) -> bytes:
    """The table."""
    numbers: dict[bytes, int] = {}
    rows = bytearray()
    for ledger_id, master_key, is_fenced in states:
        number = numbers.setdefault(master_key, len(numbers))
        rows += _ROW.pack(ledger_id, _FENCED if is_fenced else 0, number)
    keys = b"".join(len(key).to_bytes(2, "big") + key for key in numbers)
    return len(numbers).to_bytes(2, "big") + keys + bytes(rows)


def decode_states(data: bytes | memoryview) -> Iterator[LedgerStateRow]:
    """The rows of a table whose bytes a checksum has vouched for."""
    view = memoryview(data)
    key_count = int.from_bytes(view[:2], "big")
    at = 2
    keys = []
    for _ in range(key_count):
        length = int.from_bytes(view[at : at + 2], "big")
        keys.append(bytes(view[at + 2 : at + 2 + length]))
        at += 2 + length
    for ledger_id, flags, number in _ROW.iter_unpack(view[at:]):
        yield LedgerStateRow(ledger_id, keys[number], bool(flags & _FENCED))

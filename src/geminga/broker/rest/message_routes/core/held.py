"""What a consumer over HTTP was given and has not acknowledged: entries, and of batches which messages. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from geminga.broker.rest.message_routes.core.message_ids import MessageRef
from geminga.model.position import Position

#: Of an entry: the partition, and where it lies there.
EntryKey = tuple[int, Position]


class Acked(NamedTuple):
    """An entry of which something was acknowledged."""

    partition: int
    position: Position
    #: Its messages that are left, as bits; 0: none, all of it is acknowledged.
    left: int
    #: Those that were left before.
    before: int
    #: Entries before it that went with it, and what was left of them.
    passed: Mapping[Position, int] = MappingProxyType({})


class HeldMessages:
    """See the module."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        #: Messages that are not acknowledged, as bits.
        self._entries: dict[EntryKey, int] = {}

    def __len__(self) -> int:
        """Entries."""
        return len(self._entries)

    def given(self, partition: int, position: Position, unacknowledged: int) -> None:
        """The first message of an entry was handed out; ``unacknowledged``: its messages, as bits."""
        self._entries.setdefault((partition, position), unacknowledged)

    def acknowledge(self, refs: Iterable[MessageRef]) -> tuple[list[Acked], list[MessageRef]]:
        """Entries of which something is acknowledged now, and ids that are none of what is held."""
        touched: dict[EntryKey, int] = {}
        unknown: list[MessageRef] = []
        for ref in refs:
            key = (ref.partition, ref.position)
            left = self._entries.get(key, 0)
            bits = left
            if ref.batch_index >= 0:
                # Only a bit that is set is made a number: a client may name any.
                bits = 1 << ref.batch_index if left >> ref.batch_index & 1 else 0
            if not left & bits:
                unknown.append(ref)
                continue
            self._entries[key] = left & ~bits
            touched.setdefault(key, left)
        return [self._settled(key, before) for key, before in touched.items()], unknown

    def _settled(self, key: EntryKey, before: int) -> Acked:
        left = self._entries[key]
        if not left:
            del self._entries[key]
        return Acked(*key, left, before)

    def restore(self, acked: Acked) -> None:
        """It is not known to be acknowledged after all."""
        for position, left in acked.passed.items():
            self._entries.setdefault((acked.partition, position), left)
        self._entries[acked.partition, acked.position] = acked.before

    def acknowledge_through(self, ref: MessageRef) -> Acked | None:
        """The same of all up to a message of its partition, itself included; None: it is none of what is held."""
        key = (ref.partition, ref.position)
        left = self._entries.get(key, 0)
        if not left or (ref.batch_index >= 0 and not left >> ref.batch_index & 1):
            return None
        before = [one for one in self._entries if one[0] == ref.partition and one[1] < ref.position]
        passed = {one[1]: self._entries.pop(one) for one in before}
        self._entries[key] = 0 if ref.batch_index < 0 else left >> ref.batch_index + 1 << ref.batch_index + 1
        return self._settled(key, left)._replace(passed=passed)

    def give_back(self, refs: Iterable[MessageRef]) -> tuple[list[EntryKey], list[MessageRef]]:
        """Entries that are not held any more, whole, and ids that are none of what is held."""
        back: dict[EntryKey, None] = {}
        unknown: list[MessageRef] = []
        for ref in refs:
            key = (ref.partition, ref.position)
            if key in self._entries:
                del self._entries[key]
                back[key] = None
            elif key not in back:
                unknown.append(ref)
        return [*back], unknown

    def give_back_partition(self, partition: int) -> list[EntryKey]:
        """All of one partition."""
        found = [key for key in self._entries if key[0] == partition]
        for key in found:
            del self._entries[key]
        return found

    @property
    def partitions(self) -> set[int]:
        """Those of which something is held."""
        return {partition for partition, _ in self._entries}

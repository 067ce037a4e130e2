"""Entries one consumer was sent and has not acknowledged, with their messages and key hashes."""

from __future__ import annotations

from collections.abc import Iterable

from geminga.model import Position
from geminga.model.errors import InvariantError


class PendingAcks:
    """Position -> messages of the entry that are not acknowledged; for Key_Shared also the hash of its key."""

    __slots__ = ("_counts", "_hashes")

    def __init__(self) -> None:
        self._counts: dict[Position, int] = {}
        #: Empty unless a sticky hash was given.
        self._hashes: dict[Position, int] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def __contains__(self, position: Position) -> bool:
        return position in self._counts

    def add(self, position: Position, message_count: int, sticky_hash: int = 0) -> None:
        """The entry was sent; it must not be pending here already."""
        if position in self._counts:
            raise InvariantError(f"entry {position} sent twice to one consumer without redelivery")
        self._counts[position] = message_count
        if sticky_hash:
            self._hashes[position] = sticky_hash

    def count(self, position: Position) -> int:
        """Unacknowledged messages of the entry; 0 if it is not pending here."""
        return self._counts.get(position, 0)

    def sticky_hash(self, position: Position) -> int:
        """The hash of the entry's key, 0 if none was given."""
        return self._hashes.get(position, 0)

    def remove(self, position: Position) -> tuple[int, int] | None:
        """Forget the entry; its (message count, sticky hash), or None if it is not pending here."""
        count = self._counts.pop(position, None)
        if count is None:
            return None
        return count, self._hashes.pop(position, 0) if self._hashes else 0

    def reduce(self, position: Position, remaining: int) -> int:
        """Part of a batch was acknowledged and ``remaining`` > 0 messages are left; how many fewer that is."""
        before = self._counts.get(position)
        if before is None or remaining >= before:
            return 0
        self._counts[position] = remaining
        return before - remaining

    def drain(self) -> list[tuple[Position, int, int]]:
        """Forget everything: (position, message count, sticky hash) in log order."""
        hashes = self._hashes
        taken = [(position, count, hashes.get(position, 0)) for position, count in sorted(self._counts.items())]
        self._counts = {}
        self._hashes = {}
        return taken

    def positions(self) -> list[Position]:
        """All pending entries in log order."""
        return sorted(self._counts)

    def messages_by_hash(self, hashes: Iterable[int]) -> dict[int, int]:
        """Each of these hashes -> unacknowledged messages whose key has it."""
        result = dict.fromkeys(hashes, 0)
        for position, sticky_hash in self._hashes.items():
            if sticky_hash in result:
                result[sticky_hash] += self._counts[position]
        return result

    def hashes(self) -> dict[int, int]:
        """Sticky hash -> pending entries with it."""
        result: dict[int, int] = {}
        for sticky_hash in self._hashes.values():
            result[sticky_hash] = result.get(sticky_hash, 0) + 1
        return result

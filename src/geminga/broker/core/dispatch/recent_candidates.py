"""What was found out about entries that were dispatched lately, for the other subscriptions of their topics.

At the tail all subscriptions of a topic are given the same entries one after the other: the metadata of each is parsed
for the first of them. One memory for the whole broker. Kept are entries of which every subscription would think the
same: no delivery time, no marker, all messages of the batch left, no key that matters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from geminga.broker.core.dispatch.shared import Candidate

#: Entries remembered, and their bytes, which this keeps from being freed; then all are forgotten.
ENTRIES_MAX: Final = 4096
BYTES_MAX: Final = 4 * 1024 * 1024
#: Larger entries are not remembered: parsing them is little beside sending them.
ENTRY_BYTES_MAX: Final = 64 * 1024


class RecentCandidates:
    """See the module. Found by the identity of the entry's bytes, which is the entry cache's, and its position."""

    __slots__ = ("_by_identity", "_size_bytes")

    def __init__(self) -> None:
        #: By ``id`` of the bytes: as the candidate holds them no other object has it.
        self._by_identity: dict[int, Candidate] = {}
        self._size_bytes = 0

    def __len__(self) -> int:
        return len(self._by_identity)

    @property
    def size_bytes(self) -> int:
        """Bytes of the entries that are remembered."""
        return self._size_bytes

    def find(self, ledger_id: int, entry_id: int, data: bytes) -> Candidate | None:
        """What is known of an entry."""
        found = self._by_identity.get(id(data))
        return found if found is not None and found.position == (ledger_id, entry_id) else None

    def keep(self, candidate: Candidate) -> None:
        """Remember an entry; nobody changes the candidate any more."""
        size = len(candidate.data)
        if size > ENTRY_BYTES_MAX:
            return
        if len(self._by_identity) >= ENTRIES_MAX or self._size_bytes + size > BYTES_MAX:
            self._by_identity.clear()
            self._size_bytes = 0
        if id(candidate.data) not in self._by_identity:
            self._size_bytes += size
        self._by_identity[id(candidate.data)] = candidate

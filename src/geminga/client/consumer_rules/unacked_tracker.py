"""Messages received and not acknowledged in time: the ack timeout's wheel.

``ceil(ack_timeout / tick) + 1`` slots, always the same number. An entry enters the last slot when the application
*receives* a message of it (what is only prefetched never times out) and leaves when all of it is acknowledged. Each
tick takes the first slot: what is still in it timed out.

What then is redelivered is the caller's rule: the entries alone on Shared and Key_Shared, everything unacknowledged on
the other types, where a single entry out of order would break the order.
"""

from __future__ import annotations

from collections import deque

from geminga.client.consumer_rules.redelivery_backoff import RedeliveryBackoff
from geminga.model.errors import ConfigurationError, invariant

EntryKey = tuple[int, int]


class UnackedTracker:
    """Wheel of one consumer. The caller calls :meth:`tick` every ``tick_ms``.

    ``backoff`` (Pulsar's ``ackTimeoutRedeliveryBackoff``) replaces the timeout: an entry that was redelivered n times
    may stay ``backoff.next(n)`` ms, rounded up to ticks.
    """

    __slots__ = ("_backoff", "_slot_of", "_slots", "_ticks", "_waiting", "tick_ms")

    def __init__(self, timeout_ms: int, tick_ms: int, backoff: RedeliveryBackoff | None = None) -> None:
        if tick_ms <= 0 or timeout_ms < tick_ms:
            raise ConfigurationError(
                f"ack timeout {timeout_ms} ms with tick {tick_ms} ms: expected a positive tick and no smaller timeout"
            )
        self.tick_ms = tick_ms
        self._backoff = backoff
        self._slots: deque[set[EntryKey]] = deque(set() for _ in range(-(-timeout_ms // tick_ms) + 1))
        #: Entry -> the slot it is in.
        self._slot_of: dict[EntryKey, set[EntryKey]] = {}
        #: With a backoff: tick at which slots beyond the wheel are due -> their entries.
        self._waiting: dict[int, set[EntryKey]] = {}
        self._ticks = 0

    def __len__(self) -> int:
        return len(self._slot_of)

    def __contains__(self, entry: EntryKey) -> bool:
        return entry in self._slot_of

    @property
    def slot_count(self) -> int:
        """Slots of the wheel; never changes."""
        return len(self._slots)

    def add(self, entry: EntryKey, redelivery_count: int = 0) -> bool:
        """A message of ``entry`` was received; False if the entry is tracked already (its time goes on)."""
        if entry in self._slot_of:
            return False
        if self._backoff is None:
            slot = self._slots[-1]
        else:
            ticks = -(-self._backoff.next(redelivery_count) // self.tick_ms)
            if ticks < len(self._slots):
                slot = self._slots[ticks]
            else:
                slot = self._waiting.setdefault(self._ticks + ticks, set())
        slot.add(entry)
        self._slot_of[entry] = slot
        return True

    def remove(self, entry: EntryKey) -> bool:
        """All of ``entry`` was acknowledged, or negatively; False if it was not tracked."""
        slot = self._slot_of.pop(entry, None)
        if slot is None:
            return False
        slot.discard(entry)
        return True

    def remove_up_to(self, entry: EntryKey) -> int:
        """Everything up to and with ``entry`` was acknowledged; how many entries that were."""
        covered = [key for key in self._slot_of if key <= entry]
        for key in covered:
            self._slot_of.pop(key).discard(key)
        return len(covered)

    def tick(self) -> list[EntryKey]:
        """One tick passed: the entries that timed out, in log order; they are not tracked any more."""
        slots = self._slots
        count = len(slots)
        head = slots.popleft()
        self._ticks += 1
        slots.append(self._waiting.pop(self._ticks + count - 1, set()))
        invariant(len(slots) == count, f"the wheel has {len(slots)} slots instead of {count}")
        expired = sorted(head)
        for entry in expired:
            del self._slot_of[entry]
        return expired

    def clear(self) -> None:
        """Nothing is tracked any more (everything will be redelivered)."""
        for slot in self._slots:
            slot.clear()
        self._waiting.clear()
        self._slot_of.clear()

    def check_invariants(self) -> None:
        """Raises InvariantError for a state that can not be."""
        slots = [*self._slots, *self._waiting.values()]
        invariant(sum(map(len, slots)) == len(self._slot_of), "slots and entries differ in number")
        invariant(all(entry in slot for entry, slot in self._slot_of.items()), "an entry is not in its slot")

"""Acknowledgment grouping: acknowledgments wait a moment and leave together.

Persistent topics use :class:`AckGrouping`; on non-persistent ones nothing is stored that could be acknowledged, and
:class:`NoAckGrouping` takes everything and sends nothing.

A group leaves when it is ``group_ms`` old (Pulsar's default 100 ms), when ``pending_max`` ids wait (1,000), or at once
if ``group_ms`` is 0. It holds the *newest* cumulative acknowledgment, a set of whole entries, and one bit set per
partly acknowledged batch, whose words are computed when it is sent, so that twenty acknowledgments of one batch are
one id on the wire. In a bit set a set bit is a message that is NOT acknowledged, and it is as long as the batch.

Groups are numbered: what was added belongs to group ``number`` until :meth:`AckGrouping.flush` closes it. A caller
that wants a receipt waits for the receipt of that group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from geminga.client.consumer_rules.batch_acker import BatchAcker
from geminga.model.errors import invariant

GROUP_MS_DEFAULT: Final = 100
#: Ids of one group (Pulsar's MAX_ACK_GROUP_SIZE).
PENDING_MAX_DEFAULT: Final = 1000

#: (ledger id, entry id).
EntryKey = tuple[int, int]
#: The remaining messages of a batch as 64-bit words; None: the whole entry is acknowledged.
AckSet = Sequence[int] | None


class AckGroup(NamedTuple):
    """What to send: at most one cumulative acknowledgment and any number of individual ones."""

    number: int
    cumulative: tuple[EntryKey, AckSet] | None
    individual: list[tuple[EntryKey, AckSet]]


class AckTracker(Protocol):
    """What a consumer knows of its grouping."""

    number: int

    @property
    def pending_count(self) -> int:
        """Ids that wait."""
        ...

    def add(self, entry: EntryKey) -> bool:
        """A whole entry was acknowledged; True: flush now."""
        ...

    def add_partial(self, entry: EntryKey, acker: BatchAcker) -> bool:
        """Some messages of a batch were acknowledged; True: flush now."""
        ...

    def add_cumulative(self, entry: EntryKey, acker: BatchAcker | None) -> bool:
        """Everything up to an entry, or up to where ``acker`` of a batch says; True: flush now."""
        ...

    def is_pending(self, entry: EntryKey) -> bool:
        """Whether the whole entry is acknowledged by what waits."""
        ...

    def flush(self) -> AckGroup | None:
        """Take what waits; None if nothing does."""
        ...

    def restore(self, group: AckGroup) -> None:
        """The receipt of ``group`` never came: its ids wait again."""
        ...


class AckGrouping:
    """Grouping for persistent topics."""

    __slots__ = ("_cumulative", "_cumulative_acker", "_entries", "_group_ms", "_partial", "_pending_max", "number")

    def __init__(self, group_ms: float = GROUP_MS_DEFAULT, pending_max: int = PENDING_MAX_DEFAULT) -> None:
        self._group_ms = group_ms
        self._pending_max = pending_max
        #: Number of the group that is being filled.
        self.number = 0
        #: Whole entries, in order of arrival (a set that keeps its order).
        self._entries: dict[EntryKey, None] = {}
        #: Batches of which some messages are acknowledged.
        self._partial: dict[EntryKey, BatchAcker] = {}
        #: The newest cumulative acknowledgment that was not sent; None if there is none.
        self._cumulative: EntryKey | None = None
        #: Of a cumulative acknowledgment inside a batch: what is left of it.
        self._cumulative_acker: BatchAcker | None = None

    @property
    def pending_count(self) -> int:
        """Ids that wait."""
        return len(self._entries) + len(self._partial) + (self._cumulative is not None)

    @property
    def _is_full(self) -> bool:
        return self._group_ms <= 0 or len(self._entries) + len(self._partial) >= self._pending_max

    def add(self, entry: EntryKey) -> bool:
        """A whole entry (or the last messages of a batch) was acknowledged; True: flush now."""
        if self._partial:
            self._partial.pop(entry, None)
        entries = self._entries
        entries[entry] = None
        return self._group_ms <= 0 or len(entries) + len(self._partial) >= self._pending_max

    def add_partial(self, entry: EntryKey, acker: BatchAcker) -> bool:
        """Some messages of a batch were acknowledged; ``acker`` is read when the group is sent. True: flush now."""
        if entry not in self._entries:
            pending = self._partial.get(entry)
            if pending is not None and pending is not acker:
                # Of an earlier delivery of the batch, restored after its connection broke: both were acknowledged.
                acker.retain(pending.words() or ())
                pending.is_waiting = False
            self._partial[entry] = acker
        return self._is_full

    def add_cumulative(self, entry: EntryKey, acker: BatchAcker | None) -> bool:
        """Everything up to and with ``entry`` was acknowledged; with ``acker``, up to where it says. True: flush now.

        Older than what waits already: nothing changes.
        """
        newest = self._cumulative
        if newest is None or entry >= newest:
            # Of the same entry, the whole of it is newer than a part; a part's acker only loses bits.
            if entry != newest or self._cumulative_acker is not None:
                if entry == newest and acker is not None and self._cumulative_acker not in (None, acker):
                    acker.retain(self._cumulative_acker.words() or ())
                self._cumulative = entry
                self._cumulative_acker = acker
            self._entries = {key: None for key in self._entries if key >= entry}
            self._partial = {key: part for key, part in self._partial.items() if key >= entry}
        return self._group_ms <= 0

    def is_pending(self, entry: EntryKey) -> bool:
        """Whether the whole entry is acknowledged by what waits: if it comes again, it need not be delivered."""
        if entry in self._entries:
            return True
        newest = self._cumulative
        return newest is not None and (entry < newest or (entry == newest and self._cumulative_acker is None))

    def flush(self) -> AckGroup | None:
        """Take what waits, cumulative first; None if nothing does."""
        if not (self._entries or self._partial or self._cumulative is not None):
            return None
        cumulative: tuple[EntryKey, AckSet] | None = None
        if self._cumulative is not None:
            acker = self._cumulative_acker
            words = None if acker is None else acker.words()
            cumulative = (self._cumulative, words)
            self._cumulative = self._cumulative_acker = None
        individual: list[tuple[EntryKey, AckSet]] = [(entry, None) for entry in self._entries]
        for entry, acker in self._partial.items():
            acker.is_waiting = False
            words = acker.words()
            invariant(words is not None or acker.is_complete, f"batch {entry} has neither words nor an end")
            individual.append((entry, words))
        self._entries = {}
        self._partial = {}
        group = AckGroup(self.number, cumulative, individual)
        self.number += 1
        return group

    def restore(self, group: AckGroup) -> None:
        """The connection broke before the receipt of ``group`` came: its ids wait again, in the present group."""
        if group.cumulative is not None:
            entry, words = group.cumulative
            self.add_cumulative(entry, None if words is None else BatchAcker.from_words(words))
        for entry, words in group.individual:
            if words is None:
                self.add(entry)
            elif (pending := self._partial.get(entry)) is not None:
                pending.retain(words)  # the same acker as a rule, a later delivery's after the batches were forgotten
            else:
                self.add_partial(entry, BatchAcker.from_words(words))

    def check_invariants(self) -> None:
        """Raises InvariantError for a state that can not be."""
        both = self._entries.keys() & self._partial.keys()
        invariant(not both, f"acknowledged whole and in part: {sorted(both)}")
        invariant(self._cumulative is not None or self._cumulative_acker is None, "part of a batch without its entry")


class NoAckGrouping:
    """For non-persistent topics: nothing is kept, nothing is sent."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0

    @property
    def pending_count(self) -> int:
        """Always 0."""
        return 0

    def add(self, entry: EntryKey) -> bool:
        """Forgotten."""
        return False

    def add_partial(self, entry: EntryKey, acker: BatchAcker) -> bool:
        """Forgotten."""
        return False

    def add_cumulative(self, entry: EntryKey, acker: BatchAcker | None) -> bool:
        """Forgotten."""
        return False

    def is_pending(self, entry: EntryKey) -> bool:
        """Nothing is."""
        return False

    def flush(self) -> AckGroup | None:
        """Nothing to send."""
        return None

    def restore(self, group: AckGroup) -> None:
        """Nothing was sent."""

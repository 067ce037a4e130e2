"""Adds of one connection in version 2 that have no answer yet: which answer is whose, and when a group is done. Pure.

Version 2 has no number of a request: an answer names ledger and entry. So no entry may be under way twice; who wants
to send one again asks :meth:`AddsUnderWay.takes`, and sends it another way. Answers come as runs of entries, and a
group (the entries of one call) that is answered alike is told in one piece, however many answers that took: what a
group costs does not grow with its entries as long as a bookie answers in the order of the requests, as all do that
refuse nothing. An answer to what is not under way (any more) means nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from geminga.model.bookie_port import AddDone
from geminga.model.errors import invariant
from geminga.wire.bookkeeper.add_stream import AddRun
from geminga.wire.bookkeeper.codes import StatusCode

#: Instead of a status, and none that fits into an answer: no answer came, or none will.
NO_ANSWER: Final = 1 << 32
_EOK: Final = int(StatusCode.EOK)


class AddOutcome(NamedTuple):
    """What is to be told of entries of one group; ``status`` is a ``StatusCode`` by number, or ``NO_ANSWER``."""

    done: AddDone
    ledger_id: int
    entry_ids: Sequence[int]
    status: int


class _Group:
    """The entries of one call."""

    __slots__ = ("count", "deadline_s", "done", "entry_ids", "good", "ledger_id", "left", "number", "size_bytes")

    def __init__(
        self, number: int, ledger_id: int, entry_ids: Sequence[int], size_bytes: int, deadline_s: float, done: AddDone
    ) -> None:
        self.number = number
        self.ledger_id = ledger_id
        self.entry_ids = entry_ids
        self.count = len(entry_ids)
        self.size_bytes = size_bytes
        self.deadline_s = deadline_s
        self.done = done
        #: Without an answer; None: all of them.
        self.left: set[int] | None = None
        #: Stored, and not told yet.
        self.good: list[int] = []


class _Ledger:
    """What is under way of one ledger."""

    __slots__ = ("end", "is_split", "pieces")

    def __init__(self) -> None:
        #: By first entry: where the piece stops, and whose it is. Pieces do not overlap.
        self.pieces: dict[int, tuple[int, _Group]] = {}
        #: Nothing is under way from here on.
        self.end = 0
        #: An answer came out of order: each entry is a piece, until nothing is under way.
        self.is_split = False

    def split(self) -> None:
        self.is_split = True
        pieces, self.pieces = self.pieces, {}
        for first, (stop, group) in pieces.items():
            for entry_id in range(first, stop):
                self.pieces[entry_id] = entry_id + 1, group


class AddsUnderWay:
    """See the module."""

    __slots__ = ("_groups", "_ledgers", "_next_number", "size_bytes")

    def __init__(self) -> None:
        self._ledgers: dict[int, _Ledger] = {}
        #: By number, in the order they were sent.
        self._groups: dict[int, _Group] = {}
        self._next_number = 0
        #: Of all groups that are not done.
        self.size_bytes = 0

    def takes(self, ledger_id: int, entry_ids: Sequence[int]) -> bool:
        """Whether answers to these could be told from those to all that is under way."""
        ledger = self._ledgers.get(ledger_id)
        if ledger is not None and entry_ids[0] < ledger.end:
            return False
        if len(entry_ids) == 1 or (isinstance(entry_ids, range) and entry_ids.step == 1):
            return True
        return all(one < other for one, other in pairwise(entry_ids))

    def sent(self, ledger_id: int, entry_ids: Sequence[int], size_bytes: int, deadline_s: float, done: AddDone) -> None:
        """These are on their way; ``deadline_s`` is not before that of who was sent before."""
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            ledger = self._ledgers[ledger_id] = _Ledger()
        first, last = entry_ids[0], entry_ids[-1]
        invariant(first >= ledger.end, f"ledger {ledger_id}: entry {first} is sent where {ledger.end} may be under way")
        self._next_number = number = self._next_number + 1
        group = self._groups[number] = _Group(number, ledger_id, entry_ids, size_bytes, deadline_s, done)
        self.size_bytes += size_bytes
        ledger.end = last + 1
        if not ledger.is_split and last - first + 1 == group.count:
            ledger.pieces[first] = last + 1, group
            return
        for entry_id in entry_ids:
            ledger.pieces[entry_id] = entry_id + 1, group

    def answered(self, runs: Iterable[AddRun]) -> list[AddOutcome]:
        """What is to be told now that these answers came, in that order."""
        outcomes: list[AddOutcome] = []
        for ledger_id, first, stop, status in runs:
            ledger = self._ledgers.get(ledger_id)
            if ledger is None:
                continue
            while first < stop:
                piece = ledger.pieces.pop(first, None)
                if piece is None:
                    if ledger.is_split:
                        first += 1
                    else:
                        ledger.split()
                    continue
                end, group = piece
                if end > stop:
                    ledger.pieces[stop] = piece
                    end = stop
                self._answered(group, first, end, status, outcomes)
                first = end
            if not ledger.pieces:
                del self._ledgers[ledger_id]
        return outcomes

    def _answered(self, group: _Group, first: int, stop: int, status: int, outcomes: list[AddOutcome]) -> None:
        """Entries of one piece ended so."""
        if stop - first == group.count:
            self._forget(group)
            outcomes.append(AddOutcome(group.done, group.ledger_id, group.entry_ids, status))
            return
        left = group.left
        if left is None:
            left = group.left = set(group.entry_ids)
        ids = range(first, stop)
        left.difference_update(ids)
        if status == _EOK:
            group.good.extend(ids)
        if group.good and (not left or status != _EOK):
            self._tell_good(group, outcomes)
        if status != _EOK:
            outcomes.append(AddOutcome(group.done, group.ledger_id, ids, status))
        if not left:
            self._forget(group)

    def expire(self, now_s: float) -> list[AddOutcome]:
        """Give up what should have been answered by now."""
        late: list[_Group] = []
        for group in self._groups.values():
            if group.deadline_s > now_s:
                break
            late.append(group)
        return self._give_up(late)

    def fail_all(self) -> list[AddOutcome]:
        """Give up everything."""
        return self._give_up(list(self._groups.values()))

    @property
    def next_deadline_s(self) -> float | None:
        """When the oldest group should be answered; None: nothing is under way."""
        group = next(iter(self._groups.values()), None)
        return None if group is None else group.deadline_s

    def _give_up(self, groups: Sequence[_Group]) -> list[AddOutcome]:
        outcomes: list[AddOutcome] = []
        for group in groups:
            self._forget(group)
            ledger = self._ledgers[group.ledger_id]
            left = group.entry_ids if group.left is None else sorted(group.left)
            # Each of its pieces begins with one of them.
            for entry_id in left:
                ledger.pieces.pop(entry_id, None)
            if not ledger.pieces:
                del self._ledgers[group.ledger_id]
            if group.good:
                self._tell_good(group, outcomes)
            outcomes.append(AddOutcome(group.done, group.ledger_id, left, NO_ANSWER))
        return outcomes

    def _tell_good(self, group: _Group, outcomes: list[AddOutcome]) -> None:
        good, group.good = group.good, []
        entry_ids = group.entry_ids if len(good) == group.count else good
        outcomes.append(AddOutcome(group.done, group.ledger_id, entry_ids, _EOK))

    def _forget(self, group: _Group) -> None:
        del self._groups[group.number]
        self.size_bytes -= group.size_bytes

    def check_invariants(self) -> None:
        """Pieces are disjoint, of groups that are not done, and cover what those have without an answer."""
        left: dict[int, set[int]] = {number: set() for number in self._groups}
        for ledger_id, ledger in self._ledgers.items():
            invariant(ledger.pieces, f"ledger {ledger_id} is kept with nothing under way")
            before = -1
            for first, (stop, group) in sorted(ledger.pieces.items(), key=lambda piece: piece[0]):
                invariant(before <= first < stop <= ledger.end, f"ledger {ledger_id}: a piece from {first} to {stop}")
                invariant(group.ledger_id == ledger_id, f"a piece of ledger {ledger_id} of another's group")
                left[group.number] |= set(range(first, stop))
                before = stop
        for number, group in self._groups.items():
            expected = set(group.entry_ids) if group.left is None else group.left
            invariant(left[number] == expected, f"group {number}: {expected} without an answer, {left[number]} kept")
        total = sum(group.size_bytes for group in self._groups.values())
        invariant(total == self.size_bytes, f"{self.size_bytes} bytes counted, {total} under way")

"""Shared: every entry to one of the consumers, in turn; also what Key_Shared has in common with it.

The shell asks :meth:`SharedDispatcher.next_read`, reads what it says, filters, and hands the entries to
:meth:`~SharedDispatcher.assign`, which books them at once: permits are taken and the entries are pending at their
consumers, so the shell must send exactly the groups it got. At most one read is under way at any time. What could not
be given to anybody waits in the replay queue, which is read before the log is read on.

Never is an entry pending at two consumers: it moves only through :meth:`~SharedDispatcher.redeliver`,
:meth:`~SharedDispatcher.remove` of its consumer, or an acknowledgment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, Generic, TypeVar

from geminga.broker.core.dispatch.consumer_state import ConsumerState
from geminga.broker.core.dispatch.redelivery import RedeliveryTracker, ReplayQueue
from geminga.broker.core.dispatch.unacked_budget import UnackedBudget
from geminga.model import Position, invariant
from geminga.model.errors import InvariantError

C = TypeVar("C", bound=ConsumerState)


class Candidate:
    """An entry that was read and passed the filters."""

    __slots__ = ("ack_set", "data", "is_chunk", "message_count", "position", "sticky_hash")

    def __init__(
        self,
        position: Position,
        data: bytes,
        message_count: int,
        sticky_hash: int = 0,
        ack_set: Sequence[int] | None = None,
        is_chunk: bool = False,
    ) -> None:
        self.position = position
        self.data = data
        #: Messages of it that are not acknowledged.
        self.message_count = message_count
        #: Hash of its key, 0 where it does not matter (Shared).
        self.sticky_hash = sticky_hash
        #: Words of the not acknowledged messages of a batch, None if none is acknowledged.
        self.ack_set = ack_set
        #: Part of a larger message; for statistics.
        self.is_chunk = is_chunk


@dataclass(frozen=True, slots=True)
class ReadOn:
    """Read the log on from the read position."""

    entries_max: int


@dataclass(frozen=True, slots=True)
class ReadAgain:
    """Read these positions, in this order. Those the log no longer has are left out of ``assign``."""

    positions: list[Position]


#: Without another bound on a read.
ENTRIES_MAX: Final = 1 << 30
#: Of a dispatcher of which nothing rests: an empty set of its own takes 216 bytes.
_NONE: Final[frozenset[Position]] = frozenset()
#: With more consumers who holds an entry is looked up; else each is asked, which takes no memory.
OWNERS_FROM: Final = 64
#: What one consumer gets, in order.
Group = tuple[C, list[Candidate]]


@dataclass(frozen=True, slots=True)
class DispatchLimits:
    """The settings of Pulsar that the dispatchers obey."""

    #: ``dispatcherMaxReadBatchSize``.
    read_entries_max: int = 100
    #: ``dispatcherMaxRoundRobinBatchSize``: messages one consumer gets in its turn.
    round_robin_messages: int = 20
    #: ``maxUnackedMessagesPerSubscription``; 0: no limit.
    unacked_max: int = 200_000
    #: ``keySharedLookAheadMsgInReplayThresholdPerConsumer``; 0: no limit.
    look_ahead_per_consumer: int = 2000
    #: ``keySharedLookAheadMsgInReplayThresholdPerSubscription``; 0: no limit.
    look_ahead_per_subscription: int = 20_000


class Receivers(Generic[C]):
    """The consumers of a subscription that may be sent something, in turn.

    Who has no permits, holds too much unacknowledged, or takes nothing for now is not among them: with ten thousand
    such consumers a FLOW of another one costs no look at them. Whoever is put in line and can not receive after all
    leaves it when that is seen, so each is looked at once for each time that it was put there.
    """

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        #: Priority level -> who is in line, the next one first; the best level first.
        self._lines: dict[int, deque[C]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def __iter__(self) -> Iterator[C]:
        """Those in line, of whom some may not be able to receive any more."""
        return chain.from_iterable(self._lines.values())

    def join(self, consumer: C) -> None:
        """It is of the subscription from now on."""
        consumer.receivers = self
        consumer.line = None
        consumer.may_receive()

    def leave(self, consumer: C) -> None:
        """It is no longer."""
        consumer.receivers = None
        if consumer.line is not None:
            consumer.line.remove(consumer)
            consumer.line = None

    def put(self, consumer: C) -> None:
        """It may be sent something, behind those that may by now. It must not be in line."""
        line = self._lines.get(consumer.priority_level)
        if line is None:
            lines = {level: line for level, line in self._lines.items() if line}
            line = lines[consumer.priority_level] = deque()
            self._lines = dict(sorted(lines.items()))
        line.append(consumer)
        consumer.line = line

    def next(self) -> C | None:
        """Who gets the next entries: of the best level that anybody can receive of the first, who is last then."""
        for line in self._lines.values():
            if self._has_first(line):
                line.rotate(-1)
                return line[-1]
        return None

    def is_any(self) -> bool:
        """Whether anybody can receive."""
        return any(map(self._has_first, self._lines.values()))

    def wanted(self, entries_max: int) -> int:
        """How many entries they want together, at most ``entries_max``; whose turn it is stays."""
        wanted = 0
        for line in self._lines.values():
            left, passed = len(line), 0
            while left and wanted < entries_max:
                left -= 1
                if line[0].can_receive():
                    wanted += line[0].entries_wanted(entries_max)
                    line.rotate(-1)
                    passed += 1
                else:
                    line.popleft().line = None
            line.rotate(passed)
        return min(wanted, entries_max)

    @staticmethod
    def _has_first(line: deque[C]) -> bool:
        """Whether there is one that can receive; then it is the first."""
        while line:
            if line[0].can_receive():
                return True
            line.popleft().line = None
        return False


class SharedDispatcher(Generic[C]):
    """Round robin over the consumers of the best priority level that have permits."""

    __slots__ = (
        "_budget",
        "_is_blocked",
        "_is_held",
        "_is_over_share",
        "_limits",
        "_owners",
        "_reading",
        "_rests",
        "consumers",
        "on_freed",
        "receivers",
        "replay",
        "tracker",
        "unacked_count",
    )

    def __init__(
        self,
        limits: DispatchLimits,
        tracker: RedeliveryTracker,
        *,
        budget: UnackedBudget | None = None,
        on_freed: Callable[[], None] = lambda: None,
    ) -> None:
        """``budget``: the broker's own limit of unacknowledged messages, if it has one; ``on_freed`` is called when
        that has room again after it held this dispatcher."""
        self._limits = limits
        self._budget = budget
        #: Whoever it is of takes itself out when it is over.
        self.on_freed = on_freed
        #: Whether it has more than its share while the broker's budget is short.
        self._is_over_share = False
        #: Either of the two: asked for each entry.
        self._is_held = False
        #: Positions lent out for the replay read under way; None while the log is read on or nothing is read.
        self._reading: list[Position] | None = None
        #: Entries that are not to be sent for now (:meth:`rest`).
        self._rests: set[Position] | frozenset[Position] = _NONE
        #: Who holds which entry, while there are so many consumers that nobody should look at each; None: few.
        self._owners: dict[Position, C] | None = None
        #: Those that can be sent something, in turn.
        self.receivers: Receivers[C] = Receivers()
        #: Whether dispatch stands still since the subscription's limit of unacknowledged messages was reached.
        self._is_blocked = False
        #: In order of arrival.
        self.consumers: list[C] = []
        self.replay = ReplayQueue()
        #: Outlives this dispatcher: it belongs to the subscription.
        self.tracker = tracker
        #: Messages sent and not acknowledged, of all consumers.
        self.unacked_count = 0

    @property
    def is_blocked(self) -> bool:
        """Whether a limit of unacknowledged messages holds it: the subscription's, or the broker's."""
        return self._is_held

    def add(self, consumer: C) -> None:
        """A consumer joins."""
        self.consumers.append(consumer)
        self.receivers.join(consumer)
        if self._owners is None and len(self.consumers) > OWNERS_FROM:
            self._owners = {position: each for each in self.consumers for position in each.pending.positions()}

    def remove(self, consumer: C) -> None:
        """A consumer leaves: what it holds is sent to others. After the last one, the shell rewinds its cursor instead,
        and only how often each entry was sent is remembered."""
        if consumer not in self.consumers:
            return
        self.consumers.remove(consumer)
        self.receivers.leave(consumer)
        taken = consumer.pending.drain()
        self._disown([position for position, _, _ in taken])
        if len(self.consumers) < OWNERS_FROM // 2:
            self._owners = None
        if not self.consumers:
            self.clear()
            for position, _, _ in taken:
                self.tracker.increment(position)
        else:
            self._give_back(consumer, taken)

    def follow_limits(self, limits: DispatchLimits) -> None:
        """Obey these from now on. That of unacknowledged messages is as before: see :meth:`limit_unacked`."""
        self._limits = limits

    def limit_unacked(self, unacked_max: int) -> bool:
        """Obey another limit of unacknowledged messages of all consumers (0: none); True if that set it free."""
        before = self._is_held
        self._limits = replace(self._limits, unacked_max=unacked_max)
        self._is_blocked = 0 < unacked_max <= self.unacked_count
        self._is_held = self._is_blocked or self._is_over_share
        return before and not self._is_held

    def clear(self) -> None:
        """Forget replay and counts of unacknowledged messages: the log is read anew."""
        self.replay.clear()
        self._reading, self._rests = None, _NONE
        count, self.unacked_count = self.unacked_count, 0
        self._is_blocked = self._is_over_share = self._is_held = False
        if self._budget is not None:
            self._budget.stop_waiting(self)
            self._budget.change(-count)

    def next_read(self, entries_max: int = ENTRIES_MAX) -> ReadOn | ReadAgain | None:
        """What to read now, at most ``entries_max`` (at least 1): entries to send again first; None while nobody can
        receive anything."""
        if not self._may_send():
            return None
        wanted = self.receivers.wanted(min(self._limits.read_entries_max, entries_max))
        if wanted == 0:
            return None
        if len(self.replay):
            positions = self.replay.take(0, wanted)
            if positions:
                self._reading = positions
                return ReadAgain(positions)
        return ReadOn(wanted)

    def next_read_on(self, entries_max: int = ENTRIES_MAX) -> ReadOn | None:
        """As :meth:`next_read` while what is to be sent again can not be read: on in the log, for Shared alone."""
        wanted = self.receivers.wanted(min(self._limits.read_entries_max, entries_max)) if self._may_send() else 0
        return ReadOn(wanted) if wanted else None

    def postpone(self, positions: Sequence[Position]) -> None:
        """The read again under way did not come so far: these wait again, at their places in the log."""
        if self._reading is None:
            return
        behind = set(positions)
        self._reading = [position for position in self._reading if position not in behind]
        for position in positions:
            self.replay.give_back(position)

    def assign(self, entries: Sequence[Candidate]) -> list[Group[C]]:
        """Divide what the read brought. The groups are booked: send them, in this order."""
        self._forget_missing(entries)
        groups: dict[C, list[Candidate]] = {}
        turn = self._limits.round_robin_messages
        consumer: C | None = None
        group: list[Candidate] = []
        sent = 0
        for index, entry in enumerate(entries):
            if self._reading is not None and entry.position not in self.replay:
                continue  # acknowledged while it was read
            if consumer is None or sent >= turn or not consumer.can_receive() or self._is_held:
                consumer = None if self._is_held else self.receivers.next()
                if consumer is None:
                    self._keep(entries[index:])
                    break
                group, sent = groups.setdefault(consumer, []), 0
            self._book(consumer, entry)
            group.append(entry)
            sent += entry.message_count
        self._reading = None
        return list(groups.items())

    def read_failed(self) -> None:
        """The read under way brought an error: what it was for waits again."""
        for position in self._reading or ():
            self.replay.give_back(position)
        self._reading = None

    def requeue(self, position: Position, sticky_hash: int = 0) -> None:
        """An entry that nobody holds must be sent (a delayed message is due); one that rests is by itself."""
        if position not in self._rests:
            self.replay.add(position, sticky_hash)

    def rest(self, position: Position, sticky_hash: int = 0) -> None:
        """An entry that the read under way brought is not to be sent before :meth:`rested`. It is nowhere until then,
        and read anew with the rest of the log after :meth:`clear`."""
        del sticky_hash  # used by Key_Shared
        if isinstance(self._rests, frozenset):
            self._rests = set()
        self._rests.add(position)
        if self._reading is not None:
            self._reading = [lent for lent in self._reading if lent != position]
        self.replay.discard(position)

    def rested(self, position: Position, sticky_hash: int = 0) -> None:
        """It may be sent now."""
        if isinstance(self._rests, set):
            self._rests.discard(position)
        self.requeue(position, sticky_hash)

    def redeliver(self, consumer: C, positions: Iterable[Position] | None) -> int:
        """``consumer`` gives back entries (None: all) that it holds; how many messages those were."""
        if positions is None:
            taken = consumer.pending.drain()
        else:
            taken = []
            for position in positions:
                removed = consumer.pending.remove(position)
                if removed is not None:
                    taken.append((position, *removed))
        self._disown([position for position, _, _ in taken])
        return self._give_back(consumer, taken)

    def acknowledge(self, consumer: C, position: Position, remaining: int = 0) -> bool:
        """``consumer`` acknowledged an entry, but for ``remaining`` of its messages. Any consumer may acknowledge
        what another one holds. True if an entry that waited for this can be sent now."""
        if not remaining:
            self.tracker.forget(position)
        return self.hold(consumer, position, remaining, is_counted=False)

    def hold(self, consumer: C, position: Position, remaining: int = 0, *, is_counted: bool = True) -> bool:
        """As :meth:`acknowledge`, but it may come again (:meth:`unhold`): that it was sent counts now, for its consumer
        may be gone by then."""
        owner = consumer if position in consumer.pending else self.owner(position) or consumer
        if remaining:
            count, sticky_hash = owner.pending.reduce(position, remaining), 0
        else:
            self.replay.discard(position)
            removed = owner.pending.remove(position)
            self._disown((position,))
            if removed is not None and is_counted:
                self.tracker.increment(position)
            count, sticky_hash = removed or (0, 0)
        return self._release(owner, count, sticky_hash)

    def owner(self, position: Position) -> C | None:
        """Who holds the entry; None: nobody."""
        if self._owners is not None:
            return self._owners.get(position)
        for consumer in self.consumers:
            if position in consumer.pending:
                return consumer
        return None

    def unhold(self, position: Position) -> None:
        """An entry that was held, and that no consumer has, must be sent again."""
        self.requeue(position)

    def acknowledge_up_to(self, position: Position) -> None:
        """The cursor was moved past ``position`` by an operator: nobody needs to acknowledge or resend it."""
        self.replay.discard_up_to(position)
        self.tracker.forget_up_to(position)
        for consumer in self.consumers:
            for held in consumer.pending.positions():
                if held > position:
                    break
                removed = consumer.pending.remove(held)
                if removed is not None:
                    self._disown((held,))
                    self._release(consumer, *removed)

    # ---- what Key_Shared does otherwise ----

    def _give_back(self, consumer: C, taken: Sequence[tuple[Position, int, int]]) -> int:
        messages = 0
        for position, count, _sticky_hash in taken:
            self.replay.add(position)
            self.tracker.increment(position)
            messages += count
        self._release(consumer, messages, 0)
        return messages

    def _release(self, consumer: C, message_count: int, sticky_hash: int) -> bool:
        """``message_count`` messages of ``consumer`` are settled; True if that set something free."""
        del sticky_hash  # used by Key_Shared
        if not message_count:
            return False
        freed = consumer.add_unacked(-message_count)
        self.unacked_count -= message_count
        if self.unacked_count < 0:
            raise InvariantError(f"{self.unacked_count} unacknowledged messages")
        if self._is_blocked and self.unacked_count <= self._limits.unacked_max // 2:
            self._is_blocked = False
            self._is_held = self._is_over_share
            freed = True
        budget = self._budget
        if budget is not None:
            if self._is_over_share and self.unacked_count <= budget.share // 2:
                budget.stop_waiting(self)
                self._is_over_share = False
                self._is_held = self._is_blocked
                freed = True
            budget.change(-message_count)
        return freed

    def _keep(self, entries: Iterable[Candidate]) -> None:
        """These could not be sent now."""
        for entry in entries:
            if self._reading is None:
                self.replay.add(entry.position)
            else:
                self.replay.give_back(entry.position)

    # ---- shared by both ----

    def _forget_missing(self, entries: Sequence[Candidate]) -> None:
        """Positions lent out that did not come back are acknowledged, deleted or not to be sent."""
        if self._reading is not None and len(entries) < len(self._reading):
            present = {entry.position for entry in entries}
            for position in self._reading:
                if position not in present:
                    self.replay.discard(position)

    def _book(self, consumer: C, entry: Candidate) -> None:
        if len(self.replay):
            self.replay.discard(entry.position)
        count = entry.message_count
        consumer.pending.add(entry.position, count, entry.sticky_hash)
        if self._owners is not None:
            self._owners[entry.position] = consumer
        consumer.note_sent(count, 1)
        consumer.add_unacked(count)
        self.unacked_count += count
        if 0 < self._limits.unacked_max <= self.unacked_count:
            self._is_blocked = self._is_held = True
        if self._budget is not None:
            self._budget.change(count)
            self._may_send()

    def _may_send(self) -> bool:
        """Whether neither the subscription's limit nor the broker's holds it, asked anew."""
        budget = self._budget
        if budget is not None and budget.is_short and not self._is_over_share and self.unacked_count > budget.share:
            self._is_over_share = self._is_held = True
            budget.wait(self, self._budget_has_room)
        return not self._is_held

    def _budget_has_room(self) -> None:
        self._is_over_share = False
        self._is_held = self._is_blocked
        self.on_freed()

    def _disown(self, positions: Iterable[Position]) -> None:
        if self._owners is not None:
            for position in positions:
                self._owners.pop(position, None)

    def check_invariants(self) -> None:
        """No entry is pending twice or pending and queued; counts are those of the pending entries."""
        self.replay.check_invariants()
        invariant(
            self._is_held == (self._is_blocked or self._is_over_share), "held by no limit, or by one and not held"
        )
        seen: set[Position] = set()
        total = 0
        for consumer in self.consumers:
            held = 0
            for position in consumer.pending.positions():
                invariant(position not in seen, f"{position} is pending at two consumers")
                invariant(position not in self.replay, f"{position} is pending and waits to be sent again")
                seen.add(position)
                held += consumer.pending.count(position)
            is_left_out = consumer.line is None and consumer.can_receive()
            invariant(not is_left_out, f"{consumer.name} can receive, and is not in line")
            invariant(consumer.unacked_count == held, f"{consumer.name} counts {consumer.unacked_count}, holds {held}")
            total += held
        owned = {position: each for each in self.consumers for position in each.pending.positions()}
        invariant(self._owners in (None, owned), "the index of who holds what is another than what they hold")
        invariant(total == self.unacked_count, f"{self.unacked_count} unacknowledged counted, {total} pending")

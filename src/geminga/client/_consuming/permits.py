"""``Permits``: how many messages the consumer of one topic lets its broker send, and when the broker hears of it."""

from __future__ import annotations

from typing import Final, Protocol

from geminga.client.consumer_rules.prefetch import FlowControl, PrefetchBudget
from geminga.wire.pulsar.consumer_codec import encode_flow

#: A consumer without prefetching asks for messages one by one and never gives permits back.
_NO_PREFETCH: Final = 1 << 62


class Line(Protocol):
    """The way to the broker; it comes and goes."""

    @property
    def consumer_id(self) -> int:
        """Who speaks."""
        ...

    @property
    def connection(self) -> object | None:
        """None: there is no way, now."""
        ...

    def write(self, frame: bytes) -> None:
        """Without a connection nothing is said."""
        ...


class Permits:
    """See the module. Whoever receives messages counts them in ``flow`` by itself, and sends what that gives."""

    __slots__ = ("_behind", "_budget", "_line", "flow", "is_asked")

    def __init__(self, line: Line, capacity: int, bytes_max: int = 0, budget: PrefetchBudget | None = None) -> None:
        """``capacity``: messages that are prefetched; 0: one, for who waits. ``bytes_max``: of them, 0 for any;
        ``budget``: of those of all consumers, None for any."""
        self._line = line
        self._budget = budget if capacity else None
        if self._budget is not None:
            self._budget.topics += 1
        self.flow = FlowControl(capacity, bytes_max, self._budget)
        if capacity == 0:
            self.flow.threshold = _NO_PREFETCH
        #: Without prefetching: a message was asked for, and has not come.
        self.is_asked = False
        #: Without prefetching: messages that came beside those that were asked for. The broker counts each of a batch,
        #: and sends nothing until as many were asked for.
        self._behind = 0

    def end(self) -> None:
        """Nothing is prefetched any more: others have its part of the budget. Doing it twice is fine."""
        budget, self._budget = self._budget, None
        if budget is not None:
            budget.topics -= 1

    def start_over(self) -> None:
        """Subscribed over another connection, and nothing is prefetched: what the broker may send to begin with."""
        self.is_asked = False
        self._behind = 0
        self.send(self.flow.restart())

    def give_back(self, count: int) -> None:
        """Messages were received or dropped: their permits go back, by half of the queue at a time."""
        permits = self.flow.received(count)
        if permits:
            self.send(permits)

    def came(self, messages: int, size_bytes: int) -> None:
        """They are ``size_bytes`` large together: more or fewer are prefetched from now on, where bytes say it."""
        flow = self.flow
        if flow.is_measured and messages:
            flow.fit(messages, size_bytes)
            if flow.owed >= flow.threshold:
                self.send(flow.take())

    def send(self, permits: int) -> None:
        """FLOW; without a connection there is a fresh start later."""
        if permits:
            self._line.write(encode_flow(self._line.consumer_id, permits))

    def ask_for_one(self) -> None:
        """Without prefetching: a message is wanted now."""
        if not self.is_asked and self._line.connection is not None and not self.flow.is_paused:
            self.is_asked = True
            behind, self._behind = self._behind, 0
            self.send(1 + behind)

    def came_beside(self, messages: int) -> None:
        """Without prefetching: an entry came that the broker counts as so many messages."""
        self._behind += messages - 1

    def send_owed(self) -> None:
        """Permits that wait for half of the queue go back now; without prefetching none do."""
        if self.flow.capacity:
            self.send(self.flow.take())

    def pause(self) -> None:
        """No more permits; what was asked for still comes."""
        self.flow.is_paused = True

    def resume(self) -> None:
        """Permits again."""
        self.flow.is_paused = False
        self.send_owed()

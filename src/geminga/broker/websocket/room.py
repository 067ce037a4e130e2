"""Bytes of messages over all sockets: those that were published and nobody answered, beyond whose limit sockets are not
read, and those that wait to be sent."""

from __future__ import annotations

from typing import Final, Protocol

#: Seconds without an answer after which a socket may be cut off for those that wait for its room: as long as clients
#: wait for an answer where they say nothing else.
STUCK_S: Final = 30.0


class Waiting(Protocol):
    """A socket that publishes, and is not read at times."""

    def may_go_on(self) -> bool:
        """Whether it has room of its own again."""

    def go_on(self) -> None:
        """Read it."""

    def cut_off(self) -> None:
        """Let go what it holds."""


class _Held:
    """What one published and nobody answered."""

    __slots__ = ("is_cut_off", "messages", "moved_s", "size_bytes")

    def __init__(self, now_s: float) -> None:
        self.messages = self.size_bytes = 0
        #: When it was answered last, or began to wait.
        self.moved_s = now_s
        self.is_cut_off = False


class PublishRoom:
    """See the module. Who was stopped goes on when half of the limit is free, and half of its own. Of those that get no
    answer (their topic is full, say, and they wait while it is) whoever holds most is cut off where others wait."""

    __slots__ = ("_held", "_held_bytes", "_limit_bytes", "_waiting", "cut_off_count")

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._held_bytes = 0
        self._held: dict[Waiting, _Held] = {}
        self.cut_off_count = 0
        #: In the order in which they were stopped.
        self._waiting: dict[Waiting, None] = {}

    @property
    def is_full(self) -> bool:
        """Whether who publishes has to wait."""
        return self._held_bytes >= self._limit_bytes

    @property
    def held_bytes(self) -> int:
        """Without an answer."""
        return self._held_bytes

    @property
    def waiting_count(self) -> int:
        """Sockets that are not read."""
        return len(self._waiting)

    def take(self, publisher: Waiting, size_bytes: int, now_s: float) -> None:
        """A message is on its way."""
        held = self._held.get(publisher)
        if held is None:
            held = self._held[publisher] = _Held(now_s)
        held.messages += 1
        held.size_bytes += size_bytes
        self._held_bytes += size_bytes

    def give_back(self, publisher: Waiting, size_bytes: int, now_s: float) -> None:
        """It was answered."""
        held = self._held[publisher]
        held.moved_s = now_s
        held.messages -= 1
        held.size_bytes -= size_bytes
        if not held.messages:
            del self._held[publisher]
        self._held_bytes -= size_bytes
        if self._waiting and self._held_bytes <= self._limit_bytes // 2:
            for waiting in [one for one in self._waiting if one.may_go_on()]:
                del self._waiting[waiting]
                waiting.go_on()

    def waits(self, waiting: Waiting) -> None:
        """It is not read until there is room."""
        self._waiting[waiting] = None

    def leaves(self, waiting: Waiting) -> None:
        """It is gone; what it published is answered yet."""
        self._waiting.pop(waiting, None)

    def look(self, now_s: float) -> None:
        """From time to time: one at most is cut off."""
        if not self._waiting:
            return
        left_bytes = self._held_bytes - sum(held.size_bytes for held in self._held.values() if held.is_cut_off)
        if left_bytes <= self._limit_bytes // 2:
            return
        stuck = [one for one, held in self._held.items() if not held.is_cut_off and now_s - held.moved_s >= STUCK_S]
        if stuck:
            most = max(stuck, key=lambda one: self._held[one].size_bytes)
            self._held[most].is_cut_off = True
            self.cut_off_count += 1
            most.cut_off()


class Receiver(Protocol):
    """A socket that is sent messages."""

    @property
    def may_send(self) -> bool:
        """Whether its peer takes messages now."""

    @property
    def keeps_more(self) -> bool:
        """Whether pieces of messages wait for the others, which may never come, or refused ids for their time."""

    def cut_off(self) -> None:
        """Let go what waits for it."""


class ReceiverRoom:
    """Bytes that wait in the broker for peers of sockets. Beyond the limit, of those that take nothing or keep
    pieces or refused ids whoever has most waiting is cut off: its messages stay in their topics, and are there when it
    comes again."""

    __slots__ = ("_held", "cut_off_count", "held_bytes", "limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        #: Bytes of each that has any, in the order in which their first came.
        self._held: dict[Receiver, int] = {}
        self.held_bytes = 0
        self.cut_off_count = 0

    def holds(self, receiver: Receiver, size_bytes: int) -> None:
        """So many wait for it now."""
        self.held_bytes += size_bytes - self._held.get(receiver, 0)
        if not size_bytes:
            self._held.pop(receiver, None)
            return
        self._held[receiver] = size_bytes
        while self.held_bytes > self.limit_bytes:
            stuck = [one for one in self._held if not one.may_send or one.keeps_more]
            if not stuck:
                return
            most = max(stuck, key=self._held.__getitem__)
            self.leaves(most)
            self.cut_off_count += 1
            most.cut_off()

    def leaves(self, receiver: Receiver) -> None:
        """Nothing waits for it any more."""
        self.held_bytes -= self._held.pop(receiver, 0)

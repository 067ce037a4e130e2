"""Bytes of messages over all sockets: those that were published and nobody answered, beyond whose limit sockets are not
read, and those that wait to be sent."""

from __future__ import annotations

from typing import Protocol


class Waiting(Protocol):
    """A socket that is not read."""

    def may_go_on(self) -> bool:
        """Whether it has room of its own again."""

    def go_on(self) -> None:
        """Read it."""


class PublishRoom:
    """See the module. Who was stopped goes on when half of the limit is free, and half of its own."""

    __slots__ = ("_held_bytes", "_limit_bytes", "_waiting")

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._held_bytes = 0
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

    def take(self, size_bytes: int) -> None:
        """A message is on its way."""
        self._held_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        """It was answered."""
        self._held_bytes -= size_bytes
        if self._waiting and self._held_bytes <= self._limit_bytes // 2:
            for waiting in [one for one in self._waiting if one.may_go_on()]:
                del self._waiting[waiting]
                waiting.go_on()

    def waits(self, waiting: Waiting) -> None:
        """It is not read until there is room."""
        self._waiting[waiting] = None

    def leaves(self, waiting: Waiting) -> None:
        """It is gone."""
        self._waiting.pop(waiting, None)


class Receiver(Protocol):
    """A socket that is sent messages."""

    @property
    def may_send(self) -> bool:
        """Whether its peer takes messages now."""

    def cut_off(self) -> None:
        """Let go what waits for it."""


class ReceiverRoom:
    """Bytes that wait in the broker for peers of sockets. Beyond the limit, of those that take nothing whoever has most
    waiting is cut off: its messages stay in their topics, and are there when it comes again."""

    __slots__ = ("_held", "_limit_bytes", "cut_off_count", "held_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
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
        while self.held_bytes > self._limit_bytes:
            stuck = [one for one in self._held if not one.may_send]
            if not stuck:
                return
            most = max(stuck, key=self._held.__getitem__)
            self.leaves(most)
            self.cut_off_count += 1
            most.cut_off()

    def leaves(self, receiver: Receiver) -> None:
        """Nothing waits for it any more."""
        self.held_bytes -= self._held.pop(receiver, 0)

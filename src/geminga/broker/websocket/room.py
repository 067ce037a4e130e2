"""Bytes of messages that sockets published and nobody answered, over all: beyond the limit they are not read."""

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

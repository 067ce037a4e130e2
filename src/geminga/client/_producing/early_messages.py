"""Messages that were sent before their producer was ever connected: a producer that connects lazily keeps them.

Sequence ids begin where the broker says, so they can be no frames yet. They have the send timeout of all messages, and
count in the client's memory limit.
"""

from __future__ import annotations

import asyncio
from typing import Final

from geminga.client._api.errors import PulsarException, Timeout
from geminga.client._producing.send_buffer import SendBuffer
from geminga.client.producer_rules.frame_maker import MESSAGE_OVERHEAD_BYTES
from geminga.client.producer_rules.memory_limit import MemoryLimit
from geminga.client.producer_rules.message import EncodedMessage
from geminga.client.producer_rules.send_queue import SendCallback
from geminga.runtime import Clock

#: Messages that are kept until the producer is connected.
EARLY_MESSAGES_MAX: Final = 1000


class EarlyMessages:
    """In the order they were sent."""

    __slots__ = ("_buffer", "_clock", "_loop", "_memory", "_messages", "_timeout_s", "_timer")

    def __init__(self, clock: Clock, memory: MemoryLimit, buffer: SendBuffer, timeout_ms: int) -> None:
        """``memory``: the client's; ``buffer`` tells those who wait what became of theirs; ``timeout_ms`` 0: none."""
        self._memory = memory
        self._buffer = buffer
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        #: Monotonic seconds, message, who wants to hear.
        self._messages: list[tuple[float, EncodedMessage, SendCallback | None]] = []
        self._timeout_s = timeout_ms / 1000
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def is_full(self) -> bool:
        """Whether nothing more may be sent before the producer is connected."""
        return len(self._messages) >= EARLY_MESSAGES_MAX

    def add(self, message: EncodedMessage, callback: SendCallback | None) -> None:
        """Keep it."""
        self._memory.reserve(_size_bytes(message))
        self._messages.append((self._clock.monotonic(), message, callback))
        if self._timer is None and self._timeout_s:
            self._timer = self._loop.call_later(self._timeout_s, self._expire)

    def take(self) -> list[tuple[EncodedMessage, SendCallback | None]]:
        """The producer is connected: all of them, in order. They were let in, whatever others hold by now."""
        self._stop_timer()
        taken = [(message, callback) for _, message, callback in self._messages]
        self._messages.clear()
        self._memory.release(sum(_size_bytes(message) for message, _ in taken))
        return taken

    def fail(self, error: PulsarException) -> None:
        """The producer ended."""
        for message, callback in self.take():
            self.refuse(message, callback, error)

    def refuse(self, message: EncodedMessage, callback: SendCallback | None, error: PulsarException) -> None:
        """One of them will never be stored."""
        if message.txn is not None:
            message.txn.settle(error)
        self._buffer.refuse([(-1, callback)] if callback is not None else None, 1, error)

    def _expire(self) -> None:
        self._timer = None
        before_s = self._clock.monotonic() - self._timeout_s
        late = next(
            (at for at, (since_s, _, _) in enumerate(self._messages) if since_s > before_s), len(self._messages)
        )
        expired = self._messages[:late]
        del self._messages[:late]
        for _, message, callback in expired:
            self._memory.release(_size_bytes(message))
            self.refuse(
                message, callback, Timeout(f"not connected within {self._timeout_s * 1000:g} ms: it was not stored")
            )
        if self._messages:
            left_s = self._messages[0][0] - before_s
            self._timer = self._loop.call_later(max(left_s, 0.001), self._expire)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _size_bytes(message: EncodedMessage) -> int:
    return len(message.payload) + MESSAGE_OVERHEAD_BYTES

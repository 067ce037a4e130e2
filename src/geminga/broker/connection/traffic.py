"""The two directions of a connection, as clients that take little, or send much, hold them back.

What is written leaves with one write a turn of the loop where that may be, and who must wait until it is taken is told
when it is. What the transport has not got rid of is told to the :class:`OutputBudget`; a client that takes nothing at
all is not read either.

What is published stops reading while more publishes than ``maxPendingPublishRequestsPerConnection`` are unanswered,
while the broker holds more unanswered bytes than its publish buffer, and while a rate is used up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from geminga.broker.connection.back_pressure import (
    WRITE_BUFFER_COUNTED_BYTES,
    WRITE_BUFFER_HIGH_BYTES,
    WRITE_BUFFER_LOW_BYTES,
    WRITE_BUFFER_STOP_READING_BYTES,
)
from geminga.broker.connection.core.read_gate import PauseReason, ReadGate
from geminga.broker.connection.output_budget import OutputBudget
from geminga.broker.connection.publish_buffer import PublishBuffer
from geminga.runtime import Buffer


class Output:
    """What is written to one connection. Without a transport nothing is written; what is given is dropped."""

    __slots__ = (
        "_budget",
        "_callbacks",
        "_flush_scheduled",
        "_gate",
        "_has_turn",
        "_is_full",
        "_loop",
        "_out",
        "_transport",
        "is_writable",
    )

    def __init__(self, budget: OutputBudget, gate: ReadGate, loop: asyncio.AbstractEventLoop) -> None:
        self._budget = budget
        self._gate = gate
        self._loop = loop
        self._transport: asyncio.WriteTransport | None = None
        self._out: list[bytes] = []
        self._flush_scheduled = False
        #: Whether dispatchers may write: the transport's buffer is below its high mark, and either there is no shortage
        #: of room for what clients do not take, or it is this connection's turn.
        self.is_writable = not budget.is_short
        self._is_full = False
        self._has_turn = False
        self._callbacks: list[Callable[[], None]] = []

    # ---- life

    def attach(self, transport: asyncio.WriteTransport, cut_off: Callable[[str], None]) -> None:
        """Write to this one. ``cut_off`` ends the connection at once where others wait for its room."""
        transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH_BYTES, low=WRITE_BUFFER_LOW_BYTES)
        self._transport = transport
        self._budget.join(self, cut_off)

    def finish(self) -> None:
        """Write at once what :meth:`write_soon` holds, and nothing more."""
        if self._out and self._transport is not None:
            self._transport.write(b"".join(self._out))
        self.detach()

    def detach(self) -> None:
        """Nothing is written any more; what :meth:`write_soon` holds is dropped."""
        self._transport = None
        self._out.clear()

    def end(self) -> None:
        """The connection is over: nobody waits for it, and it waits for nobody."""
        self.detach()
        self._budget.forget(self)
        self._callbacks.clear()

    # ---- writing

    def write(self, data: bytes) -> None:
        """Write now, behind everything that :meth:`write_soon` holds."""
        transport = self._transport
        if transport is None:
            return
        if self._out:
            self._out.append(data)
            data = b"".join(self._out)
            self._out.clear()
        transport.write(data)
        self._check_buffer(transport)

    def write_many(self, parts: list[Buffer]) -> None:
        """Write the parts back to back with one transport call."""
        transport = self._transport
        if transport is None:
            return
        if self._out:
            parts = [*self._out, *parts]
            self._out.clear()
        transport.writelines(parts)
        if not self.is_writable:
            self._check_buffer(transport)
        elif self._has_turn:
            self._budget.wrote(self)

    def write_soon(self, data: bytes) -> None:
        """Write at the end of this turn of the loop, together with what else comes until then."""
        self._out.append(data)
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        out, self._out = self._out, []
        if out and self._transport is not None:
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))
            self._check_buffer(self._transport)

    def _check_buffer(self, transport: asyncio.WriteTransport) -> None:
        size_bytes = transport.get_write_buffer_size()
        if self._is_full or size_bytes > WRITE_BUFFER_COUNTED_BYTES:
            self._budget.note(self, size_bytes)
        if size_bytes > WRITE_BUFFER_STOP_READING_BYTES:
            self._gate.hold(PauseReason.WRITE_BUFFER)

    # ---- what the client takes

    def is_over_mark(self) -> None:
        """The transport's buffer is over its high mark."""
        self._is_full = True
        self.is_writable = False

    def was_taken(self) -> None:
        """The transport's buffer is below its low mark again."""
        self._is_full = False
        self._gate.free(PauseReason.WRITE_BUFFER)
        self._budget.took(self)
        if not self._budget.is_short:
            self.may_write_again()
        elif self._callbacks:
            self._budget.wait(self)

    def on_writable(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once when the connection is writable again (at once in the next turn if it is)."""
        if self._transport is None:
            return
        if self.is_writable:
            self._loop.call_soon(callback)
        else:
            self._callbacks.append(callback)
            if not self._is_full:
                self._budget.wait(self)

    # ---- for the output budget

    @property
    def is_held(self) -> bool:
        """Whether there is a shortage of room for what clients do not take, and it is not this connection's turn."""
        return self._budget.is_short and not self._has_turn

    @property
    def unsent_bytes(self) -> int:
        """What the client was sent and has not taken."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def must_wait(self) -> None:
        """There is a shortage: dispatchers write in turns."""
        self._has_turn = False
        self.is_writable = False

    def may_write_again(self, *, has_turn: bool = False) -> None:
        """The shortage is over, or it is this connection's turn."""
        if self._is_full or self._transport is None:
            return
        self._has_turn = has_turn
        self.is_writable = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


class PublishLimits(Protocol):
    """The settings of it."""

    @property
    def pending_publishes_max(self) -> int:
        """``maxPendingPublishRequestsPerConnection``."""
        ...


class PublishRate(Protocol):
    """A publish rate that holds connections. Hashes by identity."""

    def forget(self, publishes: Publishes, /) -> None:
        """Its connection is gone."""
        ...

    def entries_left(self) -> int:
        """How many more may come now."""
        ...


class Rated(Protocol):
    """A producer, as far as its rates are asked for."""

    @property
    def topic(self) -> RatedTopic:
        """What it publishes to."""
        ...


class Throttles(Protocol):
    """The rates of a topic."""

    @property
    def publish(self) -> Iterable[PublishRate]:
        """Those by which its producers are held."""
        ...


class RatedTopic(Protocol):
    """Its topic."""

    @property
    def throttles(self) -> Throttles:
        """By which it is held."""
        ...


class Publishes:
    """What is published on one connection and not answered yet, and the rates it is published under."""

    __slots__ = ("_buffer", "_gate", "_limits", "_used_up", "is_rated", "pending")

    def __init__(self, limits: PublishLimits, buffer: PublishBuffer, gate: ReadGate) -> None:
        self._limits = limits
        self._buffer = buffer
        self._gate = gate
        #: Publishes not answered yet.
        self.pending = 0
        #: Whether a producer of it may publish under a rate.
        self.is_rated = False
        #: Rates that hold it; None: there never was one.
        self._used_up: dict[PublishRate, None] | None = None

    def publish_started(self, count: int, size_bytes: int) -> None:
        """``count`` publishes wait for their answers now."""
        self.pending += count
        if self.pending > self._limits.pending_publishes_max:
            self._gate.hold(PauseReason.PENDING_PUBLISHES)
        buffer = self._buffer
        buffer.size_bytes += size_bytes
        if buffer.size_bytes > buffer.bytes_max:
            buffer.hold(self)
            self._gate.hold(PauseReason.PUBLISH_BUFFER)

    def publish_finished(self, count: int, size_bytes: int) -> None:
        """``count`` publishes were answered."""
        self.pending -= count
        if self._gate.reasons and self.pending <= self._limits.pending_publishes_max // 2:
            self._gate.free(PauseReason.PENDING_PUBLISHES)
        buffer = self._buffer
        buffer.size_bytes -= size_bytes
        if buffer.held and buffer.size_bytes <= buffer.bytes_max // 2:
            buffer.free()

    def publish_buffer_has_room(self) -> None:
        """The broker's publish buffer is below its mark again."""
        self._gate.free(PauseReason.PUBLISH_BUFFER)

    def publish_is_rated(self) -> None:
        """A topic that is published to here has another rate from now on."""
        self.is_rated = True

    def hold_for_rate(self, rate: PublishRate, /) -> None:
        """A publish rate is used up: do not read until :meth:`free_of_rate`."""
        if self._used_up is None:
            self._used_up = {}
        self._used_up[rate] = None
        self._gate.hold(PauseReason.PUBLISH_RATE)

    def free_of_rate(self, rate: PublishRate, /) -> None:
        """This rate has room again."""
        if self._used_up is not None:
            self._used_up.pop(rate, None)
        if not self._used_up:
            self._gate.free(PauseReason.PUBLISH_RATE)

    def entries_left(self, producers: Iterable[Rated], most: int) -> int:
        """How many entries the rates of the producers have room for, ``most`` at the most; looks at all of them."""
        rates = {rate for producer in producers for rate in producer.topic.throttles.publish}
        self.is_rated = bool(rates)
        return min([most, *(rate.entries_left() for rate in rates)])

    def end(self) -> None:
        """The connection is over: it waits for no rate and for no room. What is under way still ends here."""
        for rate in self._used_up or ():
            rate.forget(self)
        self._used_up = None
        self._buffer.forget(self)

"""Passes bytes between a client and its broker, as they come, without looking at them.

What one side reads goes to the other in one write. While that one's buffer is over its mark, nothing is read on this
side: so a relay holds at most :data:`BUFFER_HIGH_BYTES` and one read in each direction, and all of them what
:mod:`.core.room` says. A side that ends, ends the
other as soon as what it had sent is written, or :data:`CLOSE_GRACE_S` later. A broker that says nothing and a client
that takes nothing, both for ``brokerProxyReadTimeoutMs``, are ended too: the two send PINGs, so that one of them hangs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from geminga.proxy.core.guests import Counters
from geminga.proxy.core.renewal_watch import RenewalWatch
from geminga.proxy.core.room import UntakenRoom
from geminga.runtime import let_go

#: Bytes that are written and not taken until reading stops, and until it goes on.
BUFFER_HIGH_BYTES: Final = 64 * 1024
BUFFER_LOW_BYTES: Final = 16 * 1024
#: Seconds that a side has to take what is left when the other is gone.
CLOSE_GRACE_S: Final = 5.0


class Side(asyncio.Protocol):
    """One of the two ends; what it reads is written to :attr:`other`."""

    __slots__ = ("_counters", "_relay", "_watch", "has_heard", "other")

    def __init__(self, relay: Relay, counters: Counters) -> None:
        self._relay = relay
        self._counters = counters
        #: Where what is read goes.
        self.other: asyncio.Transport
        #: Something was read since the last look.
        self.has_heard = False
        self._watch: RenewalWatch | None = None

    def watch(self, watch: RenewalWatch) -> None:
        """Look for new credentials in what is read."""
        self._watch = watch

    def data_received(self, data: bytes) -> None:
        """Pass it on."""
        self.has_heard = True
        counters = self._counters
        counters.ops += 1
        counters.bytes_relayed += len(data)
        self.other.write(data)
        if self._watch is not None:
            for response in self._watch.feed(data):
                self._relay.on_response(response)

    def pause_writing(self) -> None:
        """This end takes nothing: the other one is not read."""
        self._relay.read_other(self, goes_on=False)

    def resume_writing(self) -> None:
        """It took most of it."""
        self._relay.read_other(self, goes_on=True)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone, and the other one follows."""
        relay = self._relay
        relay.lost(self)
        # They know each other: what is gone waits for no collector.
        del self._relay


class Relay:
    """See the module."""

    def __init__(
        self,
        counters: Counters,
        room: UntakenRoom,
        on_end: Callable[[str], None],
        on_response: Callable[[bytes], None],
        read_timeout_s: float,
    ) -> None:
        """``on_end`` is told once, why; ``on_response``: a command AUTH_RESPONSE, where one is looked for."""
        self._loop = asyncio.get_running_loop()
        self._room = room
        self._on_end = on_end
        self.on_response = on_response
        self._read_timeout_s = read_timeout_s
        self.client = Side(self, counters)
        self.broker = Side(self, counters)
        #: Transports of ends that are not gone.
        self._open: dict[Side, asyncio.Transport] = {}
        #: What the client's end had not taken at the last look.
        self._untaken = 0
        self._timer: asyncio.TimerHandle | None = None
        self._why = ""

    def start(self, client: asyncio.Transport, broker: asyncio.Transport) -> None:
        """Both transports have their sides as protocols, and are paused: read them."""
        for side, transport in ((self.client, client), (self.broker, broker)):
            transport.set_write_buffer_limits(high=BUFFER_HIGH_BYTES, low=BUFFER_LOW_BYTES)
            self._open[side] = transport
        self.client.other, self.broker.other = broker, client
        self._look_later()

    def go(self) -> None:
        """Read from both."""
        for side, transport in self._open.items():
            if not transport.is_closing() and side.other.get_write_buffer_size() <= BUFFER_HIGH_BYTES:
                transport.resume_reading()

    def end(self, why: str, *, at_once: bool = False) -> None:
        """End both; ``at_once``: whatever is left to be written."""
        self._why = self._why or why
        for transport in tuple(self._open.values()):
            if at_once:
                transport.abort()
            else:
                transport.close()
        if not at_once:
            self._await_end()

    def read_other(self, side: Side, *, goes_on: bool) -> None:
        """Read the other one than ``side``, whose buffer is over its mark or no more, or do not."""
        own = self._open.get(side)
        if goes_on or own is None:
            self._room.free(side)
        else:
            self._room.hold(side, own.get_write_buffer_size(), self._make_room)
        for other, transport in self._open.items():
            if other is not side and not transport.is_closing():
                if goes_on:
                    transport.resume_reading()
                else:
                    transport.pause_reading()

    def lost(self, side: Side) -> None:
        """One is gone."""
        transport = self._open.pop(side, None)
        self._room.free(side)
        if transport is not None:
            let_go(transport)
        if self._open:
            self._why = self._why or f"the {'client' if side is self.client else 'broker'} has left"
            for other in self._open.values():
                other.close()
            self._await_end()
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._on_end(self._why)

    def _make_room(self) -> None:
        self.end("it takes less than others, and too much is not taken", at_once=True)

    def _await_end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(CLOSE_GRACE_S, self._cut_off)

    def _cut_off(self) -> None:
        self._timer = None
        for transport in tuple(self._open.values()):
            transport.abort()

    def _look_later(self) -> None:
        if self._read_timeout_s:
            self._timer = self._loop.call_later(self._read_timeout_s, self._look)

    def _look(self) -> None:
        untaken = self.broker.other.get_write_buffer_size()
        is_moving = self.broker.has_heard or untaken != self._untaken
        self.broker.has_heard = False
        self._untaken = untaken
        if is_moving:
            self._look_later()
            return
        who = "the client takes nothing" if untaken else "the broker says nothing"
        self.end(f"{who} for brokerProxyReadTimeoutMs={self._read_timeout_s * 1000:g}", at_once=True)

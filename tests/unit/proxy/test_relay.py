"""Bytes between two ends: bounded, and both go when one does."""

from __future__ import annotations

import asyncio

from geminga import sim
from geminga.proxy.core.guests import AskedRequests, Counters, Guests
from geminga.proxy.core.room import UntakenRoom
from geminga.proxy.relay import BUFFER_HIGH_BYTES, BUFFER_LOW_BYTES, CLOSE_GRACE_S, Relay
from support.worlds.broker_world import MemoryTransport


class Ends:
    """A relay between two transports in memory."""

    def __init__(self, read_timeout_s: float = 0) -> None:
        self.ended: list[str] = []
        self.responses: list[bytes] = []
        self.counters = Counters(Guests(1, 0), AskedRequests(1))
        self.room = UntakenRoom(100_000)
        self.relay = Relay(self.counters, self.room, self.ended.append, self.responses.append, read_timeout_s)
        self.client, self.broker = Held(), Held()
        self.client.protocol, self.broker.protocol = self.relay.client, self.relay.broker
        self.relay.start(self.client, self.broker)
        self.relay.go()


class Held(MemoryTransport):
    """Closes when what was written is taken."""

    is_aborted = False
    limits: tuple[int | None, int | None] = (None, None)
    #: What asyncio's keeps when it is closed (``let_go``).
    _read_ready_cb: object = "a method of its own"

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.limits = (low, high)

    def close(self) -> None:
        if self.buffered_bytes and not self.is_aborted:
            self._is_closing = True
        else:
            super().close()

    def abort(self) -> None:
        if not self.is_aborted:
            self.is_aborted = True
            self._is_closing = False
            super().close()

    def take(self) -> None:
        """The peer takes all."""
        self.buffered_bytes = 0
        if self._is_closing:
            self._is_closing = False
            super().close()


def told(story, **options) -> None:
    async def main(world: sim.SimWorld) -> None:
        await story(world, Ends(**options))

    sim.run(main)


def test_what_one_end_sends_the_other_gets_and_it_is_counted() -> None:
    async def story(world, ends: Ends) -> None:
        ends.relay.client.data_received(b"abc")
        ends.relay.broker.data_received(b"de")
        assert (ends.broker.written, ends.client.written) == ([b"abc"], [b"de"])
        assert (ends.counters.ops, ends.counters.bytes_relayed) == (2, 5)

    told(story)


def test_an_end_that_takes_nothing_stops_reading_at_the_other_alone() -> None:
    async def story(world, ends: Ends) -> None:
        ends.relay.broker.pause_writing()
        assert (ends.client.is_reading_paused, ends.broker.is_reading_paused) == (True, False)
        ends.relay.client.pause_writing()
        ends.relay.broker.resume_writing()
        assert (ends.client.is_reading_paused, ends.broker.is_reading_paused) == (False, True)
        ends.relay.client.resume_writing()
        assert not ends.broker.is_reading_paused

    told(story)


def test_what_is_not_taken_has_a_bound_over_all_relays() -> None:
    async def story(world, ends: Ends) -> None:
        ends.client.buffered_bytes = 90_000
        ends.relay.client.pause_writing()
        assert ends.room.size_bytes == 90_000
        ends.room.hold("another", 20_000, lambda: None)
        await world.sleep(1)
        assert ends.client.is_aborted
        assert ends.broker.is_aborted
        ends.room.free("another")
        assert ends.room.size_bytes == 0

    told(story)


def test_room_is_free_again_when_it_is_taken_or_an_end_is_gone() -> None:
    async def story(world, ends: Ends) -> None:
        for side, transport in ((ends.relay.client, ends.client), (ends.relay.broker, ends.broker)):
            transport.buffered_bytes = 1000
            side.pause_writing()
        assert ends.room.size_bytes == 2000
        ends.relay.client.resume_writing()
        assert ends.room.size_bytes == 1000
        ends.broker.abort()
        await world.sleep(0.1)
        assert ends.room.size_bytes == 0

    told(story)


def test_an_end_in_order_has_its_time_and_no_more() -> None:
    async def story(world, ends: Ends) -> None:
        looking = ends.relay._timer
        assert looking is not None
        ends.client.buffered_bytes = 10
        ends.relay.end("over")
        assert looking.cancelled(), "nobody looks any more"
        await world.sleep(CLOSE_GRACE_S - 0.1)
        assert not ends.client.is_aborted
        await world.sleep(0.2)
        assert ends.client.is_aborted
        assert ends.ended == ["over"]

    told(story, read_timeout_s=100)


def test_nothing_is_kept_of_ends_that_are_gone() -> None:
    async def story(world, ends: Ends) -> None:
        assert ends.client.limits == ends.broker.limits == (BUFFER_LOW_BYTES, BUFFER_HIGH_BYTES)
        ends.client.close()
        await world.sleep(0.1)
        assert ends.client._read_ready_cb is ends.broker._read_ready_cb is None
        assert ends.relay._timer is None

    told(story, read_timeout_s=100)


def test_an_end_at_its_mark_is_not_over_it() -> None:
    async def story(world, ends: Ends) -> None:
        ends.client.buffered_bytes = BUFFER_HIGH_BYTES
        ends.broker.pause_reading()
        ends.relay.go()
        assert not ends.broker.is_reading_paused

    told(story)


def test_reading_does_not_begin_while_a_buffer_is_full() -> None:
    async def story(world, ends: Ends) -> None:
        for transport in (ends.client, ends.broker):
            transport.pause_reading()
        ends.client.buffered_bytes = BUFFER_HIGH_BYTES + 1
        ends.relay.go()
        assert (ends.client.is_reading_paused, ends.broker.is_reading_paused) == (False, True)

    told(story)


def test_what_was_read_is_written_before_the_other_end_goes() -> None:
    async def story(world, ends: Ends) -> None:
        ends.client.buffered_bytes = 10
        ends.broker.close()
        await world.sleep(1)
        assert ends.client.is_closing()
        assert not ends.client.is_aborted
        assert ends.ended == []
        grace = ends.relay._timer
        ends.client.take()
        await world.sleep(1)
        assert ends.ended == ["the broker has left"]
        assert grace is not None
        assert grace.cancelled()
        assert not ends.client.is_aborted

    told(story)


def test_who_does_not_take_what_is_left_is_cut_off() -> None:
    async def story(world, ends: Ends) -> None:
        ends.broker.buffered_bytes = 10
        ends.client.close()
        await world.sleep(CLOSE_GRACE_S - 0.1)
        assert not ends.broker.is_aborted
        await world.sleep(0.2)
        assert ends.broker.is_aborted
        assert ends.ended == ["the client has left"]

    told(story)


def test_a_client_that_takes_nothing_is_cut_off_and_one_that_takes_slowly_is_not() -> None:
    async def story(world, ends: Ends) -> None:
        ends.client.buffered_bytes = 1000
        for _ in range(4):
            await world.sleep(10)
            ends.client.buffered_bytes -= 100
        assert ends.ended == []
        await world.sleep(21)
        assert ends.ended == ["the client takes nothing for brokerProxyReadTimeoutMs=10000"]

    told(story, read_timeout_s=10)


def test_the_end_comes_once_and_nothing_is_waited_for() -> None:
    async def story(world, ends: Ends) -> None:
        ends.relay.end("over", at_once=True)
        ends.relay.end("again", at_once=True)
        await world.sleep(100)
        assert ends.ended == ["over"]
        assert ends.client.is_aborted
        assert ends.broker.is_aborted
        assert asyncio.get_running_loop().time() < 200

    told(story, read_timeout_s=10)

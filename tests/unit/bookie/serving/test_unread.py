"""Answers that a bookie's clients do not take: what is kept for all of them is bounded, and those who read go on."""

from __future__ import annotations

from struct import pack

import pytest

from geminga import sim
from geminga.bookie.serving import BookieServer, limits
from geminga.bookie.serving.unread import UnreadAnswers
from geminga.bookkeeper import MemoryBookie
from geminga.sim import SimNode, SimWorld
from geminga.wire.bookkeeper import v2
from geminga.wire.bookkeeper.codes import StatusCode
from support.processes.served_bookies import KEY, Connect, pass_by, serve

MEBIBYTE = 1024 * 1024


def test_answers_that_nobody_takes_are_bounded_over_all_connections_and_others_are_served(monkeypatch):
    """30 clients that read nothing held an answer each, and a mebibyte: of 10,000 there would be as many."""
    monkeypatch.setattr(limits, "UNREAD_BYTES_MAX", 8 * MEBIBYTE)
    size = MEBIBYTE
    entry = pack(">qqqq", 5, 0, -1, size) + b"x" * size

    async def main(_: MemoryBookie, server: BookieServer, connect: Connect) -> None:
        honest = await connect(2)
        (added,) = await honest.ask(v2.encode_add(KEY, entry, recovery=False))
        assert added.status == StatusCode.EOK
        strangers = [await connect(2) for _ in range(30)]
        for number, stranger in enumerate(strangers):
            stranger.transport.pause_reading()
            # Some wait for the turns of others, some do not.
            stranger.transport.write(v2.encode_read(5, 0, high_priority=number % 2 == 1) * 5)
        most = 0
        for _ in range(10):
            await pass_by(0.05)
            most = max(most, sum(connection.unread_bytes for connection in server.connections))
        assert most > 8 * MEBIBYTE
        assert most <= 8 * MEBIBYTE + (limits.GROUPS_MAX + limits.PROMPT_UNDER_WAY_MAX + 1) * size
        (answer,) = await honest.ask(v2.encode_read(5, 0))
        assert len(answer.entry) == len(entry)
        await pass_by(60 * limits.UNREAD_STALL_S)
        assert sum(connection.unread_bytes for connection in server.connections) <= 8 * MEBIBYTE
        assert len(server.connections) < len(strangers)
        # A client that reads on is none of them.
        assert not honest.is_lost
        for stranger in strangers:
            stranger.transport.abort()
        await pass_by(1)
        assert server.unread.size_bytes == server.unanswered_bytes == 0

    serve(main)


class Taker:
    """A client that takes so many bytes of its answers a second."""

    def __init__(self, unread_bytes: int, bytes_s: int) -> None:
        self.unread_bytes = unread_bytes
        self.bytes_s = bytes_s
        self.is_aborted = False

    def abort(self, reason: str = "") -> None:
        self.is_aborted = True


@pytest.mark.parametrize(("bytes_s", "is_cut_off"), [(0, True), (4, True), (10_000, True), (200_000, False)])
def test_who_takes_next_to_nothing_does_not_keep_others_from_their_reads(bytes_s: int, is_cut_off: bool):
    """A byte now and then kept the reads of everybody else standing still, for as long as it came."""

    async def in_node(node: SimNode) -> None:
        room: list[float] = []
        unread = UnreadAnswers(lambda: room.append(node.runtime.clock.monotonic()))
        # Who has little, and takes all of it, is none of them.
        small = Taker(300, 0)
        takers = [Taker(6 * MEBIBYTE, bytes_s) for _ in range(12)]
        for taker in takers:
            unread.wrote(taker, taker.unread_bytes, taker.unread_bytes)
        assert unread.is_full
        for _ in range(4 * 5):
            unread.wrote(small, 300, small.unread_bytes)
            await pass_by(limits.UNREAD_LOOK_S)
            for taker in takers:
                taker.unread_bytes -= taker.bytes_s // 4
        assert any(taker.is_aborted for taker in takers) is is_cut_off
        assert unread.is_full is not is_cut_off
        assert bool(room) is is_cut_off
        assert not small.is_aborted
        # No more of them than it takes.
        assert sum(taker.is_aborted for taker in takers) in (range(6, 8) if is_cut_off else range(1))
        unread.close()

    async def scenario(world: SimWorld) -> None:
        await world.node("bookie").run(in_node)

    sim.run(scenario, seed=7)

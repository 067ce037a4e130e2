"""Answers that a bookie's clients do not take: what is kept for all of them is bounded, and those who read go on."""

from __future__ import annotations

from struct import pack

from geminga.bookie.serving import BookieServer, limits
from geminga.bookkeeper import MemoryBookie
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

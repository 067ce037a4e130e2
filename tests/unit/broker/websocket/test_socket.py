"""One WebSocket over a pipe in memory, a public library's client half at its other end; time is told to it."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import struct
from collections.abc import Awaitable, Callable

import pytest
import uvloop
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

from geminga.broker.websocket.socket import (
    CLOSE_S_MAX,
    MESSAGE_S_MAX,
    STALLED_S_MAX,
    SharedRoom,
    SocketLimits,
    Upgrade,
    WebSocket,
)
from geminga.runtime import next_turn, wait_ms
from geminga.runtime.frame_room import FrameRoom, UnreadResponses
from support.worlds.web_sockets import LIMITS, Heard, Line


def run(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(story())  # type: ignore[arg-type]


async def opened(limits: SocketLimits = LIMITS, *, compresses: bool = False, room_bytes: int = 1 << 20) -> Line:
    line = Line(limits, compresses=compresses, room_bytes=room_bytes)
    await line.settle()
    return line


async def two_half_messages() -> tuple[Line, Line]:
    """Two sockets of one broker, and most of a message for each: there is room for one of them."""
    first, second = await opened(room_bytes=100_000), Line()
    second.socket._room = first.socket._room
    for line in (first, second):
        line.peer.protocol.send_text(b"x" * 90_000, fin=False)
        await line.deliver()
    return first, second


@pytest.mark.parametrize("compresses", [False, True])
def test_texts_go_both_ways(compresses: bool) -> None:
    async def story() -> None:
        line = await opened(compresses=compresses)
        texts = ["", "é" * 100, "x" * 50_000]
        for text in texts:
            line.peer.say(text)
            line.socket.send(text)
        await line.settle()
        assert line.heard.texts == texts
        assert line.peer.texts == texts
        assert line.peer.protocol.extensions == [] or compresses

    run(story)


def test_what_goes_through_is_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        line = await opened()
        line.peer.say("from the peer")
        line.socket.send("to the peer")
        await line.settle()

    with caplog.at_level(logging.DEBUG):
        run(story)
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith("websockets.client")]
    assert not [text for text in ours if "the peer" in text or "Sec-WebSocket" in text]


def test_a_message_in_pieces_is_one() -> None:
    async def story() -> None:
        line = await opened()
        protocol = line.peer.protocol
        protocol.send_text("é".encode()[:1], fin=False)
        protocol.send_ping(b"between")
        for _ in range(1000):
            protocol.send_continuation(b"", fin=False)
        protocol.send_continuation("é".encode()[1:], fin=True)
        await line.deliver()
        assert line.heard.texts == ["é"]
        assert [bytes(one.data) for one in line.peer.frames if one.opcode is Opcode.PONG] == [b"between"]
        protocol.send_text(b"an", fin=False)
        protocol.send_continuation(b"other", fin=True)
        await line.deliver()
        assert line.heard.texts == ["é", "another"]

    run(story)


@pytest.mark.parametrize(
    ("send", "code"),
    [
        (lambda protocol: protocol.send_binary(b"x"), 1003),
        (lambda protocol: protocol.send_text(b"\xff"), 1007),
        (lambda protocol: protocol.send_text(b"x" * 100_001), 1009),
        (lambda protocol: protocol.send_frame(Frame(Opcode.CONT, b"x")), 1002),
    ],
)
def test_what_can_not_be_ends_it_with_a_code(send: Callable[[ClientProtocol], None], code: int) -> None:
    async def story() -> None:
        line = await opened()
        send(line.peer.protocol)
        await line.deliver()
        assert line.heard.texts == []
        assert line.heard.is_lost
        assert line.peer.close_code == code

    run(story)


def test_what_a_few_bytes_inflate_to_is_bounded() -> None:
    async def story() -> None:
        line = await opened(compresses=True)
        line.peer.say("x" * 100_000)
        await line.settle()
        assert len(line.heard.texts[0]) == 100_000
        line.peer.say("x" * 100_001)
        await line.settle()
        assert len(line.heard.texts) == 1
        assert line.peer.close_code == 1009

    run(story)


def test_who_has_enough_gets_what_few_bytes_brought_and_the_rest_later(monkeypatch: pytest.MonkeyPatch) -> None:
    # On a slow machine the end of a turn would hold back what the hold has to.
    monkeypatch.setattr("geminga.broker.websocket.socket.TURN_S_MAX", 3600.0)

    async def story() -> None:
        line = await opened(compresses=True)
        line.heard.then = lambda _: line.socket.hold()
        for number in range(100):
            line.peer.protocol.send_text(json.dumps({"number": number, "rest": "x" * 90_000}).encode())
        line.peer.transport.write(b"".join(line.peer.protocol.data_to_send()))
        await line.settle()
        held = len(line.heard.texts)
        # Each took some 130 bytes on the wire: all of them came with one read.
        assert 0 < held < 99
        line.heard.then = lambda _: None
        line.socket.free()
        await line.settle(400)
        assert [json.loads(text)["number"] for text in line.heard.texts] == list(range(100))

    run(story)


def test_a_peer_that_does_not_read_is_not_read() -> None:
    async def story() -> None:
        line = await opened()
        line.peer.transport.pause_reading()
        assert line.socket.is_writable
        line.socket.send("x" * 80_000)
        assert not line.socket.is_writable
        line.peer.say("later")
        await line.settle()
        assert line.heard.texts == []
        line.peer.transport.resume_reading()
        await line.settle()
        assert line.heard.texts == ["later"]
        assert line.heard.writable_count == 1
        assert line.socket.is_writable

    run(story)


def test_a_peer_that_never_reads_is_cut_off() -> None:
    async def story() -> None:
        line = await opened()
        line.peer.transport.pause_reading()
        line.socket.send("x" * 80_000)
        line.look(0)
        line.look(STALLED_S_MAX - 1)
        assert not line.heard.is_lost
        line.look(STALLED_S_MAX + 1)
        await line.settle()
        assert line.heard.is_lost
        assert line.lost == [line.socket]

    run(story)


def test_silence_ends_it() -> None:
    async def story() -> None:
        line = await opened(SocketLimits(1000, idle_s=300.0, ping_s=0.0))
        line.look(299)
        assert line.socket.is_open
        line.look(301)
        await line.settle()
        assert line.heard.is_lost
        assert line.peer.protocol.close_rcvd is not None
        assert (line.peer.protocol.close_rcvd.code, line.peer.protocol.close_rcvd.reason) == (1001, "Idle Timeout")

    run(story)


def test_who_is_sent_something_is_not_silent() -> None:
    async def story() -> None:
        line = await opened()
        for after_s in (290, 580, 870):
            line.socket.send("x")
            await line.settle()
            line.look(after_s)
        assert line.socket.is_open
        line.look(870 + 301)
        assert not line.socket.is_open

    run(story)


def test_pings_go_out_as_often_as_is_set() -> None:
    async def story() -> None:
        line = await opened(SocketLimits(1000, idle_s=0.0, ping_s=30.0))
        for after_s in (10, 31, 40, 62, 70):
            line.look(after_s)
        await line.settle()
        assert [bytes(one.data) for one in line.peer.frames if one.opcode is Opcode.PING] == [b"PING", b"PING"]

    run(story)


def test_who_is_not_read_is_pinged_instead_of_ended_for_silence() -> None:
    async def story() -> None:
        line = await opened(SocketLimits(1000, idle_s=300.0, ping_s=0.0))
        line.socket.hold()
        for after_s in (299, 301, 302, 600, 602):
            line.look(after_s)
            await line.settle()
        assert line.socket.is_open
        assert [one.opcode for one in line.peer.frames] == [Opcode.PING, Opcode.PING]
        line.socket.free()
        line.socket.send("stored")
        await line.settle()
        line.look(603)
        line.look(902)
        assert line.socket.is_open
        await line.settle()
        assert len(line.peer.frames) == 3

    run(story)


@pytest.mark.parametrize("loop", [uvloop.new_event_loop, asyncio.new_event_loop])
@pytest.mark.parametrize("how", ["closes", "resets"])
def test_peer_that_went_while_it_was_not_read_is_noticed(
    how: str, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """The kernel tells of it to who reads or writes; a topic that is full holds its publishers for as long as it is."""

    async def story() -> None:
        heard, limits = Heard(), SocketLimits(1000, idle_s=300.0, ping_s=0.0)
        made: list[WebSocket] = []
        request = ClientProtocol(parse_uri("ws://localhost/ws")).connect()
        room = SharedRoom(limits, FrameRoom(lambda: 0.0, 1 << 20), UnreadResponses(1 << 20))
        begin_s = asyncio.get_running_loop().time()

        def accept() -> WebSocket:
            made.append(WebSocket(Upgrade(request.headers.raw_items(), limits), room, heard, lambda _: None, begin_s))
            return made[-1]

        server = await asyncio.get_running_loop().create_server(accept, "127.0.0.1", 0)
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        while not made:
            await next_turn()
        made[0].hold()
        if how == "resets":
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.close()
        await writer.wait_closed()
        # Of who has closed the kernel learns from the answer to the first ping.
        for looks in range(1, 1000):
            made[0].look(begin_s + 301 * looks)
            await wait_ms(1)
            if heard.is_lost:
                break
        is_noticed = heard.is_lost
        made[0].abort()
        server.close()
        await server.wait_closed()
        assert is_noticed

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(story())


def test_half_a_message_has_a_deadline_while_it_is_read() -> None:
    async def story() -> None:
        line = await opened()
        line.peer.protocol.send_text(b"half", fin=False)
        await line.deliver()
        line.look(MESSAGE_S_MAX - 1)
        assert line.socket.is_open
        line.look(MESSAGE_S_MAX + 1)
        await line.settle()
        assert line.heard.is_lost
        assert line.peer.close_code == 1008

    run(story)


def test_half_messages_share_room_and_wait_for_it() -> None:
    async def story() -> None:
        first, second = await two_half_messages()
        assert first.socket.is_heard
        assert not second.socket.is_heard
        first.peer.protocol.send_continuation(b"end", fin=True)
        await first.deliver()
        assert len(first.heard.texts[0]) == 90_003
        assert second.socket.is_heard
        second.peer.protocol.send_continuation(b"", fin=True)
        await second.deliver()
        assert len(second.heard.texts[0]) == 90_000
        first.room.halves.close()

    run(story)


def test_a_message_that_ends_with_the_next_ones_begin_gives_its_room_back() -> None:
    async def story() -> None:
        first, second = await two_half_messages()
        assert not second.socket.is_heard
        first.peer.protocol.send_continuation(b"end", fin=True)
        first.peer.protocol.send_text(b"next", fin=False)
        first.peer.transport.write(b"".join(first.peer.protocol.data_to_send()))
        await first.settle()
        assert [len(text) for text in first.heard.texts] == [90_003]
        assert second.socket.is_heard
        first.room.halves.close()

    run(story)


def test_a_close_is_answered_and_everything_above_is_let_go() -> None:
    async def story() -> None:
        line = await opened()
        line.peer.protocol.send_close(1000, "enough")
        await line.deliver()
        assert line.heard.is_lost
        assert line.peer.is_lost
        assert line.peer.protocol.close_rcvd is not None
        assert line.lost == [line.socket]

    run(story)


def test_a_close_between_the_pieces_of_a_message_is_answered_as_any_other() -> None:
    # Autobahn's case 7.1.5; the library takes it for an error of the protocol, 1002.
    async def story() -> None:
        line = await opened()
        line.peer.protocol.send_text(b"fragment", fin=False)
        await line.deliver()
        line.peer.transport.write(Frame(Opcode.CLOSE, (1000).to_bytes(2, "big")).serialize(mask=True))
        await line.settle()
        assert line.heard.is_lost
        assert line.heard.texts == []
        assert line.peer.close_code == 1000
        assert line.lost == [line.socket]

    run(story)


def test_who_does_not_answer_a_close_is_cut_off() -> None:
    async def story() -> None:
        line = await opened()
        line.peer.transport.pause_reading()
        line.socket.close(4008, "Unknown error")
        assert line.heard.is_lost
        line.look(CLOSE_S_MAX - 1)
        await line.settle()
        assert line.lost == []
        line.look(CLOSE_S_MAX + 1)
        await line.settle()
        assert line.lost == [line.socket]

    run(story)


def test_nothing_goes_up_or_out_behind_a_close() -> None:
    async def story() -> None:
        line = await opened()
        line.socket.close(4008, "Unknown error")
        line.peer.say("late")
        line.socket.send("late")
        await line.settle()
        assert line.heard.texts == []
        assert line.peer.texts == []
        assert line.peer.protocol.state is State.CLOSED or line.peer.is_lost

    run(story)


def test_all_unread_bytes_together_have_a_limit() -> None:
    async def story() -> None:
        lines = [Line() for _ in range(3)]
        shared = lines[0].socket._room
        for line in lines:
            line.socket._room = shared
            await line.settle()
            line.peer.transport.pause_reading()
            line.socket.send("x" * 500_000)
            await line.settle()
        # The first is behind for longest; of what is left there is room.
        assert [line.heard.is_lost for line in lines] == [True, False, False]

    run(story)


def test_a_request_that_is_none_is_refused() -> None:
    assert Upgrade([("Host", "x")], LIMITS).refusal is not None
    keyless = Upgrade([("Host", "x"), ("Connection", "Upgrade"), ("Upgrade", "websocket")], LIMITS)
    status, reason = keyless.refusal or (0, "")
    assert status == 400
    assert "Sec-WebSocket-Key" in reason

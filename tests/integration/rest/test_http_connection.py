"""HTTP connections that take too long, are too many, or come when the software can not be loaded."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import select
import socket
import threading
from collections.abc import Callable

import pytest

from geminga import Standalone
from geminga.app.lifecycle.event_loop import loop_factory
from geminga.broker.rest.calls.core.timeouts import TimeoutLimits
from geminga.broker.rest.http import server as rest_server
from geminga.broker.rest.http.server import UNAVAILABLE, HttpServer
from geminga.runtime import Runtime, frame_room, next_turn, real_runtime
from support.house.real_runtimes import close_runtime
from support.house.waiting import until

pytestmark = pytest.mark.integration


def all_that_comes(connection: socket.socket) -> bytes:
    received = b""
    try:
        while chunk := connection.recv(65536):
            received += chunk
    except ConnectionError:
        pass
    return received


def test_clients_that_take_too_long_are_told_and_closed() -> None:
    settings = {"gemingaHandshakeTimeoutSeconds": 1, "gemingaHttpBodyTimeoutSeconds": 1}
    get = b"GET /admin/v2/clusters HTTP/1.1\r\nHost: localhost\r\n"
    put = b"PUT /admin/v2/tenants/slow HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
    with Standalone(config=settings) as broker:
        made = [socket.create_connection(("127.0.0.1", broker.web_port), timeout=20) for _ in range(5)]
        _silent, half, dribbling, half_body, second = made
        half.sendall(get)
        dribbling.sendall(get)
        half_body.sendall(put)
        second.sendall(get + b"\r\n" + get)
        ended = threading.Event()
        dribbler = threading.Thread(target=dribble, args=(dribbling, ended))
        dribbler.start()
        answers = [all_that_comes(connection) for connection in made]
        ended.set()
        dribbler.join()
        assert all(answer.startswith(b"HTTP/1.1 408") for answer in answers[:4]), answers
        assert answers[4].startswith(b"HTTP/1.1 200")
        assert b"HTTP/1.1 408" in answers[4]
        for connection in made:
            connection.close()


def dribble(connection: socket.socket, ended: threading.Event) -> None:
    """A header line that never ends."""
    try:
        while not ended.wait(0.1):
            connection.sendall(b"x")
    except OSError:
        pass


async def _application(scope, receive, send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


def serve(load: Callable[[], object], story: Callable[[int], None], **options) -> None:
    """Run ``story(port)`` on a thread, against a server of ``load``'s application."""

    def fail(part: str, error: BaseException) -> None:
        raise AssertionError(part) from error

    async def main() -> None:
        runtime: Runtime = real_runtime(fail)
        server = HttpServer(
            runtime,
            load,
            own_names=lambda: ["x"],
            **{"requests_max": 100, "connections_max": 100, "limits": TimeoutLimits(10, 10, 10), **options},
        )
        port = await server.listen("127.0.0.1", 0)
        await server.start()
        try:
            await asyncio.to_thread(story, port)
        finally:
            await server.close()
            await close_runtime(runtime)

    asyncio.run(asyncio.wait_for(main(), 60))


def asked(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return all_that_comes(connection)


def test_requests_that_are_none_are_one_line_of_the_log(caplog) -> None:
    """Anybody can send them as often as he likes; found by ``python -m tools.attack http``."""

    def story(port: int) -> None:
        for data in (b"GET / HTTP/1.1\r\nhost : x\r\n\r\n", b"\0\0 / HTTP/1.1\r\n\r\n") * 5:
            with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
                connection.sendall(data)
                assert all_that_comes(connection).startswith(b"HTTP/1.1 400 ")
        asked(port)

    serve(lambda: _application, story)
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert lines == ["Invalid HTTP request received."]


def test_answer_that_nobody_reads_is_dropped() -> None:
    size_bytes = 64 << 20
    dropped = threading.Event()

    async def application(scope, receive, send) -> None:
        headers = [(b"content-length", str(size_bytes).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": bytes(size_bytes), "more_body": True})
        await receive()
        dropped.set()

    def story(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert dropped.wait(20)
            assert len(all_that_comes(connection)) < size_bytes

    serve(lambda: application, story, limits=TimeoutLimits(10, 10, 0.2))


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "Too many open files"), ImportError("no"), MemoryError()])
def test_software_that_can_not_be_loaded_now_is_loaded_for_a_later_request(error: Exception) -> None:
    failures = [error, error]

    def load():
        if failures:
            raise failures.pop()
        return _application

    def story(port: int) -> None:
        assert asked(port) == UNAVAILABLE
        assert asked(port) == UNAVAILABLE
        assert asked(port).endswith(b"ok")

    serve(load, story)


def answered(connection: socket.socket) -> bool:
    """Whether the whole answer of the application came."""
    received = b""
    while not received.endswith(b"ok"):
        chunk = connection.recv(65536)
        if not chunk:
            return False
        received += chunk
    return received.startswith(b"HTTP/1.1 200")


def test_idle_connections_make_room_and_busy_ones_do_not() -> None:
    def story(port: int) -> None:
        def connected() -> socket.socket:
            return socket.create_connection(("127.0.0.1", port), timeout=20)

        request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
        with connected() as idle, connected() as half:
            half.sendall(request[:-2])
            idle.sendall(request)
            assert answered(idle)
            with connected() as third:
                third.sendall(request[:-2])
                assert all_that_comes(idle) == b""
                # Two half requests now.
                assert asked(port) == UNAVAILABLE
                half.sendall(request[-2:])
                third.sendall(request[-2:])
                assert answered(half)
                assert answered(third)

    serve(lambda: _application, story, connections_max=2)


MEBIBYTE = 1 << 20
BODY_BYTES = 4 * MEBIBYTE


async def _reader(scope, receive, send) -> None:
    """Reads the body, and says how long it is."""
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size += len(message["body"])
        if not message.get("more_body"):
            break
    body = str(size).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


def body_of(size_bytes: int, *, is_chunked: bool = False) -> bytes:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    if is_chunked:
        return head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % size_bytes + b"x" * size_bytes + b"\r\n0\r\n\r\n"
    return head + b"Content-Length: %d\r\n\r\n" % size_bytes + b"x" * size_bytes


def send_what_is_taken(left: dict[socket.socket, memoryview]) -> None:
    """Until nothing more is for a while; ``left`` is what is not."""
    while writable := select.select([], [connection for connection, body in left.items() if body], [], 0.3)[1]:
        for connection in writable:
            left[connection] = left[connection][connection.send(left[connection][:65536]) :]


def test_unfinished_bodies_of_all_connections_have_one_bound_and_others_are_served(monkeypatch) -> None:
    """As many bytes as there is room for, and one read of each who waits; who keeps others waiting is sent away."""
    monkeypatch.setattr(rest_server, "BODIES_BYTES_MAX", 2 * BODY_BYTES)
    monkeypatch.setattr(frame_room, "STALL_S", 0.3)
    taken: dict[object, int] = {}
    most = 0

    async def application(scope, receive, send) -> None:
        async def counted():
            nonlocal most
            message = await receive()
            taken[id(scope)] = taken.get(id(scope), 0) + len(message.get("body", b""))
            most = max(most, sum(taken.values()))
            return message

        await _reader(scope, counted, send)
        taken.pop(id(scope), None)

    def story(port: int) -> None:
        with contextlib.ExitStack() as stack:
            strangers = {}
            for number in range(6):
                connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
                connection.setblocking(False)
                strangers[connection] = memoryview(body_of(BODY_BYTES, is_chunked=number % 2 == 1))[:-1000]
            send_what_is_taken(strangers)
            assert asked(port).endswith(b"0"), "no body needs no room"
            with socket.create_connection(("127.0.0.1", port), timeout=20) as honest:
                honest.sendall(body_of(BODY_BYTES))
                assert all_that_comes(honest).endswith(str(BODY_BYTES).encode())
            assert most <= 2 * BODY_BYTES + 6 * 320 * 1024
            assert min(len(body) for body in strangers.values()) == 0, "those with room sent all"

    serve(lambda: application, story, body_bytes_max=BODY_BYTES)


def test_body_of_a_request_that_was_answered_before_takes_no_room(monkeypatch) -> None:
    """Bodies that ended behind their answers kept their room as long as the connection stayed: in the end all of it."""
    monkeypatch.setattr(rest_server, "BODIES_BYTES_MAX", 2 * BODY_BYTES)

    def story(port: int) -> None:
        with contextlib.ExitStack() as stack:
            for _ in range(4):
                connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
                for _ in range(2):
                    connection.sendall(body_of(BODY_BYTES).replace(b"Connection: close\r\n", b""))
                    assert answered(connection)

    serve(lambda: _application, story, body_bytes_max=BODY_BYTES)


def test_answers_that_nobody_reads_have_one_bound_over_all_connections(monkeypatch) -> None:
    """Who is behind for longest is cut off, long before its time is over; the newest is served."""
    monkeypatch.setattr(rest_server, "UNREAD_BYTES_MAX", 30 * MEBIBYTE)
    begun: list[None] = []
    size_bytes = 16 * MEBIBYTE

    async def application(scope, receive, send) -> None:
        headers = [(b"content-length", str(size_bytes).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": bytes(size_bytes)})
        begun.append(None)

    def story(port: int) -> None:
        with contextlib.ExitStack() as stack:
            readers = []
            for count in range(1, 5):
                readers.append(stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20)))
                readers[-1].sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                until(lambda count=count: len(begun) == count, "it is answered")
            sizes = [len(all_that_comes(reader)) for reader in reversed(readers)]
            assert sizes[0] > size_bytes
            assert sizes[-1] < size_bytes, "the first one's answer was kept"

    serve(lambda: application, story)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_who_comes_before_the_software_is_not_read_on_where_there_is_no_room(loop) -> None:
    """uvloop begins to read behind ``connection_made``; 525 bodies that came so were 3 GB, for reading went on."""
    if loop == "uvloop":
        pytest.importorskip("uvloop")

    class Full(asyncio.Protocol):
        """Has no room for more, once something came."""

        taken = 0

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            self.taken += len(data)
            self.transport.pause_reading()

    async def main() -> None:
        running = asyncio.get_running_loop()
        server = HttpServer(
            real_runtime(lambda *_: None),
            _application,
            requests_max=1,
            connections_max=1,
            limits=TimeoutLimits(10, 10, 10),
            own_names=tuple,
        )
        ours, theirs = socket.socketpair()
        waiting = rest_server._WaitingConnection(server, server._now_s(), None)
        transport, _ = await running.connect_accepted_socket(lambda: waiting, ours)
        theirs.setblocking(False)
        full = Full()
        for turn in range(60):
            with contextlib.suppress(BlockingIOError):
                theirs.send(b"x" * 65_536)
            await next_turn()
            if turn == 30:
                assert not transport.is_closing(), "it sent too much, for it was read"
                waiting.hand_over(full)
        assert 0 < full.taken <= rest_server.EARLY_BYTES_MAX
        assert not transport.is_reading()
        transport.abort()
        theirs.close()
        await next_turn()

    with asyncio.Runner(loop_factory=loop_factory(loop)) as runner:
        runner.run(main())

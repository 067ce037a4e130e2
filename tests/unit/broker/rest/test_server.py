"""What the server itself takes is not the client's: loading, a loop that stands still, an application that waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

import pytest

from geminga.broker.rest.calls.core.timeouts import TimeoutLimits
from geminga.broker.rest.http.server import EARLY_BYTES_MAX, LOADING_S_MAX, UNAVAILABLE, HttpFront, HttpServer
from geminga.runtime import real_runtime, wait_ms
from geminga.sim import run
from geminga.sim.node import SimNode
from geminga.sim.world import SimWorld
from support.house.real_runtimes import close_runtime

GET: Final = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
LIMITS: Final = TimeoutLimits(10, 10, 10)


class HeldThreads:
    """A lane whose calls are done when the test lets them."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    def call(self, lane: str, function: Callable[[], object]) -> Awaitable[object]:
        async def held() -> object:
            await self.go.wait()
            return function()

        return held()

    def submit(self, lane: str, function: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        raise AssertionError("nobody does that here")

    async def close(self) -> None:
        raise AssertionError("nobody does that here")


class Client:
    """A node that sends bytes and reads what comes."""

    def __init__(self, reader: asyncio.StreamReader, transport: asyncio.Transport) -> None:
        self._reader, self._transport = reader, transport

    @classmethod
    async def connected(cls, world: SimWorld, port: int, name: str = "client") -> Client:
        reader = asyncio.StreamReader()
        transport, _ = await world.node(name).runtime.network.connect(
            lambda: asyncio.StreamReaderProtocol(reader), "server", port
        )
        return cls(reader, transport)

    def send(self, data: bytes) -> None:
        self._transport.write(data)

    async def answer(self) -> bytes:
        """All that comes until the connection is closed."""
        return await self._reader.read()


async def ok(scope, receive, send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


def serving(story: Callable[[SimWorld, SimNode, HttpServer, int, HeldThreads], Awaitable[None]], app=ok, **options):
    """Run ``story`` against a server of ``app`` on the node ``server``."""

    async def main(world: SimWorld) -> None:
        node = world.node("server")
        node.start()
        threads = HeldThreads()
        server = HttpServer(
            replace(node.runtime, threads=threads),
            lambda: app,
            **{"requests_max": 100, "connections_max": 100, "limits": LIMITS, "own_names": tuple, **options},
        )

        async def serve(_: SimNode) -> int:
            port = await server.listen("server", 8080)
            await server.start()
            return port

        port = await node.run(serve)
        await story(world, node, server, port, threads)
        await node.run(lambda _: server.close())

    run(main, seed=1)


def test_request_is_served_however_long_the_software_took_to_load() -> None:
    async def story(world, node, server, port, threads) -> None:
        client = await Client.connected(world, port)
        client.send(GET)
        await world.sleep(LIMITS.head_s * 3)
        threads.go.set()
        assert (await client.answer()).endswith(b"ok")

    serving(story)


def test_who_waits_too_long_for_the_software_is_told_to_come_back_and_loading_goes_on() -> None:
    async def story(world, node, server, port, threads) -> None:
        client = await Client.connected(world, port)
        client.send(GET)
        began_s = world.now
        assert await client.answer() == UNAVAILABLE
        assert LOADING_S_MAX <= world.now - began_s < LOADING_S_MAX + 5
        assert b"retry-after:" in UNAVAILABLE
        threads.go.set()
        client = await Client.connected(world, port, "later")
        client.send(GET)
        assert (await client.answer()).endswith(b"ok")

    serving(story)


def test_request_that_came_while_the_loop_stood_still_is_served() -> None:
    async def story(world, node, server, port, threads) -> None:
        threads.go.set()
        client = await Client.connected(world, port)
        client.send(GET[:-2])
        await world.sleep(LIMITS.head_s / 2)
        # As in a container that gets no processor.
        world.pause(node, LIMITS.head_s * 2)
        await world.sleep(LIMITS.head_s * 2 + 0.1)
        client.send(GET[-2:])
        assert (await client.answer()).endswith(b"ok")

    serving(story)


def test_half_a_request_is_ended_when_the_client_had_its_time() -> None:
    async def story(world, node, server, port, threads) -> None:
        threads.go.set()
        client = await Client.connected(world, port)
        client.send(GET[:-2])
        began_s = world.now
        assert (await client.answer()).startswith(b"HTTP/1.1 408")
        assert LIMITS.head_s <= world.now - began_s < LIMITS.head_s + 3

    serving(story)


@pytest.mark.parametrize(
    ("head", "body_bytes"), [(b"Content-Length: 300000", 300_000), (b"Content-Length: 9\r\nExpect: 100-continue", 9)]
)
def test_body_that_the_application_does_not_read_yet_is_not_late(head: bytes, body_bytes: int) -> None:
    async def story(world, node, server, port, threads) -> None:
        threads.go.set()
        client = await Client.connected(world, port)
        client.send(b"PUT / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + head + b"\r\n\r\n")
        if body_bytes > 9:
            client.send(bytes(body_bytes))
        await world.sleep(LIMITS.body_s * 3)
        loaded.set()
        if body_bytes > 9:
            assert (await client.answer()).endswith(b"ok")
        else:
            # The leave to send comes when the application asks for the body.
            assert (await client._reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
            client.send(bytes(body_bytes))
            assert (await client.answer()).endswith(b"ok")

    loaded = asyncio.Event()

    async def late(scope, receive, send) -> None:
        # As where the rows that answer are still loaded.
        await loaded.wait()
        left = True
        while left:
            left = (await receive()).get("more_body", False)
        await ok(scope, receive, send)

    serving(story, late)


def test_requests_beyond_the_bound_are_told_to_come_back() -> None:
    held = asyncio.Event()

    async def slow(scope, receive, send) -> None:
        await held.wait()
        await ok(scope, receive, send)

    async def story(world, node, server, port, threads) -> None:
        threads.go.set()
        first = await Client.connected(world, port, "first")
        first.send(GET)
        await world.sleep(1)
        second = await Client.connected(world, port, "second")
        second.send(GET)
        answer = await second.answer()
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"retry-after: 5" in answer
        assert b"1 HTTP requests are under way" in answer
        held.set()
        assert (await first.answer()).endswith(b"ok")

    serving(story, slow, requests_max=1)


def test_who_waits_for_the_software_when_the_server_stops_is_told_so() -> None:
    async def story(world, node, server, port, threads) -> None:
        client = await Client.connected(world, port)
        client.send(GET)
        await world.sleep(1)
        await node.run(lambda _: server.close())
        assert await client.answer() == UNAVAILABLE

    serving(story)


async def whence(scope, receive, send) -> None:
    body = repr(tuple(scope["client"])).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


def test_the_proxy_header_says_where_a_connection_came_from() -> None:
    async def told(port: int, header: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(header + GET)
        whole = await reader.read()
        writer.close()
        return whole.rpartition(b"\r\n\r\n")[2]

    async def main() -> None:
        runtime = real_runtime(lambda part, error: pytest.fail(f"{part}: {error}"))
        server = HttpServer(
            runtime,
            lambda: whence,
            requests_max=100,
            connections_max=100,
            limits=LIMITS,
            own_names=tuple,
            front=HttpFront(has_source_header=True),
        )
        port = await server.listen("127.0.0.1", 0)
        await server.start()
        header = b"PROXY TCP4 192.0.2.7 10.0.0.1 51234 8080\r\n"
        # The first two come before the software.
        first = await asyncio.gather(told(port, header), told(port, b""))
        for from_header, without in (first, (await told(port, header), await told(port, b""))):
            assert from_header == b"('192.0.2.7', 51234)"
            assert without.startswith(b"('127.0.0.1', ")
        await server.close()
        await close_runtime(runtime)

    asyncio.run(main())


class Lingering(asyncio.Transport):
    """One of TLS whose peer does not answer the goodbye: closed, it is there for as long as the loop waits."""

    def __init__(self) -> None:
        super().__init__()
        self.did: list[str] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.did.append(f"write {bytes(data)[:12]!r}")

    def close(self) -> None:
        self.did.append("close")

    def abort(self) -> None:
        self.did.append("abort")


def test_connection_that_is_refused_does_not_stay_because_its_peer_says_nothing() -> None:
    """It counts among none, and one of TLS takes 300 KiB: the loop would wait 30 s for the peer's goodbye."""

    async def main(world: SimWorld) -> None:
        async def serve(node: SimNode) -> None:
            server = HttpServer(
                node.runtime, lambda: None, requests_max=1, connections_max=0, limits=LIMITS, own_names=tuple
            )
            transport = Lingering()
            refused = server._protocol()
            refused.connection_made(transport)
            assert transport.did == ["write b'HTTP/1.1 503'", "close"]
            await wait_ms(2000)
            assert transport.did[2:] == ["abort"]
            refused.connection_lost(None)
            gone = Lingering()
            refused = server._protocol()
            refused.connection_made(gone)
            refused.connection_lost(None)
            await wait_ms(2000)
            assert "abort" not in gone.did

        await world.node("server").run(serve)

    run(main)


def test_connection_that_waits_for_the_software_lets_go_and_is_cut_off_when_it_sends_much() -> None:
    class Selected(Lingering):
        """As one of asyncio's selector loops, which keeps a method of its own."""

        def __init__(self) -> None:
            super().__init__()
            self._read_ready_cb: object = self.close

        def pause_reading(self) -> None:
            self.did.append("pause")

    async def story(world, node, server, port, threads) -> None:
        async def too_much(_: SimNode) -> None:
            transport, waiting = Selected(), server._protocol()
            waiting.connection_made(transport)
            waiting.data_received(b"x" * EARLY_BYTES_MAX)
            assert "abort" not in transport.did
            waiting.data_received(b"x")
            assert transport.did[-1] == "abort"
            waiting.connection_lost(None)

        async def connected_and_lost(_: SimNode) -> None:
            transport, waiting = Selected(), server._protocol()
            waiting.connection_made(transport)
            waiting.connection_lost(None)
            assert (transport._read_ready_cb, server._waiting) == (None, [])

        await node.run(connected_and_lost)
        await node.run(too_much)
        threads.go.set()

    serving(story)

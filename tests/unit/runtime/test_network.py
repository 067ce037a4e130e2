"""Accepting on the system's own network: without descriptors it pauses and goes on; ports of names."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys

import pytest

from geminga.app.lifecycle.event_loop import loop_factory
from geminga.runtime import AsyncioNetwork, descriptor_limit
from geminga.runtime.network import AsyncioListener
from geminga.runtime.spawn import set_fatal_handler

#: Under a limit of descriptors that its own clients use up; prints how many of the clients were answered in the end.
NO_DESCRIPTOR_LEFT = """
import asyncio, logging, os, resource, socket, sys
from geminga.app.lifecycle.event_loop import loop_factory
from geminga.runtime import AsyncioNetwork

class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
    def data_received(self, data):
        self.transport.write(data)
        self.transport.close()

async def main():
    loop = asyncio.get_running_loop()
    listener = await AsyncioNetwork().listen(Echo, "127.0.0.1", 0)
    clients = []
    for _ in range(3):
        clients.append(socket.socket())
    ballast = [os.dup(0)]
    soft = ballast[0] + 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, soft))
    for client in clients:
        client.connect(("127.0.0.1", listener.port))  # the kernel's queue takes it
        client.sendall(b"x")
        client.setblocking(False)
    # Accepting fails: only after it did is there a descriptor, one for all of them.
    await warned.wait()
    os.close(ballast.pop())
    answered = [await asyncio.wait_for(loop.sock_recv(client, 9), 10) for client in clients]
    print(answered.count(b"x"), len(records), loop.__class__.__module__.split(".")[0])
    await listener.close()

records = []
warned = asyncio.Event()
handler = logging.Handler()
handler.emit = lambda record: (records.append(record), warned.set())
logging.getLogger("geminga").addHandler(handler)
if sys.argv[1] == "uvloop":
    import uvloop as loops
else:
    loops = asyncio
asyncio.Runner(loop_factory=loops.new_event_loop).run(main())
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_accepting_goes_on_when_there_are_descriptors_again(loop: str) -> None:
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    result = subprocess.run(
        [sys.executable, "-c", NO_DESCRIPTOR_LEFT, loop], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.stdout == f"3 1 {loop}\n", result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("choice", ["asyncio", "auto"])
def test_small_writes_leave_at_once_and_the_peer_is_known(choice: str) -> None:
    async def main() -> None:
        accepted: asyncio.Future[asyncio.BaseTransport] = asyncio.get_running_loop().create_future()

        class Server(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                accepted.set_result(transport)

        network = AsyncioNetwork()
        listener = await network.listen(Server, "127.0.0.1", 0)
        client, _ = await network.connect(asyncio.Protocol, "127.0.0.1", listener.port)
        sock = (await accepted).get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert (await accepted).get_extra_info("peername") == client.get_extra_info("sockname")
        client.abort()
        (await accepted).abort()
        await listener.close()

    with asyncio.Runner(loop_factory=loop_factory(choice)) as runner:
        runner.run(main())


def test_all_addresses_of_a_name_have_one_port() -> None:
    async def main() -> None:
        listener = await AsyncioNetwork().listen(asyncio.Protocol, "", 0)
        assert isinstance(listener, AsyncioListener)
        assert listener.port > 0
        addresses = {"127.0.0.1"} | ({"::1"} if socket.has_ipv6 and has_loopback_6() else set())
        for address in addresses:
            client, _ = await AsyncioNetwork().connect(asyncio.Protocol, address, listener.port)
            client.abort()
        await listener.close()

    asyncio.run(main())


def has_loopback_6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_port_that_is_taken_raises_and_leaves_nothing_bound() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
            await AsyncioNetwork().listen(asyncio.Protocol, "127.0.0.1", taken.getsockname()[1])
        with pytest.raises(OSError):
            await AsyncioNetwork().listen(asyncio.Protocol, "no.such.host.invalid", 0)

    asyncio.run(main())


def test_descriptor_limit_is_that_of_the_process() -> None:
    limit = descriptor_limit()
    assert limit is None or limit > 0


@pytest.mark.parametrize("host", ["a..b", "x" * 70, "\0", "\udce9"])
@pytest.mark.parametrize("choice", ["asyncio", "uvloop"])
def test_what_is_no_name_of_a_host_is_an_error_of_the_network(choice: str, host: str) -> None:
    """Another one came to callers that expect what a network may do: a peer's word for where it is ended tasks."""
    if choice == "uvloop":
        pytest.importorskip("uvloop")

    async def main() -> None:
        network = AsyncioNetwork()
        with pytest.raises(OSError):
            await network.listen(asyncio.Protocol, host, 0)
        for preface in (b"", b"PROXY"):
            with pytest.raises(OSError):
                await network.connect(asyncio.Protocol, host, 1, preface=preface)

    with asyncio.Runner(loop_factory=loop_factory(choice)) as runner:
        runner.run(main())


@pytest.mark.parametrize("choice", ["asyncio", "auto"])
def test_a_connection_that_nobody_can_take_ends_is_told_of_and_the_others_are_served(choice: str) -> None:
    class Echo(asyncio.Protocol):
        def connection_made(self, transport) -> None:
            transport.write(b"here")

    broken: list[BaseException] = [ValueError("no room for it"), OSError("it is gone")]

    def new_protocol() -> asyncio.Protocol:
        if broken:
            raise broken.pop()
        return Echo()

    async def main() -> None:
        told: list[tuple[str, BaseException]] = []
        set_fatal_handler(lambda part, error: told.append((part, error)))
        loop = asyncio.get_running_loop()
        listener = await AsyncioNetwork().listen(new_protocol, "127.0.0.1", 0)
        answers = []
        for _ in range(3):
            with socket.socket() as client:
                client.setblocking(False)
                await loop.sock_connect(client, ("127.0.0.1", listener.port))
                answers.append(await asyncio.wait_for(loop.sock_recv(client, 9), 10))
        assert answers == [b"", b"", b"here"]
        # What is the system's is no news; the other is one for whoever must know.
        ((part, error),) = told
        assert (part, str(error)) == (f"accept on port {listener.port}", "no room for it")
        await listener.close()
        set_fatal_handler(None)

    with asyncio.Runner(loop_factory=loop_factory(choice)) as runner:
        runner.run(main())

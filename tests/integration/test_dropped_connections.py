"""Connections that are opened, half used and dropped leave nothing behind, and no cycle waits for the collector."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from struct import pack
from urllib.parse import urlsplit

import pytest

import geminga
import geminga.client as gc
from geminga.bookie.serving import BookieServer
from geminga.bookkeeper import MemoryBookie
from geminga.bookkeeper.remote import RemoteBookie
from geminga.client._transport.connection import ClientConnection
from geminga.metadata import MemoryMetadata, MemoryMetadataStore
from geminga.metadata.core.socket_codec import encode
from geminga.metadata.core.socket_messages import NEW_SESSION, SECRET_BYTES, VERSION, SessionHello
from geminga.metadata.socket.server import MetadataServer
from geminga.runtime import real_runtime
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.bookkeeper import v2
from support.house.weekly_sample import sampled
from support.processes.certificates import Authority
from support.processes.dropped_connections import (
    COUNTS,
    LOOPS,
    PART_BYTES,
    Drop,
    assert_nothing_left,
    half_answering,
    no_fatal,
    on_thread,
    sent,
    some_turns,
    to_port,
)
from support.processes.raw_protocol import RawConnection, flow_frame, producer_frame, shared_frame

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def without_a_log() -> Iterator[None]:
    """What pytest keeps of it is no leftover."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


# ---- a bookie

LEDGER = 7
BOOKIE_REQUESTS = {
    "nothing": b"",
    "half a large request": pack(">II", 5_000_000, 2 << 24 | 1 << 16) + b"k" * PART_BYTES,
    "half a small request": pack(">II", 60_000, 2 << 24 | 1 << 16) + b"k" * 30_000,
    "no request": pack(">II", 0x7FFFFFFF, 1),
    "answers that are not read": b"".join(v2.encode_read(LEDGER, 0) for _ in range(110)),
}


@pytest.mark.parametrize("data", sampled("dropped at a bookie", BOOKIE_REQUESTS.values(), 3, ids=[*BOOKIE_REQUESTS]))
@pytest.mark.parametrize("loop", sampled("a bookie's loop", LOOPS, 1))
@pytest.mark.parametrize("count", COUNTS)
def test_of_a_bookie(loop: str, data: bytes, count: int) -> None:
    served = on_thread(loop)

    async def listen() -> BookieServer:
        bookie = MemoryBookie()
        added = asyncio.get_running_loop().create_future()
        entry = pack(">qqqq", LEDGER, 0, -1, 10_000) + b"x" * 10_000
        bookie.add_entries(
            LEDGER, [0], [entry], master_key=b"k" * 20, recovery=False, done=lambda *_: added.set_result(None)
        )
        await added
        return await BookieServer.listen(real_runtime(no_fatal), bookie, "127.0.0.1", 0)

    server = served.call(listen())
    assert_nothing_left(partial(to_port, server.port, data), lambda: served.call(some_turns()), count)
    served.call(server.close())
    served.close()


# ---- the socket of --brokers


@pytest.mark.parametrize("loop", sampled("the metadata socket's loop", LOOPS, 1))
@pytest.mark.parametrize("kind", sampled("dropped hellos", ["nothing", "half a hello", "half a request"], 2))
@pytest.mark.parametrize("count", COUNTS)
def test_of_the_metadata_socket(loop: str, kind: str, tmp_path: Path, count: int) -> None:
    served = on_thread(loop)
    path = str(tmp_path / "m.sock")

    async def listen() -> MetadataServer:
        runtime = real_runtime(no_fatal)
        state = MemoryMetadata()

        async def open_session() -> MemoryMetadataStore:
            return MemoryMetadataStore(runtime, state)

        return await MetadataServer.listen(runtime, path, open_session, token="t")

    server = served.call(listen())
    hello = encode(SessionHello(VERSION, NEW_SESSION, bytes(SECRET_BYTES), 1000, "wrong", "n"))
    data = {"nothing": b"", "half a hello": hello[:-2], "half a request": hello + pack(">I", 100_000) + b"x" * 50_000}

    def half_use() -> Drop:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(path)
        return sent(sock, data[kind])

    assert_nothing_left(half_use, lambda: served.call(some_turns()), count)
    served.call(server.close())
    served.close()


# ---- a broker: the binary protocol, and REST


@pytest.fixture(scope="module", params=sampled("a dropping broker's loop", LOOPS, 1))
def broker(request: pytest.FixtureRequest) -> Iterator[geminga.Standalone]:
    if request.param == "uvloop":
        pytest.importorskip("uvloop")
    with geminga.Standalone(config={"gemingaEventLoop": request.param}) as broker:
        with RawConnection(broker.broker_port) as raw:
            raw.send(producer_frame(TOPIC))
            raw.expect(pb.BaseCommand.PRODUCER_SUCCESS)
        for path in ("/admin/v2/schemas/public/default/s/schema", "/admin/v2/clusters"):
            with contextlib.suppress(urllib.error.HTTPError):
                urllib.request.urlopen(broker.web_service_url + path).read()
        yield broker


TOPIC = "persistent://public/default/dropped"


def with_half_a_message(broker: geminga.Standalone) -> Drop:
    raw = RawConnection(broker.broker_port)
    raw.send(producer_frame(TOPIC))
    raw.expect(pb.BaseCommand.PRODUCER_SUCCESS)
    return sent(raw.socket, pack(">II", 5_000_000, 20) + b"k" * PART_BYTES)


def with_a_consumer(broker: geminga.Standalone) -> Drop:
    raw = RawConnection(broker.broker_port)
    raw.send(shared_frame(TOPIC))
    raw.expect(pb.BaseCommand.SUCCESS)
    return sent(raw.socket, flow_frame(100))


BROKER_USES: dict[str, Callable[[geminga.Standalone], Drop]] = {
    "nothing": lambda broker: to_port(broker.broker_port, b""),
    "half a connect": lambda broker: to_port(broker.broker_port, pack(">II", 2000, 1000) + b"x" * 500),
    "no frame": lambda broker: to_port(broker.broker_port, b"\xff" * 500),
    "a handshake": lambda broker: RawConnection(broker.broker_port).close,
    "half a message": with_half_a_message,
    "a consumer": with_a_consumer,
}


@pytest.mark.parametrize("use", sampled("dropped uses", BROKER_USES.values(), 4, ids=[*BROKER_USES]))
@pytest.mark.parametrize("count", COUNTS)
def test_of_a_broker(broker: geminga.Standalone, use: Callable[[geminga.Standalone], Drop], count: int) -> None:
    assert_nothing_left(partial(use, broker), lambda: broker._call(some_turns()), count)


_POST = b"POST /admin/v2/schemas/public/default/s/schema HTTP/1.1\r\nHost: localhost\r\n"
REST_REQUESTS = {
    "nothing": b"",
    "half the headers": _POST + b"x: " + b"y" * 1000,
    "half a body": _POST + b"Content-Length: 900000\r\n\r\n" + b"x" * 200_000,
    "half a chunk": _POST + b"Transfer-Encoding: chunked\r\n\r\n30D40\r\n" + b"x" * 100_000,
    "no request": b"\x01\x02\x03\r\n\r\n",
    "an answer that is not read": b"GET /admin/v2/clusters HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.mark.parametrize("data", sampled("dropped calls", REST_REQUESTS.values(), 3, ids=[*REST_REQUESTS]))
@pytest.mark.parametrize("count", COUNTS)
def test_of_the_rest(broker: geminga.Standalone, data: bytes, count: int) -> None:
    assert_nothing_left(partial(to_port, broker.web_port, data), lambda: broker._call(some_turns()), count)


# ---- TLS, of both protocols

#: What a client says first, as far as its length.
HALF_HELLO = bytes.fromhex("1603010200010001fc0303")


HELLOS = ["half a handshake", "no handshake", "nothing behind it", "half a command behind it"]


@pytest.fixture(scope="module", params=sampled("a TLS broker's loop", LOOPS, 1))
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[geminga.Standalone]:
    if request.param == "uvloop":
        pytest.importorskip("uvloop")
    store = Authority(tmp_path_factory.mktemp("tls"), "authority").store("broker", "127.0.0.1")
    config = {"brokerServicePortTls": 0, "webServicePortTls": 0, "tlsCertificateFilePath": store}
    with geminga.Standalone(config={**config, "gemingaEventLoop": request.param}) as made:
        yield made


@pytest.mark.parametrize("kind", sampled("dropped handshakes", HELLOS, 2))
@pytest.mark.parametrize("url", ["service_url_tls", "web_service_url_tls"])
@pytest.mark.parametrize("count", COUNTS)
def test_of_tls(secured: geminga.Standalone, url: str, kind: str, count: int) -> None:
    port = urlsplit(getattr(secured, url)).port
    assert port is not None
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def half_use() -> Drop:
        if kind == "half a handshake":
            return to_port(port, HALF_HELLO)
        if kind == "no handshake":
            return to_port(port, b"GET / HTTP/1.1\r\n\r\n")
        sock = context.wrap_socket(socket.create_connection(("127.0.0.1", port)))
        if kind == "half a command behind it":
            sock.sendall(b"\0\0\4\0half" if url == "service_url_tls" else b"GET / HT")
        return sock.close

    assert_nothing_left(half_use, lambda: secured._call(some_turns()), count)


# ---- the other ends: our client, and the ledger client


@pytest.mark.parametrize("is_cut_off", [False, True])
@pytest.mark.parametrize("count", COUNTS)
def test_of_our_client(broker: geminga.Standalone, is_cut_off: bool, count: int) -> None:
    """With half a message under way; closed here, or cut off by the broker."""
    served = on_thread(broker._config.server.event_loop)

    async def client_of_many() -> gc.Client:
        return await gc.connect(broker.service_url, connections_per_broker=1000).__aenter__()

    async def connect() -> ClientConnection:
        connection = await client.pool.service_connection("t")
        connection.write(pack(">II", 0x7FFFFFFF if is_cut_off else 5_000_000, 20) + b"k" * PART_BYTES)
        return connection

    async def drop(connection: ClientConnection) -> None:
        connection.close()
        await connection.gone.wait()

    client = served.call(client_of_many())

    def half_use() -> Drop:
        connection = served.call(connect())
        return lambda: served.call(drop(connection))

    def settle() -> None:
        served.call(some_turns())
        broker._call(some_turns())  # a loop of this process, too

    assert_nothing_left(half_use, settle, count)
    served.call(client.__aexit__(None, None, None))
    served.close()


@pytest.mark.parametrize("loop", sampled("a ledger client's loop", LOOPS, 1))
@pytest.mark.parametrize(
    "answer", sampled("half answers", [b"", b"\0\0\1\0half an answer", b"\x7f\xff\xff\xffno answer"], 2)
)
@pytest.mark.parametrize("count", COUNTS)
def test_of_the_ledger_client(loop: str, answer: bytes, count: int) -> None:
    """A bookie that answers half, or nonsense, and is gone."""
    served = on_thread(loop)
    entry = pack(">qqqq", LEDGER, 0, -1, 10_000) + b"x" * 100_000

    listener = served.call(half_answering(answer))

    async def connect() -> RemoteBookie:
        bookie = RemoteBookie(real_runtime(no_fatal), "b", "127.0.0.1", listener.port)
        bookie.add_entries(LEDGER, [0], [entry], master_key=b"k" * 20, recovery=False, done=lambda *_: None)
        bookie.read_lac(LEDGER, done=lambda _: None)
        return bookie

    def half_use() -> Drop:
        bookie = served.call(connect())
        return lambda: served.call(bookie.close())

    assert_nothing_left(half_use, lambda: served.call(some_turns()), count)
    served.call(listener.close())
    served.close()

"""Ports mixed up: HTTP, TLS and the binary protocol where another is spoken. Both ends say so in one line."""

from __future__ import annotations

import asyncio
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

import geminga
import geminga.client as gc
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.foreign import Protocol, refusal
from support.processes.raw_protocol import RawConnection, frame

pytestmark = pytest.mark.integration

#: Much less than the operation timeout: nothing is tried again.
AT_ONCE_S = 10


@pytest.fixture
def fresh() -> Iterator[geminga.Standalone]:
    """A broker that warned of nobody yet."""
    with geminga.Standalone() as broker:
        yield broker


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


def producer_error(url: str) -> gc.PulsarException:
    async def main() -> gc.PulsarException:
        async with gc.connect(url) as client:
            with pytest.raises(gc.PulsarException) as caught:
                await asyncio.wait_for(client.create_producer("t"), AT_ONCE_S)
            return caught.value

    return asyncio.run(main())


def test_http_on_the_binary_port_is_answered_in_http(fresh, caplog) -> None:
    for path in ("/admin/v2/clusters", "/"):
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"http://127.0.0.1:{fresh.broker_port}{path}", timeout=AT_ONCE_S)
        assert caught.value.code == 400
        assert b"port of Pulsar's binary protocol" in caught.value.read()
    (line,) = lines(caplog)  # one a minute
    assert "it speaks HTTP on a port of the binary protocol; it is on webServicePort" in line


@pytest.mark.parametrize("port", ["broker_port", "web_port"])
def test_tls_is_answered_by_an_alert(fresh, caplog, port) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    plain = socket.create_connection(("127.0.0.1", getattr(fresh, port)), timeout=AT_ONCE_S)
    with plain, pytest.raises(ssl.SSLError, match="alert handshake failure"):
        context.wrap_socket(plain)
    (line,) = lines(caplog)
    assert "it speaks TLS on a port of" in line
    assert "there is none on this port" in line


def test_binary_protocol_on_the_port_of_http_is_answered_in_it(fresh, caplog) -> None:
    with RawConnection(fresh.web_port, handshake=False) as connection:
        connection.send(frame(pb.BaseCommand(type=2, connect=pb.CommandConnect(client_version="x"))))
        error = connection.expect(pb.BaseCommand.ERROR).error
        assert (error.error, error.request_id) == (pb.UnsupportedVersionError, (1 << 64) - 1)
        assert "This is a port of HTTP" in error.message
        assert connection.receive() is None
    (line,) = lines(caplog)
    assert "it speaks Pulsar's binary protocol on a port of HTTP; it is on brokerServicePort" in line
    # And nobody else notices.
    assert urllib.request.urlopen(f"{fresh.web_service_url}/admin/v2/clusters", timeout=AT_ONCE_S).status == 200


def test_our_client_says_at_once_that_it_is_the_port_of_http(broker) -> None:
    error = producer_error(f"pulsar://127.0.0.1:{broker.web_port}")
    assert isinstance(error, gc.UnsupportedVersionError)
    assert f"pulsar://127.0.0.1:{broker.web_port}: This is a port of HTTP" in str(error)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "speaks HTTP: the service URL is that of the binary protocol"),
        (refusal(Protocol.TLS, ""), "speaks TLS: the service URL begins with pulsar+ssl://"),
    ],
    ids=["HTTP", "TLS"],
)
def test_our_client_says_at_once_what_else_a_server_speaks(answer, text) -> None:
    class Server(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            assert isinstance(self.transport, asyncio.Transport)
            self.transport.write(answer)
            self.transport.close()

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, gc.connect(f"pulsar://127.0.0.1:{port}") as client:
            with pytest.raises(gc.WrongProtocol) as caught:
                await asyncio.wait_for(client.create_producer("t"), AT_ONCE_S)
        assert text in str(caught.value)

    asyncio.run(main())


def test_our_client_with_tls_says_that_the_port_may_have_none(broker) -> None:
    async def main() -> None:
        async with gc.connect(f"pulsar+ssl://127.0.0.1:{broker.broker_port}", operation_timeout_ms=500) as client:
            with pytest.raises(
                gc.ConnectError, match=r"a port without TLS\? Then the service URL begins with pulsar://"
            ):
                await asyncio.wait_for(client.create_producer("t"), AT_ONCE_S)

    asyncio.run(main())

"""The HTTP server can have its certificate changed while it answers, which TLS on the web port builds on."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from uvicorn.config import Config
from uvicorn.server import ServerState

from geminga.broker.rest.calls.core.timeouts import RequestTimeouts, TimeoutLimits
from geminga.broker.rest.http.http_connection import (
    CERTIFICATE_IN_STATE,
    HttpConnection,
    Shared,
    StrangersLog,
)
from geminga.runtime.frame_room import FrameRoom, UnreadResponses

pytestmark = pytest.mark.integration
CLIENTS = 8
#: Requests of each client before and after the change.
REQUESTS = 20


def certificate(directory: Path, name: str) -> Path:
    """A file with a key and a certificate of ``name``, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = directory / f"{name}.pem"
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


async def _application(scope, receive, send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


class Client:
    """A connection that is kept open."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.served_by = ""

    async def connect(self) -> None:
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, ssl=trusting)
        der = self._writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        (name,) = x509.load_der_x509_certificate(der).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        self.served_by = str(name.value)

    async def ask(self, times: int, begun: asyncio.Event | None = None) -> int:
        """How many of so many requests were answered; ``begun`` is set behind the first."""
        answered = 0
        for number in range(times):
            if number == 1 and begun is not None:
                begun.set()
            self._writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            head = await self._reader.readuntil(b"\r\n\r\n")
            answered += head.startswith(b"HTTP/1.1 200") and await self._reader.readexactly(2) == b"ok"
        return answered

    def close(self) -> None:
        self._writer.transport.abort()


def connections(application: Callable[..., Awaitable[None]]) -> Callable[[], HttpConnection]:
    """What makes those of a server in the running loop."""
    config = Config(application, http=HttpConnection, ws="none", lifespan="off", log_config=None)
    config.load()
    state, loop = ServerState(), asyncio.get_running_loop()
    shared = Shared(
        FrameRoom(loop.time, 1 << 20), 1 << 20, UnreadResponses(1 << 20), StrangersLog(lambda *_: None), set()
    )

    def connection() -> HttpConnection:
        timeouts = RequestTimeouts(TimeoutLimits(10, 10, 10), loop.time())
        return HttpConnection(config, state, timeouts, lambda _: None, lambda *_: None, ("a", "b"), shared)

    return connection


def test_certificate_changes_under_load_and_nobody_is_cut_off(tmp_path) -> None:
    former, later = certificate(tmp_path, "former"), certificate(tmp_path, "later")

    async def main() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(former)
        connection, loop = connections(_application), asyncio.get_running_loop()
        server = await loop.create_server(connection, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        clients = [Client(port) for _ in range(CLIENTS)]
        await asyncio.gather(*(client.connect() for client in clients))
        begun = asyncio.Event()
        asking = [asyncio.ensure_future(client.ask(2 * REQUESTS, begun)) for client in clients]
        await begun.wait()
        context.load_cert_chain(later)
        assert not any(task.done() for task in asking)
        new = Client(port)
        await new.connect()
        assert await asyncio.gather(*asking) == [2 * REQUESTS] * CLIENTS
        assert (await new.ask(REQUESTS), new.served_by) == (REQUESTS, "later")
        assert {client.served_by for client in clients} == {"former"}
        assert await asyncio.gather(*(client.ask(REQUESTS) for client in clients)) == [REQUESTS] * CLIENTS
        for client in (*clients, new):
            client.close()
        server.close()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_request_knows_the_certificate_that_its_client_showed_and_none_where_there_is_none(tmp_path) -> None:
    own, shown = certificate(tmp_path, "server"), certificate(tmp_path, "client")
    seen: list[object] = []

    async def application(scope, receive, send) -> None:
        seen.append(scope["state"].get(CERTIFICATE_IN_STATE))
        await _application(scope, receive, send)

    async def ask(port: int, context: ssl.SSLContext | None) -> None:
        _, writer = reader_writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader_writer[0].readuntil(b"ok")
        writer.transport.abort()

    async def main() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(own)
        context.load_verify_locations(shown)
        context.verify_mode = ssl.CERT_OPTIONAL
        connection, loop = connections(application), asyncio.get_running_loop()
        secured = await loop.create_server(connection, "127.0.0.1", 0, ssl=context)
        plain = await loop.create_server(connection, "127.0.0.1", 0)
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        port = secured.sockets[0].getsockname()[1]
        await ask(port, trusting)
        trusting.load_cert_chain(shown)
        await ask(port, trusting)
        await ask(plain.sockets[0].getsockname()[1], None)
        secured.close()
        plain.close()

    asyncio.run(asyncio.wait_for(main(), 60))
    text = shown.read_text()
    assert seen == [None, ssl.PEM_cert_to_DER_cert(text[text.index("-----BEGIN CERT") :]), None]

"""TLS: the client trusts whom it was told to trust, shows its certificate, and says what is wrong otherwise."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import geminga.client as gc
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands
from geminga.wire.pulsar.hot import encode_send_receipts
from support.processes.certificates import Authority
from support.worlds.scripted_broker import Scripted, polite

Type = pb.BaseCommand

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> tuple[str, str]:
    """A self-signed certificate for 127.0.0.1 and its key."""
    directory = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    alternative = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(alternative, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoded = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (directory / "certificate.pem").write_bytes(built.public_bytes(serialization.Encoding.PEM))
    (directory / "key.pem").write_bytes(encoded)
    return str(directory / "certificate.pem"), str(directory / "key.pem")


def create_over_tls(certificate: tuple[str, str], host: str = "127.0.0.1", **options) -> list[bool]:
    """Make a producer over TLS; per connection, whether the client showed a certificate."""
    shown: list[bool] = []

    async def main() -> None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificate[0])
        context.load_cert_chain(*certificate)
        context.verify_mode = ssl.CERT_OPTIONAL

        class Noting(Scripted):
            def connection_made(self, transport) -> None:
                super().connection_made(transport)
                shown.append(bool(transport.get_extra_info("peercert")))

        loop = asyncio.get_running_loop()
        port = 0

        def script(command):
            answers = polite(command)
            url = b"pulsar://proxy:6650"  # lookups lead here again
            return [a for a in answers if url not in a] or [lookup_here(command, port) for _ in answers]

        server = await loop.create_server(lambda: Noting(script), "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        try:
            url = f"pulsar+ssl://{host}:{port}"
            async with gc.connect(url, operation_timeout_ms=1_000, **options) as client:
                await client.create_producer("t")
        finally:
            server.close()

    asyncio.run(main())
    return shown


def lookup_here(command, port: int) -> bytes:
    url = f"pulsar+ssl://127.0.0.1:{port}"
    return commands.lookup_connect(command.lookupTopic.request_id, "", url, is_authoritative=True)


def test_trusted_certificate_connects(certificate) -> None:
    assert create_over_tls(certificate, tls_trust_certs_file_path=certificate[0]) == [False]


def test_client_shows_its_certificate(certificate) -> None:
    shown = create_over_tls(
        certificate,
        tls_trust_certs_file_path=certificate[0],
        authentication=gc.AuthenticationTLS(*certificate),
    )
    assert shown == [True]


def test_certificate_nobody_vouches_for_is_refused_unless_allowed(certificate) -> None:
    with pytest.raises(gc.ConnectError, match="certificate"):
        create_over_tls(certificate)
    assert create_over_tls(certificate, tls_allow_insecure_connection=True) == [False]


def test_certificate_of_another_host_is_refused_unless_names_do_not_matter(certificate) -> None:
    trust = {"tls_trust_certs_file_path": certificate[0]}
    with pytest.raises(gc.ConnectError, match="localhost"):
        create_over_tls(certificate, host="localhost", **trust)
    # Two addresses, so two connections: the service URL's and the one lookup gives.
    assert create_over_tls(certificate, host="localhost", tls_validate_hostname=False, **trust) == [False, False]


def test_service_url_without_tls_for_a_port_with_it_is_told_what_it_may_be(certificate) -> None:
    async def main() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        async with server, gc.connect(f"pulsar://127.0.0.1:{port}", operation_timeout_ms=500) as client:
            # This server says nothing; those that answer with an alert are recognized (test_wrong_ports).
            with pytest.raises(gc.ConnectError, match=r"With TLS the service URL is pulsar\+ssl://"):
                await asyncio.wait_for(client.create_producer("t"), 10)

    asyncio.run(main())


@pytest.mark.parametrize("told", ["lookup", "redirect", "assigned", "as if it were with"])
def test_client_with_tls_shows_its_token_to_no_broker_without(certificate, told: str) -> None:
    """Whatever addresses brokers tell: a token in the clear is anybody's."""
    in_the_clear: list[bytes] = []

    async def main() -> None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*certificate)
        loop = asyncio.get_running_loop()
        asked: list[int] = []
        sent: list[int] = []

        def script(command):
            if command.type == Type.LOOKUP:
                asked.append(1)
                request_id = command.lookupTopic.request_id
                if told == "lookup":
                    return [commands.lookup_connect(request_id, plain_url, "", is_authoritative=True)]
                if told == "redirect" and len(asked) == 1:
                    return [commands.lookup_redirect(request_id, plain_url, "", is_authoritative=True)]
                with_tls = plain_url if told == "as if it were with" else tls_url
                return [commands.lookup_connect(request_id, plain_url, with_tls, is_authoritative=True)]
            if command.type == Type.SEND:
                sent.append(1)
                if told == "assigned" and len(sent) == 1:
                    return [commands.close_producer(0, 1, plain_url, tls_url)]
                return [encode_send_receipts(0, 1, 2, 1, [(command.send.sequence_id,) * 2])]
            return polite(command)

        def heard(command):
            in_the_clear.append(command.connect.auth_data)
            return polite(command)

        tls = await loop.create_server(lambda: Scripted(script), "127.0.0.1", 0, ssl=context)
        plain = await loop.create_server(lambda: Scripted(heard), "127.0.0.1", 0)
        tls_url = f"pulsar+ssl://127.0.0.1:{tls.sockets[0].getsockname()[1]}"
        plain_url = f"pulsar://127.0.0.1:{plain.sockets[0].getsockname()[1]}"
        try:
            async with gc.connect(
                tls_url,
                authentication=gc.AuthenticationToken("secret"),
                tls_trust_certs_file_path=certificate[0],
                operation_timeout_ms=1_000,
            ) as client:
                if told in ("assigned", "redirect"):  # which is asked again
                    producer = await client.create_producer("t")
                    assert (await producer.send(b"x")).entry_id() == 2
                else:
                    with pytest.raises(gc.LookupError, match=r"without the broker's address for TLS|has no TLS"):
                        await client.create_producer("t")
        finally:
            tls.close()
            plain.close()

    asyncio.run(main())
    assert in_the_clear == []


# ---- through a proxy that is told by TLS where to


def host_in(hello: bytes) -> str:
    """The name that a ClientHello asks for (RFC 8446, 4.1.2; RFC 6066, 3); empty: none."""
    at = 5 + 4 + 2 + 32
    at += 1 + hello[at]
    at += 2 + int.from_bytes(hello[at : at + 2])
    at += 1 + hello[at]
    end = at + 2 + int.from_bytes(hello[at : at + 2])
    at += 2
    while at < end:
        kind, size = int.from_bytes(hello[at : at + 2]), int.from_bytes(hello[at + 2 : at + 4])
        if kind == 0:
            return hello[at + 9 : at + 4 + size].decode()
        at += 4 + size
    return ""


class Relay:
    """Sends each connection on to the port of the host that it asks for, unread; others end."""

    def __init__(self) -> None:
        self.ports: dict[str, int] = {}
        self.asked: list[str] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readexactly(5)
        hello = head + await reader.readexactly(int.from_bytes(head[3:5]))
        self.asked.append(host_in(hello))
        port = self.ports.get(self.asked[-1])
        if port is None:
            writer.close()
            return
        back, out = await asyncio.open_connection("127.0.0.1", port)
        out.write(hello)
        await asyncio.gather(copied(reader, out), copied(back, writer))


async def copied(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(1 << 16):
        target.write(data)
    target.close()


def create_through_proxy(directory, *, names: dict[str, str], **options) -> list[str]:
    """Make a producer of a topic of ``b.invalid``, found by ``a.invalid``; ``names``: of whom each one's certificate
    is. Which hosts were asked for."""
    relay, authority = Relay(), Authority(directory, "authority")

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def script(command):
            if command.type == Type.LOOKUP:
                url = "pulsar+ssl://b.invalid:6651"
                return [commands.lookup_connect(command.lookupTopic.request_id, "", url, is_authoritative=True)]
            return polite(command)

        servers = []
        for name, certified in names.items():
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(authority.store(name, host=certified))
            servers.append(await loop.create_server(lambda: Scripted(script), "127.0.0.1", 0, ssl=context))
            relay.ports[name] = servers[-1].sockets[0].getsockname()[1]
        servers.append(await asyncio.start_server(relay, "127.0.0.1", 0))
        port = servers[-1].sockets[0].getsockname()[1]
        options.setdefault("proxy_protocol", "SNI")
        try:
            async with gc.connect(
                "pulsar+ssl://a.invalid:6651",
                operation_timeout_ms=1_000,
                tls_trust_certs_file_path=str(authority.certificate),
                proxy_service_url=f"pulsar+ssl://127.0.0.1:{port}",
                **options,
            ) as client:
                await client.create_producer("t")
        finally:
            for server in servers:
                server.close()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.wait([task])

    asyncio.run(main())
    return relay.asked


BOTH = {"a.invalid": "a.invalid", "b.invalid": "b.invalid"}


def test_brokers_that_have_no_address_here_are_reached_through_a_proxy_by_their_names(tmp_path) -> None:
    assert create_through_proxy(tmp_path, names=BOTH) == ["a.invalid", "b.invalid"]


def test_behind_the_proxy_the_certificate_must_be_the_broker_s(tmp_path) -> None:
    """Else the proxy, or whoever it leads to, could be any broker."""
    with pytest.raises(gc.ConnectError, match=r"b\.invalid:6651 through 127\.0\.0\.1:\d+: .*b\.invalid"):
        create_through_proxy(tmp_path, names={**BOTH, "b.invalid": "other.invalid"})


@pytest.mark.parametrize(
    ("url", "options", "text"),
    [
        ("pulsar://a:1", {"proxy_service_url": "pulsar+ssl://p:1", "proxy_protocol": "SNI"}, "pulsar://a:1 has no TLS"),
        ("pulsar+ssl://a:1", {"proxy_service_url": "pulsar+ssl://p:1"}, "expected 'SNI' with proxy_service_url"),
        ("pulsar+ssl://a:1", {"proxy_protocol": "SNI"}, "nothing without"),
        ("pulsar+ssl://a:1", {"proxy_service_url": "pulsar+ssl://p:1", "proxy_protocol": "SOCKS"}, "not 'SOCKS'"),
        ("pulsar+ssl://a:1", {"proxy_service_url": "pulsar+ssl://p,q", "proxy_protocol": "SNI"}, "expected one"),
        ("pulsar+ssl://a:1", {"proxy_service_url": "https://p", "proxy_protocol": "SNI"}, "expected one"),
    ],
)
def test_proxy_that_can_not_be_is_refused_at_once(url, options, text) -> None:
    with pytest.raises((gc.InvalidConfiguration, gc.InvalidUrl), match=text):
        gc.connect(url, **options)

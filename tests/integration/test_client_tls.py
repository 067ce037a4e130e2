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

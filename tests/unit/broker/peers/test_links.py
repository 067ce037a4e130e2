"""Links to other brokers: by which URL, with which certificate and credentials; what is said where there is none."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from geminga.broker.access.core.handshake import Credentials
from geminga.broker.ownership.endpoints import Endpoint
from geminga.broker.peers.http_client import PeerAnswer, PeerHttp
from geminga.broker.peers.links import PLAIN, PeerLinks
from geminga.client import AuthenticationBasic, AuthenticationTLS, AuthenticationToken
from geminga.model.errors import UnavailableError
from geminga.runtime import AsyncioNetwork, real_runtime
from geminga.runtime.ports import ServerTls
from geminga.runtime.tls.contexts import server_context
from geminga.runtime.tls.peer import peer_certificate
from geminga.runtime.tls.settings import Material, Named, PeerCertificate, Rules
from support.house.real_runtimes import close_runtime
from support.processes.certificates import Authority

BOTH = Endpoint("i", "pulsar://h:1", "pulsar+ssl://h:2", "http://h:3/", "https://h:4")


def test_urls_are_of_the_kind_that_is_spoken() -> None:
    secured = PeerLinks({}, uses_tls=True)
    assert (PLAIN.broker_url(BOTH), PLAIN.web_url(BOTH)) == ("pulsar://h:1", "http://h:3")
    assert (secured.broker_url(BOTH), secured.web_url(BOTH)) == ("pulsar+ssl://h:2", "https://h:4")
    with pytest.raises(UnavailableError, match=r"pulsar://h:1 has no web service with TLS"):
        secured.web_url(Endpoint("i", "pulsar://h:1"))
    with pytest.raises(
        UnavailableError, match=r"pulsar\+ssl://h:2 has no port .* without TLS \(brokerClientTlsEnabled"
    ):
        PLAIN.broker_url(Endpoint("i", "", "pulsar+ssl://h:2"))


class Web(asyncio.Protocol):
    """A broker's web service, which notes who asks."""

    def __init__(self, heard: list[object]) -> None:
        self._heard = heard

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._heard.append(peer_certificate(transport))

    def data_received(self, data: bytes) -> None:
        self._heard.append(data)
        assert isinstance(self._transport, asyncio.WriteTransport) or hasattr(self._transport, "write")
        self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")  # type: ignore[attr-defined]


async def asked(directory: Path, links: PeerLinks, scheme: str = "https") -> tuple[PeerAnswer, list[object]]:
    """A request over ``links``, and what the other end heard."""
    authority = Authority(directory, "authority")
    own = Material(
        Named("c", str(authority.store("web", "127.0.0.1"))), Named("k"), Named("t", str(authority.certificate))
    )
    made = server_context(own, Rules(), PeerCertificate.WANTED)
    heard: list[object] = []
    runtime = real_runtime(lambda part, error: None)
    tls = ServerTls(lambda: made.context)
    listener = await AsyncioNetwork().listen(lambda: Web(heard), "127.0.0.1", 0, tls=tls)
    try:
        arguments = dict(links.client_arguments)
        if "tls_certificate_file_path" in arguments:
            arguments["tls_certificate_file_path"] = str(authority.store("broker"))
            arguments["tls_trust_certs_file_path"] = str(authority.certificate)
        http = PeerHttp(runtime, PeerLinks(arguments, uses_tls=links.uses_tls))  # type: ignore[arg-type]
        return await http.request("GET", f"{scheme}://127.0.0.1:{listener.port}/admin/v2/clusters"), heard
    finally:
        await listener.close()
        await close_runtime(runtime)


def test_token_file_of_two_lines_is_told_to_nobody(tmp_path: Path) -> None:
    """Who asks a broker by REST for what another one has is answered with what went wrong between them."""
    (tmp_path / "token").write_text("former-secret\nsecret\n")
    token = AuthenticationToken(f"file://{tmp_path}/token")
    links = PeerLinks({"authentication": token, "tls_certificate_file_path": "its own"}, uses_tls=True)
    with pytest.raises(UnavailableError, match="can not stand in a header") as told:
        asyncio.run(asked(tmp_path, links))
    assert "secret" not in str(told.value)


def test_request_is_made_with_certificate_and_credentials(tmp_path: Path) -> None:
    links = PeerLinks(
        {"authentication": AuthenticationToken("abc"), "tls_certificate_file_path": "its own"}, uses_tls=True
    )
    answer, heard = asyncio.run(asked(tmp_path, links))
    assert (answer.status, answer.json()) == (200, {})
    certificate, request = heard
    assert isinstance(certificate, bytes)
    assert b"broker" in certificate
    assert b"Authorization: Bearer abc\r\n" in request


def test_broker_that_is_not_trusted_is_not_asked(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="certificate verify failed"):
        asyncio.run(asked(tmp_path, PeerLinks({}, uses_tls=True)))


def test_redirection_or_url_of_the_other_kind_gets_no_credentials(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="is no web service with TLS"):
        asyncio.run(asked(tmp_path, PeerLinks({}, uses_tls=True), "http"))


def test_credentials_that_can_not_be_had_are_told(tmp_path: Path) -> None:
    missing = AuthenticationToken(f"file://{tmp_path}/none")
    with pytest.raises(UnavailableError, match=r"credentials for other brokers: .*No such file"):
        asyncio.run(
            asked(tmp_path, PeerLinks({"authentication": missing, "tls_certificate_file_path": ""}, uses_tls=True))
        )


async def shown_by(links: PeerLinks) -> Credentials | None:
    runtime = real_runtime(lambda part, error: None)
    try:
        return await links.credentials(runtime)
    finally:
        await close_runtime(runtime)


def test_credentials_are_those_of_the_moment_and_a_certificate_is_that_which_tls_shows(tmp_path: Path) -> None:
    async def awaited() -> str:
        return "awaited"

    class Slow:
        method_name = "token"
        is_blocking = True

        def data(self) -> bytes:
            return b"slow"

    authority = Authority(tmp_path, "authority")
    store = authority.store("broker")
    certificate = AuthenticationTLS(str(store), str(store))
    for authentication, expected in [
        (AuthenticationToken("abc"), ("token", b"abc")),
        (AuthenticationToken(awaited), ("token", b"awaited")),
        (AuthenticationBasic("jane", "word"), ("basic", b"jane:word")),
        (Slow(), ("token", b"slow")),
        (certificate, ("tls", b"")),
    ]:
        found = asyncio.run(shown_by(PeerLinks({"authentication": authentication}, uses_tls=False)))
        assert found is not None
        assert (found.method, found.data) == expected
        assert (found.certificate is None) == (authentication is not certificate)
    shown = ssl.DER_cert_to_PEM_cert(found.certificate or b"")
    assert "".join(shown.split()) in "".join(store.read_text().split())
    assert asyncio.run(shown_by(PLAIN)) is None


def test_own_credentials_that_can_not_be_had_are_unknown(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text("no certificate")
    path = str(tmp_path / "key.pem")
    for authentication in (AuthenticationToken(f"file://{tmp_path}/none"), AuthenticationTLS(path, path)):
        with pytest.raises(UnavailableError, match=r"this broker's own credentials \(brokerClient"):
            asyncio.run(shown_by(PeerLinks({"authentication": authentication}, uses_tls=False)))

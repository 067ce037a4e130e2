"""Contexts of servers and clients: who gets to speak with whom."""

from __future__ import annotations

import ssl
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from geminga.model.errors import ConfigurationError
from geminga.runtime.tls.contexts import choose_by_name, client_context, server_context
from geminga.runtime.tls.settings import Material, Named, PeerCertificate, Rules
from support.processes.certificates import Authority


class Ends(NamedTuple):
    """What both ends make of a handshake."""

    version: str | None
    cipher: str
    #: What the server knows of the client.
    shown: bytes | None


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str = "127.0.0.1") -> Ends:
    """In memory; raises ssl.SSLError of the end that refuses."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = server.wrap_bio(to_server, to_client, server_side=True)
    far = client.wrap_bio(to_client, to_server, server_hostname=name)
    waiting = [far, near]
    for _ in range(10):
        for end in tuple(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                pass
    # With TLS 1.3 a client is done before the server has looked at its certificate.
    assert not waiting
    cipher = near.cipher()
    assert cipher is not None
    return Ends(near.version(), cipher[0], near.getpeercert(binary_form=True))


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "authority")


def material(certificate: object, trust: object) -> Material:
    return Material(
        Named("tlsCertificateFilePath", str(certificate)),
        Named("tlsKeyFilePath"),
        Named("tlsTrustCertsFilePath", str(trust)),
    )


def server(authority: Authority, rules: Rules = Rules(), peers: PeerCertificate = PeerCertificate.WANTED):  # noqa: B008
    return server_context(material(authority.store("server", "127.0.0.1"), authority.certificate), rules, peers).context


def client(authority: Authority, certificate: object = "", rules: Rules = Rules(), **checks: bool):  # noqa: B008
    return client_context(material(certificate, authority.certificate), rules, **checks).context


def test_client_that_trusts_the_authority_speaks_with_the_server(authority: Authority) -> None:
    assert shake_hands(server(authority), client(authority))[::2] == ("TLSv1.3", None)


def test_server_is_refused_that_is_of_another_authority_or_another_name(authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other")
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate verify failed"):
        shake_hands(server(authority), client(other))
    with pytest.raises(ssl.SSLCertVerificationError, match=r"127\.0\.0\.2"):
        shake_hands(server(authority), client(authority), "127.0.0.2")
    shake_hands(server(authority), client(authority, checks_name=False), "127.0.0.2")
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate verify failed"):
        shake_hands(server(authority), client(other, checks_name=False))
    shake_hands(server(authority), client(other, checks_server=False), "127.0.0.2")


def test_client_shows_a_certificate_that_the_server_knows_or_none(authority: Authority, tmp_path: Path) -> None:
    own = authority.store("client")
    shown = shake_hands(server(authority), client(authority, own)).shown
    assert shown == ssl.PEM_cert_to_DER_cert(own.read_text()[own.read_text().index("-----BEGIN CERT") :])
    foreign = Authority(tmp_path, "other").store("stranger")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server(authority), client(authority, foreign))
    assert shake_hands(server(authority, peers=PeerCertificate.UNASKED), client(authority, own)).shown is None


def test_client_without_certificate_is_refused_where_one_is_required(authority: Authority) -> None:
    strict = server(authority, peers=PeerCertificate.REQUIRED)
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        shake_hands(strict, client(authority))
    assert shake_hands(strict, client(authority, authority.store("client"))).shown is not None


def test_certificates_that_nobody_issues_can_not_be_required(authority: Authority) -> None:
    own = material(authority.store("server"), "")
    with pytest.raises(ConfigurationError, match="tlsTrustCertsFilePath is not set: clients must show a certificate"):
        server_context(own, Rules(), PeerCertificate.REQUIRED)
    assert shake_hands(
        server_context(own, Rules(), PeerCertificate.WANTED).context, client(authority, checks_server=False)
    )


def test_versions_and_ciphers_are_those_that_are_listed(authority: Authority) -> None:
    both = client(authority)
    old = server(authority, Rules(protocols=("TLSv1.2",)))
    assert shake_hands(old, both).version == "TLSv1.2"
    with pytest.raises(ssl.SSLError, match="UNSUPPORTED_PROTOCOL"):
        shake_hands(old, client(authority, rules=Rules(protocols=("TLSv1.3",))))
    # A suite of TLS 1.2 alone: no other version, and no other suite.
    suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    assert shake_hands(server(authority, Rules(ciphers=(suite,))), both)[:2] == (
        "TLSv1.2",
        "ECDHE-ECDSA-AES256-GCM-SHA384",
    )
    assert shake_hands(server(authority, Rules(ciphers=("TLS_AES_256_GCM_SHA384",))), both).version == "TLSv1.3"
    assert shake_hands(server(authority, Rules(ciphers=(suite, "TLS_AES_256_GCM_SHA384"))), both).version == "TLSv1.3"


def test_ciphers_that_can_not_be_are_told(authority: Authority) -> None:
    with pytest.raises(ConfigurationError, match=r"tlsCiphers=nonsense: nonsense is not known to OpenSSL.*expected"):
        server(authority, Rules(ciphers=("nonsense",)))
    with pytest.raises(ConfigurationError, match="tlsCiphers=TLS_AES_256_GCM_SHA384: none of them is of tlsProtocols"):
        server(authority, Rules(protocols=("TLSv1.2",), ciphers=("TLS_AES_256_GCM_SHA384",)))


def test_key_without_a_certificate_is_told(authority: Authority) -> None:
    alone = Material(Named("certificate"), Named("key", str(authority.store("client"))), Named("trust"))
    with pytest.raises(ConfigurationError, match=r"key=.*: a key alone; expected certificate with it"):
        client_context(alone, Rules())


def test_server_that_is_trusted_itself_needs_no_authority(authority: Authority) -> None:
    store = authority.store("server", "127.0.0.1")
    trusting = client_context(material("", store), Rules()).context
    mine = server_context(material(store, ""), Rules(), PeerCertificate.UNASKED).context
    assert shake_hands(mine, trusting).version == "TLSv1.3"


def test_certificate_is_chosen_by_the_name_that_a_client_asks_for(authority: Authority, tmp_path: Path) -> None:
    strange = Authority(tmp_path, "strange")
    own = server(authority, peers=PeerCertificate.REQUIRED)
    others = {name: server_of(authority, name) for name in ("a.example", "*.b.example")}
    choose_by_name(own, others)
    known = client(authority, authority.store("client"), checks_name=False)

    def shown(name: str) -> str:
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        near = own.wrap_bio(to_server, to_client, server_side=True)
        far = known.wrap_bio(to_client, to_server, server_hostname=name)
        for _ in range(4):
            for end in (far, near):
                with suppress(ssl.SSLWantReadError):
                    end.do_handshake()
        return dict(part[0] for part in far.getpeercert()["subject"])["commonName"]

    assert [shown(name) for name in ("a.example", "A.Example", "x.b.example")] == [
        "a.example",
        "a.example",
        "*.b.example",
    ]
    assert [shown(name) for name in ("b.example", "y.x.b.example", "else", "127.0.0.1")] == ["server"] * 4
    # Whoever is asked for, clients must show a certificate that is trusted.
    for certificate in ("", strange.store("client")):
        with pytest.raises(ssl.SSLError):
            shake_hands(own, client(authority, certificate, checks_name=False), "a.example")


def server_of(authority: Authority, name: str) -> ssl.SSLContext:
    made = server_context(material(authority.store(name), authority.certificate), Rules(), PeerCertificate.REQUIRED)
    return made.context

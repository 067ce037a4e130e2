"""TLS of bookies and towards them, from BookKeeper's keys and Pulsar's."""

from __future__ import annotations

from dataclasses import replace
from ssl import CERT_REQUIRED

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import load_pem_x509_certificate

from geminga.app.configuration.bookie_config import load_bookie_config
from geminga.app.configuration.bookie_tls_config import (
    AUTH_FACTORY,
    AUTH_OFF,
    FACTORY,
    BookieTlsConfig,
    BrokerBookieTlsConfig,
)
from geminga.app.configuration.cluster_config import load_broker_config
from geminga.model.errors import ConfigurationError
from support.processes.certificates import Authority, as_pkcs12, parts_of


def bookie(**values: object) -> BookieTlsConfig:
    config = load_bookie_config(
        overrides=[f"{key}={value}" for key, value in {"tlsProviderFactoryClass": FACTORY, **values}.items()]
    )
    assert config.warnings == ()
    assert config.tls is not None
    return config.tls


def broker(**values: object) -> BrokerBookieTlsConfig | None:
    given = {"metadataStoreUrl": "zk:h:2181", **values}
    found = load_broker_config(overrides=[f"{key}={value}" for key, value in given.items()]).config
    assert found.warnings == ()
    return found.bookie_tls


@pytest.fixture
def authority(tmp_path) -> Authority:
    return Authority(tmp_path, "authority")


def test_files_are_pem_or_stores_as_they_are(authority: Authority, tmp_path) -> None:
    certificate, key = parts_of(authority.store("bookie"))
    store = as_pkcs12(authority.store("other"), "open")
    password = tmp_path / "password"
    password.write_text("open\n")
    trust = authority.certificate
    pem = bookie(tlsCertificatePath=certificate, tlsKeyStore=key, tlsTrustStore=trust, tlsClientAuthentication="true")
    tls, followed = pem.served(7)
    assert (tls.server.handshake_s, tls.is_optional) == (7, False)
    assert followed.made.identity is not None
    assert followed.made.identity.subject == "CN=bookie"
    stored = bookie(tlsKeyStore=store, tlsKeyStorePasswordPath=password, gemingaTlsOptional="true")
    tls, followed = stored.served(7)
    assert tls.is_optional
    assert followed.made.identity is not None
    assert followed.made.identity.subject == "CN=other"
    assert pem.used().made.identity is not None


def test_certificates_have_roles_where_bookkeepers_factory_is_named(authority: Authority) -> None:
    known = bookie(bookieAuthProviderFactoryClass=AUTH_FACTORY, authorizedRoles="broker, recovery")
    assert known.knows_clients

    def refusal(store) -> str:
        certificate = load_pem_x509_certificate(parts_of(store)[0].read_bytes())
        return known.refusal(certificate.public_bytes(Encoding.DER))

    assert refusal(authority.store("a", unit="0:recovery")) == ""
    assert refusal(authority.store("b", unit="0:reader")) == "the role of its certificate is none of authorizedRoles"
    assert refusal(authority.store("c")) == "its certificate gives no role: its subject has no organizational unit (OU)"
    assert known.refusal(None) == "it shows no certificate"
    assert known.refusal(b"0") == "its certificate gives no role: the certificate can not be read"
    # Nobody else gets through the handshake.
    tls, followed = replace(known, key_store=str(authority.store("d")), trust_store=str(authority.certificate)).served(
        7
    )
    assert tls.refusal is not None
    assert followed.context().verify_mode is CERT_REQUIRED
    for off in ("", "null", AUTH_OFF[-1]):
        assert not bookie(bookieAuthProviderFactoryClass=off).knows_clients


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"bookieAuthProviderFactoryClass": AUTH_FACTORY}, "authorizedRoles is not set, and nobody would be served"),
        ({"authorizedRoles": "broker"}, "every certificate would be served"),
        (
            {"bookieAuthProviderFactoryClass": "org.apache.bookkeeper.sasl.SASLBookieAuthProviderFactory"},
            "SASL is not built; expected org.apache.bookkeeper.tls.BookieAuthZFactory",
        ),
        ({"bookieAuthProviderFactoryClass": "com.example.Mine"}, "no such provider is known"),
        (
            {
                "bookieAuthProviderFactoryClass": AUTH_FACTORY,
                "authorizedRoles": "broker",
                "gemingaTlsOptional": "true",
            },
            "gemingaTlsOptional=true: who asks without TLS shows no certificate",
        ),
    ],
)
def test_roles_that_would_keep_nobody_away_are_refused(values: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        bookie(**values)


@pytest.mark.parametrize("key", ["bookieAuthProviderFactoryClass", "authorizedRoles"])
def test_roles_without_tls_refuse_the_start(key: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{key}=x .*for tlsProviderFactoryClass is not set"):
        load_bookie_config(overrides=[f"{key}=x"])


def test_what_can_not_be_is_told_by_its_key(authority: Authority) -> None:
    with pytest.raises(ConfigurationError, match=r"tlsProviderFactoryClass=com\.example\.Mine: another factory"):
        load_bookie_config(overrides=["tlsProviderFactoryClass=com.example.Mine"])
    with pytest.raises(ConfigurationError, match="tlsEnabledProtocols=TLSv1: TLSv1 is broken"):
        bookie(tlsEnabledProtocols="TLSv1")
    with pytest.raises(ConfigurationError, match="tlsKeyStore is not set: the bookie speaks TLS"):
        bookie().served(7)
    with pytest.raises(ConfigurationError, match="tlsTrustStore is not set: clients must show a certificate"):
        bookie(tlsKeyStore=authority.store("bookie"), tlsClientAuthentication="true").served(7)
    with pytest.raises(ConfigurationError, match="tlsKeyStorePasswordPath=/nowhere: No such file"):
        bookie(tlsKeyStore=authority.store("bookie"), tlsKeyStorePasswordPath="/nowhere").served(7)


def test_broker_speaks_tls_to_its_bookies_where_that_is_asked_for(authority: Authority) -> None:
    assert broker(bookkeeperTLSClientAuthentication="false") is None
    certificate, key = parts_of(authority.store("broker"))
    files = {
        "bookkeeperTLSClientAuthentication": "true",
        "bookkeeperTLSTrustCertsFilePath": authority.certificate,
        "bookkeeperTLSCertificateFilePath": certificate,
        "bookkeeperTLSKeyFilePath": key,
    }
    found = broker(**files)
    assert found is not None
    used = found.used()
    assert used.made.identity is not None
    assert used.made.identity.subject == "CN=broker"
    assert not used.context().check_hostname
    named = broker(**files, bookkeeper_tlsHostnameVerificationEnabled="true")
    assert named is not None
    assert named.used().context().check_hostname
    missing = broker(**{**files, "bookkeeperTLSTrustCertsFilePath": "/nowhere"})
    assert missing is not None
    with pytest.raises(ConfigurationError, match="bookkeeperTLSTrustCertsFilePath=/nowhere: No such file"):
        missing.used()

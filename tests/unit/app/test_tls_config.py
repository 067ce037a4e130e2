"""TLS of a broker's ports from Pulsar's keys: what opens a port, what is used where, what contradicts itself."""

from __future__ import annotations

import pytest

from geminga.app.configuration.config import Config, load_config
from geminga.app.configuration.tls_config import TlsConfig
from geminga.app.servers.tls_ports import TlsPorts
from geminga.model.errors import ConfigurationError
from geminga.model.secret import DOTS
from geminga.runtime.tls.settings import PeerCertificate
from support.processes.certificates import Authority, as_pkcs12, parts_of


def loaded(**values: object) -> Config:
    return load_config(overrides=[f"{key}={value}" for key, value in values.items()])


def tls_of(**values: object) -> TlsConfig:
    found = loaded(**{"brokerServicePortTls": 6651, **values}).tls
    assert found is not None
    return found


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"brokerServicePortTls": "", "webServicePortTls": ""},
        {"tlsEnabled": "false", "tlsCertRefreshCheckDurationSec": 300},
        {"bindAddresses": "a:pulsar://127.0.0.1:1,b:http://127.0.0.1:2"},
    ],
)
def test_nothing_is_said_of_tls_where_no_port_speaks_it(values: dict[str, object]) -> None:
    found = loaded(**values)
    assert (found.tls, found.warnings) == (None, ())


@pytest.mark.parametrize(
    "values",
    [{"brokerServicePortTls": 0}, {"webServicePortTls": 8443}, {"bindAddresses": "a:https://127.0.0.1:0"}],
)
def test_port_with_tls_takes_the_keys_of_tls(values: dict[str, object]) -> None:
    found = loaded(tlsCertificateFilePath="/certificate", tlsRequireTrustedClientCertOnConnect="true", **values)
    assert found.warnings == ()
    assert found.tls is not None
    assert (found.tls.certificate, found.tls.peers) == ("/certificate", PeerCertificate.REQUIRED)


def test_keys_that_no_port_uses_are_named() -> None:
    (warning,) = loaded(tlsCertificateFilePath="/certificate").warnings
    assert warning.startswith("tlsCertificateFilePath=/certificate (--set) has no effect (Certificates): no port")


def test_old_key_opens_no_port_and_says_which_does() -> None:
    with pytest.raises(ConfigurationError, match="tlsEnabled=true, and no port speaks TLS; expected broker"):
        loaded(tlsEnabled="true")
    assert tls_of(tlsEnabled="true").is_asked_for


def test_plain_port_that_is_set_to_nothing_is_replaced_where_there_is_one_with_tls() -> None:
    one = tls_of(brokerServicePort="", webServicePort="")
    assert (one.replaces_broker_port, one.replaces_web_port) == (True, False)
    assert not tls_of(brokerServicePort=6650).replaces_broker_port


def test_http_has_rules_of_its_own_or_those_of_the_binary_protocol() -> None:
    assert tls_of(tlsProtocols="TLSv1.3").web_rules[:2] == ("tlsProtocols", ("TLSv1.3",))
    both = tls_of(tlsProtocols="TLSv1.3", webServiceTlsProtocols="TLSv1.2", tlsCiphers="A")
    assert both.web_rules == ("webServiceTlsProtocols", ("TLSv1.2",), "tlsCiphers", ("A",))
    with pytest.raises(ConfigurationError, match=r"webServiceTlsProtocols=TLSv1: TLSv1 is broken"):
        tls_of(webServiceTlsProtocols="TLSv1")


def test_passwords_of_stores_are_not_shown() -> None:
    config = loaded(
        webServicePortTls=8443, tlsEnabledWithKeyStore="true", tlsKeyStore="/store", tlsKeyStorePassword="hidden1"
    )
    assert config.tls is not None
    assert config.tls.material.password == "hidden1"
    assert config.values()["tlsKeyStore"] == "/store"
    assert config.values()["tlsKeyStorePassword"] == DOTS
    assert "hidden1" not in repr(config) + repr(config.tls.material)


def test_certificate_that_is_not_named_is_told_before_a_port_is_bound() -> None:
    with pytest.raises(ConfigurationError, match="tlsCertificateFilePath is not set: the binary protocol speaks TLS"):
        TlsPorts(tls_of(), 10, [])
    with pytest.raises(ConfigurationError, match="tlsKeyStore is not set: HTTP speaks TLS"):
        TlsPorts(tls_of(brokerServicePortTls="", webServicePortTls=1, tlsEnabledWithKeyStore="true"), 10, [])


def test_each_protocol_that_speaks_tls_has_a_context_which_follows_the_files(tmp_path) -> None:
    store = as_pkcs12(Authority(tmp_path, "authority").store("server"), "open")
    stores = {"tlsEnabledWithKeyStore": "true", "tlsKeyStore": store, "tlsKeyStorePassword": "open"}
    ports = TlsPorts(tls_of(**stores), 7, [])
    assert ports.web is None
    assert ports.binary is not None
    assert ports.binary.handshake_s == 7
    before = ports.binary.context()
    ports.look()
    assert ports.binary.context() is not before
    by_address = TlsPorts(tls_of(**stores), 7, ["a:https://127.0.0.1:0"])
    assert by_address.web is not None


def test_certificates_have_names_and_follow_their_files(tmp_path) -> None:
    authority = Authority(tmp_path, "authority")
    certificate, key = parts_of(authority.store("far"))
    config = tls_of(
        tlsCertificateFilePath=authority.store("own"),
        gemingaTlsCertificatesByName=f"Far.Example={certificate};{key}, *.near.example={authority.store('near')}",
    )
    assert [*config._named()] == ["far.example", "*.near.example"]
    followed = config.context(config.binary_rules, "x")
    assert followed.context().sni_callback is not None
    key.write_bytes(b"")
    assert not followed.look()
    assert followed.complaint.startswith(f"gemingaTlsCertificatesByName={key}: no private key")
    # Without, nobody is asked for a name.
    plain = tls_of(tlsCertificateFilePath=authority.store("own"))
    assert plain.context(plain.binary_rules, "x").context().sni_callback is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("/a.pem", "gemingaTlsCertificatesByName=/a.pem: expected name=certificate.pem"),
        ("a.example=", "a.example=: expected name=certificate.pem"),
        ("a*.example=/a.pem", r"a\*.example=/a.pem: expected name="),
        ("a.example=/a.pem,A.example=/b.pem", "a.example has a certificate already"),
    ],
)
def test_names_that_can_not_be_refuse_the_start(text: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        tls_of(gemingaTlsCertificatesByName=text)

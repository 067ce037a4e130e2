"""Links to other brokers from Pulsar's keys."""

from __future__ import annotations

import pytest

from geminga.app.configuration.config import Config, load_config
from geminga.app.servers.member_broker import links_of
from geminga.client import AuthenticationToken
from geminga.model.errors import ConfigurationError
from geminga.model.secret import DOTS
from geminga.sim import SimNode, SimWorld, run
from support.house.deciding import TakenAtTheirWord
from support.processes.certificates import Authority, as_pkcs12

JAVA = "org.apache.pulsar.client.impl.auth"
PORTS = {"brokerServicePortTls": 1, "webServicePortTls": 2, "tlsCertificateFilePath": "/c"}


def loaded(**values: object) -> Config:
    return load_config(overrides=[f"{key}={value}" for key, value in values.items()])


def test_nothing_is_said_of_links_unless_it_is() -> None:
    found = loaded(brokerClientTlsEnabled="false", brokerClientAuthenticationPlugin="")
    assert (found.links, found.warnings) == (None, ())
    assert not links_of(found).uses_tls


def test_credentials_alone_are_used_without_tls_and_shown_nowhere() -> None:
    config = loaded(
        brokerClientAuthenticationPlugin=f"{JAVA}.AuthenticationToken",
        brokerClientAuthenticationParameters="token:hidden1",
    )
    assert config.warnings == ()
    links = links_of(config)
    authentication = links.client_arguments["authentication"]
    assert isinstance(authentication, AuthenticationToken)
    assert authentication.data() == b"hidden1"
    assert not links.uses_tls
    assert config.values()["brokerClientAuthenticationParameters"] == DOTS
    assert "hidden1" not in repr(config)


def test_files_are_read_at_the_start(tmp_path) -> None:
    authority = Authority(tmp_path, "authority")
    good = {**PORTS, "brokerClientTlsEnabled": "true", "brokerClientTrustCertsFilePath": authority.certificate}
    links = links_of(loaded(**good))
    assert links.uses_tls
    assert links.client_arguments["tls_validate_hostname"] is False
    with pytest.raises(ConfigurationError, match=r"brokerClient.*TLS: /nowhere: No such file"):
        links_of(loaded(**{**good, "brokerClientTrustCertsFilePath": "/nowhere"}))
    assert links_of(loaded(**good, tlsHostnameVerificationEnabled="true")).client_arguments["tls_validate_hostname"]


def test_stores_are_pkcs12_and_java_s_own_are_refused_with_what_converts_them(tmp_path) -> None:
    authority = Authority(tmp_path, "authority")
    own, trusted = as_pkcs12(authority.store("broker"), "hidden1"), as_pkcs12(authority.store("other"), "hidden2")
    good = {
        **PORTS,
        "brokerClientTlsEnabled": "true",
        "brokerClientTlsEnabledWithKeyStore": "true",
        "brokerClientTlsKeyStoreType": "PKCS12",
        "brokerClientTlsKeyStore": own,
        "brokerClientTlsKeyStorePassword": "hidden1",
        "brokerClientTlsTrustStore": trusted,
        "brokerClientTlsTrustStorePassword": "hidden2",
    }
    config = loaded(**good)
    assert "hidden" not in repr(config) + str(config.values())
    context = links_of(config).context()
    assert context.cert_store_stats()["x509"] == 1
    for change, told in (
        ({"brokerClientTlsKeyStorePassword": "hidden3"}, "broker.p12: the PKCS#12 store can not be opened"),
        ({"brokerClientTlsTrustStorePassword": "hidden3"}, "other.p12: the PKCS#12 store can not be opened"),
    ):
        with pytest.raises(ConfigurationError, match=told) as caught:
            links_of(loaded(**{**good, **change}))
        assert "hidden" not in str(caught.value)
    own.write_bytes(b"\xfe\xed\xfe\xed...")
    # Also where nothing else says that it is a store.
    bare = {"brokerClientTlsTrustStore": authority.certificate, "brokerClientTlsTrustStorePassword": ""}
    for change in ({}, {**bare, "brokerClientTlsKeyStorePassword": ""}):
        with pytest.raises(ConfigurationError, match=r"a Java key store \(JKS\).*keytool -importkeystore"):
            links_of(loaded(**{**good, **change}))


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"brokerClientTlsEnabled": "true"}, "brokerClientTlsEnabled=true: .* expected brokerServicePortTls=6651"),
        (
            {**PORTS, "webServicePort": ""},
            "brokerServicePort= or webServicePort= .* expected brokerClientTlsEnabled=true",
        ),
        ({"brokerClientAuthenticationPlugin": "com.example.Mine"}, "'com.example.Mine' is not built"),
        ({"brokerClientAuthenticationParameters": "hidden1"}, "parameters of authentication without a plugin"),
    ],
)
def test_what_does_not_go_together_refuses_the_start(values: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told) as caught:
        links_of(loaded(**values))
    assert "hidden1" not in str(caught.value)


def test_a_broker_s_own_role_is_found_out_where_it_shows_credentials() -> None:
    config = loaded(brokerClientAuthenticationPlugin="token", brokerClientAuthenticationParameters="token:broker")
    tls = loaded(**PORTS, brokerClientTlsEnabled="true")

    async def scenario(node: SimNode) -> None:
        assert config.links is not None
        assert tls.links is not None
        own = config.links.own_role(node.runtime, TakenAtTheirWord())
        assert own is not None
        assert await own() == "broker"
        assert tls.links.own_role(node.runtime, TakenAtTheirWord()) is None

    async def main(world: SimWorld) -> None:
        await world.node("broker").run(scenario)

    run(main)

"""TLS where a bookie answers HTTP, by BookKeeper's keys."""

from __future__ import annotations

from ssl import CERT_NONE, CERT_REQUIRED

import pytest

from geminga.app.configuration.bookie_config import HttpListener, load_bookie_config
from geminga.app.configuration.bookie_http_tls import BookieHttpTlsConfig
from geminga.model.errors import ConfigurationError
from support.processes.certificates import Authority, as_pkcs12

METRICS = "statsProviderClass=org.apache.bookkeeper.stats.prometheus.PrometheusMetricsProvider"


def listener(*assignments: str) -> HttpListener:
    config = load_bookie_config(overrides=assignments)
    assert config.warnings == ()
    assert "hidden1" not in repr(config)
    found = config.http()
    assert found is not None
    return found


@pytest.mark.parametrize("where", ["httpServerEnabled=true", METRICS])
def test_any_port_of_questions_has_it(where: str) -> None:
    stores = ["httpServerKeyStorePath=/k", "httpServerKeyStorePassword=hidden1", "httpServerTrustStorePath=/t"]
    tls = listener(where, "httpServerTlsEnable=true", *stores).tls
    assert tls is not None
    assert (tls.key_store, tls.key_password.reveal(), tls.knows_clients) == ("/k", "hidden1", True)
    assert listener(where, "httpServerTlsEnable=false", *stores).tls is None
    assert listener(where).tls is None


def test_stores_are_pem_or_pkcs12_and_are_looked_at_with_each_connection(tmp_path) -> None:
    authority = Authority(tmp_path, "authority")
    first = authority.store("one")
    tls = BookieHttpTlsConfig(key_store=str(first)).served()
    before = tls.context()
    assert before.verify_mode is CERT_NONE
    assert tls.context() is before
    first.write_bytes(authority.store("another", password="").read_bytes())
    assert tls.context() is not before
    from geminga.model.secret import Secret

    store = BookieHttpTlsConfig(
        key_store=str(as_pkcs12(authority.store("two"), "open")),
        key_password=Secret("open"),
        trust_store=str(authority.certificate),
    )
    assert store.served().context().verify_mode is CERT_REQUIRED


def test_what_is_wrong_is_told_by_its_key(tmp_path) -> None:
    with pytest.raises(ConfigurationError, match="httpServerKeyStorePath is not set: HTTP speaks TLS"):
        BookieHttpTlsConfig().served()
    jks = tmp_path / "store.jks"
    jks.write_bytes(b"\xfe\xed\xfe\xed....")
    with pytest.raises(ConfigurationError, match=r"httpServerKeyStorePath=.*a Java key store \(JKS\).*keytool"):
        BookieHttpTlsConfig(key_store=str(jks)).served()

"""Names of versions and of ciphers, as Java has them and as OpenSSL has."""

from __future__ import annotations

import pytest

from geminga.model.errors import ConfigurationError
from geminga.runtime.tls.settings import Material, Named, Rules, check_protocols, openssl_cipher


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("TLS_DHE_RSA_WITH_AES_128_CBC_SHA256", "DHE-RSA-AES128-SHA256"),
        ("ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"),
    ],
)
def test_suite_of_java_has_openssls_name(given: str, expected: str) -> None:
    assert openssl_cipher(given) == expected


def test_versions_are_oldest_first_and_both_where_nothing_is_said() -> None:
    assert check_protocols(Rules()) == ("TLSv1.2", "TLSv1.3")
    assert check_protocols(Rules(protocols=("TLSv1.3", "TLSv1.2"))) == ("TLSv1.2", "TLSv1.3")
    assert check_protocols(Rules(protocols=("TLSv1.3",))) == ("TLSv1.3",)


@pytest.mark.parametrize(("name", "told"), [("TLSv1.1", "broken"), ("tls1.2", "no version of TLS")])
def test_version_that_is_not_spoken_is_named(name: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"webServiceTlsProtocols=TLSv1.3,{name}: .*{told}"):
        check_protocols(Rules("webServiceTlsProtocols", ("TLSv1.3", name)))


def test_passwords_are_not_shown() -> None:
    material = Material(Named("k", "p"), Named("k2"), Named("k3"), "pk", "hidden1", "tk", "hidden2")
    assert "hidden" not in repr(material)
    assert "k=p" in str(material.certificate)

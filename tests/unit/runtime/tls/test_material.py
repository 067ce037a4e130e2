"""Certificates and keys from files: what is good, and the sentence about each thing that is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509 import load_pem_x509_certificate

from geminga.model.errors import ConfigurationError
from geminga.runtime.tls.material import Identity, read_identity, read_trust, utc_now
from geminga.runtime.tls.settings import Material, Named
from support.processes.certificates import Authority, as_pkcs12, parts_of

CERTIFICATE, KEY, TRUST = "tlsCertificateFilePath", "tlsKeyFilePath", "tlsTrustCertsFilePath"


def material(certificate: object, key: object = "", password: str = "", password_key: str = "") -> Material:
    return Material(Named(CERTIFICATE, str(certificate)), Named(KEY, str(key)), Named(TRUST), password_key, password)


def identity(of: Material) -> Identity:
    return read_identity(of, utc_now())


@pytest.fixture
def authority(tmp_path) -> Authority:
    return Authority(tmp_path, "authority")


def test_pair_of_files_one_file_and_a_store_are_one_identity(authority: Authority) -> None:
    store = authority.store("server", "127.0.0.1")
    certificate, key = parts_of(store)
    own = load_pem_x509_certificate(certificate.read_bytes())
    found = [
        identity(material(certificate, key)),
        identity(material(store)),
        identity(material(as_pkcs12(store, "open sesame"), password="open sesame")),
    ]
    assert {each.fingerprint for each in found} == {own.fingerprint(hashes.SHA256()).hex()}
    assert {(each.subject, each.not_after) for each in found} == {("CN=server", own.not_valid_after_utc)}
    assert "PRIVATE" not in repr(found[0])


def test_encrypted_key_is_opened_with_its_password(authority: Authority) -> None:
    store = authority.store("server", password="right")
    assert identity(material(store, password="right")).subject == "CN=server"
    with pytest.raises(ConfigurationError, match=r"the password does not open the private key") as caught:
        identity(material(store, password="wrong1"))
    assert "wrong1" not in str(caught.value)
    with pytest.raises(ConfigurationError, match=r"encrypted; expected one without password$"):
        identity(material(store))
    with pytest.raises(ConfigurationError, match="encrypted; expected one without password, or thePassword"):
        identity(material(store, password_key="thePassword"))


@pytest.mark.parametrize(
    ("days", "told"), [((-5, -1), "expired on 20"), ((1, 5), "is not valid before 20")], ids=["expired", "early"]
)
def test_certificate_whose_time_it_is_not_is_told_when(authority: Authority, days: tuple[int, int], told: str) -> None:
    store = authority.store("server", days=days)
    with pytest.raises(ConfigurationError, match=rf"{CERTIFICATE}={store}: the certificate {told}.* UTC"):
        identity(material(store))


def test_key_of_another_certificate_is_told_with_both_files(authority: Authority) -> None:
    certificate, _ = parts_of(authority.store("one"))
    _, key = parts_of(authority.store("two"))
    with pytest.raises(ConfigurationError, match=rf"{KEY}={key}: not the private key of {CERTIFICATE}={certificate}"):
        identity(material(certificate, key))


def test_files_that_are_something_else_are_told_what_they_are(authority: Authority, tmp_path: Path) -> None:
    certificate, key = parts_of(authority.store("server"))
    for given, told in (
        ((key, certificate), f"{CERTIFICATE}={key}: a private key; expected"),
        ((certificate, authority.certificate), f"{KEY}={authority.certificate}: a certificate; expected"),
        ((certificate, ""), f"{CERTIFICATE}={certificate}: no private key; expected"),
        ((tmp_path / "none.pem", key), f"{CERTIFICATE}={tmp_path / 'none.pem'}: No such file"),
        ((tmp_path, key), f"{CERTIFICATE}={tmp_path}: Is a directory"),
    ):
        with pytest.raises(ConfigurationError) as caught:
            identity(material(*given))
        assert str(caught.value).startswith(told)
    broken = tmp_path / "broken.pem"
    broken.write_bytes(certificate.read_bytes().replace(b"M", b"N", 3))
    with pytest.raises(ConfigurationError, match=rf"{CERTIFICATE}={broken}: a certificate that can not be read"):
        identity(material(broken, key))


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_file_that_may_not_be_read_is_told_so(authority: Authority) -> None:
    store = authority.store("server")
    store.chmod(0)
    with pytest.raises(ConfigurationError, match=rf"{CERTIFICATE}={store}: Permission denied"):
        identity(material(store))


def test_store_of_java_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    store = tmp_path / "broker.keystore.jks"
    store.write_bytes(bytes.fromhex("feedfeed00000002"))
    with pytest.raises(ConfigurationError, match=rf"JKS.*keytool -importkeystore -srckeystore {store} .*PKCS12"):
        identity(material(store))


def test_store_that_does_not_open_or_has_no_key_is_told_so(authority: Authority, tmp_path: Path) -> None:
    store = as_pkcs12(authority.store("server"), "right")
    with pytest.raises(ConfigurationError, match="can not be opened with tlsKeyStorePassword") as caught:
        identity(material(store, password="wrong1", password_key="tlsKeyStorePassword"))
    assert "wrong1" not in str(caught.value)
    no_key = tmp_path / "trust.p12"
    trusted = load_pem_x509_certificate(authority.certificate.read_bytes())
    no_key.write_bytes(pkcs12.serialize_key_and_certificates(None, None, None, [trusted], serialization.NoEncryption()))
    with pytest.raises(ConfigurationError, match="no private key with its certificate"):
        identity(material(no_key))
    assert read_trust(Named(TRUST, str(no_key))).count("BEGIN CERTIFICATE") == 1


def test_trust_is_certificates_and_nothing_else(authority: Authority) -> None:
    assert read_trust(Named(TRUST, str(authority.certificate))).count("BEGIN CERTIFICATE") == 1
    _, key = parts_of(authority.store("server"))
    with pytest.raises(ConfigurationError, match=rf"{TRUST}={key}: no certificate; expected"):
        read_trust(Named(TRUST, str(key)))
    store = as_pkcs12(authority.store("other"), "right")
    assert read_trust(Named(TRUST, str(store)), "tlsTrustStorePassword", "right").count("BEGIN CERTIFICATE") == 1
    with pytest.raises(ConfigurationError, match=rf"{TRUST}={store}: .*tlsTrustStorePassword"):
        read_trust(Named(TRUST, str(store)), "tlsTrustStorePassword", "wrong")


def test_key_of_a_store_is_that_of_its_certificate(authority: Authority, tmp_path: Path) -> None:
    one = authority.store("one").read_bytes()
    other = ec.generate_private_key(ec.SECP256R1())
    foreign = tmp_path / "foreign.pem"
    foreign.write_bytes(
        other.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + one[one.index(b"-----BEGIN CERTIFICATE") :]
    )
    with pytest.raises(ConfigurationError, match="its private key is not that of its first certificate"):
        identity(material(foreign))

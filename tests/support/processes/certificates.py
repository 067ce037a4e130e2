"""Authorities and certificates for tests of TLS, as PEM files."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

_DAY: Final = datetime.timedelta(days=1)


class Authority:
    """Signs certificates; its own is ``certificate``, a file in ``directory``."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name_of(name)
        self._signed = 0
        built = self._built(self._name, self._key.public_key(), is_authority=True).sign(self._key, hashes.SHA256())
        self.certificate = directory / f"{name}.pem"
        self.certificate.write_bytes(built.public_bytes(serialization.Encoding.PEM))

    def store(
        self,
        name: str,
        *addresses: str,
        password: str = "",
        days: tuple[int, int] = (-1, 1),
        unit: str = "",
        host: str = "",
    ) -> Path:
        """A file of a new key and its certificate, which is for these addresses and holds between these days.

        ``unit``: the organizational unit, beside ``name``. ``host``: a name of the network that it is for, too.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        found: list[x509.GeneralName] = [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        found += [x509.DNSName(host)] if host else []
        builder = self._built(_name_of(name, unit), key.public_key(), is_authority=False, days=days)
        if found:
            builder = builder.add_extension(x509.SubjectAlternativeName(found), critical=False)
        hidden = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        path = self._directory / f"{name}.pem"
        path.write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden)
            + builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        )
        return path

    def _built(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        *,
        is_authority: bool,
        days: tuple[int, int] = (-1, 1),
    ) -> x509.CertificateBuilder:
        self._signed += 1
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(self._signed)
            .not_valid_before(now + days[0] * _DAY)
            .not_valid_after(now + days[1] * _DAY)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )


def parts_of(store: Path) -> tuple[Path, Path]:
    """The certificate and the key of a file that has both, each in one of its own beside it."""
    key, begin, certificate = store.read_bytes().partition(b"-----BEGIN CERTIFICATE-----")
    paths = store.with_suffix(".cert.pem"), store.with_suffix(".key.pem")
    paths[0].write_bytes(begin + certificate)
    paths[1].write_bytes(key)
    return paths


def as_pkcs12(store: Path, password: str) -> Path:
    """The same as a store of PKCS#12."""
    text = store.read_bytes()
    key = serialization.load_pem_private_key(text, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    made = pkcs12.serialize_key_and_certificates(
        b"own",
        key,
        x509.load_pem_x509_certificate(text),
        None,
        serialization.BestAvailableEncryption(password.encode()),
    )
    path = store.with_suffix(".p12")
    path.write_bytes(made)
    return path


def _name_of(name: str, unit: str = "") -> x509.Name:
    units = [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit)] if unit else []
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name), *units])

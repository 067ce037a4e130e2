"""Certificates and keys from PEM files and PKCS#12 stores, and a sentence about each thing that is wrong with them.

All of a context comes from one reading: a file that is exchanged meanwhile is the next reading's. Nothing is asked at
the terminal. Java's own stores (JKS, JCEKS) are refused with the command that converts them, whatever type was said:
what a file is, its first bytes tell.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from geminga.model.errors import ConfigurationError
from geminga.model.extras import needed_for
from geminga.runtime.tls.settings import Material, Named

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

#: A larger file is no certificate, and no key.
FILE_BYTES_MAX: Final = 16 * 1024 * 1024
_JKS: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_CERTIFICATE: Final = re.compile(rb"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----")
_KEY: Final = re.compile(rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----")
_ENCRYPTED: Final = re.compile(rb"-----BEGIN ENCRYPTED PRIVATE KEY-----|Proc-Type: 4,ENCRYPTED")


class Identity(NamedTuple):
    """An own certificate with its key."""

    #: Certificates, the own one first, and the key without password; both PEM.
    pem: bytes
    #: SHA-256 of the own certificate, as hexadecimal digits.
    fingerprint: str
    #: Who it names.
    subject: str
    #: Until when it holds.
    not_after: datetime

    def __repr__(self) -> str:
        return f"Identity({self.subject!r}, {self.fingerprint!r})"  # without the key


def read_file(named: Named) -> bytes:
    """The bytes of a file; raises ConfigurationError."""
    try:
        with open(named.path, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigurationError(f"{named}: {error.strerror or error}") from error
    if len(data) > FILE_BYTES_MAX:
        raise ConfigurationError(f"{named}: more than {FILE_BYTES_MAX} bytes; expected certificates or a key")
    if is_java_store(data):
        raise ConfigurationError(
            f"{named}: a Java key store (JKS), which is not read; expected PEM or PKCS#12: keytool -importkeystore "
            f"-srckeystore {named.path} -destkeystore {named.path}.p12 -deststoretype PKCS12"
        )
    return data


def is_java_store(data: bytes) -> bool:
    """Whether it is one of Java's own (JKS, JCEKS)."""
    return data[:4] in _JKS


def is_pkcs12(data: bytes) -> bool:
    """Whether it is a store of PKCS#12: a sequence of DER, where PEM is text."""
    return data[:1] == b"\x30"


def read_identity(material: Material, now: datetime) -> Identity:
    """Own certificate and key, which belong together and hold ``now``; raises ConfigurationError, MissingExtraError."""
    with needed_for("A certificate for TLS"):
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    named = material.certificate
    data = read_file(named)
    certificates, key = _stored(material, data) if is_pkcs12(data) else _from_pem(material, data)
    own = certificates[0]
    _check_pair(own, key, material, is_store=is_pkcs12(data))
    _check_time(own, named, now)
    pem = b"".join(each.public_bytes(Encoding.PEM) for each in certificates)
    pem += key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())  # type: ignore[attr-defined]
    return Identity(pem, fingerprint_of(own), own.subject.rfc4514_string(), own.not_valid_after_utc)


def fingerprint_of(certificate: Certificate) -> str:
    """SHA-256 of its DER, as hexadecimal digits."""
    from cryptography.hazmat.primitives.hashes import SHA256

    return certificate.fingerprint(SHA256()).hex()


def _from_pem(material: Material, data: bytes) -> tuple[list[Certificate], object]:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from cryptography.x509 import load_pem_x509_certificates

    named = material.certificate
    if not _CERTIFICATE.search(data):
        what = "a private key" if _KEY.search(data) else "no certificate"
        raise ConfigurationError(f"{named}: {what}; expected a PEM file of certificates, or a PKCS#12 store")
    try:
        certificates = load_pem_x509_certificates(data)
    except ValueError as error:
        raise ConfigurationError(f"{named}: a certificate that can not be read ({_short(error)})") from error
    holder = material.private_key if material.private_key.path else named
    text = read_file(holder) if material.private_key.path else data
    if not _KEY.search(text):
        what = "a certificate" if _CERTIFICATE.search(text) and holder is not named else "no private key"
        raise ConfigurationError(f"{holder}: {what}; expected a PEM file with the private key of {named}")
    is_encrypted = _ENCRYPTED.search(text) is not None
    if is_encrypted and not material.password:
        hint = f"; expected one without password, or {material.password_key}" if material.password_key else ""
        raise ConfigurationError(f"{holder}: the private key is encrypted{hint or '; expected one without password'}")
    try:
        key = load_pem_private_key(text, material.password.encode() if is_encrypted else None)
    except (ValueError, TypeError) as error:
        wrong = "the password does not open the private key" if is_encrypted else "a private key that can not be read"
        raise ConfigurationError(f"{holder}: {wrong} ({_short(error)})") from None
    return certificates, key


def _stored(material: Material, data: bytes) -> tuple[list[Certificate], object]:
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_key_and_certificates

    named = material.certificate
    try:
        key, own, others = load_key_and_certificates(data, material.password.encode() or None)
    except ValueError as error:
        raise ConfigurationError(
            f"{named}: the PKCS#12 store can not be opened with {material.password_key or 'no password'} "
            f"({_short(error)})"
        ) from None
    if key is None or own is None:
        raise ConfigurationError(f"{named}: the PKCS#12 store has no private key with its certificate")
    return [own, *others], key


def _check_pair(own: Certificate, key: object, material: Material, *, is_store: bool) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    def plain(public: object) -> bytes:
        encoded: bytes = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)  # type: ignore[attr-defined]
        return encoded

    if plain(own.public_key()) != plain(key.public_key()):  # type: ignore[attr-defined]
        if is_store or not material.private_key.path:
            raise ConfigurationError(f"{material.certificate}: its private key is not that of its first certificate")
        raise ConfigurationError(
            f"{material.private_key}: not the private key of {material.certificate}; expected two files of one pair"
        )


def _check_time(own: Certificate, named: Named, now: datetime) -> None:
    if now > own.not_valid_after_utc:
        raise ConfigurationError(f"{named}: the certificate expired on {_day(own.not_valid_after_utc)}")
    if now < own.not_valid_before_utc:
        raise ConfigurationError(f"{named}: the certificate is not valid before {_day(own.not_valid_before_utc)}")


def read_trust(named: Named, password_key: str = "", password: str = "") -> str:
    """The certificates to trust, as PEM; raises ConfigurationError, MissingExtraError."""
    data = read_file(named)
    if not is_pkcs12(data):
        if not _CERTIFICATE.search(data):
            raise ConfigurationError(f"{named}: no certificate; expected a PEM file of certificates to trust")
        return data.decode("ascii", "ignore")
    with needed_for("A PKCS#12 store"):
        from cryptography.hazmat.primitives.serialization import Encoding
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    try:
        store = load_pkcs12(data, password.encode() or None)
    except ValueError as error:
        raise ConfigurationError(
            f"{named}: the PKCS#12 store can not be opened with {password_key or 'no password'} ({_short(error)})"
        ) from None
    found = [each.certificate for each in store.additional_certs]
    if store.cert is not None:
        found.append(store.cert.certificate)
    if not found:
        raise ConfigurationError(f"{named}: the PKCS#12 store has no certificate to trust")
    return "".join(each.public_bytes(Encoding.PEM).decode() for each in found)


def load_identity(context: ssl.SSLContext, identity: Identity, named: Named) -> None:
    """Give ``context`` certificate and key; raises ConfigurationError where OpenSSL refuses them (a weak key)."""
    with _as_file(identity.pem) as path:
        try:
            context.load_cert_chain(path)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(f"{named}: {reason_of(error)}") from error


@contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """A path of ``data`` for OpenSSL, which takes nothing else; on Linux it is in memory alone."""
    import os
    import tempfile

    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, data)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile() as file:  # for this user alone
        file.write(data)
        file.flush()
        yield file.name


def reason_of(error: Exception) -> str:
    """What OpenSSL or the system says of it, in small letters and without its numbers."""
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return str(getattr(error, "strerror", None) or error)


def utc_now() -> datetime:
    """The wall clock's time: what certificates' dates are held against."""
    return datetime.now(UTC)


def _day(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def _short(error: Exception) -> str:
    return str(error).partition("\n")[0][:120] or type(error).__name__

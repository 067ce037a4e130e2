"""Who signs tokens in tests."""

from __future__ import annotations

import base64
import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID

from geminga.security.base64_text import encode_url
from geminga.security.keys import secret_key
from geminga.security.token_rules import create_token

#: What ``geminga tokens create-secret-key`` would have drawn.
SECRET = bytes(range(100, 132))
OTHER_SECRET = bytes(range(132, 164))


def in_text(data: bytes) -> str:
    """Bytes as a value of a configuration key."""
    return "data:;base64," + base64.b64encode(data).decode()


def token_of(role: str, *, secret: bytes = SECRET, **claims: object) -> bytes:
    """A token of HS256, as it is sent."""
    return create_token(secret_key(secret), "HS256", {"sub": role, **claims}, {}).encode()


def web_key(key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey, key_id: str) -> dict[str, str]:
    """A public key as an issuer lists it."""

    def text(number: int, size: int) -> str:
        return encode_url(number.to_bytes(size, "big"))

    numbers = key.public_numbers()
    if isinstance(numbers, rsa.RSAPublicNumbers):
        return {"kty": "RSA", "kid": key_id, "n": text(numbers.n, key.key_size // 8), "e": text(numbers.e, 3)}
    size = (key.key_size + 7) // 8
    curve = {256: "P-256", 384: "P-384", 521: "P-521"}[key.key_size]
    return {"kty": "EC", "kid": key_id, "crv": curve, "x": text(numbers.x, size), "y": text(numbers.y, size)}


def certificate_of(name: str) -> bytes:
    """A certificate with this common name, or none, in DER."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)] if name else [])
    begin = datetime.datetime(2026, 1, 1)
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), 1, begin, begin + datetime.timedelta(1))
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)


def rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def pem_pair(
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, form: PrivateFormat = PrivateFormat.PKCS8
) -> tuple[bytes, bytes]:
    """The public and the private key in PEM."""
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return public, key.private_bytes(Encoding.PEM, form, NoEncryption())


def pem_files(directory: Path, form: PrivateFormat = PrivateFormat.PKCS8) -> tuple[str, str]:
    """Paths of a new RSA key's public and private part in PEM."""
    paths = directory / "public.pem", directory / "private.pem"
    for path, data in zip(paths, pem_pair(rsa_key(), form), strict=True):
        path.write_bytes(data)
    return str(paths[0]), str(paths[1])

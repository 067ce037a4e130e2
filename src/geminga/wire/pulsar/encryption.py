"""End-to-end encryption as Pulsar's clients do it.

A payload (of a message, a batch or a chunk, after compression) becomes its AES-256-GCM ciphertext followed by the
16-byte tag, without additional data. The 12-byte nonce is ``MessageMetadata.encryption_param``. The data key travels
in ``MessageMetadata.encryption_keys``, once per named key pair, as RSA-OAEP (SHA-1 and MGF1 with SHA-1) ciphertext, or,
for elliptic curve keys, which of the official clients the Java one takes, as ECIES ciphertext (:mod:`.ecies`).
"""

from __future__ import annotations

import re
from typing import Final

from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from geminga.model.errors import RemoteError
from geminga.wire.pulsar import ecies

DATA_KEY_BITS: Final = 256
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
_OAEP: Final = padding.OAEP(mgf=padding.MGF1(hashes.SHA1()), algorithm=hashes.SHA1(), label=None)
#: What ``openssl ecparam`` writes before a key: the key says it, too.
_EC_PARAMETERS: Final = re.compile(rb"-----BEGIN EC PARAMETERS-----.*?-----END EC PARAMETERS-----\s*", re.DOTALL)


class EncryptionError(RemoteError):
    """A key can not be read or does not fit, or a payload was tampered with."""


def new_data_key() -> bytes:
    """A fresh key for payloads."""
    return AESGCM.generate_key(DATA_KEY_BITS)


def wrap_data_key(public_key_pem: bytes, data_key: bytes) -> bytes:
    """The data key for the holder of the private key; raises EncryptionError."""
    try:
        key = serialization.load_pem_public_key(_EC_PARAMETERS.sub(b"", public_key_pem))
    except (ValueError, UnsupportedAlgorithm) as error:
        raise EncryptionError(f"not a public key in PEM: {error}") from error
    if isinstance(key, rsa.RSAPublicKey):
        return key.encrypt(data_key, _OAEP)
    if isinstance(key, ec.EllipticCurvePublicKey):
        return ecies.encrypt(key, data_key)
    raise EncryptionError("the public key is neither an RSA nor an elliptic curve key")


def unwrap_data_key(private_key_pem: bytes, wrapped: bytes) -> bytes:
    """The data key; raises EncryptionError."""
    try:
        key = serialization.load_pem_private_key(_EC_PARAMETERS.sub(b"", private_key_pem), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise EncryptionError(f"not a private key in PEM without password: {error}") from error
    try:
        if isinstance(key, rsa.RSAPrivateKey):
            return key.decrypt(wrapped, _OAEP)
        if isinstance(key, ec.EllipticCurvePrivateKey):
            return ecies.decrypt(key, wrapped)
    except ValueError as error:
        raise EncryptionError("the private key does not fit the data key") from error
    raise EncryptionError("the private key is neither an RSA nor an elliptic curve key")


def encrypt_payload(data_key: bytes, nonce: bytes, payload: bytes) -> bytes:
    """Ciphertext and tag. A nonce must never be used twice with one key."""
    return AESGCM(data_key).encrypt(nonce, payload, None)


def decrypt_payload(data_key: bytes, nonce: bytes, encrypted: bytes) -> bytes:
    """The payload; raises EncryptionError for a wrong key, a wrong nonce, or changed bytes."""
    try:
        return AESGCM(data_key).decrypt(nonce, encrypted, None)
    except (InvalidTag, ValueError) as error:
        raise EncryptionError("the payload does not fit its tag") from error

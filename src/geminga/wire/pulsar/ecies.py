"""ECIES as the Java client's Bouncy Castle does it when no parameters are given (IEEE 1363a, stream mode).

::

    wrapped = V | C | T
    V   the ephemeral public key, a point in uncompressed form (X9.62): 04 | x | y
    C   data XOR K1
    T   HMAC-SHA1 over C | eight zero bytes (the length of an empty encoding vector), key K2: 20 bytes

    K2 | K1 = KDF2(V | Z), 16 bytes and as many as the data has
    Z       ECDH's shared x coordinate, as long as the curve's field
    KDF2    SHA-1(seed | counter) for counter = 1, 2, ..., four bytes big-endian

For P-256 and a data key of 32 bytes: 65 + 32 + 20 = 117 bytes.
"""

from __future__ import annotations

from hashlib import sha1
from hmac import compare_digest, digest
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

MAC_KEY_BYTES: Final = 16
TAG_BYTES: Final = 20
_ENCODING_LENGTH: Final = bytes(8)


class EciesError(ValueError):
    """What was wrapped is for another key, or was changed."""


def encrypt(public_key: ec.EllipticCurvePublicKey, data: bytes) -> bytes:
    """``data`` for the holder of the private key."""
    ephemeral = ec.generate_private_key(public_key.curve)
    point = ephemeral.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    mac_key, stream = _keys(point, ephemeral.exchange(ec.ECDH(), public_key), len(data))
    hidden = _xor(data, stream)
    return point + hidden + _tag(mac_key, hidden)


def decrypt(private_key: ec.EllipticCurvePrivateKey, wrapped: bytes) -> bytes:
    """The data; raises EciesError."""
    point_bytes = 1 + 2 * ((private_key.curve.key_size + 7) // 8)
    if len(wrapped) < point_bytes + TAG_BYTES:
        raise EciesError(f"{len(wrapped)} bytes are too few for a key of {private_key.curve.name}")
    point, hidden, tag = wrapped[:point_bytes], wrapped[point_bytes:-TAG_BYTES], wrapped[-TAG_BYTES:]
    try:
        ephemeral = ec.EllipticCurvePublicKey.from_encoded_point(private_key.curve, point)
    except ValueError as error:
        raise EciesError(f"no point of {private_key.curve.name}") from error
    mac_key, stream = _keys(point, private_key.exchange(ec.ECDH(), ephemeral), len(hidden))
    if not compare_digest(_tag(mac_key, hidden), tag):
        raise EciesError("the tag does not fit")
    return _xor(hidden, stream)


def _keys(point: bytes, shared: bytes, size: int) -> tuple[bytes, bytes]:
    seed = point + shared
    derived = b""
    counter = 0
    while len(derived) < MAC_KEY_BYTES + size:
        counter += 1
        derived += sha1(seed + counter.to_bytes(4, "big")).digest()
    return derived[:MAC_KEY_BYTES], derived[MAC_KEY_BYTES : MAC_KEY_BYTES + size]


def _tag(mac_key: bytes, hidden: bytes) -> bytes:
    return digest(mac_key, hidden + _ENCODING_LENGTH, "sha1")


def _xor(data: bytes, stream: bytes) -> bytes:
    return (int.from_bytes(data, "big") ^ int.from_bytes(stream, "big")).to_bytes(len(data), "big")

"""The algorithms of signatures (RFC 7518, section 3; EdDSA: RFC 8037), and which keys each of them takes.

Pulsar's are HS, RS, PS and ES; EdDSA is beyond it. A key knows by itself which algorithms it may verify, and a token
says only which of those it was signed by: so a public key can never be taken for the secret of an HMAC, and
``none`` is an algorithm of no key.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

#: Bits of a modulus below which a key is refused (RFC 7518, section 3.3).
RSA_BITS_MIN: Final = 2048
#: Above it a verification costs more than a stranger's try should.
RSA_BITS_MAX: Final = 16384


class Family(Enum):
    """What a key is made of."""

    SECRET = "a secret"
    RSA = "RSA"
    EC = "an elliptic curve"
    ED = "an Edwards curve"


class Algorithm(NamedTuple):
    """One of them."""

    name: str
    family: Family
    #: Bits of the digest; 0: the curve has its own.
    bits: int = 0
    #: The one curve that it takes.
    curve: str = ""
    is_pss: bool = False

    @property
    def digest(self) -> str:
        """As :mod:`hashlib` calls it."""
        return f"sha{self.bits}"


ALGORITHMS: Final[Mapping[str, Algorithm]] = {
    one.name: one
    for one in (
        *(Algorithm(f"HS{bits}", Family.SECRET, bits) for bits in (256, 384, 512)),
        *(Algorithm(f"RS{bits}", Family.RSA, bits) for bits in (256, 384, 512)),
        *(Algorithm(f"PS{bits}", Family.RSA, bits, is_pss=True) for bits in (256, 384, 512)),
        Algorithm("ES256", Family.EC, 256, "secp256r1"),
        Algorithm("ES384", Family.EC, 384, "secp384r1"),
        Algorithm("ES512", Family.EC, 512, "secp521r1"),
        Algorithm("EdDSA", Family.ED),
    )
}


def algorithm_named(name: str) -> Algorithm:
    """The algorithm; raises ValueError with what there is."""
    found = ALGORITHMS.get(name)
    if found is None:
        raise ValueError(f"{name!r} is no algorithm of signatures; expected one of {', '.join(ALGORITHMS)}")
    return found


def is_key_pair_encoding(data: bytes) -> bool:
    """Whether ``data`` is a public or private key or a certificate, in PEM or DER: nothing to take as a secret.

    Told by the first bytes of each form (RFC 5280, RFC 5958): a sequence as long as the whole, and what begins it.
    A secret drawn by chance looks like that once in 2**40.
    """
    if data.lstrip().startswith(b"-----BEGIN "):
        return True
    body = _sequence(data)
    if body is None:
        return False
    if body.startswith((b"\x02\x01\x000", b"\x02\x01\x00\x02")):
        return True  # a private key: version 0, then its algorithm (PKCS#8) or its modulus (PKCS#1)
    if body.startswith(b"\x02\x01\x01\x04"):
        return True  # SEC 1
    inner = body[2 + _length_octets(body) :] if body[:1] == b"\x30" and len(body) > 2 else b""
    # A public key has the name of an algorithm there, a certificate its version.
    return inner.startswith((b"\x06\x07", b"\x06\x09", b"\x06\x03\x2b", b"\xa0\x03\x02\x01"))


def _length_octets(data: bytes) -> int:
    return data[1] & 0x7F if len(data) > 1 and data[1] & 0x80 else 0


def _sequence(data: bytes) -> bytes | None:
    """What a DER sequence that is all of ``data`` holds."""
    if len(data) < 32 or data[0] != 0x30:
        return None
    octets = _length_octets(data)
    length = int.from_bytes(data[2 : 2 + octets], "big") if octets else data[1]
    body = data[2 + octets :]
    return body if len(body) == length else None

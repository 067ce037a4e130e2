"""Keys that verify and sign: made of the bytes of a file, each with the algorithms that it takes.

Secrets of HMAC need nothing but Python; the others need ``cryptography``, which is loaded with the first of them.
Forms are those that Pulsar's tools write: a raw secret, a public key as X.509 DER, a private one as PKCS#8 DER; PEM of
the same is taken too.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from geminga.model.extras import needed_for
from geminga.security.algorithms import (
    ALGORITHMS,
    RSA_BITS_MAX,
    RSA_BITS_MIN,
    Algorithm,
    Family,
    is_key_pair_encoding,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
    from cryptography.hazmat.primitives.hashes import HashAlgorithm

    PublicKey: TypeAlias = (
        rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey | ed448.Ed448PublicKey
    )
    PrivateKey: TypeAlias = (
        rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey
    )

#: Bytes of a secret that no algorithm takes less of.
SECRET_BYTES_MIN: Final = 32
#: Bytes of a file with a key.
KEY_BYTES_MAX: Final = 64 << 10
_ASYMMETRIC: Final = "a key that is no secret"


class Verifier(Protocol):
    """A key that verifies."""

    @property
    def family(self) -> Family:
        """What it is made of."""
        ...

    @property
    def algorithms(self) -> frozenset[str]:
        """Names of the algorithms that it takes."""
        ...

    def verify(self, algorithm: Algorithm, signed: bytes, signature: bytes) -> bool:
        """Whether ``signature`` is this key's of ``signed``, by one of :attr:`algorithms`."""
        ...


class Signer(Protocol):
    """A key that signs."""

    @property
    def algorithms(self) -> frozenset[str]:
        """Names of the algorithms that it takes."""
        ...

    @property
    def preferred(self) -> str:
        """The one that Pulsar's tool takes for such a key."""
        ...

    def sign(self, algorithm: Algorithm, signed: bytes) -> bytes:
        """The signature, by one of :attr:`algorithms`."""
        ...


@dataclass(frozen=True, slots=True)
class SecretKey:
    """A secret that signs and verifies; an algorithm takes it if it is as long as its digest (RFC 7518, 3.2)."""

    data: bytes = field(repr=False)

    @property
    def family(self) -> Family:
        """A secret."""
        return Family.SECRET

    @property
    def algorithms(self) -> frozenset[str]:
        """Those whose digests are not longer."""
        return frozenset(
            name for name, one in ALGORITHMS.items() if one.family is Family.SECRET and one.bits <= 8 * len(self.data)
        )

    @property
    def preferred(self) -> str:
        """The one of the longest digest."""
        return max(self.algorithms)

    def sign(self, algorithm: Algorithm, signed: bytes) -> bytes:
        """HMAC."""
        return hmac.digest(self.data, signed, algorithm.digest)

    def verify(self, algorithm: Algorithm, signed: bytes, signature: bytes) -> bool:
        """In a time that tells nothing of the right signature."""
        return hmac.compare_digest(self.sign(algorithm, signed), signature)

    def __hash__(self) -> int:
        return hash(hashlib.sha256(self.data).digest())


def secret_key(data: bytes) -> SecretKey:
    """The key of a secret. Raises ValueError where it is too short, or no secret."""
    if is_key_pair_encoding(data):
        # Everybody has a public key: whoever knows it could sign.
        raise ValueError("it holds a public or private key or a certificate, which is not to be used as a secret")
    if len(data) < SECRET_BYTES_MIN:
        raise ValueError(f"the key has {8 * len(data)} bits; expected at least {8 * SECRET_BYTES_MIN}")
    if len(data) > KEY_BYTES_MAX:
        raise ValueError(f"the key has more than {KEY_BYTES_MAX} bytes")
    return SecretKey(data)


@dataclass(frozen=True, slots=True)
class PublicVerifier:
    """A public key."""

    family: Family
    algorithms: frozenset[str]
    key: PublicKey = field(repr=False)

    def verify(self, algorithm: Algorithm, signed: bytes, signature: bytes) -> bool:
        """See :class:`Verifier`."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils

        key = self.key
        try:
            if isinstance(key, rsa.RSAPublicKey):
                digest = _hash_of(algorithm)
                if algorithm.is_pss:
                    # RFC 7518, section 3.5: the salt is as long as the digest.
                    pss = padding.PSS(padding.MGF1(digest), digest.digest_size)
                    key.verify(signature, signed, pss, digest)
                else:
                    key.verify(signature, signed, padding.PKCS1v15(), digest)
            elif isinstance(key, ec.EllipticCurvePublicKey):
                half = (key.key_size + 7) // 8
                if len(signature) != 2 * half:
                    return False
                r, s = (int.from_bytes(part, "big") for part in (signature[:half], signature[half:]))
                # Zeros would be everybody's signature in an implementation that does not look (CVE-2022-21449).
                if not r or not s:
                    return False
                key.verify(utils.encode_dss_signature(r, s), signed, ec.ECDSA(_hash_of(algorithm)))
            else:
                key.verify(signature, signed)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True, slots=True)
class PrivateSigner:
    """A private key."""

    algorithms: frozenset[str]
    preferred: str
    key: PrivateKey = field(repr=False)

    def sign(self, algorithm: Algorithm, signed: bytes) -> bytes:
        """See :class:`Signer`."""
        from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils

        key = self.key
        if isinstance(key, rsa.RSAPrivateKey):
            digest = _hash_of(algorithm)
            if algorithm.is_pss:
                return key.sign(signed, padding.PSS(padding.MGF1(digest), digest.digest_size), digest)
            return key.sign(signed, padding.PKCS1v15(), digest)
        if isinstance(key, ec.EllipticCurvePrivateKey):
            half = (key.key_size + 7) // 8
            r, s = utils.decode_dss_signature(key.sign(signed, ec.ECDSA(_hash_of(algorithm))))
            return r.to_bytes(half, "big") + s.to_bytes(half, "big")
        return key.sign(signed)


def _is_pem(data: bytes, kind: str) -> bool:
    """Whether a key is PEM, not DER. Raises ValueError if it is too long to be one."""
    if len(data) > KEY_BYTES_MAX:
        raise ValueError(f"a {kind} key of more than {KEY_BYTES_MAX} bytes")
    return data.lstrip().startswith(b"-----BEGIN ")


def public_key(data: bytes) -> PublicVerifier:
    """The public key in ``data``: X.509 in DER or PEM. Raises ValueError."""
    is_pem = _is_pem(data, "public")
    with needed_for(_ASYMMETRIC, "crypto"):
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
    try:
        key = serialization.load_pem_public_key(data) if is_pem else serialization.load_der_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        raise ValueError("not a public key (X.509 SubjectPublicKeyInfo, as DER or PEM)") from None
    return verifier_of(key)


def verifier_of(key: object) -> PublicVerifier:
    """What a key of ``cryptography`` verifies. Raises ValueError for one of another kind, or too short."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa

    if not isinstance(
        key, rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey | ed448.Ed448PublicKey
    ):
        raise ValueError(f"a key of the kind {type(key).__name__}; expected RSA, P-256, P-384, P-521 or Ed25519")
    family, algorithms, _ = _takes(key)
    return PublicVerifier(family, algorithms, key)


def private_key(data: bytes) -> PrivateSigner:
    """The private key in ``data``: PKCS#8 in DER or PEM, without a password. Raises ValueError."""
    is_pem = _is_pem(data, "private")
    with needed_for(_ASYMMETRIC, "crypto"):
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
    try:
        load = serialization.load_pem_private_key if is_pem else serialization.load_der_private_key
        key = load(data, None)
    except (ValueError, UnsupportedAlgorithm):
        raise ValueError("not a private key (PKCS#8, as DER or PEM)") from None
    except TypeError:
        raise ValueError("the private key is encrypted; expected one without a password") from None
    if not isinstance(
        key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey
    ):
        raise ValueError(f"a key of the kind {type(key).__name__}; expected RSA, P-256, P-384, P-521 or Ed25519")
    _, algorithms, preferred = _takes(key.public_key())
    return PrivateSigner(algorithms, preferred, key)


def _takes(key: PublicKey) -> tuple[Family, frozenset[str], str]:
    """Family, algorithms, and the one that Pulsar's tool takes, for a public key; raises ValueError."""
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    if isinstance(key, rsa.RSAPublicKey):
        if not RSA_BITS_MIN <= key.key_size <= RSA_BITS_MAX:
            raise ValueError(f"the key has {key.key_size} bits; expected {RSA_BITS_MIN} to {RSA_BITS_MAX}")
        names = frozenset(name for name, one in ALGORITHMS.items() if one.family is Family.RSA)
        return Family.RSA, names, "RS512" if key.key_size >= 4096 else "RS384" if key.key_size >= 3072 else "RS256"
    if isinstance(key, ec.EllipticCurvePublicKey):
        found = [name for name, one in ALGORITHMS.items() if one.curve == key.curve.name]
        if not found:
            raise ValueError(f"the key is of the curve {key.curve.name}; expected P-256, P-384 or P-521")
        return Family.EC, frozenset(found), found[0]
    return Family.ED, frozenset({"EdDSA"}), "EdDSA"


def _hash_of(algorithm: Algorithm) -> HashAlgorithm:
    from cryptography.hazmat.primitives import hashes

    if algorithm.bits == 256:
        return hashes.SHA256()
    return hashes.SHA384() if algorithm.bits == 384 else hashes.SHA512()

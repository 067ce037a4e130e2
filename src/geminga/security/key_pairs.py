"""New key pairs, drawn by ``cryptography``, in the forms of Pulsar's tools."""

from __future__ import annotations

from typing import Final

from geminga.model.extras import needed_for
from geminga.security.algorithms import Family, algorithm_named

#: Bits of a modulus by the bits of its algorithm's digest, as the library of Pulsar's tool draws them.
_RSA_BITS: Final = {256: 2048, 384: 3072, 512: 4096}
_PUBLIC_EXPONENT: Final = 65537


def new_key_pair(name: str) -> tuple[bytes, bytes]:
    """Private (PKCS#8) and public key (X.509), DER, for the algorithm ``name``. Raises ValueError."""
    algorithm = algorithm_named(name)
    if algorithm.family is Family.SECRET:
        raise ValueError(f"{name} has a secret and no pair; expected RS256 to PS512, ES256 to ES512 or EdDSA")
    with needed_for("a key pair", "crypto"):
        from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
    if algorithm.family is Family.RSA:
        key = rsa.generate_private_key(_PUBLIC_EXPONENT, _RSA_BITS[algorithm.bits])
    elif algorithm.family is Family.EC:
        curves = (ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1())
        key = ec.generate_private_key(next(curve for curve in curves if curve.name == algorithm.curve))
    else:
        key = ed25519.Ed25519PrivateKey.generate()
    return (
        key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()),
        key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
    )

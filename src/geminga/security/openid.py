"""Documents of OpenID Connect issuers, and what is asked of their tokens. Pure.

An issuer tells at ``ISSUER/.well-known/openid-configuration`` where its keys are (``jwks_uri``; OpenID Connect
Discovery 1.0, section 4), and there lists them as JSON Web Keys (RFC 7517). Rules and algorithms are those of Pulsar's
provider.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from geminga.model.extras import needed_for
from geminga.security.base64_text import decode_url
from geminga.security.json_object import parse_object
from geminga.security.keys import PublicVerifier, Verifier, verifier_of
from geminga.security.token_rules import Proved, check_audience, check_times, proved_by
from geminga.security.web_token import WebToken

#: Bytes of a document, and keys of one issuer.
DOCUMENT_BYTES_MAX: Final = 1 << 20
KEYS_MAX: Final = 100
#: Of tokens; Pulsar's provider takes no others.
ALGORITHMS: Final = frozenset({"RS256", "RS384", "RS512", "ES256", "ES384", "ES512"})
DISCOVERY_PATH: Final = "/.well-known/openid-configuration"
#: Characters of a number: of a modulus of 16,384 bits, and some.
_NUMBER_LENGTH_MAX: Final = 4096
_CURVES: Final = {"P-256": "SECP256R1", "P-384": "SECP384R1", "P-521": "SECP521R1"}


@dataclass(frozen=True, slots=True)
class IssuerKey:
    """A key that an issuer lists."""

    key_id: str
    #: The one algorithm that it is for; empty: all that it takes.
    algorithm: str
    verifier: PublicVerifier = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIdRules:
    """What is asked of a token of any issuer."""

    audiences: frozenset[str]
    role_claim: str = "sub"
    skew_s: float = 0.0
    takes_all_roles: bool = False

    def claims_of(self, token: WebToken, now_s: float) -> Proved:
        """What a token says whose signature was verified, if it is good at ``now_s``. Raises ValueError."""
        for claim in ("exp", "iat", "sub"):
            if token.claims.get(claim) is None:
                raise ValueError(f"the token has no claim {claim!r}")
        expires_s = check_times(token.claims, now_s, self.skew_s)
        made_s = token.claims["iat"]
        if isinstance(made_s, int | float) and made_s > now_s + self.skew_s:
            raise ValueError("the token was made in the future (claim 'iat')")
        check_audience(token.claims, "aud", self.audiences)
        return proved_by(token.claims, self.role_claim, expires_s, takes_all=self.takes_all_roles)


def discovery_url(issuer: str) -> str:
    """Where an issuer says where its keys are."""
    return issuer.rstrip("/") + DISCOVERY_PATH


def keys_url_of(data: bytes, issuer: str) -> str:
    """Where the keys are, by the document ``data`` of ``issuer``. Raises ValueError."""
    found = parse_object(data, "the issuer's document", DOCUMENT_BYTES_MAX)
    if found.get("issuer") != issuer:
        raise ValueError("the issuer's document is of another issuer")
    url = found.get("jwks_uri")
    if not isinstance(url, str) or not url:
        raise ValueError("the issuer's document has no jwks_uri")
    return url


def parse_keys(data: bytes) -> tuple[IssuerKey, ...]:
    """Keys of an issuer that sign tokens; those of other kinds are passed over. Raises ValueError."""
    found = parse_object(data, "the issuer's list of keys", DOCUMENT_BYTES_MAX)
    listed = found.get("keys")
    if not isinstance(listed, list):
        raise ValueError("the issuer's list of keys has no keys")
    if len(listed) > KEYS_MAX:
        raise ValueError(f"the issuer lists {len(listed)} keys; at most {KEYS_MAX} are taken")
    keys = []
    for item in listed:
        if not isinstance(item, dict) or item.get("use", "sig") != "sig":
            continue
        try:
            verifier = _key(item)
        except ValueError:
            continue  # weak, of a curve that no algorithm has, or damaged: the others may be good
        key_id, algorithm = item.get("kid"), item.get("alg")
        keys.append(
            IssuerKey(
                key_id if isinstance(key_id, str) else "", algorithm if isinstance(algorithm, str) else "", verifier
            )
        )
    return tuple(keys)


def fitting(keys: tuple[IssuerKey, ...], token: WebToken) -> list[Verifier]:
    """Keys that may have signed the token: that of its id, or all where it names none."""
    return [key.verifier for key in keys if token.key_id in ("", key.key_id) and key.algorithm in ("", token.algorithm)]


def _key(item: Mapping[str, object]) -> PublicVerifier:
    with needed_for("keys of an issuer", "crypto"):
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric import ec, rsa
    try:
        if item.get("kty") == "RSA":
            return verifier_of(rsa.RSAPublicNumbers(_number(item, "e"), _number(item, "n")).public_key())
        curve = _CURVES.get(str(item.get("crv")))
        if item.get("kty") == "EC" and curve is not None:
            numbers = ec.EllipticCurvePublicNumbers(_number(item, "x"), _number(item, "y"), getattr(ec, curve)())
            return verifier_of(numbers.public_key())
    except UnsupportedAlgorithm as error:
        raise ValueError(f"{error}") from None
    raise ValueError("a key of another kind")


def _number(item: Mapping[str, object], name: str) -> int:
    value = item.get(name)
    if not isinstance(value, str) or len(value) > _NUMBER_LENGTH_MAX:
        raise ValueError(f"a key without {name}, or with one that is too long")
    return int.from_bytes(decode_url(value), "big")

"""JSON web tokens in their compact form (RFC 7519, RFC 7515): ``header.claims.signature``, each in base64url.

::

    eyJhbGciOiJIUzI1NiJ9 . eyJzdWIiOiJqYW5lIn0 . <43 characters>
    {"alg":"HS256"}        {"sub":"jane"}        HMAC-SHA-256 of everything before the last dot

Parsing proves nothing: :class:`geminga.security.token_rules.TokenRules` does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from geminga.security.base64_text import decode_url, encode_url
from geminga.security.json_object import parse_object

#: Characters of a whole token.
TOKEN_LENGTH_MAX: Final = 32 << 10
#: Bytes of its header: an algorithm and the id of a key.
HEADER_BYTES_MAX: Final = 4 << 10


@dataclass(frozen=True, slots=True)
class WebToken:
    """A token as it is written; nothing of it is proved."""

    header: Mapping[str, object]
    claims: Mapping[str, object]
    #: What the signature is of.
    signed: bytes = field(repr=False)
    signature: bytes = field(repr=False)

    @property
    def algorithm(self) -> str:
        """``alg``."""
        value = self.header.get("alg")
        return value if isinstance(value, str) else ""

    @property
    def key_id(self) -> str:
        """``kid``; empty: none."""
        value = self.header.get("kid")
        return value if isinstance(value, str) else ""


def parse_token(text: str) -> WebToken:
    """The token in ``text``. Raises ValueError, whose sentence begins with "the token"."""
    if len(text) > TOKEN_LENGTH_MAX:
        raise ValueError(f"the token has {len(text)} characters; at most {TOKEN_LENGTH_MAX} are taken")
    parts = text.split(".")
    if len(parts) != 3:
        raise ValueError(f"the token has {len(parts)} parts; expected header.claims.signature")
    decoded = []
    for part, name in zip(parts, ("header", "claims", "signature"), strict=True):
        try:
            decoded.append(decode_url(part))
        except ValueError as error:
            raise ValueError(f"the token's {name}: {error}") from None
    header = parse_object(decoded[0], "the token's header", HEADER_BYTES_MAX)
    if "crit" in header:
        # RFC 7515, section 4.1.11: who does not understand what is critical must refuse; nothing is understood here.
        raise ValueError("the token's header has crit, which is not understood")
    claims = parse_object(decoded[1], "the token's claim set", TOKEN_LENGTH_MAX)
    return WebToken(header, claims, text[: text.rindex(".")].encode("ascii"), decoded[2])


def unsigned(header: Mapping[str, object], claims: Mapping[str, object]) -> bytes:
    """What is to be signed."""
    return ".".join(encode_url(_json(part)) for part in (header, claims)).encode("ascii")


def signed_token(signed: bytes, signature: bytes) -> str:
    """The token of what was signed and its signature."""
    return f"{signed.decode('ascii')}.{encode_url(signature)}"


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()

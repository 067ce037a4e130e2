"""Base64 in its two alphabets, read strictly: one text for each value, or what is signed could be written twice."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

_URL_ALPHABET: Final = re.compile(r"[A-Za-z0-9_-]*", re.ASCII)


def encode_url(data: bytes) -> str:
    """The alphabet of URLs without padding, as JSON Web Signature (RFC 7515, section 2) has it."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def decode_url(text: str) -> bytes:
    """The other way. Raises ValueError for padding, other characters, and bits that say nothing but are set."""
    if _URL_ALPHABET.fullmatch(text) is None or len(text) % 4 == 1:
        raise ValueError("not base64 in the alphabet of URLs without padding")
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if encode_url(data) != text:
        raise ValueError("base64 whose last bits are not zero")
    return data


def decode(text: str) -> bytes:
    """The ordinary alphabet with its padding. Raises ValueError."""
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise ValueError("not base64") from None

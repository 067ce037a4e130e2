"""Who signs tokens in tests."""

from __future__ import annotations

import base64

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

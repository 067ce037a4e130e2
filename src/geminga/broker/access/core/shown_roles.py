"""Roles in the log: Pulsar's ``authenticationRoleLoggingAnonymizer``. Pure.

=============== ==========================================================
``NONE``        as they are
``REDACTED``    ``[REDACTED]``
``hash:SHA256`` ``SHA-256:`` and the digest in base64; two are told apart
``hash:MD5``    ``MD5:``, the same
=============== ==========================================================
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from typing import Final

from geminga.broker.access.core.principal import Principal

NONE: Final = "NONE"
_REDACTED: Final = "REDACTED"
#: What is configured -> the name of the digest, for hashlib and in front of what is shown.
_DIGESTS: Final = {"hash:SHA256": ("sha256", "SHA-256"), "hash:MD5": ("md5", "MD5")}


def shown_principal(principal: Principal, anonymizer: str) -> str:
    """Who it is, for the log."""
    if anonymizer == NONE or principal.is_anonymous:
        return str(principal)
    role = _shown(principal.role, anonymizer)
    return f"{role} for {_shown(principal.original, anonymizer)}" if principal.original else role


def _shown(role: str, anonymizer: str) -> str:
    if anonymizer == _REDACTED:
        return "[REDACTED]"
    name, shown = _DIGESTS[anonymizer]
    # No secret is kept by it: a short name is found by trying. MD5 is Pulsar's.
    digest = hashlib.new(name, role.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest()
    return f"{shown}:{b64encode(digest).decode()}"

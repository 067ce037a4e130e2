"""Pulsar's ``AuthenticationProviderBasic``: a user's password, by a file of hashes.

A hash takes a millisecond, bcrypt much longer, and who sends a wrong one may do so again and again. So they are
computed on a thread of their own, few at a time, and few of one address; a password that was right is known again by
a digest whose key is the stored hash, as long as the file says the same.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from geminga.broker.access.core.handshake import Credentials, Known
from geminga.broker.access.ports import Labels
from geminga.broker.authentication.ports import Proof, RefusedError
from geminga.security.base64_text import decode
from geminga.security.htpasswd import REFUSAL, PasswordFile, parse_credentials

#: Passwords that are being computed or wait for it, in all and of one address.
CHECKS_MAX: Final = 256
CHECKS_OF_ONE_MAX: Final = 16
#: The name of the thread.
LANE: Final = "passwords"
_BASIC: Final = b"basic "

#: Computes something elsewhere.
Compute = Callable[[Callable[[], bool]], Awaitable[bool]]


class PasswordProvider:
    """See the module."""

    name = "AuthenticationProviderBasic"
    method = "basic"

    def __init__(self, users: PasswordFile, compute: Compute) -> None:
        """``compute``: on a thread."""
        self._users = users
        self._compute = compute
        #: User -> digest of the password that was right.
        self._right: dict[str, bytes] = {}
        #: Address -> passwords of it that are being computed.
        self._waiting: dict[str, int] = {}

    @property
    def users(self) -> PasswordFile:
        """Who has which."""
        return self._users

    @users.setter
    def users(self, users: PasswordFile) -> None:
        """Another file holds."""
        self._users = users
        self._right = {}

    def fits(self, credentials: Credentials) -> bool:
        """A header of that scheme."""
        return credentials.data[: len(_BASIC)].lower() == _BASIC

    def metrics(self) -> Iterable[tuple[Labels, Mapping[str, float]]]:
        """None of its own."""
        return ()

    def prove(self, credentials: Credentials, source: str, *, in_http: bool) -> Proof:
        """At once where the same was right before."""
        user, password = self._said(credentials, in_http=in_http)
        digest = hmac.digest(self._users.hashes.get(user, "").encode(), password, "sha256")
        if hmac.compare_digest(self._right.get(user, b""), digest):
            return Known(user)
        return self._computed(user, password, digest, source)

    async def _computed(self, user: str, password: bytes, digest: bytes, source: str) -> Known:
        of_one = self._waiting.get(source, 0)
        if of_one >= CHECKS_OF_ONE_MAX or sum(self._waiting.values()) >= CHECKS_MAX:
            raise RefusedError("UNKNOWN", "too many passwords are being checked; try again later")
        self._waiting[source] = of_one + 1
        users = self._users
        try:
            is_right = await self._compute(lambda: users.check(user, password))
        finally:
            left = self._waiting.pop(source) - 1
            if left:
                self._waiting[source] = left
        if not is_right:
            raise RefusedError("INVALID_TOKEN", REFUSAL)
        self._right[user] = digest
        return Known(user)

    @staticmethod
    def _said(credentials: Credentials, *, in_http: bool) -> tuple[str, bytes]:
        data = credentials.data
        if in_http:
            if data[: len(_BASIC)].lower() != _BASIC:
                raise RefusedError("INVALID_HEADER", 'Authentication token has to be started with "Basic "')
            try:
                data = decode(data[len(_BASIC) :].strip().decode("ascii", "replace"))
            except ValueError:
                raise RefusedError("INVALID_AUTH_DATA", "Base64 encoded token is not found") from None
        if not data:
            raise RefusedError("EMPTY_AUTH_DATA", "Authentication data source does not have data")
        try:
            return parse_credentials(data.decode("utf-8"))
        except ValueError:
            raise RefusedError(
                "INVALID_AUTH_DATA", "Base64 decoded params are invalid: expected user:password"
            ) from None

"""Pulsar's ``AuthenticationProviderToken``: JSON web tokens, verified by keys of this broker's configuration."""

from __future__ import annotations

from typing import Final

from geminga.broker.access.core.handshake import Credentials, Known
from geminga.broker.authentication.ports import RefusedError
from geminga.runtime import Clock
from geminga.security.token_rules import AudienceError, ExpiredError, Proved, TokenRules

BEARER: Final = b"Bearer "


class TokenProvider:
    """See the module. ``rules`` are exchanged where a key is."""

    name = "AuthenticationProviderToken"
    method = "token"

    def __init__(self, rules: TokenRules, clock: Clock) -> None:
        self.rules = rules
        self._clock = clock
        #: Tokens that were refused because they had expired, for metrics.
        self.expired_count = 0

    def fits(self, credentials: Credentials) -> bool:
        """A header of a bearer."""
        return credentials.data.startswith(BEARER)

    def prove(self, credentials: Credentials, source: str, *, in_http: bool) -> Known:
        """At once. Raises RefusedError."""
        text = token_text(credentials, in_http=in_http)
        try:
            proved = self.rules.prove(text, self._clock.wall_ms() / 1000)
        except ExpiredError as error:
            self.expired_count += 1
            raise RefusedError("INVALID_TOKEN", told(error)) from None
        except AudienceError as error:
            raise RefusedError("INVALID_AUDIENCES", told(error)) from None
        except ValueError as error:
            raise RefusedError("INVALID_TOKEN", told(error)) from None
        return known(proved, self._clock, self.rules.skew_s)


def told(error: ValueError) -> str:
    """Pulsar's words, and what was wrong."""
    return f"Failed to authentication token: {error}"


def known(proved: Proved, clock: Clock, skew_s: float) -> Known:
    """What a token proved, by the loop's clock."""
    if proved.expires_s is None:
        return Known(proved.role)
    left_s = proved.expires_s - clock.wall_ms() / 1000
    return Known(proved.role, clock.monotonic() + left_s, skew_s)


def token_text(credentials: Credentials, *, in_http: bool) -> str:
    """The token of credentials; raises RefusedError."""
    data = credentials.data
    if in_http:
        if not data.startswith(BEARER):
            raise RefusedError("INVALID_AUTH_DATA", "Invalid HTTP Authorization header: expected Bearer and a token")
        data = data[len(BEARER) :]
    if not data:
        raise RefusedError("INVALID_AUTH_DATA", "No token credentials passed")
    try:
        return data.decode("ascii")
    except UnicodeDecodeError:
        raise RefusedError("INVALID_TOKEN", "Failed to authentication token: it is not ASCII") from None

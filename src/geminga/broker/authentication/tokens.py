"""Pulsar's ``AuthenticationProviderToken``: JSON web tokens, verified by keys of this broker's configuration.

Whoever has a token shows it with each connection and each HTTP request. One whose signature was good is known again by
its digest until a key is exchanged; its times and its audience are looked at each time.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Final

from geminga.broker.access.core.handshake import Credentials, Known
from geminga.broker.access.ports import Labels
from geminga.broker.authentication.ports import RefusedError
from geminga.runtime import Clock
from geminga.security.token_rules import AudienceError, ExpiredError, Proved, TokenRules
from geminga.security.web_token import WebToken

BEARER: Final = b"Bearer "
#: Minutes; Pulsar's buckets of ``pulsar_expiring_token_minutes``.
LEFT_BOUNDS_MIN: Final = (5.0, 10.0, 60.0, 240.0)
#: Tokens that are known again, and characters of one that may be: a few MB at most.
REMEMBERED_MAX: Final = 1024
REMEMBERED_LENGTH_MAX: Final = 2048


class TokenProvider:
    """See the module."""

    name = "AuthenticationProviderToken"
    method = "token"

    def __init__(self, rules: TokenRules, clock: Clock) -> None:
        self._rules = rules
        self._clock = clock
        #: SHA-256 of a token's text -> the token, whose signature is good by the rules that hold.
        self._remembered: dict[bytes, WebToken] = {}
        #: Tokens that were refused because they had expired, for metrics.
        self.expired_count = 0
        #: Of those that were taken and end: how many had up to each bound left, then more; and all minutes together.
        self.left_counts = [0] * (len(LEFT_BOUNDS_MIN) + 1)
        self.left_minutes = 0.0

    @property
    def rules(self) -> TokenRules:
        """What is asked of a token."""
        return self._rules

    @rules.setter
    def rules(self, rules: TokenRules) -> None:
        """A key was exchanged: nobody is known again."""
        self._rules = rules
        self._remembered = {}

    def fits(self, credentials: Credentials) -> bool:
        """A header of a bearer."""
        return credentials.data.startswith(BEARER)

    def prove(self, credentials: Credentials, source: str, *, in_http: bool) -> Known:
        """At once. Raises RefusedError."""
        text = token_text(credentials, in_http=in_http)
        try:
            proved = self._rules.claims_of(self._verified(text), self._clock.wall_ms() / 1000)
        except ExpiredError as error:
            self.expired_count += 1
            raise RefusedError("INVALID_TOKEN", told(error)) from None
        except AudienceError as error:
            raise RefusedError("INVALID_AUDIENCES", told(error)) from None
        except ValueError as error:
            raise RefusedError("INVALID_TOKEN", told(error)) from None
        if proved.expires_s is not None:
            minutes = max(0.0, proved.expires_s - self._clock.wall_ms() / 1000) / 60
            self.left_counts[bisect_left(LEFT_BOUNDS_MIN, minutes)] += 1
            self.left_minutes += minutes
        return known(proved, self._clock, self._rules.skew_s)

    def _verified(self, text: str) -> WebToken:
        """Raises ValueError."""
        digest = hashlib.sha256(text.encode("ascii")).digest()
        token = self._remembered.get(digest)
        if token is None:
            token = self._rules.verified(text)
            if len(text) <= REMEMBERED_LENGTH_MAX:
                if len(self._remembered) >= REMEMBERED_MAX:
                    del self._remembered[next(iter(self._remembered))]
                self._remembered[digest] = token
        return token

    def metrics(self) -> Iterator[tuple[Labels, Mapping[str, float]]]:
        """Labels and samples: how many had expired, and how long the others had."""
        yield (), {"pulsar_expired_token_total": self.expired_count}
        name = "pulsar_expiring_token_minutes"
        counts = accumulate(self.left_counts)
        for bound, count in zip((*map(str, LEFT_BOUNDS_MIN), "+Inf"), counts, strict=True):
            yield (("le", bound),), {f"{name}_bucket": count}
        yield (), {f"{name}_sum": self.left_minutes, f"{name}_count": sum(self.left_counts)}


def told(error: ValueError) -> str:
    """Pulsar's words, and what was wrong."""
    return f"Failed to authentication token: {error}"


def known(proved: Proved, clock: Clock, skew_s: float) -> Known:
    """What a token proved, by the loop's clock."""
    if proved.expires_s is None:
        return Known(proved.role, roles=proved.roles)
    left_s = proved.expires_s - clock.wall_ms() / 1000
    return Known(proved.role, clock.monotonic() + left_s, skew_s, proved.roles)


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

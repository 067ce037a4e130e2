"""Pulsar's ``AuthenticationProviderOpenID``: tokens of issuers that this broker is told to trust.

Its method is ``token``, as that of the provider whose keys are in the configuration: both may be there, and are asked
in turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from geminga.broker.access.core.handshake import Credentials, Known
from geminga.broker.access.ports import Labels
from geminga.broker.authentication.issuers import Issuer
from geminga.broker.authentication.ports import Proof, RefusedError
from geminga.broker.authentication.tokens import BEARER, known, token_text, told
from geminga.model.errors import GemingaError
from geminga.runtime import Clock
from geminga.security.openid import ALGORITHMS, IssuerKey, OpenIdRules, fitting
from geminga.security.token_rules import ExpiredError, check_signature
from geminga.security.web_token import WebToken, parse_token


class OpenIdProvider:
    """See the module."""

    name = "AuthenticationProviderOpenID"
    method = "token"

    def __init__(self, issuers: Mapping[str, Issuer], rules: OpenIdRules, clock: Clock) -> None:
        self._issuers = issuers
        self._rules = rules
        self._clock = clock

    def fits(self, credentials: Credentials) -> bool:
        """A header of a bearer."""
        return credentials.data.startswith(BEARER)

    def metrics(self) -> Iterable[tuple[Labels, Mapping[str, float]]]:
        """None of its own: failures have their reason."""
        return ()

    def prove(self, credentials: Credentials, source: str, *, in_http: bool) -> Proof:
        """At once where the issuer's keys are known. Raises RefusedError."""
        try:
            token = parse_token(token_text(credentials, in_http=in_http))
        except RefusedError:
            raise
        except ValueError as error:
            raise RefusedError("ERROR_DECODING_JWT", told(error)) from None
        said = token.claims.get("iss")
        issuer = self._issuers.get(said) if isinstance(said, str) else None
        if issuer is None:
            raise RefusedError("UNSUPPORTED_ISSUER", told(ValueError("the token is of an issuer that is not trusted")))
        if token.algorithm not in ALGORITHMS:
            wrong = f"the token is not signed by one of {', '.join(sorted(ALGORITHMS))}"
            raise RefusedError("UNSUPPORTED_ALGORITHM", told(ValueError(wrong)))
        keys = issuer.known(token.key_id)
        return self._proved(token, keys) if keys is not None else self._later(issuer, token)

    def read_again(self) -> None:
        """Ask each issuer whose keys are known for them anew; what they are now holds as soon as it answers."""
        for issuer in self._issuers.values():
            issuer.read_again()

    async def close(self) -> None:
        """Ask no issuer any more."""
        for issuer in self._issuers.values():
            await issuer.close()

    async def _later(self, issuer: Issuer, token: WebToken) -> Known:
        try:
            keys = await issuer.read()
        except GemingaError as error:
            raise RefusedError("ERROR_RETRIEVING_PUBLIC_KEY", f"Failed to authentication token: {error.told}") from None
        return self._proved(token, keys)

    def _proved(self, token: WebToken, keys: tuple[IssuerKey, ...]) -> Known:
        may_be = fitting(keys, token)
        if not may_be:
            raise RefusedError("INVALID_PUBLIC_KEY", told(ValueError("the issuer lists no key of the token's id")))
        try:
            check_signature(token, may_be)
        except ValueError as error:
            raise RefusedError("ERROR_VERIFYING_JWT_SIGNATURE", told(error)) from None
        try:
            proved = self._rules.claims_of(token, self._clock.wall_ms() / 1000)
        except ExpiredError as error:
            raise RefusedError("EXPIRED_JWT", told(error)) from None
        except ValueError as error:
            raise RefusedError("INVALID_JWT_CLAIM", told(error)) from None
        return known(proved, self._clock, self._rules.skew_s)

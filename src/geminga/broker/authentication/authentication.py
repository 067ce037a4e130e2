"""Which provider is asked about credentials, and what is made of its answer: Pulsar's ``AuthenticationService``.

Of the binary protocol each peer names a method, and is asked for nothing else; who names one that is not there is
anonymous where ``anonymousUserRole`` says so. An HTTP request may name none: then each provider whose credentials it
could bring is asked, and who is known to none of them is anonymous. Several providers of one method are asked in turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final

from geminga.broker.access.core.handshake import Challenge, Credentials, Known, Rejected, Verdict
from geminga.broker.access.ports import Authenticator, Labels
from geminga.broker.authentication.outcomes import Outcomes
from geminga.broker.authentication.ports import Provider, RefusedError
from geminga.model.errors import GemingaError, UnavailableError
from geminga.runtime import again, get_logger

_log = get_logger(__name__)

#: For metrics, where no provider was asked.
NO_PROVIDER: Final = "none"
#: Seconds for which a broker goes by what it found out of its own credentials, and by that it could not, since who asks
#: may be anybody; and seconds that it takes at most.
OWN_ROLE_S: Final = 60.0
UNKNOWN_S: Final = 10.0
LOOK_S_MAX: Final = 5.0
#: Characters of a method's name that are told.
_METHOD_LENGTH_MAX: Final = 32


class Authentication:
    """The ``Authenticator`` of a broker; see the module."""

    __slots__ = ("_anonymous", "_by_method", "_is_strict", "outcomes", "providers")

    def __init__(
        self, providers: Iterable[Provider], outcomes: Outcomes, *, anonymous_role: str = "", is_strict: bool = False
    ) -> None:
        """``anonymous_role``: of who brings nothing; empty: refused. ``is_strict``: HTTP must name a method."""
        self.providers = tuple(providers)
        self.outcomes = outcomes
        self._anonymous = anonymous_role
        self._is_strict = is_strict
        self._by_method: dict[str, list[Provider]] = {}
        for provider in self.providers:
            self._by_method.setdefault(provider.method, []).append(provider)

    def begin(self, source: str = "", *, in_http: bool = False) -> Exchange:
        """With one peer."""
        return Exchange(self, source, in_http)

    def verdict(
        self, credentials: Credentials, source: str, *, in_http: bool
    ) -> Verdict | Coroutine[Any, Any, Verdict]:
        """Who brings ``credentials`` from the address ``source``."""
        method = credentials.method
        named = self._by_method.get(method)
        if named is not None:
            return self._first_known(named, credentials, source, in_http)
        if not in_http:
            if self._anonymous:
                return Known(self._anonymous)
            return self._unknown(method, source, "No anonymous role, and no authentication provider configured")
        if method:
            told = f"Unsupported authentication method: [{method[:_METHOD_LENGTH_MAX]!r}]."
            return self._unknown(method, source, told)
        if self._is_strict:
            return self._unknown("", source, "Authentication method missing (X-Pulsar-Auth-Method-Name)")
        fitting = [provider for provider in self.providers if provider.fits(credentials)]
        if fitting:
            return self._first_known(fitting, credentials, source, in_http, self._anonymous)
        if self._anonymous:
            return Known(self._anonymous)
        return self._unknown("", source, "Authentication required")

    def metrics(self) -> Iterable[tuple[Labels, Mapping[str, float]]]:
        """Labels and samples."""
        yield from self.outcomes.metrics()
        for provider in self.providers:
            yield from provider.metrics()

    def _unknown(self, method: str, source: str, reason: str) -> Rejected:
        shown = method[:_METHOD_LENGTH_MAX] if method.isascii() and method.isprintable() else "?"
        # A stranger's words are no label: their number has no bound.
        self.outcomes.failed(NO_PROVIDER, NO_PROVIDER, "UNSUPPORTED_METHOD", f"{reason} (method {shown!r})", source)
        return Rejected(reason)

    def _first_known(
        self, providers: Sequence[Provider], credentials: Credentials, source: str, in_http: bool, otherwise: str = ""
    ) -> Verdict | Coroutine[Any, Any, Verdict]:
        """The answer of the first provider that knows who it is; ``otherwise``: the role if none does."""
        refusals: list[tuple[Provider, RefusedError]] = []
        for number, provider in enumerate(providers):
            try:
                proof = provider.prove(credentials, source, in_http=in_http)
            except RefusedError as error:
                refusals.append((provider, error))
                continue
            if not isinstance(proof, Known):
                rest = providers[number + 1 :]
                return self._later(provider, proof, rest, refusals, credentials, source, in_http, otherwise)
            self.outcomes.succeeded(provider)
            return proof
        return self._refused(refusals, source, otherwise)

    async def _later(
        self,
        provider: Provider,
        proof: Coroutine[Any, Any, Known],
        rest: Sequence[Provider],
        refusals: list[tuple[Provider, RefusedError]],
        credentials: Credentials,
        source: str,
        in_http: bool,
        otherwise: str,
    ) -> Verdict:
        """The same where a provider needs time."""
        pending: Known | Coroutine[Any, Any, Known] = proof
        following = iter(rest)
        while True:
            try:
                known = pending if isinstance(pending, Known) else await pending
            except RefusedError as error:
                refusals.append((provider, error))
            else:
                self.outcomes.succeeded(provider)
                return known
            for provider in following:
                try:
                    pending = provider.prove(credentials, source, in_http=in_http)
                    break
                except RefusedError as error:
                    refusals.append((provider, error))
            else:
                return self._refused(refusals, source, otherwise)

    def _refused(self, refusals: Sequence[tuple[Provider, RefusedError]], source: str, otherwise: str) -> Verdict:
        for provider, error in refusals:
            self.outcomes.failed(provider.name, provider.method, error.code, error.reason, source)
        if otherwise:
            return Known(otherwise)
        return Rejected("; ".join(dict.fromkeys(error.reason for _, error in refusals)))


class Exchange:
    """With one peer, in one round as often as it is asked."""

    __slots__ = ("_authentication", "_in_http", "_source")

    def __init__(self, authentication: Authentication, source: str, in_http: bool) -> None:
        self._authentication = authentication
        self._source = source
        self._in_http = in_http

    def answer(self, credentials: Credentials) -> Verdict | Coroutine[Any, Any, Verdict]:
        """See :class:`~geminga.broker.access.ports.Exchange`."""
        return self._authentication.verdict(credentials, self._source, in_http=self._in_http)


class OwnRole:
    """Who a broker is by what it shows to others, an :data:`~geminga.broker.access.ports.OwnRole`."""

    __slots__ = ("_authenticator", "_credentials", "_known", "_monotonic", "_turn")

    def __init__(
        self,
        authenticator: Authenticator,
        credentials: Callable[[], Awaitable[Credentials | None]],
        monotonic: Callable[[], float],
    ) -> None:
        """``credentials``: of this moment; None: there are none. Raises GemingaError. ``monotonic``: seconds."""
        self._authenticator = authenticator
        self._credentials = credentials
        self._monotonic = monotonic
        #: The role, or why it is not known, and until when it is gone by.
        self._known: tuple[str | UnavailableError, float] | None = None
        #: One look at a time, whoever asks.
        self._turn = asyncio.Lock()

    async def __call__(self) -> str:
        """Empty: nobody that is let in here. Raises UnavailableError."""
        async with self._turn:
            if self._known is None or self._known[1] <= self._monotonic():
                found = await self._looked_up()
                self._known = (found, self._monotonic() + (OWN_ROLE_S if isinstance(found, str) else UNKNOWN_S))
            found = self._known[0]
        if isinstance(found, str):
            return found
        raise again(found)

    async def _looked_up(self) -> str | UnavailableError:
        """Who asks for it may hold up others, and is told of no file of the broker's."""
        try:
            async with asyncio.timeout(LOOK_S_MAX):
                return await self._found()
        except TimeoutError:
            why = f"no answer within {LOOK_S_MAX:g} s"
        except GemingaError as error:
            why = f"{error}"
        _log.warning("who this broker is by its own credentials (brokerClient...) is not known: %s", why)
        return UnavailableError("whether that is the role of this broker's own credentials is not known now")

    async def _found(self) -> str:
        credentials = await self._credentials()
        if credentials is None:
            return ""
        verdict = self._authenticator.begin().answer(credentials)
        if not isinstance(verdict, Known | Challenge | Rejected):
            verdict = await verdict
        return verdict.role if isinstance(verdict, Known) else ""

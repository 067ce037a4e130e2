"""How the proxy connects to brokers: to those that are allowed, at addresses that were looked at, in time.

A name is resolved once, and its addresses are tried in their order; with TLS the certificate must be of the name. All
of it, the handshake of the protocol with it, ends after ``brokerProxyConnectTimeoutMs``.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, Protocol

from geminga.client import Authentication, PulsarException
from geminga.model.errors import UnavailableError
from geminga.proxy.core.saying import Caller, connect_frame
from geminga.proxy.core.targets import AllowedTargets, Target
from geminga.proxy.link import BrokerLink
from geminga.runtime import Raised, Runtime, attempt, attempt_await
from geminga.runtime.core.source_header import Origin, header_text

#: Threads lane of credentials that are asked for elsewhere.
CREDENTIALS_LANE: Final = "proxy-credentials"
#: Addresses of one name that are tried.
ADDRESSES_MAX: Final = 8


class BrokerDirectory(Protocol):
    """Which brokers there are."""

    async def entry(self) -> Target:
        """One that is asked where topics are, the next one each time; raises UnavailableError."""

    async def is_active(self, target: Target) -> bool:
        """Whether it is registered; raises UnavailableError where that is not known."""

    async def web_url(self) -> str:
        """Of the web service of one, the next one each time; raises UnavailableError."""


class FixedEntry:
    """The broker, or the address of all of them, that ``brokerServiceURL`` names."""

    __slots__ = ("_target",)

    def __init__(self, target: Target) -> None:
        self._target = target

    async def entry(self) -> Target:
        """It."""
        return self._target

    async def is_active(self, target: Target) -> bool:
        """Nobody knows which there are."""
        return True

    async def web_url(self) -> str:
        """Only the configuration could say it. Raises UnavailableError."""
        raise UnavailableError("the proxy knows no web service of brokers: brokerWebServiceURL is not set")


class Trip(NamedTuple):
    """What a client's connection to the proxy was: of whom, and to where."""

    source: Origin
    destination: Origin


#: The addresses of a host's name; raises OSError.
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


class Brokers:
    """See the module."""

    def __init__(
        self,
        runtime: Runtime,
        allowed: AllowedTargets,
        resolve: Resolve,
        *,
        authentication: Authentication | None,
        tls: Callable[[], ssl.SSLContext] | None,
        timeout_s: float,
        message_bytes_max: int,
        version: str,
        sends_header: bool,
    ) -> None:
        """``tls``: the context of this moment; None: without. ``sends_header``: connections begin with PROXY."""
        self._runtime = runtime
        self.allowed = allowed
        self._resolve = resolve
        self._authentication = authentication
        self._tls = tls
        self._timeout_s = timeout_s
        self._message_bytes_max = message_bytes_max
        self._version = version
        self._sends_header = sends_header

    @property
    def uses_tls(self) -> bool:
        """Whether brokers are spoken to with TLS."""
        return self._tls is not None

    async def credentials(self) -> tuple[str, bytes]:
        """The proxy's own, of this moment: method and data, both empty where it has none. Raises UnavailableError."""
        own = self._authentication
        if own is None:
            return "", b""
        if getattr(own, "is_blocking", False):
            found = await attempt_await(self._runtime.threads.call(CREDENTIALS_LANE, own.data))
        else:
            found = attempt(own.data)
            if isinstance(found, Awaitable):
                found = await attempt_await(found)
        if isinstance(found, Raised):
            raise UnavailableError(f"credentials of the proxy (brokerClientAuthenticationPlugin): {found}")
        if not isinstance(found, bytes):
            raise UnavailableError("credentials of the proxy: expected bytes")
        return own.method_name, found

    async def link(
        self, target: Target, caller: Caller, trip: Trip, *, is_relayed: bool, is_named: bool = True
    ) -> BrokerLink:
        """A connection to ``target`` that stands, for ``caller``. Raises GemingaError.

        ``is_named``: by a client or a broker, so that it must be allowed; else the operator did, or who is registered.
        """
        if is_named:
            self.allowed.check_name(target)
        link: BrokerLink | None = None
        try:
            async with asyncio.timeout(self._timeout_s):
                method, data = ("", b"") if caller.instead is not None else await self.credentials()
                hello = connect_frame(caller, method, data, self._version, is_relayed=is_relayed)
                addresses = await self._addresses(target)
                if is_named:
                    addresses = self.allowed.allowed(target, addresses)
                link = await self._connected(target, addresses, hello, caller, trip, is_relayed=is_relayed)
                await link.welcomed()
        except TimeoutError:
            raise UnavailableError(
                f"the broker {target} was not connected within brokerProxyConnectTimeoutMs={self._timeout_s * 1000:g}"
            ) from None
        except PulsarException as error:
            raise UnavailableError(f"TLS to brokers: {error}") from error
        else:
            found, link = link, None
            return found
        finally:
            if link is not None:
                link.abort()

    async def _addresses(self, target: Target) -> Sequence[str]:
        try:
            return (await self._resolve(target.host, target.port))[:ADDRESSES_MAX]
        except OSError as error:
            raise UnavailableError(f"the broker {target} has no address: {error.strerror or error}") from error

    async def _connected(
        self,
        target: Target,
        addresses: Sequence[str],
        hello: bytes,
        caller: Caller,
        trip: Trip,
        *,
        is_relayed: bool,
    ) -> BrokerLink:
        preface = header_text(trip.source, trip.destination) if self._sends_header else b""
        tls = None if self._tls is None else self._tls()
        last: OSError | None = None
        for address in addresses:
            link = BrokerLink(
                target,
                hello,
                caller,
                self.credentials,
                message_bytes_max=self._message_bytes_max,
                is_relayed=is_relayed,
            )
            try:
                await self._runtime.network.connect(
                    lambda link=link: link,  # type: ignore[misc]
                    address,
                    target.port,
                    tls=tls,
                    server_name=target.host,
                    preface=preface,
                )
            except OSError as error:
                last = error
                continue
            return link
        raise UnavailableError(f"the broker {target} can not be connected to: {last}") from last

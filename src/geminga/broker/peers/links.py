"""How a broker speaks to the others of its cluster: with TLS or without, and as whom.

One way for both kinds of links: requests of HTTP and the connections of the broker's own client.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Final

from geminga.broker.access.core.handshake import Credentials
from geminga.model.errors import UnavailableError
from geminga.runtime.local_file import read_local_file

if TYPE_CHECKING:
    from geminga.broker.ownership.endpoints import Endpoint
    from geminga.client import ClientArguments
    from geminga.runtime import Runtime
    from geminga.runtime.tls.following import FollowedContext

#: Threads lane of credentials that are asked for elsewhere.
CREDENTIALS_LANE: Final = "peers-credentials"


class PeerLinks:
    """See the module."""

    __slots__ = ("_context", "client_arguments", "uses_tls")

    def __init__(self, client_arguments: ClientArguments, *, uses_tls: bool) -> None:
        """``client_arguments``: credentials and files, as ``geminga.client.connect`` takes them."""
        self.client_arguments = client_arguments
        self.uses_tls = uses_tls
        #: Made with the first request that needs it.
        self._context: FollowedContext | None = None

    def broker_url(self, endpoint: Endpoint) -> str:
        """Where the binary protocol is spoken; raises UnavailableError where there is no such port."""
        return self._of_kind(endpoint, endpoint.broker_url, endpoint.broker_url_tls, "port of the binary protocol")

    def web_url(self, endpoint: Endpoint) -> str:
        """Where HTTP is; raises UnavailableError where there is no such port."""
        return self._of_kind(endpoint, endpoint.web_url, endpoint.web_url_tls, "web service").rstrip("/")

    def _of_kind(self, endpoint: Endpoint, plain: str, secured: str, what: str) -> str:
        found = secured if self.uses_tls else plain
        if not found:
            place = endpoint.broker_url or endpoint.broker_url_tls or endpoint.web_url or endpoint.web_url_tls
            how = "with TLS" if self.uses_tls else "without TLS (brokerClientTlsEnabled=false)"
            raise UnavailableError(f"the broker at {place} has no {what} {how}")
        return found

    def context(self) -> ssl.SSLContext:
        """Of a request with TLS; raises InvalidConfiguration for files that are not good."""
        if self._context is None:
            from geminga.client import ClientOptions
            from geminga.runtime.tls.following import FollowedContext

            options = ClientOptions(**self.client_arguments)
            self._context = FollowedContext("TLS to other brokers", options.tls_files(), options.tls_made, at_each=True)
        return self._context.context()

    async def headers(self, runtime: Runtime) -> list[tuple[str, str]]:
        """What says in a request who asks. Raises UnavailableError where that can not be had now."""
        authentication = self.client_arguments.get("authentication")
        if authentication is None:
            return []
        from geminga.client import PulsarException, http_headers

        try:
            if getattr(authentication, "is_blocking", False):
                found = await runtime.threads.call(CREDENTIALS_LANE, lambda: http_headers(authentication))
            else:
                found = http_headers(authentication)
        except (PulsarException, OSError) as error:
            raise UnavailableError(f"credentials for other brokers: {error}") from error
        return list(found.items())

    async def credentials(self, runtime: Runtime) -> Credentials | None:
        """What says over the binary protocol who asks; None: nothing does. Raises UnavailableError."""
        authentication = self.client_arguments.get("authentication")
        if authentication is None:
            return None
        from geminga.runtime import Raised, attempt, attempt_await

        certificate = None
        found: object
        if isinstance(path := getattr(authentication, "certificate_path", None), str):
            # TLS says it: the first certificate of the file, in the form in which a peer sees it.
            certificate = attempt(partial(_certificate_in, path))
        if getattr(authentication, "is_blocking", False):
            found = await attempt_await(runtime.threads.call(CREDENTIALS_LANE, authentication.data))
        else:
            found = attempt(authentication.data)
            if isinstance(found, Awaitable):
                found = await attempt_await(found)
        for each in (certificate, found):
            if isinstance(each, Raised):
                raise UnavailableError(f"this broker's own credentials (brokerClient...): {each}")
        if not isinstance(found, bytes):
            raise UnavailableError("this broker's own credentials (brokerClient...): expected bytes")
        return Credentials(authentication.method_name, found, certificate if isinstance(certificate, bytes) else None)


def _certificate_in(path: str) -> bytes:
    """Raises OSError, ValueError."""
    text = read_local_file(path).decode("ascii", "replace")
    _, begin, rest = text.partition(ssl.PEM_HEADER)
    body, end, _ = rest.partition(ssl.PEM_FOOTER)
    return ssl.PEM_cert_to_DER_cert(begin + body + end)


#: Without TLS, as nobody.
PLAIN: Final = PeerLinks({}, uses_tls=False)

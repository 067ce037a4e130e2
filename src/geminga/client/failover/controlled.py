"""``ControlledClusterFailover``: a client whose cluster a JSON document at a URL names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from geminga.client._api.errors import InvalidConfiguration, InvalidUrl
from geminga.client._api.plugins import authentication_from
from geminga.client._api.service_targets import FailoverClient, ServiceTarget, target_of
from geminga.client._transport.service_urls import parse_addresses
from geminga.client.failover.automatic import CHECK_INTERVAL_S
from geminga.runtime import Raised, attempt_await, get_logger, wait_ms

_log = get_logger(__name__)

#: Threads lane of reading the document.
DOCUMENT_LANE: Final = "failover-document"
#: A larger one names no cluster.
DOCUMENT_BYTES_MAX: Final = 1 << 20
#: What reading it may take.
READ_TIMEOUT_S: Final = 1.5
#: Members of the document, which are those of Java's ``ControlledConfiguration``.
_URL: Final = "serviceUrl"
_TEXTS: Final = (_URL, "tlsTrustCertsFilePath", "authPluginClassName", "authParamsString")


class ControlledClusterFailover:
    """As Java's of that name: every ``check_interval_s`` the document at ``url_provider`` is read.

    It is a JSON object with ``serviceUrl``, and perhaps ``tlsTrustCertsFilePath``, ``authPluginClassName`` and
    ``authParamsString``. A changed one moves the client; one that can not be read, or makes no sense, is named in the
    log and changes nothing.
    """

    def __init__(
        self,
        default: str | ServiceTarget,
        url_provider: str,
        *,
        headers: Mapping[str, str] | None = None,
        check_interval_s: float = CHECK_INTERVAL_S,
    ) -> None:
        """``default``: where the client begins. ``headers`` go with each request. Raises InvalidUrl,
        InvalidConfiguration."""
        self._first = target_of(default, "default")
        parse_addresses(self._first.service_url)
        if not isinstance(url_provider, str) or not url_provider.startswith(("http://", "https://")):
            raise InvalidConfiguration(f"url_provider: expected http:// or https://, not {url_provider!r}")
        if not isinstance(check_interval_s, int | float) or not 0.001 <= check_interval_s < float("inf"):
            raise InvalidConfiguration(f"check_interval_s: expected a number of seconds, not {check_interval_s!r}")
        self._url = url_provider
        self._headers = dict(headers or {})
        self._interval_s = check_interval_s
        #: As it was followed last; None: none was.
        self._followed: dict[str, str] | None = None
        self.current = self._first

    @property
    def first(self) -> ServiceTarget:
        """The one that was given."""
        return self._first

    async def watch(self, client: FailoverClient) -> None:
        """As of :class:`ServiceUrlProvider`."""
        # A client begins there, wherever one before it went.
        self._followed, self.current = None, self._first
        while True:
            await wait_ms(self._interval_s * 1000)
            # Whatever who overrides it raises: nobody would watch any more.
            text = await attempt_await(self.read(client))
            if isinstance(text, Raised):
                self._stay(text)
                continue
            try:
                self._follow(client, document_of(text))
            except (OSError, ValueError, TypeError, InvalidConfiguration, InvalidUrl) as error:
                self._stay(error)

    def _stay(self, why: object) -> None:
        _log.warning("%s names no cluster, the client stays where it is: %s", self._url, why)

    def _follow(self, client: FailoverClient, document: dict[str, str]) -> None:
        if document == self._followed:
            return
        target = target_in(document)
        if target != self.current:
            client.go_on_with(target)
            self.current = target
        self._followed = document

    async def read(self, client: FailoverClient) -> bytes:
        """The document; who keeps it elsewhere overrides this, and may raise anything. Raises OSError, ValueError."""
        return await client.runtime.threads.call(DOCUMENT_LANE, self._read)

    def _read(self) -> bytes:
        # By who has such a provider.
        from http.client import HTTPException
        from urllib.error import HTTPError
        from urllib.request import Request

        from geminga.runtime.sockets.limited_http import limited_opener, time_left

        opener = limited_opener(time_left(READ_TIMEOUT_S), None)
        try:
            with opener.open(Request(self._url, headers=self._headers)) as answer:
                text: bytes = answer.read(DOCUMENT_BYTES_MAX)
        except HTTPError as error:
            # It is the answer as well, whose connection lives as long as it.
            with error:
                raise
        except HTTPException as error:
            raise OSError(f"an answer that is no HTTP: {str(error) or type(error).__name__}") from None
        return text


def document_of(text: bytes) -> dict[str, str]:
    """The members that count; raises ValueError for what is no such document."""
    try:
        found = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deep to be looked into") from error
    if not isinstance(found, dict):
        raise ValueError("expected a JSON object")
    members = {key: found[key] for key in _TEXTS if found.get(key) is not None}
    wrong = [key for key, value in members.items() if not isinstance(value, str)]
    if wrong or not members.get(_URL):
        raise ValueError(f"{wrong[0] if wrong else _URL}: expected a text")
    return members


def target_in(document: Mapping[str, str]) -> ServiceTarget:
    """The cluster that a document names; raises InvalidUrl, InvalidConfiguration."""
    url, trust, plugin, parameters = (document.get(key, "") for key in _TEXTS)
    parse_addresses(url)
    return ServiceTarget(url, authentication_from(plugin, parameters), trust)

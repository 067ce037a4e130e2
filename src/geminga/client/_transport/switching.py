"""A client whose cluster a provider names: looks whether clusters answer, and moves the client's connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from geminga.client._api.errors import InvalidUrl, NotConnected, PulsarException
from geminga.client._api.options import ClientOptions
from geminga.client._api.service_targets import ServiceTarget, ServiceUrlProvider
from geminga.client._transport.pool import ConnectionPool
from geminga.client._transport.service_urls import ServiceUrls
from geminga.runtime import Runtime, get_logger, spawn

_log = get_logger(__name__)

#: Looked up where a service URL is of HTTP; it is never made.
PROBE_TOPIC = "persistent://public/default/__lookup"


class Switching:
    """See the module; :class:`geminga.client._api.service_targets.FailoverClient`."""

    __slots__ = ("_next_request_id", "_options", "_pool", "_provider", "_task", "runtime")

    def __init__(
        self,
        runtime: Runtime,
        pool: ConnectionPool,
        options: ClientOptions,
        provider: ServiceUrlProvider,
        next_request_id: Callable[[], int],
    ) -> None:
        self.runtime = runtime
        self._pool = pool
        #: The client's own, whatever the present cluster has.
        self._options = options
        self._provider = provider
        self._next_request_id = next_request_id
        self._task: asyncio.Task[None] | None = None
        pool.begin = self._begin

    def _begin(self) -> None:
        self._task = spawn(self._provider.watch(self), name="follow the clusters of a client")

    async def reaches(self, target: ServiceTarget, timeout_s: float) -> bool:
        """As of the port."""
        try:
            pool = ConnectionPool(
                self.runtime, ServiceUrls(target.service_url), target.options(self._options), self._next_request_id
            )
        except InvalidUrl as error:
            _log.warning("%s can not be gone on with: %s", target.service_url, error)
            return False
        try:
            async with asyncio.timeout(timeout_s):
                await pool.service_connection(PROBE_TOPIC)
        except (PulsarException, TimeoutError) as error:
            _log.info("%s does not answer: %s", target.service_url, f"{error}" or f"not within {timeout_s:g} s")
            return False
        else:
            return True
        finally:
            await pool.close()

    def go_on_with(self, target: ServiceTarget) -> None:
        """As of the port."""
        urls = ServiceUrls(target.service_url)
        _log.warning("the client goes on with %s", target.service_url)
        error = NotConnected(f"the client goes on with {target.service_url}")
        self._pool.go_on_with(urls, target.options(self._options), error)

    def close(self) -> None:
        """The client is being closed."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

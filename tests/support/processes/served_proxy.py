"""A proxy of this process, on a loop of a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Self

from geminga.app.configuration.proxy_config import load_proxy_config
from geminga.app.proxy.process import ProxyPorts, ProxyServer


class ServedProxy:
    """Between ``with`` and its end it serves, on ports that the kernel picks."""

    def __init__(self, *settings: str) -> None:
        """``settings``: ``key=value`` each."""
        self._config = load_proxy_config(overrides=["servicePort=0", "webServicePort=0", *settings])
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self.ports: ProxyPorts

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self.ports = self.run(self._start())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.run(self.server.stop())
        finally:
            self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self) -> ProxyPorts:
        self.server = ProxyServer(self._config)
        return await self.server.start()

    def run(self, coroutine):
        """Its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    @property
    def url(self) -> str:
        """For clients."""
        return f"pulsar://127.0.0.1:{self.ports.port}"

    @property
    def tls_url(self) -> str:
        """The same with TLS."""
        return f"pulsar+ssl://127.0.0.1:{self.ports.port_tls}"

    @property
    def web_url(self) -> str:
        """For administration."""
        return f"http://127.0.0.1:{self.ports.web}"

    @property
    def counters(self) -> dict[str, float]:
        """As ``/metrics`` has them."""
        return dict(self.server._service.services.counters.metrics())

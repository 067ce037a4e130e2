"""Metrics of a standalone's storage, told to its broker processes over a Unix socket: both ends.

The first broker process stands at the standalone's port, and so it is the one that shows them.
See ``docs/formats/metrics-socket.md``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, cast

from geminga.app.servers.core.metric_rows import MetricRow, decode_rows, encode_rows
from geminga.model.exposition import Labels, Source
from geminga.runtime import Runtime, get_logger, let_go
from geminga.runtime.ports import Listener

#: How long the answer may take, and how many bytes it may have.
ANSWER_S: Final = 2.0
ANSWER_BYTES_MAX: Final = 1024 * 1024

_log = get_logger(__name__)


async def serve_metrics(runtime: Runtime, path: str, sources: Sequence[tuple[Labels, Source]]) -> Listener:
    """Tell what ``sources`` say to whoever connects to the Unix socket ``path``. Raises OSError."""
    return await runtime.network.listen_local(lambda: _Telling(sources), path)


class _Telling(asyncio.Protocol):
    """One who asked."""

    def __init__(self, sources: Sequence[tuple[Labels, Source]]) -> None:
        self._sources = sources

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # No isinstance: uvloop's transports are not asyncio's.
        transport = cast("asyncio.Transport", transport)
        self._transport = transport
        transport.write(encode_rows(self._sources))
        transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        let_go(self._transport)


class StorageMetrics:
    """Asks the process of the storage."""

    def __init__(self, runtime: Runtime, path: str) -> None:
        self._runtime = runtime
        self._path = path
        self._is_away = False

    async def rows(self) -> Sequence[MetricRow]:
        """What it counts; nothing if it does not answer, which the log tells once."""
        heard: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(ANSWER_S):
                transport, _ = await self._runtime.network.connect_local(lambda: _Hearing(heard), self._path)
                try:
                    rows = decode_rows(await heard)
                finally:
                    transport.close()
        except (OSError, ValueError, TimeoutError) as error:
            if not self._is_away:
                self._is_away = True
                _log.warning("metrics of the storage: %s does not tell them: %s", self._path, error or "no answer")
            return ()
        self._is_away = False
        return rows


class _Hearing(asyncio.Protocol):
    """One question: everything until the other end closes."""

    def __init__(self, heard: asyncio.Future[bytes]) -> None:
        self._heard = heard
        self._data = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        if len(self._data) > ANSWER_BYTES_MAX and not self._heard.done():
            self._heard.set_exception(ValueError(f"more than {ANSWER_BYTES_MAX} bytes"))

    def connection_lost(self, exc: Exception | None) -> None:
        let_go(self._transport)
        if not self._heard.done():
            self._heard.set_result(bytes(self._data))

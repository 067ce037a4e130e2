"""A served bookie as BookKeeper's were before 4.17: a batch read is an operation that it does not know."""

from __future__ import annotations

from typing import Any

from geminga.bookie.serving import BookieServer
from geminga.bookie.serving.connection import BookieConnection
from geminga.model.bookie_port import Bookie
from geminga.runtime import Runtime
from geminga.wire.bookkeeper.codes import FRAME_BYTES_MAX
from geminga.wire.bookkeeper.requests import BatchReadRequest, Request


class OldBookieServer(BookieServer):
    """Counts what it got of what it does not know."""

    batch_reads = 0

    @classmethod
    async def listen(
        cls, runtime: Runtime, bookie: Bookie, host: str, port: int, *, frame_bytes_max: int = FRAME_BYTES_MAX
    ) -> OldBookieServer:
        server = cls(bookie, frame_bytes_max)
        server._listener = await runtime.network.listen(lambda: _OldConnection(server), host, port)
        return server


class _OldConnection(BookieConnection):
    server: OldBookieServer

    def _handle(self, request: Request) -> None:
        if isinstance(request, BatchReadRequest):
            # The decoder throws, and the connection is closed without a word.
            self.server.batch_reads += 1
            assert self._transport is not None
            self._transport.close()
            return
        super()._handle(request)

    def data_received(self, data: bytes) -> Any:
        if self._transport is not None and not self._transport.is_closing():
            super().data_received(data)

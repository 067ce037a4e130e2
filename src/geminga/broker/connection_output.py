"""What a connection sends: one write a turn of the loop where that may be, and who waits until the client takes it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from geminga.broker.back_pressure import WRITE_BUFFER_STOP_READING_BYTES
from geminga.broker.pause_reason import PauseReason
from geminga.model.errors import GemingaError
from geminga.runtime import Buffer
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands


class ConnectionOutput:
    """The half of a connection that writes."""

    __slots__ = (
        "_flush_scheduled",
        "_loop",
        "_out",
        "_transport",
        "_writable_callbacks",
        "is_closed",
        "is_writable",
    )

    def __init__(self) -> None:
        self.is_closed = False
        #: False while the transport's buffer is over its high mark.
        self.is_writable = True
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self._flush_scheduled = False
        self._writable_callbacks: list[Callable[[], None]] = []

    def _pause(self, reason: PauseReason) -> None:
        """Read nothing for now. The other half does it."""

    def write(self, data: bytes) -> None:
        """Write now, behind everything that :meth:`write_soon` holds; nothing once the connection is closed."""
        if self.is_closed or self._transport is None:
            return
        if self._out:
            self._out.append(data)
            data = b"".join(self._out)
            self._out.clear()
        self._transport.write(data)
        if not self.is_writable:
            self._check_write_buffer(self._transport)

    def write_many(self, parts: list[Buffer]) -> None:
        """Write the parts back to back with one transport call."""
        if self.is_closed or self._transport is None:
            return
        if self._out:
            parts = [*self._out, *parts]
            self._out.clear()
        self._transport.writelines(parts)
        if not self.is_writable:
            self._check_write_buffer(self._transport)

    def write_soon(self, data: bytes) -> None:
        """Write at the end of this turn of the loop, together with what else comes until then."""
        self._out.append(data)
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        if self._out and not self.is_closed and self._transport is not None:
            out, self._out = self._out, []
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))
            if not self.is_writable:
                self._check_write_buffer(self._transport)

    def _check_write_buffer(self, transport: asyncio.Transport) -> None:
        if transport.get_write_buffer_size() > WRITE_BUFFER_STOP_READING_BYTES:
            self._pause(PauseReason.WRITE_BUFFER)

    def send_command(self, command: pb.BaseCommand) -> None:
        """Encode and write a command."""
        self.write(commands.encode_command(command))

    def send_success(self, request_id: int) -> None:
        """Answer SUCCESS."""
        self.write(commands.success(request_id))

    def send_error(self, request_id: int, error: GemingaError) -> None:
        """Answer ERROR with the error's code and text."""
        self.write(commands.error(request_id, error.server_error, str(error)))

    def on_writable(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once when the connection is writable again (at once in the next turn if it is)."""
        if self.is_closed:
            return
        if self.is_writable:
            self._loop.call_soon(callback)
        else:
            self._writable_callbacks.append(callback)

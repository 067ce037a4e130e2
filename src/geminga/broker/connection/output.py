"""What a connection sends: one write a turn of the loop where that may be, and who waits until the client takes it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from geminga.broker.connection.back_pressure import WRITE_BUFFER_STOP_READING_BYTES
from geminga.broker.connection.output_budget import OutputBudget
from geminga.broker.connection.pause_reason import PauseReason
from geminga.model.errors import GemingaError
from geminga.runtime import Buffer
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands


class ConnectionOutput:
    """The half of a connection that writes."""

    __slots__ = (
        "_flush_scheduled",
        "_has_turn",
        "_is_full",
        "_loop",
        "_out",
        "_output_budget",
        "_transport",
        "_writable_callbacks",
        "is_closed",
        "is_writable",
    )

    def __init__(self, output_budget: OutputBudget) -> None:
        self.is_closed = False
        #: Whether dispatchers may write: the transport's buffer is below its high mark, and either there is no shortage
        #: of room for what clients do not take, or it is this connection's turn.
        self.is_writable = not output_budget.is_short
        self._is_full = False
        self._has_turn = False
        self._output_budget = output_budget
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self._flush_scheduled = False
        self._writable_callbacks: list[Callable[[], None]] = []

    def _pause(self, reason: PauseReason) -> None:
        """Read nothing for now. The other half does it."""

    def _resume(self, reason: PauseReason) -> None:
        """There is this reason no more. The other half goes on."""

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
        elif self._has_turn:
            self._output_budget.wrote(self)

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
        size_bytes = transport.get_write_buffer_size()
        if self._is_full:
            self._output_budget.note(self, size_bytes)
        if size_bytes > WRITE_BUFFER_STOP_READING_BYTES:
            self._pause(PauseReason.WRITE_BUFFER)

    def pause_writing(self) -> None:
        """The transport's buffer is over its high mark."""
        self._is_full = True
        self.is_writable = False

    def resume_writing(self) -> None:
        """The client took what was written."""
        self._is_full = False
        self._resume(PauseReason.WRITE_BUFFER)
        self._output_budget.took(self)
        if not self._output_budget.is_short:
            self.may_write_again()
        elif self._writable_callbacks:
            self._output_budget.wait(self)

    @property
    def is_held(self) -> bool:
        """Whether there is a shortage of room for what clients do not take, and it is not this connection's turn."""
        return self._output_budget.is_short and not self._has_turn

    # ---- for the output budget

    @property
    def unsent_bytes(self) -> int:
        """What the client was sent and has not taken."""
        return self._transport.get_write_buffer_size() if self._transport is not None and not self.is_closed else 0

    def must_wait(self) -> None:
        """There is a shortage: dispatchers write in turns."""
        self._has_turn = False
        self.is_writable = False

    def may_write_again(self, *, has_turn: bool = False) -> None:
        """The shortage is over, or it is this connection's turn."""
        if self._is_full or self.is_closed:
            return
        self._has_turn = has_turn
        self.is_writable = True
        callbacks, self._writable_callbacks = self._writable_callbacks, []
        for callback in callbacks:
            callback()

    def cut_off(self, reason: str) -> None:
        """It is closed at once. The other half does it."""

    def send_command(self, command: pb.BaseCommand) -> None:
        """Encode and write a command."""
        self.write(commands.encode_command(command))

    def send_success(self, request_id: int) -> None:
        """Answer SUCCESS."""
        self.write(commands.success(request_id))

    def send_error(self, request_id: int, error: GemingaError) -> None:
        """Answer ERROR with the error's code and text."""
        self.write(commands.error(request_id, error.server_error, self.told(error)))

    def told(self, error: GemingaError) -> str:
        """What the client is told of an error. The other half logs what it is not told."""
        return error.told

    def on_writable(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once when the connection is writable again (at once in the next turn if it is)."""
        if self.is_closed:
            return
        if self.is_writable:
            self._loop.call_soon(callback)
        else:
            self._writable_callbacks.append(callback)
            if not self._is_full:
                self._output_budget.wait(self)

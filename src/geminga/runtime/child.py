"""A child process that is talked to over its standard input and output, and ended for good when it must be.

Under simulation there are no processes: whoever uses this is given :class:`LaunchesChildren` and can be given another.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from typing import Protocol, cast


class Child(Protocol):
    """A child process that was started."""

    @property
    def pid(self) -> int:
        """Its number."""
        ...

    def write(self, data: bytes) -> None:
        """Send to its standard input, whole, as it reads; nothing happens once it has ended."""
        ...

    def kill(self) -> None:
        """End it now, with what it started. It is told by ``ended``, later."""
        ...


class LaunchesChildren(Protocol):
    """Starts a child process."""

    async def __call__(
        self, command: Sequence[str], received: Callable[[bytes], None], ended: Callable[[str], None]
    ) -> Child:
        """Start ``command``. ``received`` gets what it writes to its standard output; ``ended``, once and after all of
        that, how it ended. Raises OSError."""
        ...


class _Pipes(asyncio.SubprocessProtocol):
    """The loop's side of a child."""

    def __init__(self, received: Callable[[bytes], None], ended: Callable[[str], None]) -> None:
        self._received = received
        self._ended = ended
        self._transport: asyncio.SubprocessTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The child runs."""
        self._transport = cast("asyncio.SubprocessTransport", transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """It wrote something."""
        self._received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended, and its pipes are closed."""
        code = None
        if self._transport is not None:
            code = self._transport.get_returncode()
            self._transport.close()
        self._ended("ended" if code is None else _story(code))


class _Child:
    """As :class:`Child`."""

    def __init__(self, transport: asyncio.SubprocessTransport) -> None:
        self._transport = transport
        self.pid = transport.get_pid()

    def write(self, data: bytes) -> None:
        pipe = cast("asyncio.WriteTransport | None", self._transport.get_pipe_transport(0))
        if pipe is not None and not pipe.is_closing():
            pipe.write(data)

    def kill(self) -> None:
        if self._transport.get_returncode() is not None:
            self._transport.close()
            return
        try:
            # It leads a session of its own: what a filter started goes with it.
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        # Its pipes alone: closing the whole asks for the status of a process that may be dead by now, and the loop,
        # which waits for it, would be told that there is none. :meth:`_Pipes.connection_lost` closes the rest.
        for descriptor in (0, 1):
            pipe = self._transport.get_pipe_transport(descriptor)
            if pipe is not None:
                pipe.close()


def _story(code: int) -> str:
    if code >= 0:
        return f"ended with {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


async def launch(command: Sequence[str], received: Callable[[bytes], None], ended: Callable[[str], None]) -> Child:
    """As :class:`LaunchesChildren`: its standard error is this process's."""
    transport, _ = await asyncio.get_running_loop().subprocess_exec(
        lambda: _Pipes(received, ended), *command, stderr=None, start_new_session=True
    )
    return _Child(transport)

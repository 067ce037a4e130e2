"""kazoo's connection thread and the loop: answers, watch events and the session's states, handed over in groups.

kazoo runs callbacks on threads of its own by a handler. This one starts none: what comes is put into one queue by the
connection's thread, in the order of the connection, and the loop is woken once for all that is in it.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from kazoo.handlers.threading import SequentialThreadingHandler

from geminga.runtime import again

#: What is called on the loop's thread, and with what.
_Call: TypeAlias = tuple[Callable[..., None], tuple[Any, ...]]

#: What kazoo makes, and is given: it has no types.
Kazoo: TypeAlias = Any

_NOTHING: Final[Any] = object()


class Inbox:
    """From kazoo's thread to the loop. Its length is bounded by the requests under way and the watches armed."""

    __slots__ = ("_calls", "_is_scheduled", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[_Call] = deque()
        self._is_scheduled = False

    def put(self, function: Callable[..., None], *arguments: Kazoo) -> None:
        """Have ``function`` called on the loop's thread, after everything that was put before. On any thread."""
        self._calls.append((function, arguments))
        if not self._is_scheduled:
            self._is_scheduled = True
            try:
                self._loop.call_soon_threadsafe(self._take)
            except RuntimeError:
                # The loop is closed: nobody waits any more.
                self._calls.clear()

    def _take(self) -> None:
        # First: what is put from now on may be seen below, or makes a call of its own.
        self._is_scheduled = False
        try:
            # What comes meanwhile is for the next turn: others have theirs before.
            for _ in range(len(self._calls)):
                function, arguments = self._calls.popleft()
                function(*arguments)
        finally:
            if self._calls and not self._is_scheduled:
                self._is_scheduled = True
                self._loop.call_soon(self._take)


class AsyncResult:
    """kazoo's asynchronous result without locks: callbacks run at once, on the thread that sets it."""

    __slots__ = ("_callbacks", "_error", "_value")

    def __init__(self) -> None:
        self._callbacks: list[Callable[[AsyncResult], None]] = []
        self._value = _NOTHING
        self._error: BaseException | None = None

    def ready(self) -> bool:
        """Whether it is there."""
        return self._value is not _NOTHING

    @property
    def exception(self) -> BaseException | None:
        """Why there is no answer."""
        return self._error

    def set(self, value: Kazoo = None) -> None:
        """It is this."""
        self._value = value
        self._call_back()

    def set_exception(self, error: BaseException) -> None:
        """There is none."""
        self._error = error
        self._value = None
        self._call_back()

    def get(self, block: bool = True, timeout: float | None = None) -> Kazoo:
        """The value, or raise; only once it is ready, whatever ``timeout`` (seconds, as kazoo has it) says."""
        if self._error is not None:
            raise again(self._error)
        return self._value

    def rawlink(self, callback: Callable[[AsyncResult], None]) -> None:
        """Call back once, at once if it is ready."""
        self._callbacks.append(callback)
        if self.ready():
            self._call_back()

    def _call_back(self) -> None:
        # Two threads may be here: each callback is taken by one.
        while True:
            try:
                callback = self._callbacks.pop()
            except IndexError:
                return
            callback(self)


class KazooHandler:
    """What kazoo asks of its surroundings. Everything that is not here is that of its own handler."""

    name = "geminga"
    #: Nothing of this handler needs to be started.
    running = True

    def __init__(self, tls: Callable[[], ssl.SSLContext] | None, connect_within_s: float) -> None:
        """``tls``: what the next connection gets; None: it is plain. ``connect_within_s``: what a host may take."""
        self._kazoo = SequentialThreadingHandler()
        self._tls = tls
        self._connect_within_s = connect_within_s
        #: Why the last attempt to connect failed; empty: it did not.
        self.last_failure = ""

    def __getattr__(self, name: str) -> Kazoo:
        return getattr(self._kazoo, name)

    def start(self) -> None:
        """kazoo's would start two threads for callbacks."""

    def stop(self) -> None:
        """See :meth:`start`."""

    def async_result(self) -> AsyncResult:
        """See :class:`AsyncResult`."""
        return AsyncResult()

    def dispatch_callback(self, callback: Kazoo) -> None:
        """A watch fired: its callback only hands over."""
        callback.func(*callback.args)

    def create_connection(
        self, address: tuple[str, int], hostname: str, timeout: float, **options: Kazoo
    ) -> socket.socket | Kazoo:
        """A connection to ``address``, which ``hostname`` is. kazoo's TLS would trust the system's authorities, too."""
        timeout = min(timeout, self._connect_within_s)
        try:
            if self._tls is None:
                made = self._kazoo.create_connection(address=address, hostname=hostname, timeout=timeout, **options)
            else:
                made = self._secured(socket.create_connection(address, timeout), hostname)
        except OSError as error:
            self.last_failure = f"{hostname}:{address[1]}: {error}"
            raise
        self.last_failure = ""
        return made

    def _secured(self, plain: socket.socket, hostname: str) -> socket.socket:
        assert self._tls is not None
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return self._tls().wrap_socket(plain, server_hostname=hostname)
        except OSError:
            plain.close()
            raise

    def select(
        self, reading: list[Any], writing: list[Any], _: list[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """As ``select.select``, for any descriptor; kazoo's opens an epoll for each of its several calls a request."""
        poll = select.poll()
        by_descriptor = {}
        buffered: list[Any] = []
        for sockets, events in ((reading, select.POLLIN), (writing, select.POLLOUT)):
            for one in sockets:
                if events == select.POLLIN and hasattr(one, "pending") and one.pending():
                    # It has read more than it gave: the kernel knows of nothing.
                    buffered.append(one)
                    timeout = 0
                by_descriptor[one.fileno()] = one
                poll.register(one.fileno(), events)
        ready = {by_descriptor[descriptor] for descriptor, _ in poll.poll(None if timeout is None else timeout * 1000)}
        ready.update(buffered)
        return [one for one in reading if one in ready], [one for one in writing if one in ready], []

"""HTTP whose answer has a limit of time over all, as urllib's is for each read: a server that sends a byte now and then
would hold who reads it for ever. Blocks; for threads.
"""

from __future__ import annotations

import io
import socket
import ssl
from collections.abc import Callable
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from typing import Any, cast
from urllib.request import BaseHandler, HTTPHandler, HTTPSHandler, OpenerDirector, Request, build_opener

from geminga.runtime import SystemClock

#: Seconds that are left; raises TimeoutError when there are none.
TimeLeft = Callable[[], float]


def time_left(limit_s: float) -> TimeLeft:
    """From now on."""
    clock = SystemClock()
    end_s = clock.monotonic() + limit_s

    def left() -> float:
        left_s = end_s - clock.monotonic()
        if left_s <= 0:
            raise TimeoutError(f"no whole answer within {limit_s:g} s")
        return left_s

    return left


def limited_opener(left: TimeLeft, context: ssl.SSLContext | None, *handlers: BaseHandler) -> OpenerDirector:
    """Opens what has to be read whole before nothing is ``left``; ``context``: of TLS, None: the default.

    What it reads raises TimeoutError, too.
    """

    class LimitedConnection(HTTPConnection):
        def connect(self) -> None:
            self.timeout = left()
            super().connect()
            self.sock = cast("socket.socket", _LimitedSocket(self.sock, left))

    class LimitedTlsConnection(HTTPSConnection):
        def connect(self) -> None:
            self.timeout = left()
            super().connect()
            self.sock = cast("ssl.SSLSocket", _LimitedSocket(self.sock, left))

    class LimitedHandler(HTTPHandler):
        def http_open(self, req: Request) -> HTTPResponse:
            return self.do_open(LimitedConnection, req)

    class LimitedTlsHandler(HTTPSHandler):
        def https_open(self, req: Request) -> HTTPResponse:
            return self.do_open(LimitedTlsConnection, req, context=context)

    return build_opener(LimitedHandler, LimitedTlsHandler(context=context), *handlers)


class _LimitedSocket:
    """A socket whose reads take no longer than is left."""

    def __init__(self, sock: socket.socket, left: TimeLeft) -> None:
        self._sock = sock
        self._left = left

    def makefile(self, *_: object) -> io.BufferedReader:
        return io.BufferedReader(_LimitedReads(self._sock, self._left))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  (whatever the socket has)
        return getattr(self._sock, name)


class _LimitedReads(io.RawIOBase):
    def __init__(self, sock: socket.socket, left: TimeLeft) -> None:
        self._sock = sock
        # It keeps the socket open: urllib lets go of it before the body is read.
        self._raw = sock.makefile("rb", buffering=0)
        self._left = left

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:  # noqa: ANN401  (a buffer)
        self._sock.settimeout(self._left())
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()

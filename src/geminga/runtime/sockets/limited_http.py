"""HTTP whose answer has a limit of time over all, as urllib's is for each read: a server that sends a byte now and then
would hold who reads it for ever. Blocks; for threads.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from urllib.request import BaseHandler, HTTPHandler, HTTPSHandler, OpenerDirector, Request, build_opener

from geminga.runtime.sockets.limited_answers import limited_answers

#: Seconds that are left; raises TimeoutError when there are none.
TimeLeft = Callable[[], float]


def time_left(limit_s: float) -> TimeLeft:
    """From now on."""
    end_s = time.monotonic() + limit_s

    def left() -> float:
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError(f"no whole answer within {limit_s:g} s")
        return left_s

    return left


def limited_opener(left: TimeLeft, context: ssl.SSLContext | None, *handlers: BaseHandler) -> OpenerDirector:
    """Opens what has to be read whole before nothing is ``left``; ``context``: of TLS, None: the default.

    What it reads raises TimeoutError, too.
    """
    # Of the connection, and not of its socket: what a proxy says to CONNECT is read before that is ours.
    answers = limited_answers(lambda: lambda _: left())

    class LimitedConnection(HTTPConnection):
        response_class = answers

        def connect(self) -> None:
            self.timeout = left()
            super().connect()

    class LimitedTlsConnection(HTTPSConnection):
        response_class = answers

        def connect(self) -> None:
            self.timeout = left()
            super().connect()

    class LimitedHandler(HTTPHandler):
        def http_open(self, req: Request) -> HTTPResponse:
            return self.do_open(LimitedConnection, req)

    class LimitedTlsHandler(HTTPSHandler):
        def https_open(self, req: Request) -> HTTPResponse:
            return self.do_open(LimitedTlsConnection, req, context=context)

    return build_opener(LimitedHandler, LimitedTlsHandler(context=context), *handlers)

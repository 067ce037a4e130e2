"""Answers over HTTP whose reads have a limit of time over all, as ``http.client``'s is for each read: a server, or a
proxy on the way, that sends a byte now and then would hold who reads for ever. Blocks; for threads.
"""

from __future__ import annotations

import io
import socket
from collections.abc import Callable
from http.client import HTTPResponse
from typing import Any, TypeAlias

#: Seconds that the next read may take, given the bytes that were read before. Raises TimeoutError when there are none;
#: what it raises ends the answer.
ReadTime: TypeAlias = Callable[[int], float]


def limited_answers(make: Callable[[], ReadTime]) -> type[HTTPResponse]:
    """For ``response_class`` of a connection, which reads with it what a proxy says to CONNECT, too.

    ``make`` is called for each answer. What is read leaves the socket with another time-out than it had.
    """

    class LimitedAnswer(HTTPResponse):
        def __init__(
            self, sock: socket.socket, debuglevel: int = 0, method: str | None = None, url: str | None = None
        ) -> None:
            super().__init__(sock, debuglevel, method, url)
            # The unbuffered one, which keeps the socket open: urllib lets go of that before the body is read.
            self.fp = io.BufferedReader(_LimitedReads(sock, self.fp.detach(), make()))

    return LimitedAnswer


class _LimitedReads(io.RawIOBase):
    def __init__(self, sock: socket.socket, raw: io.RawIOBase, time: ReadTime) -> None:
        self._sock = sock
        self._raw = raw
        self._time = time
        self._read_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:  # noqa: ANN401  (a buffer)
        self._sock.settimeout(self._time(self._read_bytes))
        read: int | None = self._raw.readinto(buffer)
        self._read_bytes += read or 0
        return read

    def close(self) -> None:
        self._raw.close()
        super().close()

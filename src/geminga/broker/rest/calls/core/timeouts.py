"""How long an HTTP connection may take for what it is at: the headers, the body, taking the answer.

A stranger who sends half a request, or reads no answer, would otherwise hold a connection for ever. Time runs from
the beginning of each part, not from the last byte, so a byte now and then buys nothing; only an answer is measured
by progress, since its size is ours.

All of it is the client's time: what the server itself takes is left out by who looks (``server``, ``http_connection``):
while its software loads, while its loop stands still, while it does not read on.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

#: Seconds after which who was told 503 may come again, in its header ``Retry-After``.
RETRY_AFTER_S: Final = 5
#: Body of a request where ``httpMaxRequestSize`` sets no other bound, bytes.
BODY_BYTES_MAX_DEFAULT: Final = 16 * 1024 * 1024


class RequestPhase(Enum):
    """What a connection is at."""

    #: Its request line and headers are not complete.
    HEAD = "headers"
    #: Its body is not complete.
    BODY = "body"
    #: A request is being carried out, or the next one is waited for.
    OTHER = "answer"


class TimeoutLimits(NamedTuple):
    """Seconds for the headers, for the body, and without progress of an answer that is to be read."""

    head_s: float
    body_s: float
    stalled_s: float


class RequestTimeouts:
    """Of one connection."""

    __slots__ = ("_limits", "_phase", "_phase_since_s", "_request", "_unread", "_unread_since_s")

    def __init__(self, limits: TimeoutLimits, now_s: float) -> None:
        self._limits = limits
        self._phase = RequestPhase.HEAD
        self._request = 0
        self._phase_since_s = now_s
        self._unread = 0
        self._unread_since_s = now_s

    def look(self, now_s: float, phase: RequestPhase, request: int, unread_bytes: int) -> str:
        """What took too long (empty: nothing), given the phase of request number ``request`` it is at now, and the
        bytes of answers that the client has not taken."""
        if phase is not self._phase or request != self._request:
            self._phase, self._request, self._phase_since_s = phase, request, now_s
        if unread_bytes < self._unread or not self._unread:
            self._unread_since_s = now_s
        self._unread = unread_bytes
        took_s = now_s - self._phase_since_s
        if phase is RequestPhase.HEAD and took_s >= self._limits.head_s:
            return "its headers"
        if phase is RequestPhase.BODY and took_s >= self._limits.body_s:
            return "its body"
        if unread_bytes and now_s - self._unread_since_s >= self._limits.stalled_s:
            return "reading the answer"
        return ""

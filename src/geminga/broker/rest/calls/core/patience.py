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


class Part(Enum):
    """What a connection is at."""

    #: Its request line and headers are not complete.
    HEAD = "headers"
    #: Its body is not complete.
    BODY = "body"
    #: A request is being carried out, or the next one is waited for.
    OTHER = "answer"


class Limits(NamedTuple):
    """Seconds for the headers, for the body, and without progress of an answer that is to be read."""

    head_s: float
    body_s: float
    stalled_s: float


class Patience:
    """Of one connection."""

    __slots__ = ("_limits", "_part", "_part_since_s", "_request", "_unread", "_unread_since_s")

    def __init__(self, limits: Limits, now_s: float) -> None:
        self._limits = limits
        self._part = Part.HEAD
        self._request = 0
        self._part_since_s = now_s
        self._unread = 0
        self._unread_since_s = now_s

    def look(self, now_s: float, part: Part, request: int, unread_bytes: int) -> str:
        """What took too long (empty: nothing), given the part of request number ``request`` it is at now, and the
        bytes of answers that the client has not taken."""
        if part is not self._part or request != self._request:
            self._part, self._request, self._part_since_s = part, request, now_s
        if unread_bytes < self._unread or not self._unread:
            self._unread_since_s = now_s
        self._unread = unread_bytes
        took_s = now_s - self._part_since_s
        if part is Part.HEAD and took_s >= self._limits.head_s:
            return "its headers"
        if part is Part.BODY and took_s >= self._limits.body_s:
            return "its body"
        if unread_bytes and now_s - self._unread_since_s >= self._limits.stalled_s:
            return "reading the answer"
        return ""

"""Who is logged in: credentials stay here, a cookie has a name that nobody guesses.

So many at a time over all visitors, and of the same credentials; each ends by itself when nobody used it for a while,
and after some hours in any case.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

#: Sessions at a time; then that which was idle longest ends.
SESSIONS_MAX: Final = 1000
#: Of the same credentials; then the oldest of them ends, so that one who may log in does not push all others out.
SESSIONS_OF_ONE_MAX: Final = 16
#: Seconds without a request, and in all, after which a session is over.
IDLE_S: Final = 1800.0
WHOLE_S: Final = 12 * 3600.0
#: Bytes of what says who somebody is.
CREDENTIALS_BYTES_MAX: Final = 16_384
#: Bytes of randomness in a name.
NAME_BYTES: Final = 32
_NAME: Final = re.compile(r"[0-9a-f]{64}")


class Visitor(NamedTuple):
    """What a request brings along."""

    #: The value of the cookie.
    name: str = ""
    #: The header Authorization; empty: nobody is logged in.
    authorization: str = ""


class _Session:
    __slots__ = ("authorization", "begun_s", "used_s")

    def __init__(self, authorization: str, now_s: float) -> None:
        self.authorization = authorization
        self.begun_s = now_s
        self.used_s = now_s

    def is_over(self, now_s: float) -> bool:
        return now_s - self.used_s > IDLE_S or now_s - self.begun_s > WHOLE_S


class Sessions:
    """By name, the one that was used last at the end."""

    def __init__(self) -> None:
        self._sessions: dict[str, _Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, name: str, authorization: str, *, now_s: float) -> None:
        """Somebody logged in; ``name`` is new."""
        self._end_old(now_s)
        same = [known for known, session in self._sessions.items() if session.authorization == authorization]
        for known in same[: max(0, len(same) - SESSIONS_OF_ONE_MAX + 1)]:
            del self._sessions[known]
        if len(self._sessions) >= SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
        self._sessions[name] = _Session(authorization, now_s)

    def used(self, name: str, *, now_s: float, by_itself: bool = False) -> str:
        """The credentials of a session that is used now; empty: there is none of this name.

        ``by_itself``: a page that is open asks for its live part: nobody need sit there, so it keeps no session alive.
        """
        session = self._sessions.get(name)
        if session is None:
            return ""
        if session.is_over(now_s):
            del self._sessions[name]
            return ""
        if not by_itself:
            session.used_s = now_s
            # To the end: the one that was idle longest is the first.
            self._sessions[name] = self._sessions.pop(name)
        return session.authorization

    def end(self, name: str) -> None:
        """Somebody logged out; harmless for nobody."""
        self._sessions.pop(name, None)

    def _end_old(self, now_s: float) -> None:
        for name in [name for name, session in self._sessions.items() if session.is_over(now_s)]:
            del self._sessions[name]


def sealed(key: bytes, *words: str) -> str:
    """What only this process can say of ``words``: 64 hexadecimal digits."""
    text = b"".join(b"%d:%s" % (len(word.encode()), word.encode()) for word in words)
    return hmac.new(key, text, hashlib.sha256).hexdigest()


def is_sealed(key: bytes, seal: str, *words: str) -> bool:
    """Whether :func:`sealed` said that."""
    return hmac.compare_digest(sealed(key, *words).encode(), seal.encode("utf-8", "replace"))


def name_of(header: str, cookie: str) -> str:
    """The value of ``cookie`` in a header Cookie; empty: it has none, or one that is none of ours."""
    for name, value in _cookies(header):
        if name == cookie and _NAME.fullmatch(value):
            return value
    return ""


def _cookies(header: str) -> Iterator[tuple[str, str]]:
    for each in header.split(";"):
        name, _, value = each.partition("=")
        yield name.strip(), value.strip()

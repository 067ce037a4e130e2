"""What is kept of administrative changes: who, from where, what, with what outcome. One line of JSON each.

::

    {"time": "2026-11-27T22:15:04.123Z", "role": "jane", "original": "", "peer": "10.0.0.7:51042",
     "method": "PUT", "path": "/admin/v2/tenants/acme", "action": "create tenant", "status": 401,
     "reason": "Unauthorized to create tenant for jane"}

Refused ones and failures are there too; what only looks is not, unless it looks at messages. Bodies are not kept: a
password may be in one. Of who is not known so many lines are kept: files have a size, and strangers would push out of
them what others did.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, NamedTuple, Protocol

#: Characters of a path and of a reason that are kept: strangers choose them.
TEXT_MAX: Final = 1024
#: Lines of who is not known, over all of them: so many at once, and one more whenever so many milliseconds have passed.
STRANGERS_MAX: Final = 5_000
STRANGERS_MS: Final = 3_000
#: HTTP's, of who is refused.
_UNAUTHORIZED: Final = 401


class AuditLog(Protocol):
    """Keeps lines."""

    def add(self, line: str) -> None:
        """Keep one, soon; it never fails: what can not be kept is told in the process' own log."""


class Entry(NamedTuple):
    """One request."""

    #: Empty: nobody knows.
    role: str
    #: For whom a proxy asked.
    original: str
    #: Address of who sent it.
    peer: str
    method: str
    #: As it was sent, percent-encoded, with its query.
    path: str
    action: str
    #: Of HTTP.
    status: int
    #: What was said where it was refused, or failed.
    reason: str = ""

    def line(self, wall_ms: int, left_out: int = 0) -> str:
        """As it is kept; ``wall_ms``: when it was answered, since the epoch. ``left_out``: lines that are not."""
        moment = datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds")
        fields = self._replace(path=self.path[:TEXT_MAX], reason=self.reason[:TEXT_MAX])._asdict()
        more = {"leftOut": left_out} if left_out else {}
        return json.dumps({"time": moment.replace("+00:00", "Z"), **fields, **more})


class Auditor:
    """Keeps entries with the time of the broker's clock."""

    __slots__ = ("_as_of_ms", "_left_out", "_log", "_strangers_may", "_wall_ms")

    def __init__(self, log: AuditLog, wall_ms: Callable[[], int]) -> None:
        self._log = log
        self._wall_ms = wall_ms
        #: Lines that strangers may have as of then, and how many were left out since the last that was not.
        self._strangers_may, self._as_of_ms, self._left_out = STRANGERS_MAX, 0, 0

    def note(self, entry: Entry) -> None:
        """Keep it."""
        now_ms = self._wall_ms()
        if entry.role or entry.status != _UNAUTHORIZED:
            self._log.add(entry.line(now_ms))
            return
        # A clock may be set back.
        more = max(0, now_ms - self._as_of_ms) // STRANGERS_MS
        if more or now_ms < self._as_of_ms:
            self._strangers_may, self._as_of_ms = min(STRANGERS_MAX, self._strangers_may + more), now_ms
        if not self._strangers_may:
            self._left_out += 1
            return
        self._strangers_may -= 1
        left_out, self._left_out = self._left_out, 0
        self._log.add(entry.line(now_ms, left_out))

"""A context that follows its files: new connections get the newest that is good, those that stand keep theirs.

Files are looked at from time to time, at each new connection, or when somebody says so (SIGHUP). What is new is read as
a whole and tried; while certificate and key are being exchanged they do not belong together, and the old ones go on.
What is wrong is said once for each thing that is wrong.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Final

from geminga.model.errors import GemingaError
from geminga.runtime.log import get_logger
from geminga.runtime.tls.contexts import Made
from geminga.runtime.tls.material import utc_now

#: So long before its end a certificate is told of.
END_IS_NEAR: Final = timedelta(days=7)

_log = get_logger(__name__)

#: Of one file: when it was changed, its size, which one it is; None: it can not be looked at.
_Stamp = tuple[int, int, int] | None


class FollowedContext:
    """See the module. The first context is made at once, and what is wrong then is raised."""

    def __init__(self, what: str, paths: Sequence[str], make: Callable[[], Made], *, at_each: bool = False) -> None:
        """``what``: whose it is, for the log. ``at_each``: look when a context is asked for.

        ``make`` raises a GemingaError for what is wrong; so does this.
        """
        self._what = what
        self._paths = [path for path in paths if path]
        self._make = make
        self._at_each = at_each
        self._stamps = self._look()
        self._made = make()
        #: Of whose end the log was told: a fingerprint, and whether it was over.
        self._told_end = ("", False)
        self._mind_end()
        #: What was wrong with the files when they were read last; empty: nothing.
        self.complaint = ""
        self._timer: asyncio.TimerHandle | None = None
        #: Told of each new context.
        self.on_change: Callable[[], None] = lambda: None

    @property
    def made(self) -> Made:
        """What new connections get, without looking."""
        return self._made

    def context(self) -> ssl.SSLContext:
        """What a new connection gets."""
        if self._at_each and self._look() != self._stamps:
            self.look()
        return self._made.context

    def look(self, *, again: bool = False) -> bool:
        """Read the files if they changed since, were not good, or ``again`` is said; whether there is a new context."""
        stamps = self._look()
        if stamps == self._stamps and not again and not self.complaint:
            return False
        try:
            made = self._make()
        except GemingaError as error:
            self._stamps = stamps
            if str(error) != self.complaint or again:
                self.complaint = str(error)
                _log.error("%s: %s; the certificates that were read before stay in use", self._what, error)
            return False
        self._stamps = stamps
        self.complaint = ""
        before, self._made = self._made, made
        now, old = made.identity, before.identity
        if now is not None and (old is None or now.fingerprint != old.fingerprint):
            _log.warning(
                "%s: new certificate of %s, SHA-256 %s, until %s",
                self._what,
                now.subject,
                now.fingerprint,
                now.not_after.strftime("%Y-%m-%d"),
            )
        else:
            _log.info("%s: certificates were read again", self._what)
        self.on_change()
        return True

    def follow(self, every_s: float) -> None:
        """Look every so many seconds, on the running loop, until :meth:`close`; 0: not by time."""
        if every_s > 0:
            self._timer = asyncio.get_running_loop().call_later(every_s, partial(self._due, every_s))

    def _due(self, every_s: float) -> None:
        self.look()
        self._mind_end()
        self.follow(every_s)

    def _mind_end(self) -> None:
        """Tell, once before it and once after it, that the own certificate ends: nothing else would."""
        identity = self._made.identity
        if identity is None:
            return
        left = identity.not_after - utc_now()
        end = (identity.fingerprint, left <= timedelta())
        if left >= END_IS_NEAR or end == self._told_end:
            return
        self._told_end = end
        _log.warning(
            "%s: the certificate of %s %s on %s",
            self._what,
            identity.subject,
            "expired" if end[1] else "expires",
            identity.not_after.strftime("%Y-%m-%d %H:%M:%S UTC"),
        )

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> list[_Stamp]:
        return [_stamp(path) for path in self._paths]


def _stamp(path: str) -> _Stamp:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino

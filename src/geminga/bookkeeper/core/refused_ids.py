"""Ledger ids that bookies refuse to new ledgers, as another's (EUA): they are jumped over. Pure.

Bookies keep under which key a ledger was first heard of. Where somebody without metadata took ids that had not been
given out, each new ledger would fail until the last of them is used up. So the next ledger gets an id that lies behind
the refused one by 1, 2, 4, ... as long as they are refused.
"""

from __future__ import annotations

from typing import Final

#: Seconds without a refusal, after which the next one is the first again.
CALM_S: Final = 60.0
#: The furthest jump.
SKIP_MAX: Final = 1 << 30


class RefusedIds:
    """Of one ledger client."""

    __slots__ = ("_last_s", "_skip", "newest")

    def __init__(self) -> None:
        #: New ledgers get greater ids; -1: any.
        self.newest = -1
        self._skip = 0
        self._last_s = 0.0

    def refused(self, ledger_id: int, *, now_s: float) -> None:
        """A new ledger was refused; those whose ids were taken before the last jump say nothing new."""
        if ledger_id <= self.newest:
            return
        is_first = not self._skip or now_s - self._last_s > CALM_S
        self._skip = 1 if is_first else min(self._skip * 2, SKIP_MAX)
        self._last_s = now_s
        # The id behind the refused one is the next one: a jump of 1.
        self.newest = ledger_id + self._skip - 1

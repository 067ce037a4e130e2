"""When a snapshot of a topic's aborted transactions is stored: some time after a change, or after many of them.

A snapshot has all of them: what it costs, and how much it writes, is to follow what changes. One that can not be stored
costs the next load time, and is tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from geminga.model.errors import GemingaError
from geminga.runtime import Clock, Contained, Part, get_logger, spawn
from geminga.transaction.ports import BufferSnapshot, BufferSnapshots

_log = get_logger(__name__)


class SnapshotKeeping:
    """See the module."""

    __slots__ = (
        "_clock",
        "_delay_s",
        "_is_due",
        "_is_saving",
        "_is_stopped",
        "_part",
        "_snapshots",
        "_take",
        "_timer",
        "_topic",
        "saved_ms",
    )

    def __init__(
        self,
        topic: str,
        snapshots: BufferSnapshots,
        clock: Clock,
        part: Part,
        take: Callable[[], BufferSnapshot | None],
    ) -> None:
        """``take`` gives what is to be stored; None: nothing is. ``part``: whose failure it is."""
        self._topic = topic
        self._snapshots = snapshots
        self._clock = clock
        self._part = part
        self._take = take
        #: One at a time.
        self._is_saving = False
        #: Another one was due while one was being stored.
        self._is_due = False
        self._is_stopped = False
        #: Runs from the first change since the last snapshot to the next one, and for how long.
        self._timer: asyncio.TimerHandle | None = None
        self._delay_s = 0.0
        #: When one was stored, ms since the epoch; 0: never.
        self.saved_ms = 0

    def changed(self, changes: int, *, delay_ms: float, changes_max: int) -> None:
        """There is something that no snapshot has. One is stored after ``delay_ms``, or at once if that is the
        ``changes_max``-th or more of ``changes`` since the last one.
        """
        self._delay_s = delay_ms / 1000
        self._arm()
        if changes >= changes_max:
            self._save_soon()

    def _arm(self) -> None:
        if self._timer is None and not self._is_stopped:
            self._timer = asyncio.get_running_loop().call_later(self._delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        with Contained(self._part, "a snapshot of aborted transactions"):
            self._save_soon()

    def _save_soon(self) -> None:
        if self._is_saving:
            self._is_due = True
            return
        snapshot = self._take()
        if snapshot is not None:
            self._is_saving = True
            self._stop_timer()
            spawn(self.try_to_save(snapshot), name=f"save aborted transactions of {self._topic}", part=self._part)

    async def try_to_save(self, snapshot: BufferSnapshot) -> None:
        """The same as :meth:`save`, for one that is not needed: it is taken again later."""
        try:
            await self.save(snapshot)
        except GemingaError as error:
            _log.warning("%s: aborted transactions were not saved, a restart reads more: %s", self._topic, error)
            self._arm()
        finally:
            self._is_saving = False
            if self._is_due:
                self._is_due = False
                self._arm()

    async def save(self, snapshot: BufferSnapshot) -> None:
        """Store it; on return it is durable. Raises GemingaError."""
        await self._snapshots.put(self._topic, snapshot)
        self.saved_ms = self._clock.wall_ms()

    def stop(self) -> None:
        """Nothing is stored by itself any more."""
        self._is_stopped = True
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

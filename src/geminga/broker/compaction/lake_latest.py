"""The part of a topic that serves readers of compacted messages from the lake (``gemingaReadCompactedFromLake``).

For topics that were never compacted. With the first such subscription the keys of the lake's files are looked through
(``lake_view``), up to the end of the first ledgers that are there without one between; the log behind is read as it is.
A failure is the subscriber's, never the log in place of what was asked for.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from geminga.broker.compaction.paced import PacedWork
from geminga.broker.compaction.part import TopicCompaction
from geminga.broker.topic.offload import Offload
from geminga.broker.topic.parts import PartTopic, Stats, TopicPart
from geminga.model.errors import LakeUnreadableError, LedgerClosedError, StorageError
from geminga.runtime import get_logger, spawn
from geminga.wire.managed_ledger.offload_context import decode_offload_context

if TYPE_CHECKING:
    from geminga.broker.compaction.lake_view import LakeView
    from geminga.managed_ledger.rules.positions import LedgerInfo

#: The keys are looked through again once what came behind has more than one in so many of the entries before it.
ANEW_AT: Final = 4

_log = get_logger(__name__)


class LakeLatest(TopicPart):
    """See the module."""

    __slots__ = ("_error", "_has_failed", "_task", "_topic", "looks", "view")

    name: ClassVar[str] = "read-compacted-from-lake"

    def __init__(self, topic: PartTopic) -> None:
        self._topic = topic
        #: What is served where the topic was not compacted; None: nothing yet.
        self.view: LakeView | None = None
        self._task: asyncio.Task[None] | None = None
        #: Why the last subscriber was refused, or the last look failed; None: neither.
        self._error: StorageError | None = None
        self._has_failed = False
        #: How often the keys were looked through since the topic was loaded.
        self.looks = 0

    @classmethod
    def is_wanted(cls, topic: PartTopic) -> bool:
        """Where it is asked for, and there may be something in the lake."""
        is_asked = topic.services.config.reads_compacted_from_lake and not topic.ledger.is_shadow
        return is_asked and Offload.is_wanted(topic)

    async def load(self) -> None:
        """From now on who asks is served."""
        self._topic.lake_latest = self

    async def close(self) -> None:
        """A look that is under way ends."""
        self.drop()

    def drop(self) -> None:
        """As :meth:`close`, at once."""
        if self._topic.compacted is self.view:
            self._topic.compacted = None
        self._topic.lake_latest = self.view = None
        if self._task is not None:
            self._task.cancel()

    async def delete(self) -> None:
        """Nothing is stored."""
        self.drop()

    def stats(self) -> Stats:
        """How it stands."""
        messages, kept = self.view.counts if self.view is not None else (0, 0)
        return {
            "horizon": f"{self.view.horizon}" if self.view is not None else "",
            "messages": messages,
            "kept": kept,
            "looks": self.looks,
            "isLooking": self._task is not None,
            "lastError": "" if self._error is None else f"{self._error}",
        }

    async def ready(self) -> None:
        """Before somebody subscribes who reads compacted messages. Raises LakeUnreadableError: files are missing, or
        can not be read."""
        if self._task is None and self._is_due():
            self._task = spawn(self._look(), name=f"keys in the lake of {self._topic.name}", part=self._topic)
        if self._task is not None:
            # Whoever waits no longer leaves it to go on, for the next one.
            await asyncio.wait((self._task,))
        if self._topic.lake_latest is not self:
            raise LedgerClosedError(f"{self._topic.name} is closed")
        if not self._has_failed:
            self._error = None
            try:
                if self.view is not None:
                    await self.view.check()
            except StorageError as error:
                self._error = error.with_traceback(None)  # one that is kept has no frames
        if self._is_serving:
            self._topic.compacted = self.view
        if self._error is not None:
            raise LakeUnreadableError(f"{self._topic.name}: {self._error}") from self._error

    @property
    def _is_serving(self) -> bool:
        """Whether nothing was compacted by now: that would be served."""
        compacted = self._topic.compacted
        return compacted is None or compacted.is_snapshot

    def _is_due(self) -> bool:
        view, infos = self.view, self._infos()
        if view is None or self._has_failed or not infos or not view.is_current:
            return bool(infos) or view is not None
        behind = sum(info.entries for info in infos if info.ledger_id > view.horizon.ledger_id)
        return behind * ANEW_AT > view.entries

    def _infos(self) -> list[LedgerInfo]:
        """The first ledgers of the topic that are in the lake, without one between."""
        found: list[LedgerInfo] = []
        for info in self._topic.ledger.extent.readable.infos:
            if not info.entries:
                continue
            if not info.is_offloaded or not decode_offload_context(info.offload_context).is_ours:
                break
            found.append(info)
        return found

    async def _look(self) -> None:
        try:
            async with self._topic.services.compactions.turns:
                self.view = await self._look_through(self._infos())
                self._has_failed = False
        except StorageError as error:
            self._error, self._has_failed = error.with_traceback(None), True
            _log.warning("%s: what is in the lake can not be read: %s", self._topic.name, error)
        finally:
            self._task = None

    async def _look_through(self, infos: list[LedgerInfo]) -> LakeView | None:
        from geminga.broker.compaction.lake_view import LakeView, check_files
        from geminga.broker.compaction.run import new_spill
        from geminga.broker.core.compaction.newest import NewestMessages

        if not infos:
            return None
        topic, config = self._topic, self._topic.services.config
        await check_files(topic.ledger, infos)  # before anything is read, again and again
        clock, tombstones_s = topic.services.runtime.clock, config.compaction_tombstones_s
        from_ms = clock.wall_ms() - tombstones_s * 1000 if tombstones_s else None
        newest = NewestMessages(
            keeps_null_keys=config.compaction_retains_null_keys,
            bytes_max=config.compaction_keys_mb << 20,
            new_spill=partial(new_spill, config.compaction_directory),
            tombstones_from_ms=from_ms,
        )
        view = LakeView(topic.ledger, f"@{infos[-1].ledger_id}:{infos[-1].entries}:{from_ms}")
        try:
            work = PacedWork(topic.ledger.reader.catch_up, clock, topic)
            await view.fill(infos, newest, work, tombstones_from_ms=from_ms)
        finally:
            newest.close()
        self.looks += 1
        messages, kept = view.counts
        _log.info(
            "%s: %d of %d messages in the lake up to %s are the newest of their keys",
            *(topic.name, kept, messages, view.horizon),
        )
        return view


#: What topics have of compaction.
COMPACTION: Final[tuple[type[TopicPart], ...]] = (TopicCompaction, LakeLatest)

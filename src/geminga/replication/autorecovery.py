"""An auditor and a replication worker together: what BookKeeper calls the auto-recovery daemon."""

from __future__ import annotations

import asyncio
from typing import Final

from geminga.bookkeeper import BookiePool, BookKeeper
from geminga.metadata.ports import MetadataStore
from geminga.replication.auditor import Auditor
from geminga.replication.config import ReplicationConfig
from geminga.replication.copier import Copier
from geminga.replication.core.pacing import ByteRate
from geminga.replication.counters import ReplicationCounters
from geminga.replication.marks import UnderReplicatedLedgers
from geminga.replication.registry import BookieRegistry
from geminga.replication.worker import ReplicationWorker
from geminga.runtime import Runtime, get_logger, spawn

#: What giving locks and vote back may take, seconds: they go with the session.
CLOSE_S: Final = 2.0

_log = get_logger(__name__)


class AutoRecovery:
    """Made by :meth:`start`."""

    def __init__(
        self,
        runtime: Runtime,
        metadata: MetadataStore,
        bookies: BookiePool,
        bookkeeper: BookKeeper,
        registry: BookieRegistry,
        config: ReplicationConfig,
        *,
        name: str,
    ) -> None:
        self.counters = ReplicationCounters()
        copier = Copier(bookies, runtime.clock, ByteRate(config.replication_rate_by_bytes), self.counters)
        self.auditor = Auditor(
            runtime, metadata, bookkeeper, registry, copier, config, name=name, counters=self.counters
        )
        self.worker = ReplicationWorker(
            runtime, metadata, bookies, bookkeeper, registry, copier, config, name=name, counters=self.counters
        )
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        self._marks = UnderReplicatedLedgers(metadata)

    async def start(self) -> None:
        """Begin; raises MetadataError, CorruptionError if the metadata store's nodes are laid out for others."""
        await self._marks.check_layout()
        self._tasks = (
            spawn(self.auditor.run(), name="auditor"),
            spawn(self.worker.run(), name="replication-worker"),
        )

    async def close(self) -> None:
        """Stop where it is; locks and vote are given back. What was begun is done anew by the next one."""
        tasks, self._tasks = self._tasks, ()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(CLOSE_S):
                await self.worker.release()
                await self.auditor.leave()
        except TimeoutError:
            _log.warning("locks and vote stay until the session ends: the metadata store does not answer")

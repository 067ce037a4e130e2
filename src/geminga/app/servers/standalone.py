"""The composition root of ``geminga standalone`` and ``geminga.Standalone``: everything in one process.

Start, in this order: data directory -> metadata store -> bookies (each recovers by itself) -> what every broker begins
with (``broker_server``). Stop is the reverse.
"""

from __future__ import annotations

import os.path
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from geminga.app.configuration.config import Config
from geminga.app.lifecycle.core.descriptors import LIMIT_ASSUMED, plan_descriptors
from geminga.app.lifecycle.process_metrics import bookies_metrics
from geminga.app.servers.broker_server import BrokerServer, Storage
from geminga.app.storage.bookies import LocalBookies
from geminga.app.storage.data_directory import METADATA_FILE, claim_directory
from geminga.bookkeeper import BookKeeper, LocalBookiePool
from geminga.metadata import SqliteMetadataStore
from geminga.metadata.ports import MetadataStore
from geminga.runtime import Runtime, descriptor_limit, real_runtime
from geminga.runtime.ports import Clock, FatalHandler
from geminga.version import __version__

if TYPE_CHECKING:
    from geminga.app.servers.backups import LocalBackups

#: Of auto-recovery, in its vote and its locks.
AUTO_RECOVERY_NAME: Final = "standalone"
#: Directory of the bookies where there is no data directory.
MEMORY_DIRECTORY: Final = "/geminga"


class StandaloneServer(BrokerServer):
    """One standalone on the running loop. ``data_dir`` None: everything in memory, gone with the object.

    ``clock``: that of the loop, where it is not the system's.
    """

    def __init__(
        self, config: Config, data_dir: str | None, *, on_fatal: FatalHandler, pid: int, clock: Clock | None = None
    ) -> None:
        plan = plan_descriptors(
            descriptor_limit(),
            open_logs=config.bookie.open_file_limit,
            bookies=config.server.bookies,
            web_connections_max=config.server.http_connections_max or LIMIT_ASSUMED,
            has_files=data_dir is not None,
        )
        super().__init__(config, plan, on_fatal)
        self._data_dir = data_dir
        self._pid = pid
        self._clock = clock
        self._bookies: LocalBookies
        self._metadata: SqliteMetadataStore
        self._backups: LocalBackups | None = None

    async def _open_storage(self) -> Storage:
        runtime = await self._open_runtime()
        metadata = await self._open_metadata(runtime)
        bookies = self._bookies = await self._open_bookies(runtime, metadata)
        # The first to be closed: it reads files of the others.
        self._closers.append(("backups", self._close_backups))
        return Storage(
            runtime,
            metadata,
            LocalBookiePool(bookies.by_id),
            labelled=bookies_metrics(bookies.opened, runtime.clock.monotonic),
            metadata_url="memory:local" if self._data_dir is None else f"sqlite:{self._data_dir}",
            backups=self._use_backups if self._data_dir is not None else None,
        )

    def _use_backups(self) -> LocalBackups:
        if self._backups is None:
            from geminga.app.servers.backups import LocalBackups
            from geminga.app.storage.backup_sources import RunningSource

            assert self._data_dir is not None
            assert self.runtime is not None
            source = partial(RunningSource, self.runtime, self._data_dir, self._metadata, self._bookies.opened)
            self._backups = LocalBackups(self.runtime, self._data_dir, source)
        return self._backups

    async def _close_backups(self) -> None:
        if self._backups is not None:
            await self._backups.close()

    async def _start_beside(self, storage: Storage, bookkeeper: BookKeeper) -> None:
        """Auto-recovery. With several bookies: copies of one that is lost or left out are made anew by the others."""
        config = self._config.replication
        if config is None or not config.auto_recovery_daemon_enabled:
            return
        from geminga.replication.autorecovery import AutoRecovery
        from geminga.replication.registry import LocalBookieRegistry

        registry = LocalBookieRegistry(self._bookies.by_id)
        recovery = AutoRecovery(
            storage.runtime, storage.metadata, storage.bookies, bookkeeper, registry, config, name=AUTO_RECOVERY_NAME
        )
        await recovery.start()
        self._closers.append(("auto-recovery", recovery.close))
        self._sources.append(recovery.counters.metrics)

    async def _open_bookies(self, runtime: Runtime, metadata: MetadataStore) -> LocalBookies:
        server = self._config.server
        bookies = LocalBookies(
            runtime,
            metadata,
            self._data_dir or MEMORY_DIRECTORY,
            replace(self._config.bookie, open_file_limit=self._descriptors.open_logs),
            count=server.bookies,
            left_out=server.bookies_left_out,
            on_open=lambda name, close: self._closers.append((name, close)),
        )
        await bookies.open()
        return bookies

    async def _open_runtime(self) -> Runtime:
        runtime = real_runtime(self._fatal)
        if self._clock is not None:
            runtime = replace(runtime, clock=self._clock)
        if self._data_dir is None:
            from geminga.runtime import MemoryDisk  # most keep what they have

            await runtime.disk.close()
            runtime = Runtime(
                clock=runtime.clock,
                rng=runtime.rng,
                disk=MemoryDisk(),
                network=runtime.network,
                threads=runtime.threads,
                on_fatal=runtime.on_fatal,
            )
        self.runtime = runtime
        self._closers.append(("threads", runtime.threads.close))
        self._closers.append(("disk", runtime.disk.close))
        if self._data_dir is not None:
            await claim_directory(runtime.disk, self._data_dir, pid=self._pid, program=f"geminga {__version__}")
        return runtime

    async def _open_metadata(self, runtime: Runtime) -> MetadataStore:
        metadata: MetadataStore
        if self._data_dir is None:
            from geminga.metadata import MemoryMetadataStore

            metadata = MemoryMetadataStore(runtime)
        else:
            path = os.path.join(self._data_dir, METADATA_FILE)
            metadata = self._metadata = await SqliteMetadataStore.open(runtime, path)
        self._closers.append(("metadata store", metadata.close))
        return metadata

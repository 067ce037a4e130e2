"""One broker process of ``geminga standalone --brokers N``; started by that, never by hand.

Start: what it is to do from standard input -> metadata and bookies over the parent's Unix sockets -> what every broker
that shares topics begins with (``member_broker``). Standard output gets the ready line. When standard input ends, the
parent is gone, and with it the storage: this process ends at once, as by a crash, and nothing acknowledged is lost.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

from geminga.app.configuration.config import Config, balancing_from, config_from
from geminga.app.configuration.config_sources import ConfigEntry
from geminga.app.lifecycle.event_loop import loop_factory
from geminga.app.lifecycle.host_usage import ProcessMeter
from geminga.app.lifecycle.log_lines import begin_log
from geminga.app.lifecycle.process_life import (
    EXIT_FATAL,
    end_at_once,
    keep_freed_memory,
    raise_open_files,
)
from geminga.app.servers.broker_server import Storage
from geminga.app.servers.core.broker_children import ChildPlan, child_entries, decode_plan
from geminga.app.servers.member_broker import MemberBrokerServer
from geminga.app.servers.process import DataLocation, serve
from geminga.app.storage.data_directory import BACKUP_SOCKET, METADATA_SOCKET, METRICS_SOCKET
from geminga.broker.load.ports import UsageSource
from geminga.metadata.measured import MeasuredMetadataStore
from geminga.metadata.socket.store import SocketMetadataStore
from geminga.model.errors import GemingaError
from geminga.runtime import Runtime
from geminga.runtime.ports import FatalHandler

if TYPE_CHECKING:
    from geminga.app.servers.core.metric_rows import MetricRow
    from geminga.app.servers.storage_metrics import StorageMetrics
    from geminga.app.storage.backup_socket import SharedBackups

_STDIN: Final = 0


class ChildBrokerServer(MemberBrokerServer):
    """One of a standalone's brokers on the running loop."""

    def __init__(self, plan: ChildPlan, *, on_fatal: FatalHandler) -> None:
        """Raises ConfigurationError."""
        config = _config_of(plan)
        super().__init__(config, session_timeout_ms=plan.session_timeout_ms, on_fatal=on_fatal)
        self._plan = plan
        #: Of the parent; made by the first question.
        self._metrics: StorageMetrics | None = None

    async def _open_storage(self) -> Storage:
        runtime, plan = self._open_runtime(), self._plan
        store = await SocketMetadataStore.open(
            runtime,
            os.path.join(plan.directory, METADATA_SOCKET),
            token=plan.token,
            name=plan.name,
            session_timeout_ms=plan.session_timeout_ms,
        )
        self._closers.append(("metadata store", store.close))
        metadata = MeasuredMetadataStore(store, runtime.clock)
        # Ids of a standalone's bookies look like addresses; whoever listens there is another's bookie.
        pool = await self._follow_bookies(runtime, metadata, asks_unlisted=False)
        peers = await self._balanced_peers(runtime, metadata, self._meter(runtime))
        return Storage(
            runtime,
            metadata,
            pool,
            labelled=tuple(metadata.sources()),
            metrics_elsewhere=partial(self._storage_metrics, runtime) if plan.number == 0 else None,
            peers=peers,
            metadata_url=f"sqlite:{plan.directory}",
            backups=partial(self._use_backups, runtime),
        )

    def ends_with(self, end: Callable[[], None]) -> None:
        """Nobody's to end but the standalone's, which would start it again."""

    def _meter(self, runtime: Runtime) -> UsageSource | None:
        """How busy this process is: the machine is the same for all of a standalone's."""
        config = self._config.load
        if config is None or not config.is_enabled:
            return None
        return ProcessMeter(runtime.clock.monotonic, lambda: config.usage_interval_minutes * 60)

    def _use_backups(self, runtime: Runtime) -> SharedBackups:
        """The parent makes them; loaded when somebody asks."""
        from geminga.app.storage.backup_socket import SharedBackups

        return SharedBackups(runtime, os.path.join(self._plan.directory, BACKUP_SOCKET))

    async def _storage_metrics(self, runtime: Runtime) -> Sequence[MetricRow]:
        """Of the parent; loaded when somebody asks."""
        from geminga.app.servers.storage_metrics import StorageMetrics

        if self._metrics is None:
            self._metrics = StorageMetrics(runtime, os.path.join(self._plan.directory, METRICS_SOCKET))
        return await self._metrics.rows()


def _config_of(plan: ChildPlan) -> Config:
    entries = [ConfigEntry(*entry) for entry in child_entries(plan)]
    return replace(config_from(entries), load=balancing_from(entries))


def main() -> NoReturn:
    """Run until SIGTERM, or until the parent is gone."""
    try:
        plan = decode_plan(sys.stdin.buffer.readline())
        name = f"broker-{plan.number}"
        begin_log(plan.log.of_child(name), name=name)
        raise_open_files()
        keep_freed_memory()
        _run(plan)
    except (GemingaError, OSError) as error:
        from geminga.app.lifecycle.paragraphs import print_paragraph

        print_paragraph(str(error))
        raise SystemExit(EXIT_FATAL) from None
    raise SystemExit(0)


def _run(plan: ChildPlan) -> None:
    gc.freeze()
    config = _config_of(plan)
    location = DataLocation("dataDir", plan.directory, "data in")

    def server() -> ChildBrokerServer:
        asyncio.get_running_loop().add_reader(_STDIN, _parent_said)
        return ChildBrokerServer(plan, on_fatal=end_at_once)

    with asyncio.Runner(loop_factory=loop_factory(config.server.event_loop)) as runner:
        runner.run(serve(config, server, location, json_line=True))


def _parent_said() -> None:
    if not os.read(_STDIN, 1):
        try:
            os.write(2, b"geminga: the standalone that this broker process belongs to is gone: ended with it\n")
        finally:
            os._exit(EXIT_FATAL)


if __name__ == "__main__":
    main()

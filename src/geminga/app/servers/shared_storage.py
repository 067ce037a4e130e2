"""``geminga standalone --brokers N``: this process holds metadata and bookies, and N broker processes share them.

Start: what a standalone's storage begins with (``standalone``) -> auto-recovery -> metadata and bookies served over
Unix sockets in the data directory -> the broker processes, which find each other and the bookies there. Ready when all
serve. Stop is the reverse: the brokers first, in good order.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from typing import Final

from geminga.app.configuration.config import Config, balancing_from
from geminga.app.configuration.config_sources import ConfigEntry
from geminga.app.configuration.core.log_options import LogOptions
from geminga.app.lifecycle.event_loop import loop_factory
from geminga.app.lifecycle.process_life import end_at_once, raise_open_files
from geminga.app.lifecycle.process_metrics import process_metrics
from geminga.app.servers.broker_children import BrokerChildren
from geminga.app.servers.broker_server import Storage
from geminga.app.servers.core.broker_children import Assignment, ChildPlan, ports_of, refuse_shared_ports
from geminga.app.servers.listeners import Addresses
from geminga.app.servers.process import DataLocation, serve
from geminga.app.servers.standalone import StandaloneServer
from geminga.app.servers.storage_metrics import serve_metrics
from geminga.app.storage.backup_socket import serve_backups
from geminga.app.storage.data_directory import BACKUP_SOCKET, METADATA_SOCKET, METRICS_SOCKET, bookie_socket
from geminga.bookie import LocalBookie
from geminga.bookie.registration import Registration
from geminga.bookie.serving import TakenPort
from geminga.bookkeeper import BookKeeper
from geminga.metadata import SqliteMetadataStore
from geminga.metadata.ports import MetadataStore
from geminga.metadata.socket.server import MetadataServer
from geminga.model.errors import DataDirectoryError
from geminga.model.exposition import Labels, Source
from geminga.model.limits import FRAME_PADDING_BYTES
from geminga.runtime import Runtime, get_logger
from geminga.runtime.ports import FatalHandler
from geminga.wire.bookkeeper.bookie_registration import encode_local_service_info
from geminga.wire.bookkeeper.codes import FRAME_BYTES_MAX

#: Bytes of the token that tells this life's children from those of an earlier one.
TOKEN_BYTES: Final = 16
#: Pulsar's ``metadataStoreSessionTimeoutMillis``: a broker process that hangs, or is paused, for so long loses its
#: bundles. One that ends loses them at once; one that goes on hanging is ended (``core.broker_children``).
SESSION_TIMEOUT_MS: Final = 30_000

_log = get_logger(__name__)


class SharedStorageServer(StandaloneServer):
    """A standalone's storage on the running loop, and the broker processes that it starts."""

    def __init__(
        self,
        config: Config,
        entries: Sequence[ConfigEntry],
        data_dir: str,
        *,
        log: LogOptions,
        on_fatal: FatalHandler,
        pid: int,
    ) -> None:
        """``entries``: what ``config`` was made of. Raises ConfigurationError."""
        self._assignments = tuple(Assignment(*entry) for entry in entries)
        refuse_shared_ports(self._assignments)
        server = config.server
        self._ports = ports_of(
            server.brokers, server.broker_port, server.web_port, is_consecutive=server.has_consecutive_ports
        )
        # Each broker process would refuse them, one after the other.
        balancing_from(entries)
        super().__init__(config, data_dir, on_fatal=on_fatal, pid=pid)
        self._directory = data_dir
        self._log = log
        self.children: BrokerChildren | None = None
        #: Metrics of the bookies' connections.
        self._served: list[tuple[Labels, Source]] = []

    def look_at_files(self) -> None:
        """Its processes do."""
        if self.children is not None:
            self.children.tell(signal.SIGHUP)

    async def _start(self) -> Addresses:
        storage = await self._open_storage()
        runtime, metadata = storage.runtime, storage.metadata
        bookkeeper = BookKeeper(runtime, metadata, storage.bookies, self._config.bookkeeper)
        await self._start_beside(storage, bookkeeper)
        token = runtime.rng.token(TOKEN_BYTES)
        server = await self._serve_metadata(storage, token)
        for name, bookie in self._bookies.opened.items():
            await self._serve_bookie(runtime, metadata, name, bookie)
        await self._serve_metrics(storage)
        await self._serve_backups(runtime)
        return await self._start_children(token, server)

    async def _serve_metadata(self, storage: Storage, token: str) -> MetadataServer:
        store = storage.metadata
        assert isinstance(store, SqliteMetadataStore)
        path = os.path.join(self._directory, METADATA_SOCKET)
        try:
            server = await MetadataServer.listen(storage.runtime, path, store.open_session, token=token)
        except OSError as error:
            raise DataDirectoryError(f"can not listen on {path}: {error.strerror or error}") from error
        self._closers.append(("metadata socket", server.close))
        return server

    async def _serve_bookie(self, runtime: Runtime, metadata: MetadataStore, name: str, bookie: LocalBookie) -> None:
        path = os.path.join(self._directory, bookie_socket(name))
        try:
            taken = await TakenPort.take_local(runtime, path)
        except OSError as error:
            raise DataDirectoryError(f"can not listen on {path}: {error.strerror or error}") from error
        frame_bytes_max = max(FRAME_BYTES_MAX, self._config.broker.message_bytes_max + FRAME_PADDING_BYTES)
        server = await taken.serve(bookie, frame_bytes_max)
        self._served.append(((("bookie", name),) if len(self._bookies.opened) > 1 else (), server.metrics))
        self._closers.append((f"{name}'s server", server.close))
        bookie_id = next(key for key, one in self._bookies.by_id.items() if one is bookie)
        registration = Registration(metadata, bookie_id, encode_local_service_info(path))
        await registration.begin(bookie.availability)
        self._closers.append((f"{name}'s registration", registration.end))
        bookie.watch(registration.set)
        registration.set(bookie.availability)

    async def _serve_metrics(self, storage: Storage) -> None:
        path = os.path.join(self._directory, METRICS_SOCKET)
        sources: list[tuple[Labels, Source]] = [((("process", "storage"),), process_metrics), *storage.labelled]
        sources += [((), source) for source in self._sources]
        sources += self._served
        try:
            listener = await serve_metrics(storage.runtime, path, sources)
        except OSError as error:
            raise DataDirectoryError(f"can not listen on {path}: {error.strerror or error}") from error
        self._closers.append(("metrics socket", listener.close))

    async def _serve_backups(self, runtime: Runtime) -> None:
        path = os.path.join(self._directory, BACKUP_SOCKET)
        try:
            listener = await serve_backups(runtime, path, self._use_backups)
        except OSError as error:
            raise DataDirectoryError(f"can not listen on {path}: {error.strerror or error}") from error
        self._closers.append(("backup socket", listener.close))

    async def _start_children(self, token: str, server: MetadataServer) -> Addresses:
        def plan(number: int, name: str, broker_port: int, web_port: int) -> ChildPlan:
            return ChildPlan(
                number,
                name,
                self._directory,
                token,
                self._log,
                broker_port,
                web_port,
                SESSION_TIMEOUT_MS,
                self._assignments,
            )

        children = self.children = BrokerChildren(self._ports, plan, server.end_sessions_of, server.has_session_of)
        self._closers.append(("broker processes", children.close))
        return await children.start()


def run_shared(
    config: Config,
    entries: Sequence[ConfigEntry],
    data_dir: str,
    *,
    json_line: bool,
    log: LogOptions,
    announce: str = "",
) -> None:
    """Run until SIGTERM or SIGINT; raises what kept it from starting (GemingaError, OSError).

    ``announce``: a line that is printed before the ready line.
    """
    raise_open_files()
    for warning in config.warnings:
        _log.warning("%s", warning)

    def server() -> SharedStorageServer:
        return SharedStorageServer(config, entries, data_dir, log=log, on_fatal=end_at_once, pid=os.getpid())

    with asyncio.Runner(loop_factory=loop_factory(config.server.event_loop)) as runner:
        location = DataLocation("dataDir", data_dir, "data in", announce)
        runner.run(serve(config, server, location, json_line=json_line))

"""The process of ``geminga autorecovery``: its configuration, its connections, its life.

The keys that say where the cluster is are those of ``geminga bookie``.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from geminga.app.configuration.bookie_config import (
    BookieServerConfig,
    HttpListener,
    bookie_tls_of,
    http_tls_of,
    load_bookie_config,
)
from geminga.app.configuration.config import build_settings, unknown_keys
from geminga.app.configuration.config_sources import collect_entries
from geminga.app.configuration.core.bookie_keys import NOT_BUILT
from geminga.app.configuration.core.log_options import parse_levels
from geminga.app.lifecycle.core.descriptors import plan_descriptors
from geminga.app.lifecycle.event_loop import loop_factory
from geminga.app.lifecycle.log_lines import PackageLevels
from geminga.app.lifecycle.process_life import (
    STOP_GRACE_S,
    begun,
    end_at_once,
    ignore_hang_up,
    raise_open_files,
    seconds_since_exec,
    serve_until,
    stop_on_signals,
    supervisor,
)
from geminga.app.servers.core.open_start import HOST_KEYS, OF_STATE, Opening, check_start
from geminga.bookie.config import BookieConfig
from geminga.bookkeeper import BookKeeper
from geminga.bookkeeper.config import BookKeeperConfig
from geminga.bookkeeper.remote import RegisteredBookies, RemoteBookiePool
from geminga.metadata.copying import refuse_unfinished
from geminga.metadata.core.zookeeper_address import ZooKeeperAddress
from geminga.metadata.ports import MetadataStore
from geminga.model.errors import ConfigurationError
from geminga.model.settings import settings_of
from geminga.replication.autorecovery import AutoRecovery
from geminga.replication.config import ReplicationConfig
from geminga.replication.decommission import decommission_bookie
from geminga.replication.marks import UnderReplicatedLedgers
from geminga.replication.registry import MetadataBookieRegistry
from geminga.runtime import descriptor_limit, get_logger, real_runtime
from geminga.runtime.ports import Runtime
from geminga.version import __version__

if TYPE_CHECKING:
    from geminga.app.configuration.bookie_tls_config import BookieTlsConfig
    from geminga.app.lifecycle.plain_http import PlainHttp
    from geminga.app.servers.questions_port import QuestionsPort

#: Connections of HTTP at the same time.
HTTP_CONNECTIONS_MAX: Final = 64

_log = get_logger(__name__)


class AutoRecoveryProcessConfig(NamedTuple):
    """Everything configured, and what to warn of."""

    server: BookieServerConfig
    replication: ReplicationConfig
    bookkeeper: BookKeeperConfig
    metadata: ZooKeeperAddress
    #: Where it answers HTTP; None: nowhere.
    http: HttpListener | None = None
    warnings: tuple[str, ...] = ()
    #: Hosts by which that is reached, beside those that the operator lists.
    http_names: tuple[str, ...] = ()
    #: None: bookies are spoken to without TLS.
    tls: BookieTlsConfig | None = None


class ClusterConnections(NamedTuple):
    """Connections to a cluster."""

    runtime: Runtime
    metadata: MetadataStore
    bookies: RemoteBookiePool
    bookkeeper: BookKeeper


def load_autorecovery_config(
    files: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    overrides: Sequence[str] = (),
    *,
    who: str = "auto-recovery",
) -> AutoRecoveryProcessConfig:
    """Configuration from ``files``, the environment ``env`` and ``key=value`` texts; raises ConfigurationError.

    ``who``: for its sentence.
    """
    bookie = load_bookie_config(files, env, overrides)
    if bookie.metadata is None:
        raise ConfigurationError(
            f"{who} needs the cluster's metadata store: expected --metadata zk:host:port or metadataServiceUri"
        )
    entries = collect_entries(files, env, overrides)
    http = bookie.http()
    if http is not None:
        opening = Opening(HOST_KEYS[http.key], http.host, OF_STATE)
        knows_clients = http.tls is not None and http.tls.knows_clients
        check_start([opening], is_authenticated=knows_clients, may_be_open=bookie.server.may_be_open)
    latest = {entry.key: entry for entry in entries}
    # One file serves a machine's bookie and its auto-recovery.
    classes = (BookieServerConfig, BookieConfig, BookKeeperConfig, ReplicationConfig)
    known = {key for config_class in classes for key in settings_of(config_class)}
    tls = bookie_tls_of(latest, known)
    http_tls_of(latest, known)
    unused = [entry for key, entry in latest.items() if key not in known and key not in NOT_BUILT]
    return AutoRecoveryProcessConfig(
        bookie.server,
        build_settings(ReplicationConfig, latest),
        build_settings(BookKeeperConfig, latest),
        bookie.metadata,
        http,
        tuple(unknown_keys(unused, known)),
        bookie.http_names(),
        tls,
    )


@asynccontextmanager
async def connected(
    config: AutoRecoveryProcessConfig, *, while_restored: bool = True, is_whole: bool = False
) -> AsyncIterator[ClusterConnections]:
    """Connections to the cluster, closed in the end. Raises MetadataError, DataDirectoryError.

    ``while_restored``: also where a backup is being restored to it. ``is_whole``: with what it shares with other
    clusters, where that is in another store.
    """
    from geminga.metadata.zookeeper import ZooKeeperMetadataStore

    runtime = real_runtime(end_at_once)
    try:
        timeout_ms = config.server.zk_timeout_ms
        metadata = await ZooKeeperMetadataStore.open(runtime, config.metadata, session_timeout_ms=timeout_ms)
        used = None if config.tls is None else config.tls.used()
        if used is not None and config.tls is not None:
            used.follow(config.tls.refresh_s)
        tls = None if used is None else used.context
        pool = RemoteBookiePool(runtime, frame_bytes_max=config.server.frame_bytes_max, tls=tls)
        try:
            await refuse_unfinished(metadata, str(config.metadata), while_restored=while_restored)
            registered = await RegisteredBookies.follow(metadata, pool)
            bookkeeper = BookKeeper(runtime, metadata, pool, config.bookkeeper)
            try:
                if not is_whole:
                    yield ClusterConnections(runtime, metadata, pool, bookkeeper)
                    return
                from geminga.app.storage.shared_configuration import whole_tree

                async with whole_tree(runtime, metadata, config.metadata, timeout_ms) as tree:
                    yield ClusterConnections(runtime, tree, pool, bookkeeper)
            finally:
                await registered.close()
        finally:
            await pool.close()
            if used is not None:
                used.close()
            await metadata.close()
    finally:
        await runtime.threads.close()
        await runtime.disk.close()


def run_autorecovery(config: AutoRecoveryProcessConfig, *, json_line: bool) -> None:
    """Run until SIGTERM or SIGINT; raises what kept it from starting (GemingaError, OSError)."""
    raise_open_files()
    for warning in config.warnings:
        _log.warning("%s", warning)
    with asyncio.Runner(loop_factory=loop_factory(config.server.event_loop)) as runner:
        runner.run(_serve(config, json_line))


async def _serve(config: AutoRecoveryProcessConfig, json_line: bool) -> None:
    stop = asyncio.Event()
    told = supervisor()
    if told.is_there:
        ignore_hang_up(asyncio.get_running_loop())
    stop_on_signals(asyncio.get_running_loop(), stop, latest_s=lambda: STOP_GRACE_S)
    name = f"{socket.gethostname()}:{os.getpid()}"
    levels = PackageLevels()
    levels.follow(parse_levels(config.server.log_levels))
    async with AsyncExitStack() as stack:

        async def start() -> tuple[AutoRecovery, int | None]:
            runtime, metadata, pool, bookkeeper = await stack.enter_async_context(connected(config))
            http = None if config.http is None else await _take_port(runtime, config, config.http)
            if http is not None:
                stack.push_async_callback(http.close)
            registry = MetadataBookieRegistry(metadata)
            recovery = AutoRecovery(runtime, metadata, pool, bookkeeper, registry, config.replication, name=name)
            await recovery.start()
            port = None if http is None else await http.start(lambda: _answers(recovery, levels, config.http))
            return recovery, port

        started = await begun(start(), stop)
        if started is None:
            return
        recovery, port = started
        await serve_until(stop, told, partial(_ready_line, name, port), recovery.close, json_line=json_line)


async def _take_port(runtime: Runtime, config: AutoRecoveryProcessConfig, listener: HttpListener) -> QuestionsPort:
    from geminga.app.servers.questions_port import OF_AUTORECOVERY, QuestionsPort

    plan = plan_descriptors(descriptor_limit(), open_logs=0, web_connections_max=HTTP_CONNECTIONS_MAX)
    hint = f"; where a bookie with the same file has it, give auto-recovery another one: --set {listener.key}=0 for any"
    return await QuestionsPort.take(
        runtime, listener, plan, config.http_names, config.server.http_hosts, of=OF_AUTORECOVERY, hint=hint
    )


def _answers(recovery: AutoRecovery, levels: PackageLevels, listener: HttpListener | None) -> PlainHttp:
    from geminga.app.lifecycle.plain_http import PlainHttp
    from geminga.app.lifecycle.process_metrics import process_metrics

    sources = [((), process_metrics), ((), recovery.counters.metrics)]
    knows_clients = listener is not None and listener.tls is not None and listener.tls.knows_clients
    return PlainHttp("auto-recovery", sources, {}, levels, knows_clients=knows_clients)


def _ready_line(name: str, http_port: int | None, *, json_line: bool) -> str:
    seconds = round(seconds_since_exec(), 3)
    if json_line:
        ready = {"name": name, "httpPort": http_port, "startupSeconds": seconds, "pid": os.getpid()}
        return json.dumps({**ready, "version": __version__})
    http = "" if http_port is None else f", metrics on port {http_port}"
    return f"Geminga {__version__}: auto-recovery {name} is ready after {seconds:.2f} s{http} (process {os.getpid()})"


def decommission_in_cluster(config: AutoRecoveryProcessConfig, bookie_id: str) -> int:
    """Wait until no ledger names the bookie; how many did at first."""

    async def decommissioning() -> int:
        async with connected(config) as (_, metadata, _, bookkeeper):
            marks = UnderReplicatedLedgers(metadata)
            await marks.check_layout()
            return await decommission_bookie(bookie_id, bookkeeper, marks, MetadataBookieRegistry(metadata))

    return asyncio.run(decommissioning())

"""The composition root of ``geminga bookie``: one bookie, its directories and its port.

Start: the port is taken (its number may be part of the bookie's id) -> directories locked, cookies read -> the bookie
recovers -> cookies written where it is new -> connections are accepted -> registered, where there is a metadata store.
Stop is the reverse; what was not answered by
then is known to nobody as stored, and may be. A start that fails closes what it had opened.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from geminga.app.configuration.bookie_config import BookieProcessConfig, RecoveryConfig
from geminga.app.configuration.core.bookie_place import DirectoryPair, advertised_host, bookie_id
from geminga.app.configuration.core.log_options import parse_levels
from geminga.app.lifecycle.core.descriptors import plan_descriptors
from geminga.app.lifecycle.log_lines import PackageLevels
from geminga.app.servers.core.addresses import WILDCARD_ADDRESSES, is_loopback
from geminga.app.servers.core.open_start import HOST_KEYS, OF_BOOKIE, OF_STATE, Opening, check_start
from geminga.app.storage.former_standalone import bookie_directory
from geminga.bookie.identity import open_identified
from geminga.bookie.registration import (
    STALE_WAIT_S,
    Registration,
    cluster_id,
    prepare_cluster,
    remember_cookie,
    remembered_cookie,
)
from geminga.bookie.serving import TakenPort
from geminga.bookie.spread import SpreadBookie
from geminga.bookkeeper import MetadataLiveLedgers
from geminga.metadata.copying import refuse_unfinished
from geminga.metadata.ports import MetadataStore
from geminga.model.errors import GemingaError, UnavailableError
from geminga.runtime import descriptor_limit, get_logger, real_runtime
from geminga.runtime.ports import FatalHandler, Runtime
from geminga.wire.bookkeeper.bookie_cookie import BookieCookie
from geminga.wire.bookkeeper.bookie_registration import encode_service_info

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from geminga.app.servers.questions_port import QuestionsPort
    from geminga.bookie.serving import BookieServer
    from geminga.bookie.serving.entrance import BookieTls
    from geminga.runtime.tls.following import FollowedContext

#: Opens the metadata store of the bookie's cluster.
OpenMetadata: TypeAlias = Callable[[Runtime], Awaitable[MetadataStore]]

#: HTTP connections at once: of a scraper or two, and of whoever asks whether it is ready.
HTTP_CONNECTIONS_MAX: Final = 64

#: Seconds from a connection until it is secured, where the port speaks TLS.
TLS_HANDSHAKE_S: Final = 10.0

#: A start waits for the node of an earlier session for so many times a session's life: it ends at a tick of the server.
STALE_SESSIONS: Final = 1.5

_log = get_logger(__name__)


class ServedBookie(NamedTuple):
    """Where a running bookie is reached, and what it has."""

    bookie_id: str
    host: str
    port: int
    #: Of each part of the bookie, in order.
    directories: tuple[DirectoryPair, ...]
    #: Where it answers HTTP, if it does.
    http_port: int | None = None


class UnknownLedgers:
    """Which ledgers exist where there is no metadata store: nobody knows, so nothing is ever deleted."""

    async def live_ledger_ids(self) -> AbstractSet[int] | None:
        """See ``LiveLedgers``."""
        return None

    async def next_ledger_id(self) -> int | None:
        """See ``LiveLedgers``."""
        return None

    async def read_mark(self, instance: str) -> int | None:
        """See ``LiveLedgers``."""
        return None

    async def write_mark(self, instance: str, mark: int) -> None:
        """See ``LiveLedgers``."""

    async def existing(self, ledger_ids: Sequence[int]) -> AbstractSet[int] | None:
        """See ``LiveLedgers``."""
        return None


class BookieProcessServer:
    """One bookie on the running loop, in ``data_dir`` unless its directories are configured."""

    def __init__(
        self,
        config: BookieProcessConfig,
        data_dir: str,
        *,
        on_fatal: FatalHandler,
        open_metadata: OpenMetadata | None = None,
    ) -> None:
        """``open_metadata``: of a cluster; left out: as configured, which may be none."""
        self._config = config
        self._on_fatal = on_fatal
        self._open_metadata = open_metadata if open_metadata is not None else _configured_metadata(config)
        self._data_dir = data_dir
        self._plan = plan_descriptors(
            descriptor_limit(), open_logs=config.bookie.open_file_limit, web_connections_max=HTTP_CONNECTIONS_MAX
        )
        self._bookie_config = replace(config.bookie, open_file_limit=self._plan.open_logs)
        self._closers: list[tuple[str, Callable[[], Awaitable[None]]]] = []
        self._levels = PackageLevels()
        #: Of its port; None: it speaks no TLS.
        self._followed: FollowedContext | None = None

    async def start(self) -> ServedBookie:
        """Start everything; raises GemingaError or OSError with a sentence, after closing what had been opened."""
        try:
            return await self._start()
        except (GemingaError, OSError):
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop everything that was started, in reverse order; an error in one part does not keep the rest open."""
        while self._closers:
            part, close = self._closers.pop()
            try:
                await close()
            except (GemingaError, OSError) as error:
                _log.error("closing the %s failed: %s", part, error)

    async def _start(self) -> ServedBookie:
        check_bookie_start(self._config)
        self._levels.follow(parse_levels(self._config.server.log_levels))
        self._closers.append(("levels", self._levels.close))
        runtime = real_runtime(self._on_fatal)
        self._closers.append(("threads", runtime.threads.close))
        self._closers.append(("disk", runtime.disk.close))
        own = await bookie_directory(runtime.disk, self._data_dir, has_metadata=self._open_metadata is not None)
        directories = self._config.directories(own.directory)
        taken = await self._take_port(runtime)
        http = await self._take_http(runtime)
        address = self._address(taken.port, directories, own.bookie_id)
        metadata = None if self._open_metadata is None else await self._open_metadata(runtime)
        if metadata is not None:
            self._closers.append(("metadata store", metadata.close))
        bookie = await self._open(runtime, address, metadata)
        self._closers.append(("bookie", bookie.close))
        if self._config.server.force_read_only:
            bookie.stay_read_only()
        server = await taken.serve(bookie, self._config.server.frame_bytes_max)
        self._closers.append(("bookie's server", server.close))
        if metadata is not None:
            registration = Registration(
                metadata,
                address.bookie_id,
                encode_service_info(address.host, address.port),
                stale_wait_s=max(STALE_WAIT_S, STALE_SESSIONS * self._config.server.zk_timeout_ms / 1000),
            )
            await registration.begin(bookie.availability)
            self._closers.append(("registration", registration.end))
            bookie.watch(registration.set)
            registration.set(bookie.availability)
            if self._config.recovery is not None:
                await self._start_recovery(runtime, metadata, address.bookie_id, self._config.recovery)
        if http is not None:
            address = address._replace(http_port=await http.start(lambda: self._answers(runtime, bookie, server)))
        self._warn(address, is_registered=metadata is not None)
        return address

    async def _start_recovery(
        self, runtime: Runtime, metadata: MetadataStore, bookie_id: str, config: RecoveryConfig
    ) -> None:
        """Auditor and replication worker beside the bookie, as BookKeeper's runs them."""
        from geminga.app.servers.recovery_in_bookie import RecoveryInBookie

        used = None if self._config.tls is None else self._config.tls.used()
        tls = None if used is None else used.context
        recovery = RecoveryInBookie(runtime, metadata, bookie_id, config, self._config.server.frame_bytes_max, tls)
        if used is not None and self._config.tls is not None:
            used.follow(self._config.tls.refresh_s)
            self._closers.append(("certificates of auto-recovery", _closing(used)))
        self._closers.append(("auto-recovery", recovery.close))
        await recovery.start()
        _log.info("auto-recovery runs in this process")

    async def _take_port(self, runtime: Runtime) -> TakenPort:
        host, port = self._config.server.bind_address, self._config.server.bookie_port
        try:
            taken = await TakenPort.take(runtime, host, port, keep_free=self._plan.storage, tls=self._tls())
        except OSError as error:
            raise UnavailableError(f"bookiePort: can not listen on {host}:{port}: {error.strerror or error}") from error
        self._closers.append(("port", taken.close))
        return taken

    def _tls(self) -> BookieTls | None:
        """Of its port; raises ConfigurationError."""
        config = self._config.tls
        if config is None:
            return None
        tls, self._followed = config.served(TLS_HANDSHAKE_S)
        self._followed.follow(config.refresh_s)
        self._closers.append(("certificates", self._forget_certificates))
        return tls

    def look_at_files(self) -> None:
        """Read the files of certificates again, if it speaks TLS: SIGHUP."""
        if self._followed is not None:
            self._followed.look(again=True)

    async def _forget_certificates(self) -> None:
        if self._followed is not None:
            self._followed.close()

    async def _take_http(self, runtime: Runtime) -> QuestionsPort | None:
        listener = self._config.http()
        if listener is None:
            return None
        from geminga.app.servers.questions_port import QuestionsPort

        http = await QuestionsPort.take(
            runtime, listener, self._plan, self._config.http_names(), self._config.server.http_hosts
        )
        self._closers.append(("HTTP server", http.close))
        return http

    def _answers(self, runtime: Runtime, bookie: SpreadBookie, server: BookieServer) -> ASGIApp:
        from geminga.app.servers.bookie_http import BookieHttp

        listener = self._config.http()
        knows_clients = listener is not None and listener.tls is not None and listener.tls.knows_clients
        return BookieHttp(bookie, runtime.clock.monotonic, (server.metrics,), self._levels, knows_clients=knows_clients)

    def _address(self, port: int, directories: tuple[DirectoryPair, ...], known_id: str) -> ServedBookie:
        config = self._config.server
        host = advertised_host(
            config.advertised_address,
            config.bind_address,
            socket.gethostname(),
            is_wildcard=config.bind_address in WILDCARD_ADDRESSES,
        )
        return ServedBookie(bookie_id(config.bookie_id or known_id, host, port), host, port, directories)

    async def _open(self, runtime: Runtime, address: ServedBookie, metadata: MetadataStore | None) -> SpreadBookie:
        journals, places = zip(*address.directories, strict=True)
        cookie = BookieCookie(address.bookie_id, journals, places)
        ledgers = UnknownLedgers() if metadata is None else MetadataLiveLedgers(metadata, address.bookie_id)

        async def open_bookie() -> SpreadBookie:
            return await SpreadBookie.open(runtime, address.directories, self._bookie_config, ledgers=ledgers)

        if metadata is None:
            return await open_identified(runtime, cookie, open_bookie)
        await refuse_unfinished(metadata, str(self._config.metadata or "the metadata store"), while_restored=True)
        await prepare_cluster(metadata)
        remembered = await remembered_cookie(metadata, address.bookie_id)
        return await open_identified(
            runtime,
            cookie._replace(instance_id=await cluster_id(metadata, runtime)),
            open_bookie,
            remembered=remembered,
            remember=partial(remember_cookie, metadata, before=remembered),
        )

    def _warn(self, address: ServedBookie, *, is_registered: bool) -> None:
        bind = self._config.server.bind_address
        knows_clients = self._config.tls is not None and self._config.tls.knows_clients
        if not is_loopback(bind) and not knows_clients:
            _log.warning(
                "listening on %s without authentication: whoever reaches this machine can read all entries, add "
                "entries, and fence ledgers, so that their writers lose them",
                bind,
            )
        elif is_loopback(bind) and not is_loopback(address.host):
            _log.warning(
                "advertisedAddress=%s, but only this machine is listened to (bindAddress=%s)", address.host, bind
            )
        if self._config.server.force_read_only:
            _log.warning("read-only: forceReadOnlyBookie=true")
        http = self._config.http()
        if http is not None and not is_loopback(http.host) and (http.tls is None or not http.tls.knows_clients):
            _log.warning(
                "%s on %s without authentication: whoever reaches this machine can read metrics and state there, and "
                "change nothing",
                http.key,
                http.host,
            )
        if not is_registered:
            _log.info("without a metadata store: the bookie is in no cluster's list, and deletes no ledger")


def check_bookie_start(config: BookieProcessConfig) -> None:
    """Raise ConfigurationError where strangers would be served, and nobody said that this is meant."""
    http, server = config.http(), config.server
    # Nobody who shows no certificate of theirs is strange to these.
    knows_clients = config.tls is not None and config.tls.knows_clients
    openings = [] if knows_clients else [Opening("bindAddress", server.bind_address, OF_BOOKIE)]
    if http is not None and (http.tls is None or not http.tls.knows_clients):
        openings.append(Opening(HOST_KEYS[http.key], http.host, OF_STATE))
    check_start(openings, is_authenticated=False, may_be_open=server.may_be_open)


def _configured_metadata(config: BookieProcessConfig) -> OpenMetadata | None:
    address = config.metadata
    if address is None:
        return None

    async def opening(runtime: Runtime) -> MetadataStore:
        from geminga.metadata.zookeeper import ZooKeeperMetadataStore

        timeout_ms = config.server.zk_timeout_ms
        return await ZooKeeperMetadataStore.open(runtime, address, session_timeout_ms=timeout_ms)

    return opening


def _closing(followed: FollowedContext) -> Callable[[], Awaitable[None]]:
    async def close() -> None:
        followed.close()

    return close

"""The configuration of ``geminga bookie``, under BookKeeper's key names: ``bk_server.conf`` can be used as it is.

Sources and their order are those of ``config.py`` beside it; so are the errors. What BookKeeper's bookie has and this
one has not is refused or named (``core/bookie_keys.py``).
"""

from __future__ import annotations

import os.path
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from geminga.app.configuration.config import AUTO_RECOVERY_KEY, build_settings, risks, shown_assignment, unknown_keys
from geminga.app.configuration.config_sources import ConfigEntry, collect_entries
from geminga.app.configuration.core.bookie_keys import NOT_BUILT, asked_of_bookie
from geminga.app.configuration.core.bookie_place import DirectoryPair, check_bookie_id, directory_pairs
from geminga.app.configuration.core.live_keys import LOG_LEVELS_KEY
from geminga.app.configuration.core.log_options import parse_levels
from geminga.app.configuration.zookeeper_client import with_client_config
from geminga.bookie.config import BookieConfig
from geminga.bookkeeper.config import BookKeeperConfig
from geminga.metadata.core.zookeeper_address import ZooKeeperAddress, parse_zookeeper_address
from geminga.model.errors import ConfigurationError
from geminga.model.limits import FRAME_PADDING_BYTES, MESSAGE_SIZE_BYTES_MAX_DEFAULT
from geminga.model.settings import setting, settings_of
from geminga.replication.config import ReplicationConfig

JOURNAL_NAME: Final = "journal"
LEDGERS_NAME: Final = "ledgers"
#: The one of BookKeeper's classes that is there.
PROMETHEUS_PROVIDER: Final = "PrometheusMetricsProvider"
#: And those that ask for nothing.
_PROVIDERS: Final = frozenset({PROMETHEUS_PROVIDER, "NullStatsProvider", ""})
#: What ``metadataServiceUri`` is where there is none.
_NO_METADATA: Final = frozenset({"", "null"})
FRAME_BYTES_LEAST: Final = 1024
FRAME_BYTES_MOST: Final = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class BookieServerConfig:
    """Where the bookie listens, who it is, where its metadata are."""

    #: 0: the kernel picks.
    bookie_port: int = setting("bookiePort", 3181, "a port, 0 to 65535", minimum=0, maximum=65535)
    #: BookKeeper's listens everywhere: it has authentication.
    bind_address: str = setting("bindAddress", "127.0.0.1", "a host name or an IP address")
    #: Geminga's own: whether it may listen beyond loopback, where it has no authentication.
    may_be_open: bool = setting("gemingaAllowOpen", False, "true or false")
    #: Host that clients are told; empty: that of ``bindAddress``, or this machine's name where it is a wildcard.
    advertised_address: str = setting("advertisedAddress", "", "a host name or an IP address")
    bookie_id: str = setting(
        "bookieId", "", "letters, digits and :._-, not readonly; empty: advertised address and port"
    )
    #: It takes no entries, and serves what it has: the step before it is given up.
    force_read_only: bool = setting("forceReadOnlyBookie", False, "true or false")
    #: BookKeeper's newer name of ``journalDirectory``, which it passes.
    journal_directories: tuple[str, ...] = setting("journalDirectories", (), "paths")
    metadata_service_uri: str = setting(
        "metadataServiceUri", "", "zk+hierarchical://host:port;host:port/ledgers, zk:host:port/chroot, or nothing"
    )
    #: Pulsar's name of it.
    metadata_store_config_path: str = setting(
        "metadataStoreConfigPath", "", "the path of a file of ZooKeeper's client properties"
    )
    #: BookKeeper's older names: they count where there is no ``metadataServiceUri``.
    zk_servers: tuple[str, ...] = setting("zkServers", (), "host:port,host:port")
    zk_ledgers_root_path: str = setting("zkLedgersRootPath", "/ledgers", "a path that ends with /ledgers")
    #: How long a session lives on without its bookie.
    zk_timeout_ms: int = setting("zkTimeout", 10_000, "milliseconds, 1000 to 600000", minimum=1000, maximum=600_000)
    #: Of a request or an answer; that of Pulsar's bookies, whose largest message it holds (BookKeeper: 5242880).
    frame_bytes_max: int = setting(
        "nettyMaxFrameSizeBytes",
        MESSAGE_SIZE_BYTES_MAX_DEFAULT + FRAME_PADDING_BYTES,
        "bytes, 1024 to 268435456",
        minimum=FRAME_BYTES_LEAST,
        maximum=FRAME_BYTES_MOST,
    )
    #: BookKeeper's HTTP server; its host there is 0.0.0.0.
    http_server_enabled: bool = setting("httpServerEnabled", False, "true or false")
    http_server_port: int = setting("httpServerPort", 8080, "a port, 0 to 65535", minimum=0, maximum=65535)
    http_server_host: str = setting("httpServerHost", "127.0.0.1", "a host name or an IP address")
    #: A class of Java's: a ``PrometheusMetricsProvider`` asks for a port of metrics where there is no HTTP server.
    stats_provider_class: str = setting("statsProviderClass", "", "the name of a class, PrometheusMetricsProvider")
    prometheus_http: bool = setting("prometheusStatsHttpEnable", True, "true or false")
    prometheus_port: int = setting("prometheusStatsHttpPort", 8000, "a port, 0 to 65535", minimum=0, maximum=65535)
    prometheus_host: str = setting("prometheusStatsHttpAddress", "127.0.0.1", "a host name or an IP address")
    #: Geminga's own: hosts beside its own names by which HTTP is served.
    http_hosts: tuple[str, ...] = setting("gemingaHttpAllowedHosts", (), "host names, comma separated, or *")
    #: Geminga's own: levels of packages beside ``--log-level``.
    log_levels: tuple[str, ...] = setting(
        LOG_LEVELS_KEY, (), "package=level, comma separated, such as geminga.bookie=debug"
    )
    #: Geminga's own: ``auto`` takes uvloop if it is installed.
    event_loop: str = setting(
        "gemingaEventLoop", "auto", "auto, asyncio or uvloop", choices=("auto", "asyncio", "uvloop")
    )


if TYPE_CHECKING:
    from geminga.app.configuration.bookie_http_tls import BookieHttpTlsConfig
    from geminga.app.configuration.bookie_tls_config import BookieTlsConfig

#: The key that asks for TLS, in BookKeeper's own words.
TLS_FACTORY: Final = "tlsProviderFactoryClass"
HTTP_TLS: Final = "httpServerTlsEnable"


class HttpListener(NamedTuple):
    """Where a bookie answers HTTP, and by which key."""

    host: str
    port: int
    key: str
    #: None: it speaks none.
    tls: BookieHttpTlsConfig | None = None


class RecoveryConfig(NamedTuple):
    """Of auto-recovery, and of how it reads and recovers ledgers."""

    replication: ReplicationConfig
    bookkeeper: BookKeeperConfig


@dataclass(frozen=True, slots=True)
class BookieProcessConfig:
    """Everything configured, and what to warn of."""

    server: BookieServerConfig
    bookie: BookieConfig
    warnings: tuple[str, ...] = ()
    #: None: the bookie is in no cluster.
    metadata: ZooKeeperAddress | None = None
    #: Auto-recovery in the bookie's process; None: it runs none.
    recovery: RecoveryConfig | None = None
    #: None: nobody speaks TLS.
    tls: BookieTlsConfig | None = None
    #: None: HTTP has none.
    http_tls: BookieHttpTlsConfig | None = None

    def http(self) -> HttpListener | None:
        """Where it answers HTTP; None: nowhere. As in BookKeeper, metrics have a port of their own only without it."""
        server = self.server
        if server.http_server_enabled:
            return HttpListener(server.http_server_host, server.http_server_port, "httpServerPort", self.http_tls)
        if server.prometheus_http and _simple_name(server.stats_provider_class) == PROMETHEUS_PROVIDER:
            return HttpListener(
                server.prometheus_host, server.prometheus_port, "prometheusStatsHttpPort", self.http_tls
            )
        return None

    def http_names(self) -> tuple[str, ...]:
        """Hosts by which HTTP is reached, beside those that the operator lists."""
        server = self.server
        bookie_host = server.bookie_id.partition(":")[0]
        return (
            server.http_server_host,
            server.prometheus_host,
            server.advertised_address,
            server.bind_address,
            bookie_host,
        )

    def directories(self, data_dir: str) -> tuple[DirectoryPair, ...]:
        """Where journals and ledgers lie, in ``data_dir`` unless configured. Raises ConfigurationError."""
        journals = self.server.journal_directories or _several(self.bookie.journal_directory)
        ledgers = _several(self.bookie.ledger_directory)
        return directory_pairs(
            [os.path.abspath(path) for path in journals or (os.path.join(data_dir, JOURNAL_NAME),)],
            [os.path.abspath(path) for path in ledgers or (os.path.join(data_dir, LEDGERS_NAME),)],
        )


def load_bookie_config(
    files: Sequence[str] = (), env: Mapping[str, str] | None = None, overrides: Sequence[str] = ()
) -> BookieProcessConfig:
    """Configuration from ``files``, the environment ``env`` and ``key=value`` texts; raises ConfigurationError."""
    entries = collect_entries(files, env, overrides)
    latest = {entry.key: entry for entry in entries}
    server = build_settings(BookieServerConfig, latest)
    metadata = _metadata(server, latest)
    bookie = build_settings(BookieConfig, latest)
    parse_levels(server.log_levels)
    if server.bookie_id:
        check_bookie_id("bookieId", server.bookie_id)
    classes = (BookieServerConfig, BookieConfig, BookKeeperConfig, ReplicationConfig)
    recovery = _recovery(latest)
    known = {key for config_class in classes[: 4 if recovery else 2] for key in settings_of(config_class)}
    known.add(AUTO_RECOVERY_KEY)
    tls, http_tls = bookie_tls_of(latest, known), http_tls_of(latest, known)
    warnings = list(_asked_in_vain(latest.values(), known))
    warnings += risks(bookie)
    unused = [entry for key, entry in latest.items() if key not in known and key not in NOT_BUILT]
    warnings += unknown_keys(unused, known)
    if recovery is not None and metadata is None:
        warnings.append(f"{AUTO_RECOVERY_KEY}=true has no effect: without a metadata store the bookie is in no cluster")
    return BookieProcessConfig(server, bookie, tuple(warnings), metadata, recovery, tls, http_tls)


def bookie_tls_of(latest: Mapping[str, ConfigEntry], known: set[str]) -> BookieTlsConfig | None:
    """What is said of TLS to bookies, whose keys become ``known``; None: nothing. Raises ConfigurationError."""
    if TLS_FACTORY not in latest or latest[TLS_FACTORY].text.strip().lower() in ("", "null"):
        return None
    # Not loaded by who has none.
    from geminga.app.configuration.bookie_tls_config import BookieTlsConfig

    known.update(settings_of(BookieTlsConfig))
    found = build_settings(BookieTlsConfig, latest)
    found.check()
    return found


def http_tls_of(latest: Mapping[str, ConfigEntry], known: set[str]) -> BookieHttpTlsConfig | None:
    """What is said of TLS where HTTP is answered, whose keys become ``known``; None: it has none."""
    if HTTP_TLS not in latest:
        return None
    from geminga.app.configuration.bookie_http_tls import BookieHttpTlsConfig

    known.update(settings_of(BookieHttpTlsConfig))
    found = build_settings(BookieHttpTlsConfig, latest)
    return found if found.is_used else None


def _recovery(latest: Mapping[str, ConfigEntry]) -> RecoveryConfig | None:
    # As in BookKeeper, a bookie that is not told to runs none; Pulsar's bookkeeper.conf tells it to.
    if AUTO_RECOVERY_KEY not in latest:
        return None
    replication = build_settings(ReplicationConfig, latest)
    if not replication.auto_recovery_daemon_enabled:
        return None
    return RecoveryConfig(replication, build_settings(BookKeeperConfig, latest))


def _simple_name(class_name: str) -> str:
    return class_name.strip().rpartition(".")[2]


def _several(text: str) -> tuple[str, ...]:
    return tuple(path.strip() for path in text.split(",") if path.strip())


def _metadata(server: BookieServerConfig, latest: Mapping[str, ConfigEntry]) -> ZooKeeperAddress | None:
    key, text = "metadataServiceUri", server.metadata_service_uri
    if text.strip().lower() in _NO_METADATA:
        if not server.zk_servers:
            return None
        key, text = "zkServers", f"zk+null://{','.join(server.zk_servers)}{server.zk_ledgers_root_path}"
    try:
        address = parse_zookeeper_address(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"{shown_assignment(latest[key])}: {error}") from error
    return with_client_config(address, server.metadata_store_config_path)


def _asked_in_vain(entries: Collection[ConfigEntry], known: set[str]) -> Iterator[str]:
    set_here = [entry for entry in entries if entry.key not in known]
    asked = [(entry, group) for entry in set_here if (group := asked_of_bookie(entry.key, entry.text)) is not None]
    refused = [(entry, group) for entry, group in asked if group.is_refused]
    if refused:
        named = "; ".join(f"{shown_assignment(entry)}: {group.instead}" for entry, group in refused)
        these = "this key" if len(refused) == 1 else "these keys"
        raise ConfigurationError(
            "a bookie has TLS by tlsProviderFactoryClass alone, knows its clients by their certificates alone, and "
            f"does not start where more is asked for: {named}. Remove {these} to run it without"
        )
    for entry in entries:
        if entry.key == "statsProviderClass" and _simple_name(entry.text) not in _PROVIDERS:
            yield (
                f"{shown_assignment(entry)} has no effect: metrics are told in Prometheus' format alone "
                f"({PROMETHEUS_PROVIDER})"
            )
    for entry, group in asked:
        yield f"{shown_assignment(entry)} has no effect ({group.what}): {group.instead}"

"""The configuration of ``geminga proxy``: Pulsar's ``proxy.conf``, and the few keys of Geminga's own.

Ports of TLS, authentication and the proxy's credentials at brokers are the broker's settings, under the proxy's names
where they differ. Keys that ask for what is not built are named in a warning; unknown ones too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from geminga.app.configuration.config import build_settings, shown_assignment, unknown_keys
from geminga.app.configuration.config_sources import ConfigEntry, collect_entries
from geminga.app.configuration.server_config import HttpConfig
from geminga.model.errors import ConfigurationError
from geminga.model.settings import setting, settings_of
from geminga.proxy.config import ProxyConfig

if TYPE_CHECKING:
    from geminga.app.configuration.links_config import LinksConfig
    from geminga.app.configuration.tls_config import TlsConfig
    from geminga.broker.authentication.config import AuthenticationConfig
    from geminga.metadata.core.zookeeper_address import ZooKeeperAddress

_PORT: Final = "a port, 0 to 65535, or nothing"
#: The proxy's names of what a broker calls otherwise.
_BROKERS_NAMES: Final[Mapping[str, str]] = {
    "servicePort": "brokerServicePort",
    "servicePortTls": "brokerServicePortTls",
    "tlsEnabledWithBroker": "brokerClientTlsEnabled",
}
#: Keys that ask for what is not built, and what is so instead, for values that ask for something.
UNBUILT: Final[Mapping[str, str]] = {
    "authorizationEnabled": "the proxy asks nobody what they may: brokers do, for the client's role",
    "functionWorkerWebServiceURL": "functions are not built",
    "functionWorkerWebServiceURLTLS": "functions are not built",
    "httpReverseProxyConfigs": "paths lead to brokers, or nowhere",
    "proxyAdditionalServlets": "plug-ins in Java are not loaded",
    "proxyExtensions": "plug-ins in Java are not loaded",
    "proxyInterceptors": "plug-ins in Java are not loaded",
    "saslJaasServerRoleTokenSignerSecretPath": "there is no such provider",
    "tlsEnabledInProxy": "expected servicePortTls=6651 and webServicePortTls=8443",
    "webSocketServiceEnabled": "a broker has WebSocket",
}
#: Keys of ``proxy.conf`` without effect here: threads, Netty, Jetty, caches.
_IDLE: Final = """
    additionalServlets authorizationProvider brokerClientSslFactoryPlugin brokerClientSslFactoryPluginParams
    brokerClientTlsCiphers brokerClientTlsProtocols clusterName configurationMetadataStoreUrl
    configurationStoreServers globalZookeeperServers httpInputMaxReplayBufferSize httpNumThreads
    httpOutputBufferSize httpProxyIdleTimeout httpProxyTimeout httpServerAcceptQueueSize
    httpServerThreadPoolQueueSize kinitCommand metadataStoreAllowReadOnlyOperations metadataStoreCacheExpirySeconds
    metricsBufferResponse metricsServletTimeoutMs narExtractionDirectory numAcceptorThreads numIOThreads
    proxyAdditionalServletDirectory proxyExtensionsDirectory proxyInterceptorsDirectory proxyLogLevel
    proxyZeroCopyModeEnabled saslJaasClientAllowedIds saslJaasServerSectionName sslFactoryPlugin
    sslFactoryPluginParams superUserRoles webServiceLogDetailedAddresses zooKeeperAllowReadOnlyOperations
    zooKeeperCacheExpirySeconds zookeeperSessionTimeoutMs
"""
IDLE: Final = frozenset(_IDLE.split())


@dataclass(frozen=True, slots=True)
class ProxyServerConfig(HttpConfig):
    """Addresses, ports and limits of the proxy's process."""

    #: Of the binary protocol; 0: the kernel picks; None, as ``servicePort=``: there is none.
    port: int | None = setting("servicePort", 6650, _PORT, minimum=0, maximum=65535)
    web_port: int | None = setting("webServicePort", 8080, _PORT, minimum=0, maximum=65535)
    bind_address: str = setting("bindAddress", "127.0.0.1", "a host name or an IP address")
    advertised_address: str = setting("advertisedAddress", "", "a host name or an IP address")
    status_file: str = setting("statusFilePath", "", "the path of a file")
    authentication: bool = setting("authenticationEnabled", False, "true or false")
    role_anonymizer: str = setting(
        "authenticationRoleLoggingAnonymizer",
        "NONE",
        "NONE, REDACTED, hash:SHA256 or hash:MD5",
        choices=("NONE", "REDACTED", "hash:SHA256", "hash:MD5"),
    )
    metadata_store_url: str = setting("metadataStoreUrl", "", "zk:host:port,host:port/path")
    zookeeper_servers: str = setting("zookeeperServers", "", "the same, as it was called before")
    session_timeout_ms: int = setting("metadataStoreSessionTimeoutMillis", 30_000, "milliseconds >= 4000", minimum=4000)
    #: How long a stop waits for requests under way.
    shutdown_timeout_ms: int = setting("brokerShutdownTimeoutMs", 10_000, "milliseconds >= 0", minimum=0)
    may_be_open: bool = setting("gemingaAllowOpen", False, "true or false")
    log_levels: tuple[str, ...] = setting("gemingaLogLevels", (), "package=level, comma separated")
    event_loop: str = setting(
        "gemingaEventLoop", "auto", "auto, asyncio or uvloop", choices=("auto", "asyncio", "uvloop")
    )


class ProxyProcessConfig(NamedTuple):
    """Everything configured, and what to warn of."""

    server: ProxyServerConfig
    proxy: ProxyConfig
    #: None: ``brokerServiceURL`` says where brokers are.
    metadata: ZooKeeperAddress | None
    authentication: AuthenticationConfig | None
    #: None: no port speaks TLS.
    tls: TlsConfig | None
    links: LinksConfig
    warnings: tuple[str, ...]

    @property
    def follows_files(self) -> bool:
        """Whether there may be files that are read again on SIGHUP, or with the next link to a broker."""
        has_links = self.links.uses_tls or bool(self.links.auth_plugin)
        return has_links or self.tls is not None or self.authentication is not None


def load_proxy_config(
    files: Sequence[str] = (), env: Mapping[str, str] | None = None, overrides: Sequence[str] = ()
) -> ProxyProcessConfig:
    """Configuration from ``files``, the environment ``env`` and ``key=value`` texts; raises ConfigurationError."""
    from geminga.app.configuration.links_config import LinksConfig
    from geminga.app.configuration.tls_config import TlsConfig
    from geminga.broker.authentication.config import AuthenticationConfig

    entries = collect_entries(files, env, overrides)
    latest = {entry.key: entry for entry in entries}
    as_broker = {**latest, **{theirs: latest[ours] for ours, theirs in _BROKERS_NAMES.items() if ours in latest}}
    server, proxy = build_settings(ProxyServerConfig, latest), build_settings(ProxyConfig, latest)
    metadata = _metadata(server)
    _check_brokers(proxy, has_metadata=metadata is not None)
    classes = (ProxyServerConfig, ProxyConfig, LinksConfig, TlsConfig, AuthenticationConfig)
    known = (
        {key for config_class in classes for key in settings_of(config_class)}
        | IDLE
        | UNBUILT.keys()
        | {*_BROKERS_NAMES}
    )
    warnings = [
        f"{shown_assignment(entry)} has no effect: {UNBUILT[key]}"
        for key, entry in latest.items()
        if key in UNBUILT and entry.text.strip().lower() not in ("", "false")
    ]
    authentication = None
    if server.authentication:
        authentication = _authentication(latest)
        warnings += authentication.check()
    elif proxy.forwards_credentials:
        warnings.append(
            "forwardAuthorizationCredentials=true has no effect: nobody is asked who they are "
            "(authenticationEnabled=true), as in Pulsar"
        )
    warnings += unknown_keys([entry for key, entry in latest.items() if key not in known], known)
    return ProxyProcessConfig(
        server,
        proxy,
        metadata,
        authentication,
        _tls(as_broker, latest),
        build_settings(LinksConfig, as_broker),
        tuple(warnings),
    )


def _authentication(latest: Mapping[str, ConfigEntry]) -> AuthenticationConfig:
    from geminga.broker.authentication.config import AuthenticationConfig

    authentication = build_settings(AuthenticationConfig, latest)
    if authentication.proxy_roles:
        raise ConfigurationError(
            f"{shown_assignment(latest['proxyRoles'])}: it is a key of brokers, who take roles from this proxy; it "
            "takes none from another"
        )
    # Pulsar's default for a proxy is another than for a broker.
    said = latest.get("authenticateMetricsEndpoint")
    if said is None or not said.text.strip():
        authentication = replace(authentication, authenticates_metrics=True)
    return authentication


def _tls(as_broker: Mapping[str, ConfigEntry], latest: Mapping[str, ConfigEntry]) -> TlsConfig | None:
    from geminga.app.configuration.tls_config import TlsConfig

    asked = [latest[key].text.strip() for key in ("servicePortTls", "webServicePortTls") if key in latest]
    if not any(asked):
        return None
    tls = build_settings(TlsConfig, as_broker)
    tls.check()
    return tls


def _metadata(server: ProxyServerConfig) -> ZooKeeperAddress | None:
    from geminga.metadata.core.zookeeper_address import parse_zookeeper_address

    key = "metadataStoreUrl" if server.metadata_store_url else "zookeeperServers"
    text = server.metadata_store_url or server.zookeeper_servers
    if not text:
        return None
    try:
        return parse_zookeeper_address(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"{key}: {error}") from None


def _check_brokers(proxy: ProxyConfig, *, has_metadata: bool) -> None:
    """Raise ConfigurationError where nothing says which brokers there are."""
    key, url = (
        ("brokerServiceURLTLS", proxy.broker_url_tls) if proxy.uses_tls else ("brokerServiceURL", proxy.broker_url)
    )
    if not url and not has_metadata:
        scheme = "pulsar+ssl" if proxy.uses_tls else "pulsar"
        raise ConfigurationError(
            f"neither {key} nor metadataStoreUrl is set: the proxy would know no broker; expected "
            f"{key}={scheme}://host:port, or metadataStoreUrl=zk:host:port"
        )
    if proxy.checks_active and not has_metadata:
        raise ConfigurationError(
            "checkActiveBrokers=true: which brokers there are is known from metadataStoreUrl, which is not set"
        )

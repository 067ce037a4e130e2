"""Settings of the proxy: names and defaults of Pulsar's ``proxy.conf`` (ProxyConfiguration 4.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from geminga.model.settings import setting

#: Of one message; its frame has a size of 32 bits.
BYTES_MAX: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class ProxyConfig:
    """What the proxy itself is told; ports, TLS and authentication have settings of their own."""

    broker_url: str = setting("brokerServiceURL", "", "pulsar://host:port")
    broker_url_tls: str = setting("brokerServiceURLTLS", "", "pulsar+ssl://host:port")
    web_url: str = setting("brokerWebServiceURL", "", "http://host:port")
    web_url_tls: str = setting("brokerWebServiceURLTLS", "", "https://host:port")
    uses_tls: bool = setting("tlsEnabledWithBroker", False, "true or false")
    #: Which brokers a client may name, see ``core/targets.py``.
    allowed_hosts: tuple[str, ...] = setting("brokerProxyAllowedHostNames", ("*",), "host names, * for any text")
    allowed_addresses: tuple[str, ...] = setting("brokerProxyAllowedIPAddresses", ("*",), "addresses or networks, or *")
    allowed_ports: tuple[str, ...] = setting("brokerProxyAllowedTargetPorts", ("6650", "6651"), "ports, or *")
    #: Whether it must be registered in the metadata store, too.
    checks_active: bool = setting("checkActiveBrokers", False, "true or false")
    #: Of a connection to a broker, until CONNECTED. Pulsar's 0, for ever, is refused.
    connect_timeout_ms: int = setting("brokerProxyConnectTimeoutMs", 10_000, "milliseconds > 0", minimum=1)
    #: How long a broker may say nothing; 0: for ever.
    read_timeout_ms: int = setting("brokerProxyReadTimeoutMs", 75_000, "milliseconds >= 0, 0: for ever", minimum=0)
    #: Between two PINGs to a client that asks where topics are; 0: none.
    keep_alive_s: int = setting("keepAliveIntervalSeconds", 30, "seconds >= 0, 0: none", minimum=0)
    connections_max: int = setting("maxConcurrentInboundConnections", 10_000, "an integer > 0", minimum=1)
    connections_per_host_max: int = setting("maxConcurrentInboundConnectionsPerIp", 0, "an integer >= 0", minimum=0)
    requests_max: int = setting("maxConcurrentLookupRequests", 50_000, "an integer > 0", minimum=1)
    forwards_credentials: bool = setting("forwardAuthorizationCredentials", False, "true or false")
    #: Whether connections may begin with the PROXY header, and what goes to brokers does.
    has_source_header: bool = setting("haProxyProtocolEnabled", False, "true or false")
    #: Geminga's own: a connection without it is closed.
    needs_source_header: bool = setting("gemingaHaProxyProtocolRequired", False, "true or false")
    message_bytes_max: int = setting("maxMessageSize", 5_242_880, "bytes > 0", minimum=1, maximum=BYTES_MAX)
    has_stats: bool = setting("enableProxyStatsEndpoints", True, "true or false")

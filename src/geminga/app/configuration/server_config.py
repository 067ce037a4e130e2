"""Settings of the process itself: where it listens, what it advertises, how it runs.

Defaults are those of Pulsar 4.2 with one exception: ``bindAddress`` is 127.0.0.1 (Pulsar: 0.0.0.0), because a
fresh start has no authentication; docs/compatibility.md lists it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from geminga.model.settings import setting

if TYPE_CHECKING:
    from geminga.broker.rest.http.server import HttpFront


@dataclass(frozen=True, slots=True)
class HttpConfig:
    """How HTTP is served, and what it lets in."""

    http_requests_max: int = setting("maxConcurrentHttpRequests", 1024, "an integer > 0", minimum=1)
    #: Whether the balancer before the port says in X-Forwarded-For where requests came from.
    trusts_forwarded: bool = setting("webServiceTrustXForwardedFor", False, "true or false")
    has_web_source_header: bool = setting("webServiceHaProxyProtocolEnabled", False, "true or false")
    limits_http_rate: bool = setting("httpRequestsLimitEnabled", False, "true or false")
    http_requests_per_s: float = setting("httpRequestsMaxPerSecond", 100.0, "requests a second > 0", minimum=0.001)
    #: Bytes of a request's line and headers.
    http_header_bytes_max: int = setting("httpMaxRequestHeaderSize", 8192, "bytes > 0", minimum=1, maximum=1 << 20)
    #: Connections of HTTP at the same time; fewer where the process may not open so many files. 0: those alone count.
    http_connections_max: int = setting("maxHttpServerConnections", 2048, "an integer >= 0, 0: no limit", minimum=0)
    #: Geminga's own: how long a connection has for its handshake, or for the headers of its request.
    handshake_timeout_s: int = setting("gemingaHandshakeTimeoutSeconds", 10, "seconds > 0", minimum=1)
    #: Geminga's own: how long a request has for its body, and an answer without being read any further.
    http_body_timeout_s: int = setting("gemingaHttpBodyTimeoutSeconds", 60, "seconds > 0", minimum=1)
    #: Geminga's own: hosts beside its own names by which HTTP is served, whose pages may do what programs may.
    http_hosts: tuple[str, ...] = setting("gemingaHttpAllowedHosts", (), "host names, comma separated, or *")

    @property
    def http_front(self) -> HttpFront:
        """What stands before HTTP, and how much it lets in."""
        from geminga.broker.rest.http.server import HttpFront

        requests_per_s = self.http_requests_per_s if self.limits_http_rate else None
        return HttpFront(requests_per_s, self.trusts_forwarded, self.has_web_source_header)


@dataclass(frozen=True, slots=True)
class ServerConfig(HttpConfig):
    """Addresses, ports and limits of the servers of one process."""

    #: Port of the binary protocol; 0: the kernel picks.
    broker_port: int = setting("brokerServicePort", 6650, "a port, 0 to 65535", minimum=0, maximum=65535)
    #: Port of the admin REST and metrics; 0: the kernel picks.
    web_port: int = setting("webServicePort", 8080, "a port, 0 to 65535", minimum=0, maximum=65535)
    bind_address: str = setting("bindAddress", "127.0.0.1", "a host name or an IP address")
    #: ``listener:scheme://host:port`` each, beside the two ports above.
    bind_addresses: tuple[str, ...] = setting(
        "bindAddresses",
        (),
        "listener:scheme://host:port, comma separated, scheme pulsar, pulsar+ssl, http or https",
    )
    #: Host that clients are told; empty: that of ``bindAddress``, or this machine's name where it is a wildcard.
    advertised_address: str = setting("advertisedAddress", "", "a host name or an IP address")
    advertised_listeners: tuple[str, ...] = setting(
        "advertisedListeners",
        (),
        "listener:scheme://host:port, comma separated, scheme pulsar, pulsar+ssl, http or https",
    )
    #: The listener that other brokers use; empty: the first of ``advertisedListeners``.
    internal_listener_name: str = setting("internalListenerName", "", "the name of one of advertisedListeners")
    cluster_name: str = setting("clusterName", "standalone", "letters, digits and -=:._")
    #: By which the configuration is kept alike with that of other clusters; empty: it is not.
    configuration_sync_topic: str = setting(
        "configurationMetadataSyncEventTopic", "", "the name of a topic, as persistent://tenant/namespace/topic"
    )
    #: Largest body of an HTTP request, bytes; -1: the fixed bound of the HTTP server.
    http_body_bytes_max: int = setting("httpMaxRequestSize", -1, "bytes > 0, or -1 for the built-in bound", minimum=-1)
    #: A file whose presence ``/status.html`` tells, so that a load balancer can be told to send nobody.
    status_file: str = setting("statusFilePath", "", "the path of a file")
    #: WebSockets; a standalone serves them, as Pulsar's does.
    web_sockets: bool = setting("webSocketServiceEnabled", False, "true or false")
    #: Bytes of one of their messages, inflated.
    web_socket_message_bytes_max: int = setting("webSocketMaxTextFrameSize", 1 << 20, "bytes > 0", minimum=1)
    #: Without a byte either way.
    web_socket_idle_ms: int = setting(
        "webSocketSessionIdleTimeoutMillis", 300_000, "milliseconds > 0, or 0 or less for no limit", minimum=-1
    )
    web_socket_ping_s: int = setting("webSocketPingDurationSeconds", -1, "seconds > 0, or -1 for none", minimum=-1)
    #: Of messages that sockets publish and nobody answered yet.
    web_socket_published_mb: int = setting(
        "webSocketPulsarClientMemoryLimitInMB", 0, "MiB > 0, or 0 for the built-in bound", minimum=0
    )
    #: Geminga's own: sockets at the same time, which are among the connections of HTTP.
    web_sockets_max: int = setting("gemingaWebSocketConnectionsMax", 10_000, "an integer > 0", minimum=1)
    #: Whether connections of the binary protocol may begin with the PROXY header, which says where they came from.
    has_source_header: bool = setting("haProxyProtocolEnabled", False, "true or false")
    #: Geminga's own: a connection without it is closed.
    needs_source_header: bool = setting("gemingaHaProxyProtocolRequired", False, "true or false")
    #: Geminga's own: pages of other origins that may read answers, and change something with these methods (CORS).
    cors_origins: tuple[str, ...] = setting(
        "gemingaHttpCorsAllowedOrigins", (), "origins such as https://console.example, comma separated, or *"
    )
    cors_methods: tuple[str, ...] = setting(
        "gemingaHttpCorsAllowedMethods", ("GET", "POST", "PUT", "DELETE"), "methods, comma separated"
    )
    cors_headers: tuple[str, ...] = setting(
        "gemingaHttpCorsAllowedHeaders",
        ("Authorization", "Content-Type", "Last-Event-ID", "X-Pulsar-Auth-Method-Name"),
        "names of headers, comma separated",
    )
    cors_credentials: bool = setting("gemingaHttpCorsAllowCredentials", False, "true or false")
    cors_max_age_s: int = setting("gemingaHttpCorsMaxAgeSeconds", 600, "seconds >= 0", minimum=0)
    #: Geminga's own: consumers over HTTP, and live tails, at a time.
    http_consumers_max: int = setting("gemingaHttpConsumersMax", 256, "an integer >= 0, 0: none", minimum=0)
    http_tails_max: int = setting("gemingaHttpTailsMax", 256, "an integer >= 0, 0: none", minimum=0)
    #: How long a stop waits for producers, consumers and ledgers to close.
    shutdown_timeout_ms: int = setting("brokerShutdownTimeoutMs", 60_000, "milliseconds >= 0", minimum=0)
    #: Geminga's own: bookies in this process; they share what is bounded for it.
    bookies: int = setting("gemingaBookies", 1, "a number of bookies, 1 to 16", minimum=1, maximum=16)
    #: Geminga's own: bookies that are lost, by the names of their directories: started without, never silently.
    bookies_left_out: tuple[str, ...] = setting("gemingaBookiesLeftOut", (), "names as bookie-2, comma separated")
    #: Geminga's own: broker processes that share the storage of this one; 0: the broker is in this process.
    brokers: int = setting("gemingaBrokers", 0, "a number of processes, 0 to 64", minimum=0, maximum=64)
    #: Geminga's own: the second of them has the ports behind the first one's, and so on.
    has_consecutive_ports: bool = setting("gemingaConsecutivePorts", False, "true or false")
    topic_metrics: bool = setting("exposeTopicLevelMetricsInPrometheus", True, "true or false")
    consumer_metrics: bool = setting("exposeConsumerLevelMetricsInPrometheus", False, "true or false")
    producer_metrics: bool = setting("exposeProducerLevelMetricsInPrometheus", False, "true or false")
    ledger_metrics: bool = setting("exposeManagedLedgerMetricsInPrometheus", True, "true or false")
    cursor_metrics: bool = setting("exposeManagedCursorMetricsInPrometheus", False, "true or false")
    bundle_metrics: bool = setting("exposeBundlesMetricsInPrometheus", False, "true or false")
    backlog_size_metrics: bool = setting("exposeSubscriptionBacklogSizeInPrometheus", False, "true or false")
    splits_partition_label: bool = setting("splitTopicAndPartitionLabelInPrometheus", False, "true or false")
    property_labels: bool = setting("exposeCustomTopicMetricLabelsEnabled", False, "true or false")
    #: Geminga's own: series that topics, and what hangs on them, have on one page of metrics.
    metric_series_max: int = setting("gemingaMetricsSeriesMax", 1_000_000, "a number of series >= 1", minimum=1)
    #: Geminga's own: pages for people below ``/console``; ``read-only``: nothing is changed there.
    console: str = setting("gemingaConsole", "on", "on, read-only or off", choices=("on", "read-only", "off"))
    #: Geminga's own: a file that has a line for each administrative change; empty: none.
    audit_log_file: str = setting("gemingaAuditLogFile", "", "the path of a file")
    audit_log_bytes_max: int = setting("gemingaAuditLogMaxBytes", 10_485_760, "bytes >= 4096", minimum=4096)
    audit_log_files: int = setting("gemingaAuditLogFiles", 10, "a number of files, 1 to 1000", minimum=1, maximum=1000)
    #: Geminga's own: whether each reader, whose client need not say so, has a line there.
    audit_readers: bool = setting("gemingaAuditReaders", False, "true or false")
    #: Geminga's own: whether it may listen beyond loopback without authentication.
    may_be_open: bool = setting("gemingaAllowOpen", False, "true or false")
    #: Geminga's own: levels of packages beside ``--log-level``.
    log_levels: tuple[str, ...] = setting(
        "gemingaLogLevels", (), "package=level, comma separated, such as geminga.broker=debug"
    )
    authentication: bool = setting("authenticationEnabled", False, "true or false")
    force_delete_namespace: bool = setting("forceDeleteNamespaceAllowed", False, "true or false")
    force_delete_tenant: bool = setting("forceDeleteTenantAllowed", False, "true or false")
    #: Geminga's own: ``auto`` takes uvloop if it is installed.
    event_loop: str = setting(
        "gemingaEventLoop", "auto", "auto, asyncio or uvloop", choices=("auto", "asyncio", "uvloop")
    )

"""``service.url`` and ``pulsar.client.*``: which cluster, and how its client is made. Shared by source and sink.

Names are those of the Java client's configuration, so that jobs can move; numbers in its units. What only concerns
the Java client's inside is accepted and ignored, a name nobody knows is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from geminga.spark.rules.option_values import OF_TABLES, OptionError, OptionValues

PREFIX: Final = "pulsar.client."

#: Name in lower case -> (our option, factor of the value).
_NUMBERS: Final = {
    "operationtimeoutms": ("operation_timeout_ms", 1.0),
    "connectiontimeoutms": ("connection_timeout_ms", 1.0),
    "keepaliveintervalseconds": ("keep_alive_interval_ms", 1000.0),
    "initialbackoffintervalnanos": ("initial_backoff_ms", 1e-6),
    "maxbackoffintervalnanos": ("maximum_backoff_ms", 1e-6),
    "connectionsperbroker": ("connections_per_broker", 1.0),
    "maxlookupredirects": ("lookup_redirects_max", 1.0),
    "memorylimitbytes": ("memory_limit_bytes", 1.0),
}
#: Of these 0 is a number like others, or no limit. A time of 0 would be one that is over before it begins.
_MAY_BE_NONE: Final = frozenset(["maxlookupredirects", "memorylimitbytes"])
_TEXTS: Final = {
    "listenername": "listener_name",
    "description": "description",
    "tlstrustcertsfilepath": "tls_trust_certs_file_path",
    "tlscertificatefilepath": "tls_certificate_file_path",
    "tlskeyfilepath": "tls_private_key_file_path",
    "proxyserviceurl": "proxy_service_url",
    "proxyprotocol": "proxy_protocol",
}
_FLAGS: Final = {
    "tlsallowinsecureconnection": "tls_allow_insecure_connection",
    "tlshostnameverificationenable": "tls_validate_hostname",
}
_SCHEMES: Final = ("pulsar", "pulsar+ssl", "http", "https")
_AUTHENTICATION: Final = frozenset(["authpluginclassname", "authparams"])
#: Inside the Java client only.
_IGNORED: Final = frozenset(
    [
        "serviceurl",
        "usetls",
        "numiothreads",
        "numlistenerthreads",
        "statsintervalseconds",
        "concurrentlookuprequest",
        "maxlookuprequest",
        "maxnumberofrejectedrequestperconnection",
        "usetcpnodelay",
        "enablebusywait",
        "requesttimeoutms",
        "lookuptimeoutms",
        "connectionmaxidleseconds",
        "enabletransaction",
    ]
)


@dataclass(frozen=True, slots=True)
class ClientConfiguration:
    """What makes one client; equal ones share a client within a process."""

    service_url: str
    #: Options of ``geminga.client.connect``, sorted.
    arguments: tuple[tuple[str, int | str | bool], ...] = ()
    #: Class name of an authentication as the Java client calls it, and its parameters; empty: none.
    auth_plugin: str = ""
    auth_params: str = field(default="", repr=False)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ClientConfiguration:
        """Raises OptionError."""
        values = OptionValues(options)
        url = values.text("service.url").strip()
        if not url:
            of_tables = "" if options else f". {OF_TABLES}"
            raise OptionError(f"service.url: missing; expected pulsar://host:port of the brokers{of_tables}")
        scheme, _, rest = url.partition("://")
        if scheme not in _SCHEMES or not rest:
            raise OptionError(f"service.url={url!r}: expected pulsar://host:port, pulsar+ssl://, http:// or https://")
        given = values.prefixed(PREFIX)
        arguments: dict[str, int | str | bool] = {}
        for name, value in given.items():
            if name in _NUMBERS:
                option, factor = _NUMBERS[name]
                least = 0 if name in _MAY_BE_NONE else 1
                if value.strip():
                    arguments[option] = max(least, round(values.number(PREFIX + name, 0, least) * factor))
            elif name in _TEXTS:
                arguments[_TEXTS[name]] = value
            elif name in _FLAGS:
                arguments[_FLAGS[name]] = values.boolean(PREFIX + name, default=False)
            elif name not in _AUTHENTICATION and name not in _IGNORED:
                raise OptionError(f"{PREFIX}{name}: not known; see the table of options in docs/spark-source.md")
        return cls(
            url, tuple(sorted(arguments.items())), given.get("authpluginclassname", ""), given.get("authparams", "")
        )

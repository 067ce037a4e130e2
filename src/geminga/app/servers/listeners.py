"""Advertised listeners and bind addresses, in Pulsar's notation ``listener:scheme://host:port``.

A listener is a name for a set of URLs that clients of one network are told; ``?listenerName`` of a lookup picks one.
Rules as Pulsar's: a name has at most one URL of a scheme; ``internalListenerName`` must be one of the names and is
the first if it is not given. Without ``advertisedListeners`` there is one listener, the advertised address with the
ports that are served.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from geminga.app.configuration.server_config import ServerConfig
from geminga.app.servers.core.addresses import WILDCARD_ADDRESSES, host_names, is_loopback
from geminga.broker.ownership.endpoints import DEFAULT_LISTENER, Endpoint
from geminga.model.errors import ConfigurationError

BROKER_SCHEMES: Final = ("pulsar", "pulsar+ssl")
SCHEMES: Final = (*BROKER_SCHEMES, "http", "https")


class ListenerUrl(NamedTuple):
    """One ``listener:scheme://host:port``."""

    listener: str
    scheme: str
    host: str
    port: int

    @property
    def url(self) -> str:
        """``scheme://host:port``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def parse_listener(key: str, text: str) -> ListenerUrl:
    """Parse one item of ``advertisedListeners`` or ``bindAddresses``; raises :class:`ConfigurationError`."""
    listener, separator, url = text.partition(":")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if not separator or not listener or parts.scheme not in SCHEMES or not parts.hostname or port is None:
        raise ConfigurationError(
            f"{key}={text}: expected listener:scheme://host:port with a scheme of {', '.join(SCHEMES)}"
        )
    return ListenerUrl(listener, parts.scheme, parts.hostname, port)


def advertised_listeners(texts: Sequence[str], internal: str) -> list[Endpoint]:
    """The listeners that ``advertisedListeners`` names, the internal one first; raises ConfigurationError."""
    urls: dict[str, dict[str, str]] = {}
    for text in texts:
        item = parse_listener("advertisedListeners", text)
        of_listener = urls.setdefault(item.listener, {})
        if item.scheme in of_listener:
            raise ConfigurationError(f"advertisedListeners={text}: listener {item.listener} has two {item.scheme} URLs")
        of_listener[item.scheme] = item.url
    if internal and internal not in urls:
        names = ", ".join(urls) or "none"
        raise ConfigurationError(f"internalListenerName={internal}: expected one of advertisedListeners ({names})")
    return [
        Endpoint(
            name,
            urls[name].get("pulsar", ""),
            urls[name].get("pulsar+ssl", ""),
            urls[name].get("http", ""),
            urls[name].get("https", ""),
        )
        for name in sorted(urls, key=lambda name: bool(internal) and name != internal)
    ]


class BoundPorts(NamedTuple):
    """Ports that were bound; None: there is none of the kind."""

    broker: int | None
    web: int | None
    broker_tls: int | None = None
    web_tls: int | None = None


def endpoints(config: ServerConfig, ports: BoundPorts, *, host_name: str, is_alone: bool = False) -> list[Endpoint]:
    """What clients are told, given the ports that were bound and this machine's name; raises ConfigurationError.

    A listener of ``advertisedListeners`` that has no HTTP URLs gets those of the advertised address. ``is_alone``: no
    other broker is in the cluster, so that a client which came by a mapped port can come back by it.
    """
    advertised = config.advertised_address or (
        host_name if config.bind_address in WILDCARD_ADDRESSES else config.bind_address
    )
    host = f"[{advertised}]" if ":" in advertised else advertised
    by_scheme = zip(SCHEMES, (ports.broker, ports.broker_tls, ports.web, ports.web_tls), strict=True)
    broker, broker_tls, web, web_tls = (
        "" if port is None else f"{scheme}://{host}:{port}" for scheme, port in by_scheme
    )
    own = Endpoint(DEFAULT_LISTENER, broker, broker_tls, web, web_tls)
    named = advertised_listeners(config.advertised_listeners, config.internal_listener_name)
    found = [
        replace(endpoint, web_url=endpoint.web_url or own.web_url, web_url_tls=endpoint.web_url_tls or own.web_url_tls)
        for endpoint in named
    ] or [own]
    is_derived = not config.advertised_address and not named
    return [
        replace(endpoint, is_through_service_url=is_alone and (is_derived or _is_loopback_url(endpoint)))
        for endpoint in found
    ]


def _is_loopback_url(endpoint: Endpoint) -> bool:
    return is_loopback(urlsplit(endpoint.broker_url or endpoint.broker_url_tls).hostname or "")


def own_names(config: ServerConfig, advertised: Sequence[Endpoint], host_name: str) -> list[str]:
    """Hosts and URLs by which the broker's HTTP is reached, beside addresses."""
    urls = [url for one in advertised for url in (one.broker_url, one.broker_url_tls, one.web_url, one.web_url_tls)]
    bound = [item.host for item in bound_addresses(config.bind_addresses)]
    return [*urls, *bound, config.bind_address, config.advertised_address, *host_names(host_name)]


def bound_addresses(texts: Sequence[str]) -> list[ListenerUrl]:
    """``bindAddresses``; raises ConfigurationError."""
    return [parse_listener("bindAddresses", text) for text in texts]

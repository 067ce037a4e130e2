"""Advertised listeners and bind addresses, in Pulsar's notation ``listener:scheme://host:port``.

A listener is a name for a set of URLs that clients of one network are told; ``?listenerName`` of a lookup picks one.
Rules as Pulsar's: a name has at most one URL of a scheme; ``internalListenerName`` must be one of the names and is
the first if it is not given. Without ``advertisedListeners`` there is one unnamed listener, the advertised address
with the ports that are served.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from geminga.model.errors import ConfigurationError

BROKER_SCHEMES: Final = ("pulsar", "pulsar+ssl")
SCHEMES: Final = (*BROKER_SCHEMES, "http", "https")

WILDCARD_ADDRESSES: Final = ("", "0.0.0.0", "::", "*")


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


@dataclass(frozen=True, slots=True)
class AdvertisedListener:
    """The URLs of one listener; empty text for a scheme it does not have."""

    broker_url: str = ""
    broker_url_tls: str = ""
    web_url: str = ""
    web_url_tls: str = ""


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


def advertised_listeners(texts: Sequence[str], internal: str) -> dict[str, AdvertisedListener]:
    """Listener name -> URLs, the internal one first; raises :class:`ConfigurationError`."""
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
    order = sorted(urls, key=lambda name: name != internal) if internal else list(urls)
    return {
        name: AdvertisedListener(
            urls[name].get("pulsar", ""),
            urls[name].get("pulsar+ssl", ""),
            urls[name].get("http", ""),
            urls[name].get("https", ""),
        )
        for name in order
    }


def bound_addresses(texts: Sequence[str]) -> list[ListenerUrl]:
    """``bindAddresses``; TLS schemes are refused, since nothing would serve them."""
    found = [parse_listener("bindAddresses", text) for text in texts]
    for item in found:
        if item.scheme not in ("pulsar", "http"):
            raise ConfigurationError(f"bindAddresses={item.listener}:{item.url}: this version serves no TLS")
    return found


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach a socket bound to ``address``."""
    return address in ("localhost", "::1") or address.startswith("127.")

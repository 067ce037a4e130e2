"""Service URLs: ``pulsar://host1:6650,host2`` or ``https://host``, and which address of a list is tried next."""

from __future__ import annotations

from typing import Final, NamedTuple

from geminga.client._api.errors import InvalidUrl, LookupError

_DEFAULT_PORTS: Final = {"pulsar": 6650, "pulsar+ssl": 6651, "http": 8080, "https": 8443}
_HTTP: Final = {False: "http", True: "https"}
_BINARY: Final = {False: "pulsar", True: "pulsar+ssl"}


class Address(NamedTuple):
    """Where a connection goes to."""

    host: str
    port: int
    is_tls: bool
    #: Brokers are asked for over HTTP there.
    is_http: bool = False

    @property
    def url(self) -> str:
        """``pulsar://host:port``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{(_HTTP if self.is_http else _BINARY)[self.is_tls]}://{host}:{self.port}"


def parse_addresses(url: str) -> list[Address]:
    """The addresses of a service URL; raises InvalidUrl."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in _DEFAULT_PORTS:
        raise InvalidUrl(
            f"invalid service URL {url!r}: expected pulsar://host:port, pulsar+ssl://, http:// or https://"
        )
    rest = rest.partition("/")[0]
    addresses = [_parse_host(part.strip(), scheme, url) for part in rest.split(",") if part.strip()]
    if not addresses:
        raise InvalidUrl(f"invalid service URL {url!r}: no host")
    return addresses


def told_addresses(url: str) -> list[Address]:
    """Those that a broker told; raises LookupError for what is none: it may tell another the next time."""
    try:
        return parse_addresses(url)
    except InvalidUrl:
        raise LookupError(f"the client was sent to {url!r:.100}, which is no address of a broker") from None


def _parse_host(text: str, scheme: str, url: str) -> Address:
    host, separator, port = text.rpartition(":")
    if not separator or port.endswith("]"):
        host, port = text, str(_DEFAULT_PORTS[scheme])
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise InvalidUrl(f"invalid service URL {url!r}: {port!r} is no port")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not host:
        raise InvalidUrl(f"invalid service URL {url!r}: no host before port {port}")
    return Address(host, int(port), scheme in ("pulsar+ssl", "https"), scheme.startswith("http"))


def parse_proxy(proxy_url: str, brokers: list[Address]) -> Address | None:
    """Through which address ``brokers`` are reached; empty: directly. Raises InvalidUrl."""
    if not proxy_url:
        return None
    found = parse_addresses(proxy_url)
    if len(found) != 1 or found[0].is_http:
        raise InvalidUrl(f"invalid proxy_service_url {proxy_url!r}: expected one pulsar+ssl://host:port")
    for broker in brokers:
        if not broker.is_tls:
            raise InvalidUrl(
                f"proxy_service_url: {broker.url} has no TLS, by which the proxy is told where to; expected a service "
                "URL of pulsar+ssl:// or https://"
            )
    return found[0]


class ServiceUrls:
    """The addresses of one service URL; stays with one as long as it can be reached."""

    __slots__ = ("_current", "addresses")

    def __init__(self, url: str, start: int = 0) -> None:
        """``start`` says which of the addresses is the first (any number: clients spread over them)."""
        self.addresses = parse_addresses(url)
        self._current = start % len(self.addresses)

    @property
    def current(self) -> Address:
        """The address to use now."""
        return self.addresses[self._current]

    def become(self, other: ServiceUrls) -> None:
        """Those of another cluster from now on."""
        self.addresses, self._current = other.addresses, 0

    def failed(self, address: Address) -> None:
        """``address`` could not be reached: the next one, unless another caller moved on already."""
        if address == self.current:
            self._current = (self._current + 1) % len(self.addresses)

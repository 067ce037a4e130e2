"""Which brokers a proxy may connect to, whatever a client names: hosts, addresses and ports. Pure.

As Apache Pulsar's proxy: host names with ``*`` for any text, without regard to case; addresses and networks
(``10.0.0.0/8``, ``10.0.0.0/255.0.0.0``); ports. ``*`` alone allows any. A name is looked at before it is resolved, and
each address that it has after that; the connection goes to an address that was looked at, not to the name once more.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from geminga.model.errors import ConfigurationError, NotAllowedError

#: Characters of ``proxy_to_broker_url``: a name of DNS has at most 253, a port five.
TARGET_LENGTH_MAX: Final = 300
_ANY: Final = "*"
_PORT_MAX: Final = 65535
_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


class Target(NamedTuple):
    """A broker, as it is named."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_target(text: str) -> Target:
    """``host:port`` of a broker; raises NotAllowedError for anything else."""
    host, colon, port = text[: TARGET_LENGTH_MAX + 1].rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    is_good = (
        len(text) <= TARGET_LENGTH_MAX
        and bool(colon)
        and bool(host)
        and not any(character in "/?#@[] \\" or not character.isprintable() for character in host)
        and port.isascii()
        and port.isdecimal()
        and len(port) <= len(str(_PORT_MAX))
        and 0 < int(port) <= _PORT_MAX
    )
    if not is_good:
        raise NotAllowedError(f"proxy_to_broker_url {text[:80]!r}: expected host:port of a broker")
    return Target(host, int(port))


class AllowedTargets:
    """See the module."""

    __slots__ = ("_hosts", "_networks", "_ports")

    def __init__(self, hosts: Sequence[str], addresses: Sequence[str], ports: Sequence[str]) -> None:
        """Raises ConfigurationError for what is no address and no port."""
        #: None: any.
        self._hosts = None if _ANY in hosts else tuple(_pattern(host) for host in hosts)
        self._networks = None if _ANY in addresses else tuple(_network(address) for address in addresses)
        self._ports = None if _ANY in ports else frozenset(_port(port) for port in ports)

    def check_name(self, target: Target) -> None:
        """Before it is resolved; raises NotAllowedError."""
        if self._ports is not None and target.port not in self._ports:
            raise NotAllowedError(f"port {target.port} of {target} is none of brokerProxyAllowedTargetPorts")
        self.check_host(target)

    def check_host(self, target: Target) -> None:
        """The same of its host alone: web services have other ports."""
        if self._hosts is not None and not any(pattern.fullmatch(target.host) for pattern in self._hosts):
            raise NotAllowedError(f"the host of {target} is none of brokerProxyAllowedHostNames")

    def allowed(self, target: Target, addresses: Iterable[str]) -> list[str]:
        """Those of its addresses that may be connected to; raises NotAllowedError where there is none."""
        found = list(addresses)
        allowed = [address for address in found if self._has(address)]
        if not allowed:
            raise NotAllowedError(f"no address of {target} is one of brokerProxyAllowedIPAddresses")
        return allowed

    def _has(self, text: str) -> bool:
        if self._networks is None:
            return True
        try:
            address = plain_address(text)
        except ValueError:
            return False
        return any(address in network for network in self._networks)


def plain_address(text: str) -> _Address:
    """An address without its scope, and an IPv4 one that is written as IPv6 as what it is; raises ValueError."""
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address if mapped is None else mapped


def _pattern(host: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in host.split(_ANY)), re.IGNORECASE | re.DOTALL)


def _network(text: str) -> _Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ConfigurationError(
            f"brokerProxyAllowedIPAddresses={text}: expected an address, a network as 10.0.0.0/8, or *"
        ) from None


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(_PORT_MAX)) and 0 < int(text) <= _PORT_MAX):
        raise ConfigurationError(f"brokerProxyAllowedTargetPorts={text}: expected a port, 1 to {_PORT_MAX}, or *")
    return int(text)

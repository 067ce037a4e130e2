"""How many connections a proxy has, of all clients and of one address; and what it counts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from geminga.model.histogram import Quantiles
from geminga.proxy.core.requests import KINDS, RequestKind

#: Bytes of requests that brokers have not answered, of all clients: a broker that hangs takes none of them.
ASKED_BYTES_MAX: Final = 64 * 1024 * 1024


class Guests:
    """Counts, and says no."""

    __slots__ = ("_by_host", "_max", "_per_host_max", "active", "new", "rejected")

    def __init__(self, connections_max: int, per_host_max: int) -> None:
        """``per_host_max`` 0: no limit of one address."""
        self._max = connections_max
        self._per_host_max = per_host_max
        self._by_host: dict[str, int] = {}
        self.active = self.new = self.rejected = 0

    def enter(self, host: str) -> str:
        """Count a connection from ``host``, which must :meth:`leave` in any case; why it may not stay, or nothing."""
        self.active += 1
        self.new += 1
        count = self._by_host[host] = self._by_host.get(host, 0) + 1
        refusal = ""
        if self.active > self._max:
            refusal = f"reached maxConcurrentInboundConnections={self._max}"
        elif self._per_host_max and count > self._per_host_max:
            refusal = f"reached maxConcurrentInboundConnectionsPerIp={self._per_host_max}"
        self.rejected += bool(refusal)
        return refusal

    def leave(self, host: str) -> None:
        """It is gone."""
        self.active -= 1
        left = self._by_host[host] - 1
        if left:
            self._by_host[host] = left
        else:
            del self._by_host[host]


class AskedRequests:
    """Requests that brokers are asked, of all clients."""

    __slots__ = ("_max", "asked", "rejected", "under_way", "under_way_bytes")

    def __init__(self, under_way_max: int) -> None:
        self._max = under_way_max
        self.under_way = self.under_way_bytes = 0
        self.asked: dict[str, int] = dict.fromkeys((kind.metric for kind in KINDS.values()), 0)
        self.rejected = dict(self.asked)

    def begin(self, kind: RequestKind, size_bytes: int) -> bool:
        """Whether there is room for one more, which must :meth:`end` then."""
        self.asked[kind.metric] += 1
        if self.under_way >= self._max or self.under_way_bytes + size_bytes > ASKED_BYTES_MAX:
            self.rejected[kind.metric] += 1
            return False
        self.under_way += 1
        self.under_way_bytes += size_bytes
        return True

    def end(self, size_bytes: int) -> None:
        """It was answered, or nobody waits for it."""
        self.under_way -= 1
        self.under_way_bytes -= size_bytes


class Counters:
    """All that a proxy counts."""

    __slots__ = ("bytes_relayed", "guests", "ops", "requests")

    def __init__(self, guests: Guests, requests: AskedRequests) -> None:
        self.guests = guests
        self.requests = requests
        #: Reads that were passed on, as Pulsar's, which counts buffers of the network and not messages; their bytes.
        self.ops = 0
        self.bytes_relayed = 0

    def metrics(self) -> Mapping[str, float | Quantiles]:
        """For ``/metrics``, under Pulsar's names."""
        guests, requests = self.guests, self.requests
        found: dict[str, float | Quantiles] = {
            "pulsar_proxy_active_connections": guests.active,
            "pulsar_proxy_new_connections": guests.new,
            "pulsar_proxy_rejected_connections": guests.rejected,
            "pulsar_proxy_binary_ops": self.ops,
            "pulsar_proxy_binary_bytes": self.bytes_relayed,
            "geminga_proxy_requests_under_way": requests.under_way,
            "geminga_proxy_requests_under_way_bytes": requests.under_way_bytes,
        }
        for name, count in requests.asked.items():
            found[f"pulsar_proxy_{name}_requests"] = count
        for name, count in requests.rejected.items():
            found[f"pulsar_proxy_rejected_{name}_requests"] = count
        return found

"""``Cluster``: how producers, consumers and streams reach one cluster; made by the client, shared by all of its."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from geminga.client._api.options import ClientOptions
from geminga.client._api.place import Place
from geminga.client._transport.lookup import Lookup
from geminga.client._transport.pool import ConnectionPool
from geminga.client.consumer_rules.prefetch import PrefetchBudget
from geminga.runtime import Runtime


@dataclass(frozen=True, slots=True)
class Cluster:
    """See the module."""

    #: Clock, randomness, threads.
    runtime: Runtime
    options: ClientOptions
    pool: ConnectionPool
    lookup: Lookup
    #: Where all of it may be used.
    place: Place
    #: Numbers that no other consumer of the client has.
    consumer_ids: Iterator[int] = field(default_factory=count)
    #: Bytes that wait in all of its consumers; None: any number.
    prefetch: PrefetchBudget | None = None

    @property
    def timeout_s(self) -> float:
        """What one question to a broker may take, seconds."""
        return self.options.operation_timeout_ms / 1000

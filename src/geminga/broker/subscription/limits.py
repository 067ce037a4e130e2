"""What a topic may have: producers, consumers, subscriptions; and how much its consumers may leave unacknowledged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

from geminga.model.errors import ConsumerBusyError, invariant

if TYPE_CHECKING:
    from geminga.broker.subscription.consumer import Consumer, ConsumerSubscription
    from geminga.broker.subscription.ports import SubscriptionTopic


class TopicLimits(NamedTuple):
    """Of the namespace, else of the broker. 0: no limit."""

    producers: int = 0
    consumers: int = 0
    consumers_per_subscription: int = 0
    subscriptions: int = 0


class UnackedLimits(NamedTuple):
    """Messages sent and not acknowledged, on Shared and Key_Shared subscriptions; defaults of Pulsar. 0: no limit.

    At the limit dispatch stops until half of it is acknowledged or given back. An entry (a batch) is never cut, so
    the last one may go over it.
    """

    per_consumer: int = 50_000
    per_subscription: int = 200_000


#: What a topic has until its policies are known.
NO_LIMITS = TopicLimits()


def is_reached(limit: int, count: int) -> bool:
    """Whether one more than ``count`` would be too many."""
    return 0 < limit <= count


def host_of(peer: str) -> str:
    """Of a client's address as ``/127.0.0.1:1234``: its connections differ in the port."""
    return peer.rpartition(":")[0]


class FromAddress(Protocol):
    """Who came over a connection, as far as addresses are counted."""

    @property
    def connection(self) -> PeerConnection:
        """Its client's."""


class PeerConnection(Protocol):
    """A connection with an address."""

    @property
    def peer(self) -> str:
        """Address of the client, ``/127.0.0.1:1234``."""


class HostCounts:
    """How many of a topic's producers, or consumers, come from each host: who asks costs no look at all of them.

    Nothing is counted before somebody asks, so that a broker without such a limit keeps nothing; a host that none is
    left of is forgotten.
    """

    __slots__ = ("_by_host",)

    def __init__(self) -> None:
        #: None: nobody asked yet.
        self._by_host: dict[str, int] | None = None

    def count(self, peer: str, present: Callable[[], Iterable[FromAddress]]) -> int:
        """How many are there from the host of ``peer``; ``present``: all that are, looked at by who asks first."""
        if self._by_host is None:
            self._by_host = {}
            for each in present():
                self.came(each)
        return self._by_host.get(host_of(peer), 0)

    def came(self, one: FromAddress) -> None:
        """One more."""
        if self._by_host is not None:
            host = host_of(one.connection.peer)
            self._by_host[host] = self._by_host.get(host, 0) + 1

    def went(self, one: FromAddress) -> None:
        """One that was counted is gone."""
        if self._by_host is not None:
            host = host_of(one.connection.peer)
            left = self._by_host.pop(host, 0) - 1
            if left > 0:
                self._by_host[host] = left

    def check_invariants(self, present: Iterable[FromAddress]) -> None:
        """Raise InvariantError where they are not those of ``present``."""
        if self._by_host is not None:
            hosts = Counter(host_of(one.connection.peer) for one in present)
            invariant(dict(hosts) == self._by_host, f"from hosts {dict(hosts)}, counted {self._by_host}")


class ConsumerCounts:
    """How many consumers a topic has, in all its subscriptions."""

    __slots__ = ("hosts", "total")

    def __init__(self) -> None:
        self.total = 0
        self.hosts = HostCounts()

    def joined(self, consumer: Consumer) -> None:
        """It has joined a subscription, and says when it is gone."""
        consumer.counts = self
        self.total += 1
        self.hosts.came(consumer)

    def left(self, consumer: Consumer) -> None:
        """It is gone."""
        self.total -= 1
        self.hosts.went(consumer)

    def check_invariants(self, subscriptions: Iterable[ConsumerSubscription]) -> None:
        """Raise InvariantError where they are not those of ``subscriptions``."""
        present = list(_consumers_of(subscriptions))
        invariant(self.total == len(present), f"{len(present)} consumers, counted {self.total}")
        self.hosts.check_invariants(present)


def _consumers_of(subscriptions: Iterable[ConsumerSubscription]) -> Iterator[Consumer]:
    return (consumer for subscription in subscriptions for consumer in subscription.consumers)


def check_consumer_limit(topic: SubscriptionTopic, subscriptions: Collection[ConsumerSubscription], peer: str) -> None:
    """Raise ConsumerBusyError if the topic has all the consumers it may have, or those from the client's address."""
    counts = topic.consumer_counts
    if is_reached(topic.limits.consumers, counts.total):
        raise ConsumerBusyError("Topic reached max consumers limit")
    from_one = 0 if topic.name.is_system else topic.services.config.max_consumers_per_address
    if from_one and is_reached(from_one, counts.hosts.count(peer, lambda: _consumers_of(subscriptions))):
        raise ConsumerBusyError("Topic reached max same address consumers limit")

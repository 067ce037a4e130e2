"""What the leader knows of a cluster's load at one moment, and who is to hold which bundle. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from geminga.broker.load_rules.histories import UNSEEN, BundleData
from geminga.broker.load_rules.isolation import NO_ISOLATION, Isolation
from geminga.broker.load_rules.members import namespace_of
from geminga.broker.load_rules.reports import BrokerReport, LoadRates, sum_of

#: Of a message a second, when many are added.
_PARTS: Final = 1_000_000
#: Coordinators of transactions; placed by number of bundles.
SYSTEM_NAMESPACE: Final = "pulsar/system"


def is_bound(namespace: str) -> bool:
    """Whether it is a broker's own (heartbeat, SLA monitor): its bundles stay where they are."""
    tenant, _, local = namespace.partition("/")
    return ":" in local and tenant in ("pulsar", "sla-monitor")


class Rules(NamedTuple):
    """What operators said about where bundles go."""

    isolation: Isolation = NO_ISOLATION
    #: Namespace to its anti-affinity group, those that have one.
    groups: Mapping[str, str] = MappingProxyType({})
    #: Broker to its failure domain, those that have one.
    domains: Mapping[str, str] = MappingProxyType({})


class Move(NamedTuple):
    """A bundle that is to leave its broker."""

    bundle: str
    source: str
    #: Empty: whoever placement chooses.
    destination: str = ""


class ClusterLoad:
    """Reports, histories, and holders: those that brokers reported, and those that bundles were promised to."""

    def __init__(
        self,
        reports: Mapping[str, BrokerReport],
        bundles: Mapping[str, BundleData],
        promised: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """``promised``: bundle to the broker that is to hold it, if it does not report it yet."""
        self.reports = reports
        self.bundles = bundles
        self._held: dict[str, set[str]] = {broker: set() for broker in reports}
        #: What is asked of each broker for each move is counted as bundles come and go.
        self._namespaces: dict[str, Counter[str]] = {broker: Counter() for broker in reports}
        self._topics_to_come = dict.fromkeys(reports, 0)
        #: In whole numbers: what came and went leaves nothing behind, and equals are equal.
        self._long = dict.fromkeys(reports, 0)
        for broker, report in reports.items():
            for bundle in report.stats:
                self._add(bundle, broker)
        for bundle, broker in promised.items():
            if broker in self._held:
                self.assign(bundle, broker)

    @property
    def brokers(self) -> list[str]:
        """Their ids, in order."""
        return sorted(self.reports)

    def held(self, broker: str) -> set[str]:
        """The bundles that a broker has, or is to have."""
        return self._held[broker]

    def assign(self, bundle: str, broker: str) -> None:
        """From now on this broker holds it, and no other."""
        for one, held in self._held.items():
            if bundle in held:
                self._remove(bundle, one)
        self._add(bundle, broker)

    def withdraw(self, bundle: str) -> None:
        """It is promised to nobody any more: who reports it holds it."""
        for broker, held in self._held.items():
            if bundle in held:
                self._remove(bundle, broker)
            if bundle in self.reports[broker].stats:
                self._add(bundle, broker)

    def data(self, bundle: str) -> BundleData:
        """What is remembered of a bundle."""
        return self.bundles.get(bundle, UNSEEN)

    def long_messages(self, broker: str) -> float:
        """Messages a second that a broker's bundles carried in the long run."""
        return self._long[broker] / _PARTS

    def short_rates(self, broker: str) -> LoadRates:
        """What a broker's bundles carried lately."""
        return sum_of(self.data(bundle).short.rates for bundle in self._held[broker])

    def topics(self, broker: str) -> int:
        """Those that a broker has loaded, and those of bundles that it is to get."""
        return self.reports[broker].topics + self._topics_to_come[broker]

    def namespace_bundles(self, namespace: str) -> dict[str, int]:
        """How many bundles of a namespace each broker holds."""
        return {broker: counts[namespace] for broker, counts in self._namespaces.items()}

    def group_namespaces(self, group: str, groups: Mapping[str, str]) -> dict[str, int]:
        """How many namespaces of an anti-affinity group each broker holds bundles of."""
        wanted = group.casefold()
        members = {namespace for namespace, one in groups.items() if one.casefold() == wanted}
        return {
            broker: sum(counts[namespace] > 0 for namespace in members) for broker, counts in self._namespaces.items()
        }

    def _add(self, bundle: str, broker: str) -> None:
        self._held[broker].add(bundle)
        self._count(bundle, broker, 1)

    def _remove(self, bundle: str, broker: str) -> None:
        self._held[broker].discard(bundle)
        self._count(bundle, broker, -1)

    def _count(self, bundle: str, broker: str, change: int) -> None:
        self._namespaces[broker][namespace_of(bundle)] += change
        data = self.data(bundle)
        self._long[broker] += change * round(data.long.rates.messages * _PARTS)
        if bundle not in self.reports[broker].stats:
            self._topics_to_come[broker] += change * data.topics


def sheddable(cluster: ClusterLoad, broker: str, moved_lately: Collection[str]) -> dict[str, LoadRates]:
    """The bundles of a broker that may leave, with what they carried lately."""
    return {
        bundle: cluster.bundles[bundle].short.rates
        for bundle in sorted(cluster.reports[broker].stats)
        if bundle in cluster.bundles and bundle not in moved_lately and not is_bound(namespace_of(bundle))
    }


class Scale(NamedTuple):
    """What one share of load is: a broker's load is its part of all bytes and its part of all messages, together."""

    messages: float
    bytes: float

    def load(self, rates: LoadRates) -> float:
        """0 to 2; all of both is 2."""
        messages = rates.messages / self.messages if self.messages > 0 else 0.0
        return messages + (rates.bytes / self.bytes if self.bytes > 0 else 0.0)


def scale_of(rates: Iterable[LoadRates]) -> Scale:
    """Of a cluster whose brokers carry these."""
    total = sum_of(rates)
    return Scale(total.messages, total.bytes)

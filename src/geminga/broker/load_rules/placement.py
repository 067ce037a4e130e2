"""Which broker a bundle goes to: Pulsar's strategies, by their class names. Pure.

Where Pulsar draws one of equals, the number ``draw`` says which.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from geminga.broker.load_rules.candidates import candidates, permitted
from geminga.broker.load_rules.cluster_load import ClusterLoad, Rules
from geminga.broker.load_rules.config import AVERAGE_SHEDDER, LEAST_MESSAGES, LEAST_USAGE, ROUND_ROBIN, LoadConfig
from geminga.broker.load_rules.members import namespace_of


class BundlePlacement(Protocol):
    """One strategy."""

    def choose(self, brokers: Sequence[str], cluster: ClusterLoad, config: LoadConfig, draw: int) -> str:
        """One of ``brokers``, which is not empty."""


class LeastMessages:
    """Whose bundles carry the fewest messages in the long run, promised ones included; nobody overloaded."""

    def choose(self, brokers: Sequence[str], cluster: ClusterLoad, config: LoadConfig, draw: int) -> str:
        """See :class:`BundlePlacement`."""
        scores = {broker: self._score(broker, cluster, config) for broker in brokers}
        least = min(scores.values())
        return _drawn([broker for broker in brokers if scores[broker] == least], draw)

    def _score(self, broker: str, cluster: ClusterLoad, config: LoadConfig) -> float:
        if cluster.reports[broker].usage.largest_share() > config.overloaded_share:
            return math.inf
        return cluster.long_messages(broker)


class LeastUsage:
    """Whose usage is under the mean of all by more than a threshold; anybody where there is none."""

    def __init__(self) -> None:
        self._usage: dict[str, float] = {}

    def choose(self, brokers: Sequence[str], cluster: ClusterLoad, config: LoadConfig, draw: int) -> str:
        """See :class:`BundlePlacement`."""
        self._usage = {broker: usage for broker, usage in self._usage.items() if broker in cluster.reports}
        for broker in brokers:
            self._usage[broker] = self._remembered(broker, cluster, config)
        mean = sum(self._usage[broker] for broker in brokers) / len(brokers)
        limit = mean - config.usage_difference_percent / 100
        return _drawn([broker for broker in brokers if self._usage[broker] <= limit] or brokers, draw)

    def _remembered(self, broker: str, cluster: ClusterLoad, config: LoadConfig) -> float:
        report = cluster.reports[broker]
        now = report.usage.largest_share(config.weights)
        before = self._usage.get(broker)
        # Who carries nothing began anew: what it did before says nothing.
        if before is None or not report.stats or report.rates.messages == 0:
            return now
        return before * config.history_part + (1 - config.history_part) * now


class InTurns:
    """One after the other."""

    def __init__(self) -> None:
        self._turn = 0

    def choose(self, brokers: Sequence[str], cluster: ClusterLoad, config: LoadConfig, draw: int) -> str:
        """See :class:`BundlePlacement`."""
        del cluster, config, draw
        self._turn += 1
        return brokers[(self._turn - 1) % len(brokers)]


class AnyOf:
    """Whoever is drawn: with ``AvgShedder`` what moves has its broker already."""

    def choose(self, brokers: Sequence[str], cluster: ClusterLoad, config: LoadConfig, draw: int) -> str:
        """See :class:`BundlePlacement`."""
        del cluster, config
        return _drawn(brokers, draw)


def _drawn(brokers: Sequence[str], draw: int) -> str:
    return brokers[draw % len(brokers)]


_BY_CLASS: Final[Mapping[str, Callable[[], BundlePlacement]]] = {
    LEAST_MESSAGES: LeastMessages,
    LEAST_USAGE: LeastUsage,
    ROUND_ROBIN: InTurns,
    AVERAGE_SHEDDER: AnyOf,
}


class BrokerChoice:
    """Rules, then the strategy that is configured."""

    def __init__(self, config: LoadConfig) -> None:
        self._config = config
        self._strategy = _BY_CLASS[config.placement]()
        self._of_excluded = InTurns()

    def choose(
        self, bundle: str, cluster: ClusterLoad, rules: Rules, draw: int, *, is_persistent: bool = True
    ) -> str | None:
        """The broker that ``bundle`` is to go to; None: nobody may have it."""
        config = self._config
        found = candidates(bundle, cluster, rules, config, is_persistent=is_persistent)
        if not found:
            return None
        if namespace_of(bundle) in config.excluded_namespaces:
            return self._of_excluded.choose(found, cluster, config, draw)
        broker = self._strategy.choose(found, cluster, config, draw)
        if cluster.reports[broker].usage.largest_share(config.weights) > config.overloaded_share:
            # All that the rules left are overloaded: somebody better may be among the others.
            allowed = permitted(bundle, cluster, rules, is_persistent=is_persistent)
            broker = self._strategy.choose(allowed, cluster, config, draw)
        return broker

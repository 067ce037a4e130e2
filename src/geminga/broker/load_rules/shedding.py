"""Which bundles are to leave their brokers: Pulsar's strategies, by their class names. Pure.

Each gives bundles the busiest first, and none that moved lately. Where Pulsar's order is that of a hash table, it is by
name here. What they remember between rounds is in the object.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

from geminga.broker.load_rules.average_shedding import AverageShedding
from geminga.broker.load_rules.cluster_load import ClusterLoad, Move, sheddable
from geminga.broker.load_rules.config import (
    AVERAGE_SHEDDER,
    OVERLOAD_SHEDDER,
    THRESHOLD_SHEDDER,
    UNIFORM_SHEDDER,
    LoadConfig,
)
from geminga.broker.load_rules.reports import BrokerReport, LoadRates

#: So much more than what brings a broker to the threshold is moved, as a part of its traffic.
MARGIN: Final = 0.05
#: Of the threshold: what the busiest broker gives to one that is idle.
IDLE_MARGIN: Final = 0.5
_MB: Final = 1 << 20


class Shedding(Protocol):
    """One strategy."""

    def choose(self, cluster: ClusterLoad, moved_lately: Collection[str], config: LoadConfig) -> list[Move]:
        """What is to move in this round."""


def busiest_until(rates: Mapping[str, LoadRates], least_bytes: float) -> list[str]:
    """Bundles, the busiest first, until they carry that much together; one at least."""
    chosen: list[str] = []
    gathered = 0.0
    for bundle in sorted(rates, key=lambda bundle: (-rates[bundle].bytes, bundle)):
        if gathered < least_bytes or not chosen:
            chosen.append(bundle)
            gathered += rates[bundle].bytes
    return chosen


class ThresholdShedding:
    """A broker whose usage is over the mean of all by more than a threshold sheds what is over it."""

    def __init__(self) -> None:
        self._usage: dict[str, float] = {}

    def choose(self, cluster: ClusterLoad, moved_lately: Collection[str], config: LoadConfig) -> list[Move]:
        """See :class:`Shedding`."""
        mean = self._remember(cluster.reports, config)
        if mean == 0:
            return []
        threshold = config.threshold_percent / 100
        moves: list[Move] = []
        for broker in cluster.brokers:
            report = cluster.reports[broker]
            over = self._usage[broker] - mean - threshold
            to_move = report.rates.bytes * (over + MARGIN)
            if over < 0 or to_move < config.unload_least_mb * _MB or len(report.stats) <= 1:
                continue
            moves += _moves(cluster, broker, moved_lately, to_move)
        if not moves and config.sheds_to_idle:
            return self._to_idle(cluster, moved_lately, config)
        return moves

    def _to_idle(self, cluster: ClusterLoad, moved_lately: Collection[str], config: LoadConfig) -> list[Move]:
        mean = self._remember(cluster.reports, config)
        threshold = config.threshold_percent / 100
        if not any(usage < mean - threshold for usage in self._usage.values()):
            return []
        busy = [
            broker
            for broker in cluster.brokers
            if self._usage[broker] > mean - threshold and len(cluster.reports[broker].stats) > 1
        ]
        if not busy:
            return []
        broker = max(busy, key=lambda one: self._usage[one])
        to_move = cluster.reports[broker].rates.bytes * threshold * IDLE_MARGIN
        if to_move < config.unload_least_mb * _MB:
            return []
        return _moves(cluster, broker, moved_lately, to_move)

    def _remember(self, reports: Mapping[str, BrokerReport], config: LoadConfig) -> float:
        """The mean of all usages, with that of this round."""
        usage: dict[str, float] = {}
        for broker, report in reports.items():
            now = report.usage.largest_share(config.weights)
            before = self._usage.get(broker)
            usage[broker] = now if before is None else before * config.history_part + (1 - config.history_part) * now
        self._usage = usage
        return sum(usage.values()) / len(usage) if usage else 0.0


class OverloadShedding:
    """A broker whose usage is over a threshold sheds what is over it."""

    def choose(self, cluster: ClusterLoad, moved_lately: Collection[str], config: LoadConfig) -> list[Move]:
        """See :class:`Shedding`."""
        moves: list[Move] = []
        for broker in cluster.brokers:
            report = cluster.reports[broker]
            over = report.usage.largest_share() - config.overloaded_share
            if over >= 0 and len(report.stats) > 1:
                moves += _moves(cluster, broker, moved_lately, report.rates.bytes * (over + MARGIN))
        return moves


def _moves(cluster: ClusterLoad, broker: str, moved_lately: Collection[str], least_bytes: float) -> list[Move]:
    chosen = busiest_until(sheddable(cluster, broker, moved_lately), least_bytes)
    return [Move(bundle, broker) for bundle in chosen]


class UniformShedding:
    """The busiest broker sheds a part of what it carries more than the idlest, in messages or else in bytes.

    Where it has nothing to give (one bundle, or such as moved lately) the next one does, if it is over the threshold,
    too: Pulsar does nothing then, as long as it is the busiest.
    """

    def choose(self, cluster: ClusterLoad, moved_lately: Collection[str], config: LoadConfig) -> list[Move]:
        """See :class:`Shedding`."""
        if not cluster.reports:
            return []
        messages = {broker: cluster.reports[broker].rates.messages for broker in cluster.brokers}
        factor = 1 + config.uniform_messages_percent / 100
        if factor > 1 and max(messages.values()) > factor * _least(messages):
            least = config.unload_messages_least
            return _uniform(cluster, messages, factor, least, moved_lately, config, lambda rates: rates.messages)
        bytes_ = {broker: cluster.reports[broker].rates.bytes for broker in cluster.brokers}
        factor = config.uniform_bytes_factor
        if factor > 0 and max(bytes_.values()) > factor * _least(bytes_):
            least = config.unload_bytes_least
            return _uniform(cluster, bytes_, factor, least, moved_lately, config, lambda rates: rates.bytes)
        return []


def _least(values: Mapping[str, float]) -> float:
    """The smallest, but never nothing: others are compared with it."""
    least = min(values.values())
    return least if least > 1e-6 else 1.0


def _uniform(
    cluster: ClusterLoad,
    values: Mapping[str, float],
    factor: float,
    least_moved: float,
    moved_lately: Collection[str],
    config: LoadConfig,
    value_of: Callable[[LoadRates], float],
) -> list[Move]:
    for broker in sorted(values, key=lambda one: (-values[one], one)):
        to_move = (values[broker] - _least(values)) * config.unload_part_max
        if values[broker] <= factor * _least(values) or int(to_move) < least_moved:
            break
        if len(cluster.reports[broker].stats) > 1:
            rates = {bundle: value_of(one) for bundle, one in sheddable(cluster, broker, moved_lately).items()}
            moves = [Move(bundle, broker) for bundle in _fitting(rates, to_move, config.unload_bundles_max)]
            if moves:
                return moves
    return []


def _fitting(values: Mapping[str, float], to_move: float, bundles_max: int) -> list[str]:
    """Bundles, the busiest first, each of which is no more than what is still to be moved."""
    found: list[str] = []
    for bundle in sorted(values, key=lambda bundle: (-values[bundle], bundle)):
        if bundles_max != -1 and len(found) >= bundles_max:
            break
        if 0 < values[bundle] <= to_move:
            to_move -= values[bundle]
            found.append(bundle)
    return found


_BY_CLASS: Final[Mapping[str, Callable[[], Shedding]]] = {
    THRESHOLD_SHEDDER: ThresholdShedding,
    OVERLOAD_SHEDDER: OverloadShedding,
    UNIFORM_SHEDDER: UniformShedding,
    AVERAGE_SHEDDER: AverageShedding,
}


def shedding_of(config: LoadConfig) -> Shedding:
    """The strategy that is configured."""
    return _BY_CLASS[config.shedding]()

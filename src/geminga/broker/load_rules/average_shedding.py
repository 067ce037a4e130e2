"""Pulsar's ``AvgShedder``: the busiest and the idlest broker meet in the middle. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection

from geminga.broker.load_rules.cluster_load import ClusterLoad, Move, sheddable
from geminga.broker.load_rules.config import LoadConfig
from geminga.broker.load_rules.reports import LoadRates


class AverageShedding:
    """Brokers are paired by their usage, the first with the last; each pair that differs for long enough evens out."""

    def __init__(self) -> None:
        #: Rounds in a row in which a broker differed from its partner, by the two thresholds.
        self._low_hits: dict[str, int] = {}
        self._high_hits: dict[str, int] = {}

    def choose(self, cluster: ClusterLoad, moved_lately: Collection[str], config: LoadConfig) -> list[Move]:
        """What is to move in this round, with the broker that it is to go to."""
        scores = {one: cluster.reports[one].usage.largest_share(config.weights) * 100 for one in cluster.brokers}
        brokers = sorted(scores, key=lambda broker: (scores[broker], broker))
        pairs: list[tuple[str, str]] = []
        low_hits: dict[str, int] = {}
        high_hits: dict[str, int] = {}
        for idle, busy in zip(brokers, reversed(brokers[len(brokers) // 2 :]), strict=False):
            difference = scores[busy] - scores[idle]
            if idle == busy or difference < config.average_low_percent:
                continue
            pairs.append((idle, busy))
            for broker in (idle, busy):
                low_hits[broker] = self._low_hits.get(broker, 0) + 1
                if difference >= config.average_high_percent:
                    high_hits[broker] = self._high_hits.get(broker, 0) + 1
        self._low_hits, self._high_hits = low_hits, high_hits
        moves: list[Move] = []
        for idle, busy in pairs:
            if self._is_due(idle, config) or self._is_due(busy, config):
                for broker in (idle, busy):
                    self._low_hits.pop(broker, None)
                    self._high_hits.pop(broker, None)
                moves += _even_out(cluster, idle, busy, moved_lately, config)
        return moves

    def _is_due(self, broker: str, config: LoadConfig) -> bool:
        low, high = self._low_hits.get(broker, 0), self._high_hits.get(broker, 0)
        return high >= config.average_high_hits or low >= config.average_low_hits


def _even_out(
    cluster: ClusterLoad, idle: str, busy: str, moved_lately: Collection[str], config: LoadConfig
) -> list[Move]:
    more, less = cluster.reports[busy].rates, cluster.reports[idle].rates
    messages = (more.messages - less.messages) * config.unload_part_max
    bytes_ = (more.bytes - less.bytes) * config.unload_part_max
    value_of: Callable[[LoadRates], float]
    if messages > config.unload_messages_least:
        to_move, value_of = messages, lambda rates: rates.messages
    elif bytes_ > config.unload_bytes_least:
        to_move, value_of = bytes_, lambda rates: rates.bytes
    else:
        return []
    rates = sheddable(cluster, busy, moved_lately)
    moves: list[Move] = []
    for bundle in sorted(rates, key=lambda bundle: (-value_of(rates[bundle]), bundle)):
        if 0 < value_of(rates[bundle]) <= to_move:
            to_move -= value_of(rates[bundle])
            moves.append(Move(bundle, busy, idle))
    return moves

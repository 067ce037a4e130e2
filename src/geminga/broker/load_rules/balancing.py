"""What the leader decides, round by round: histories, promises, moves and splits. Pure but for what it remembers.

Time (seconds, of any beginning) and draws are passed in. Whoever carries a move out says when it happened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from geminga.broker.load_rules.candidates import may_leave, permitted
from geminga.broker.load_rules.cluster_load import ClusterLoad, Move, Rules, scale_of
from geminga.broker.load_rules.config import LoadConfig
from geminga.broker.load_rules.histories import UNSEEN, BundleData
from geminga.broker.load_rules.members import namespace_of
from geminga.broker.load_rules.placement import BrokerChoice
from geminga.broker.load_rules.reports import BrokerReport
from geminga.broker.load_rules.shedding import shedding_of
from geminga.broker.load_rules.splitting import Split, splits

#: A bundle that was promised to a broker counts there for so long, or until a broker reports it.
PROMISE_S: Final = 60.0


class Balancing:
    """See the module."""

    def __init__(self, config: LoadConfig) -> None:
        self._config = config
        self._strategy = config.shedding
        self._shedding = shedding_of(config)
        self._choice = BrokerChoice(config)
        self._reports: dict[str, BrokerReport] = {}
        self._bundles: dict[str, BundleData] = {}
        #: Bundle to (broker, until when).
        self._promised: dict[str, tuple[str, float]] = {}
        #: Bundle to when it was moved.
        self._moved: dict[str, float] = {}
        #: Who was there in the round before.
        self._members: frozenset[str] = frozenset()
        #: As :meth:`cluster` says, followed while bundles are promised: thousands may be asked for one after the other.
        self._now: ClusterLoad | None = None

    @property
    def reports(self) -> Mapping[str, BrokerReport]:
        """Of the brokers that are there."""
        return self._reports

    @property
    def bundles(self) -> Mapping[str, BundleData]:
        """What is remembered of each bundle that a broker reports."""
        return self._bundles

    def unseen(self, reports: Mapping[str, BrokerReport]) -> set[str]:
        """Bundles of which nothing is remembered: who asks may know something from before."""
        return {bundle for report in reports.values() for bundle in report.stats} - self._bundles.keys()

    def update(self, reports: Mapping[str, BrokerReport], known: Mapping[str, BundleData], now_s: float) -> None:
        """These brokers are there and said so: one more sample of each bundle. ``known``: see :meth:`unseen`."""
        self._now = None
        self._reports = dict(reports)
        bundles: dict[str, BundleData] = {}
        for broker in sorted(reports):
            for bundle, stats in reports[broker].stats.items():
                before = bundles.get(bundle) or self._bundles.get(bundle) or known.get(bundle) or UNSEEN
                bundles[bundle] = before.with_sample(stats)
        self._bundles = bundles
        self._promised = {
            bundle: (broker, until_s)
            for bundle, (broker, until_s) in self._promised.items()
            if until_s > now_s and broker in reports and bundle not in reports[broker].stats
        }
        grace_s = self._config.grace_minutes * 60
        # What was decided without a broker that joined since may be decided anew: its share is with one of the others.
        has_joined = not reports.keys() <= self._members
        self._members = frozenset(reports)
        self._moved = {
            bundle: at_s for bundle, at_s in self._moved.items() if now_s - at_s <= grace_s and not has_joined
        }

    def see(self, reports: Mapping[str, BrokerReport]) -> None:
        """These brokers are there: no sample."""
        if reports.keys() != self._reports.keys() or any(
            report is not self._reports[name] for name, report in reports.items()
        ):
            self._reports = dict(reports)
            self._now = None

    def cluster(self) -> ClusterLoad:
        """As it is now, promises included."""
        promised = {bundle: broker for bundle, (broker, _) in self._promised.items()}
        return ClusterLoad(self._reports, self._bundles, promised)

    def assign(self, bundle: str, rules: Rules, now_s: float, draw: int, *, is_persistent: bool = True) -> str | None:
        """The broker that is to take a bundle that nobody has; who was promised it before has it no more."""
        if self._now is None:
            self._now = self.cluster()
        if self._promised.pop(bundle, None) is not None:
            self._now.withdraw(bundle)
        broker = self._choice.choose(bundle, self._now, rules, draw, is_persistent=is_persistent)
        if broker is not None:
            self.promise(bundle, broker, now_s)
        return broker

    def promise(self, bundle: str, broker: str, now_s: float) -> None:
        """It counts there, and is to go there, until a broker reports it or for :data:`PROMISE_S`."""
        self._promised[bundle] = (broker, now_s + PROMISE_S)
        if self._now is None or broker not in self._now.reports:
            self._now = None
        else:
            self._now.assign(bundle, broker)

    def shed(self, rules: Rules, draws: Iterator[int], moves_max: int | None = None) -> list[Move]:
        """What is to move now, each with its destination; ``moves_max``: no more than that.

        A bundle moves only to a broker that will carry less than its present one does: so each move makes the cluster
        more even, and what moved never comes back while nothing else changes. Moves of one round count for the next.
        """
        if len(self._reports) < 2:
            return []
        config = self._config
        cluster = self.cluster()
        scale = scale_of(data.short.rates for data in self._bundles.values())
        loads = {broker: scale.load(cluster.short_rates(broker)) for broker in cluster.brokers}
        moves: list[Move] = []
        if self._strategy != config.shedding:
            # Changed at run time: the other one begins anew.
            self._strategy, self._shedding = config.shedding, shedding_of(config)
        for move in self._shedding.choose(cluster, self._moved.keys(), config):
            bundle, source = move.bundle, move.source
            if namespace_of(bundle) in config.excluded_namespaces or not may_leave(bundle, source, cluster, rules):
                continue
            destination: str | None = move.destination
            if destination not in permitted(bundle, cluster, rules):
                destination = self._choice.choose(bundle, cluster, rules, next(draws))
            load = scale.load(cluster.data(bundle).short.rates)
            if destination is None or destination == source or loads[destination] + load >= loads[source]:
                continue
            cluster.assign(bundle, destination)
            loads[source] -= load
            loads[destination] += load
            moves.append(Move(bundle, source, destination))
            if len(moves) == moves_max:
                break
        return moves

    def moved(self, move: Move, now_s: float) -> None:
        """It was carried out: it is left where it is for a while, and promised to where it went."""
        self._moved[move.bundle] = now_s
        self.promise(move.bundle, move.destination, now_s)

    def splits(self, bundle_counts: Mapping[str, int]) -> list[Split]:
        """What is to be split now; ``bundle_counts``: how many bundles each namespace has."""
        return splits(self.cluster(), bundle_counts, self._config) if len(self._reports) > 1 else []

    def forget(self, bundle: str) -> None:
        """It was split: nothing is remembered of it."""
        self._bundles.pop(bundle, None)
        self._promised.pop(bundle, None)
        self._now = None

"""What a broker's bundles carry, from the counters of its topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from geminga.broker.load.core.reports import BundleStats, Rates
from geminga.broker.ownership.core.bundles import Bundle, BundleIndex, topic_hash

#: Rates are taken over so long, so that a report is not news for a burst.
WINDOW_S: Final = 30.0


class TopicCounters(NamedTuple):
    """Of one topic, since it was loaded."""

    #: In full.
    name: str
    namespace: str
    totals: Rates
    producers: int
    consumers: int


class LoadMeter:
    """Rates of a window, counts of now; a ``ports.StatsSource``."""

    def __init__(
        self,
        monotonic: Callable[[], float],
        owned: Callable[[], Iterable[Bundle]],
        topics: Callable[[], Iterable[TopicCounters]],
    ) -> None:
        self._monotonic = monotonic
        self._owned = owned
        self._topics = topics
        self._since_s = monotonic()
        self._before: dict[str, Rates] = {}
        #: By topic, of the last window.
        self._rates: dict[str, Rates] = {}

    def __call__(self) -> Mapping[str, BundleStats]:
        """Bundles of this broker that have topics here."""
        topics = list(self._topics())
        elapsed_s = self._monotonic() - self._since_s
        if elapsed_s >= WINDOW_S:
            self._rates = {topic.name: self._rate(topic, elapsed_s) for topic in topics}
            self._before = {topic.name: topic.totals for topic in topics}
            self._since_s += elapsed_s
        owned = BundleIndex(self._owned())
        stats: dict[str, BundleStats] = {}
        for topic in topics:
            bundle = owned.find_hash(topic.namespace, topic_hash(topic.name))
            if bundle is not None:
                name = str(bundle)
                stats[name] = _with(stats.get(name, BundleStats()), topic, self._rates.get(topic.name, Rates()))
        return stats

    def _rate(self, topic: TopicCounters, elapsed_s: float) -> Rates:
        before = self._before.get(topic.name, Rates())
        if any(now < then for now, then in zip(topic.totals, before, strict=True)):
            # It was loaded anew.
            before = Rates()
        return Rates(*((now - then) / elapsed_s for now, then in zip(topic.totals, before, strict=True)))


def _with(stats: BundleStats, topic: TopicCounters, rates: Rates) -> BundleStats:
    return BundleStats(
        stats.rates.plus(rates),
        stats.consumers + topic.consumers,
        stats.producers + topic.producers,
        stats.topics + 1,
    )

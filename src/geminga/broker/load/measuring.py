"""What a broker's bundles carry, from the counters of its topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from geminga.broker.load_rules.reports import BundleStats, LoadRates
from geminga.broker.ownership.core.bundles import Bundle, BundleIndex, topic_hash
from geminga.runtime import next_turn

#: Rates are taken over so long, so that a report is not news for a burst.
WINDOW_S: Final = 30.0
#: Counted before others have their turn.
TOPICS_PER_TURN: Final = 256


class TopicCounters(NamedTuple):
    """Of one topic, since it was loaded."""

    #: In full.
    name: str
    namespace: str
    totals: LoadRates
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
        """``topics``: read while others have their turns."""
        self._monotonic = monotonic
        self._owned = owned
        self._topics = topics
        self._since_s = monotonic()
        self._before: dict[str, LoadRates] = {}
        #: By topic, of the last window.
        self._rates: dict[str, LoadRates] = {}

    async def __call__(self) -> Mapping[str, BundleStats]:
        """Bundles of this broker that have topics here. In turns of the loop: it may have very many topics."""
        elapsed_s = self._monotonic() - self._since_s
        is_over = elapsed_s >= WINDOW_S
        if is_over:
            self._since_s += elapsed_s
        owned = BundleIndex(self._owned())
        sums: dict[Bundle, _Sum] = {}
        rates_now: dict[str, LoadRates] = {}
        before_now: dict[str, LoadRates] = {}
        for number, topic in enumerate(self._topics(), 1):
            if is_over:
                rates_now[topic.name] = self._rate(topic, elapsed_s)
                before_now[topic.name] = topic.totals
            bundle = owned.find_hash(topic.namespace, topic_hash(topic.name))
            if bundle is not None:
                found = sums.get(bundle)
                if found is None:
                    found = sums[bundle] = _Sum()
                found.add(topic, rates_now.get(topic.name) if is_over else self._rates.get(topic.name))
            if not number % TOPICS_PER_TURN:
                await next_turn()
        if is_over:
            self._rates, self._before = rates_now, before_now
        return {str(bundle): found.stats() for bundle, found in sums.items()}

    def _rate(self, topic: TopicCounters, elapsed_s: float) -> LoadRates:
        before = self._before.get(topic.name, LoadRates())
        if any(now < then for now, then in zip(topic.totals, before, strict=True)):
            # It was loaded anew.
            before = LoadRates()
        return LoadRates(*((now - then) / elapsed_s for now, then in zip(topic.totals, before, strict=True)))


class _Sum:
    """Of the topics of one bundle."""

    __slots__ = ("consumers", "producers", "rates", "topics")

    def __init__(self) -> None:
        self.rates = [0.0, 0.0, 0.0, 0.0]
        self.consumers = self.producers = self.topics = 0

    def add(self, topic: TopicCounters, rates: LoadRates | None) -> None:
        """None: of no window yet."""
        if rates is not None:
            for index, value in enumerate(rates):
                self.rates[index] += value
        self.consumers += topic.consumers
        self.producers += topic.producers
        self.topics += 1

    def stats(self) -> BundleStats:
        return BundleStats(LoadRates(*self.rates), self.consumers, self.producers, self.topics)

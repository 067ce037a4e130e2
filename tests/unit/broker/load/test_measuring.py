"""Rates and counts of bundles come from the counters of topics."""

from __future__ import annotations

from geminga.broker.load.core.reports import BundleStats, Rates
from geminga.broker.load.measuring import WINDOW_S, LoadMeter, TopicCounters
from geminga.broker.ownership.core.bundles import equal_bundles

BUNDLES = equal_bundles("public/default", 4)
ONE, TWO = "persistent://public/default/one", "persistent://public/default/two"


def test_rates_are_those_of_a_window_and_counts_of_now() -> None:
    now = [0.0]
    topics = [TopicCounters(ONE, "public/default", Rates(0, 0, 0, 0), 1, 2)]
    owned = BUNDLES.all()
    meter = LoadMeter(lambda: now[0], lambda: owned, lambda: topics)
    first, second = str(BUNDLES.all()[0]), str(BUNDLES.all()[1])
    assert meter() == {first: BundleStats(Rates(), 2, 1, 1)}
    topics[0] = topics[0]._replace(totals=Rates(300, 600, 3000, 6000))
    topics.append(TopicCounters(TWO, "public/default", Rates(30, 0, 0, 0), 0, 0))
    now[0] = WINDOW_S - 1
    assert meter()[first].rates == Rates()
    now[0] = WINDOW_S
    assert meter() == {
        first: BundleStats(Rates(10, 20, 100, 200), 2, 1, 1),
        second: BundleStats(Rates(1), 0, 0, 1),
    }
    # Loaded anew: its counters begin again.
    topics[0] = topics[0]._replace(totals=Rates(60, 0, 0, 0))
    now[0] = 2 * WINDOW_S
    assert meter()[first].rates == Rates(2)
    owned = owned[1:]
    assert set(meter()) == {second}

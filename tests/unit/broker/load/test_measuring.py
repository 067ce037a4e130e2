"""Rates and counts of bundles come from the counters of topics."""

from __future__ import annotations

from geminga.broker.load.core.reports import BundleStats, Rates
from geminga.broker.load.measuring import WINDOW_S, LoadMeter, TopicCounters
from geminga.broker.ownership.core.bundles import equal_bundles
from support.python_calls import counted_calls

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


def test_a_report_does_not_hold_the_loop_for_each_bundle_and_topic() -> None:
    """Each topic was held against each bundle that the broker owned: 10,000 of one, 64 of the other, every report."""
    owned = equal_bundles("public/default", 4096).all()
    topics = [
        TopicCounters(f"persistent://public/default/{number}", "public/default", Rates(), 1, 1) for number in range(300)
    ]
    meter = LoadMeter(lambda: 0.0, lambda: owned, lambda: topics)
    with counted_calls() as calls:
        stats = meter()
    assert sum(one.topics for one in stats.values()) == len(topics)
    assert calls() < 30 * len(topics)

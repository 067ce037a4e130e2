"""Rates and counts of bundles come from the counters of topics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

from geminga.broker.load.measuring import TOPICS_PER_TURN, WINDOW_S, LoadMeter, TopicCounters
from geminga.broker.load_rules.reports import BundleStats, LoadRates
from geminga.broker.ownership.core.bundles import equal_bundles
from geminga.runtime import next_turn
from support.house.python_calls import counted_calls

BUNDLES = equal_bundles("public/default", 4)
ONE, TWO = "persistent://public/default/one", "persistent://public/default/two"


def measured(meter: LoadMeter) -> Mapping[str, BundleStats]:
    return asyncio.run(meter())


def test_rates_are_those_of_a_window_and_counts_of_now() -> None:
    now = [0.0]
    topics = [TopicCounters(ONE, "public/default", LoadRates(0, 0, 0, 0), 1, 2)]
    owned = BUNDLES.all()
    meter = LoadMeter(lambda: now[0], lambda: owned, lambda: topics)
    first, second = str(BUNDLES.all()[0]), str(BUNDLES.all()[1])
    assert measured(meter) == {first: BundleStats(LoadRates(), 2, 1, 1)}
    topics[0] = topics[0]._replace(totals=LoadRates(300, 600, 3000, 6000))
    topics.append(TopicCounters(TWO, "public/default", LoadRates(30, 0, 0, 0), 0, 0))
    now[0] = WINDOW_S - 1
    assert measured(meter)[first].rates == LoadRates()
    now[0] = WINDOW_S
    assert measured(meter) == {
        first: BundleStats(LoadRates(10, 20, 100, 200), 2, 1, 1),
        second: BundleStats(LoadRates(1), 0, 0, 1),
    }
    # Loaded anew: its counters begin again.
    topics[0] = topics[0]._replace(totals=LoadRates(60, 0, 0, 0))
    now[0] = 2 * WINDOW_S
    assert measured(meter)[first].rates == LoadRates(2)
    owned = owned[1:]
    assert set(measured(meter)) == {second}


def test_a_report_does_not_hold_the_loop_for_each_bundle_and_topic() -> None:
    """Each topic was held against each bundle that the broker owned: 10,000 of one, 64 of the other, every report."""
    owned = equal_bundles("public/default", 4096).all()
    topics = [
        TopicCounters(f"persistent://public/default/{number}", "public/default", LoadRates(), 1, 1)
        for number in range(300)
    ]
    meter = LoadMeter(lambda: 0.0, lambda: owned, lambda: topics)
    with counted_calls() as calls:
        stats = measured(meter)
        count = calls()
    assert sum(one.topics for one in stats.values()) == len(topics)
    # What asyncio.run does is in it.
    assert count < 40 * len(topics)


def test_others_have_their_turns_while_very_many_topics_are_counted_which_come_and_go() -> None:
    names = [f"persistent://public/default/{number}" for number in range(3 * TOPICS_PER_TURN)]
    read: list[str] = []
    now = [0.0]

    def topics() -> Iterator[TopicCounters]:
        for name in names:
            read.append(name)
            yield TopicCounters(name, "public/default", LoadRates(60 * now[0], 0, 0, 0), 1, 1)

    meter = LoadMeter(lambda: now[0], BUNDLES.all, topics)

    async def main() -> None:
        counting = asyncio.ensure_future(meter())
        seen = [0]
        while not counting.done():
            await next_turn()
            assert len(read) - seen[-1] <= TOPICS_PER_TURN
            seen.append(len(read))
        assert sum(one.topics for one in counting.result().values()) == len(names)
        # Those that are new count from the next window on.
        now[0] = WINDOW_S
        names.append("persistent://public/default/new")
        found = await meter()
        assert sum(one.topics for one in found.values()) == len(names)
        assert sum(one.rates.messages for one in found.values()) == 60 * len(names)

    asyncio.run(main())

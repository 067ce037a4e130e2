"""What is worth a report."""

from __future__ import annotations

from geminga.broker.load_rules.config import LoadConfig
from geminga.broker.load_rules.news import Said, is_news
from geminga.broker.load_rules.reports import BundleStats, HostUsage, LoadRates, Usage

CONFIG = LoadConfig()
NAME = "a/x/0x00000000_0xffffffff"


def news(before: LoadRates, after: LoadRates, *, usage: float = 50, at_s: float = 1, after_name: str = NAME) -> bool:
    said = Said(HostUsage(Usage(50, 100)), {NAME: BundleStats(before)}, 0)
    return is_news(said, HostUsage(Usage(usage, 100)), {after_name: BundleStats(after)}, at_s, CONFIG)


def test_changes_over_the_threshold_are_news() -> None:
    steady = LoadRates(50, 50, 1000, 1000)
    assert is_news(None, HostUsage(), {}, 0, CONFIG)
    assert not news(steady, steady)
    assert not news(steady, LoadRates(60, 50, 1100, 1100))
    assert news(steady, LoadRates(61, 50, 1000, 1000))
    assert news(steady, LoadRates(50, 50, 1000, 779))
    assert not news(steady, steady, usage=60)
    assert news(steady, steady, usage=61)
    assert news(LoadRates(), LoadRates(0.1))
    assert not news(LoadRates(), LoadRates())


def test_time_and_bundles_that_moved_are_news() -> None:
    assert not news(LoadRates(), LoadRates(), at_s=899)
    assert news(LoadRates(), LoadRates(), at_s=900)
    assert news(LoadRates(), LoadRates(), after_name="a/x/0x00000000_0x80000000")

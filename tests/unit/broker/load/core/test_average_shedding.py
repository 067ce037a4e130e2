"""AvgShedder: the first and the last even out, once they differed for long enough."""

from __future__ import annotations

from geminga.broker.load_rules.average_shedding import AverageShedding
from geminga.broker.load_rules.cluster_load import ClusterLoad, Move
from geminga.broker.load_rules.config import AVERAGE_SHEDDER, LoadConfig
from geminga.broker.load_rules.histories import UNSEEN
from geminga.broker.load_rules.reports import BrokerReport, BundleStats, HostUsage, LoadRates, Usage

CONFIG = LoadConfig(shedding=AVERAGE_SHEDDER, placement=AVERAGE_SHEDDER)


def cluster(**messages: list[float]) -> ClusterLoad:
    """Brokers by name, with what each of their bundles carries; 100 messages are a percent of a CPU."""
    reports: dict[str, BrokerReport] = {}
    for broker, rates in messages.items():
        stats = {f"a/{broker}/0x{at:08x}_0x{at + 1:08x}": BundleStats(LoadRates(rate)) for at, rate in enumerate(rates)}
        reports[broker] = BrokerReport(HostUsage(Usage(sum(rates) / 100, 100)), stats)
    data = {name: UNSEEN.with_sample(stats) for report in reports.values() for name, stats in report.stats.items()}
    return ClusterLoad(reports, data)


def test_the_busiest_gives_to_the_idlest_in_the_second_round() -> None:
    shedding = AverageShedding()
    uneven = cluster(b1=[6000, 700, 500], b2=[2000], b3=[])
    assert shedding.choose(uneven, (), CONFIG) == []
    assert shedding.choose(uneven, (), CONFIG) == [
        Move("a/b1/0x00000001_0x00000002", "b1", "b3"),
        Move("a/b1/0x00000002_0x00000003", "b1", "b3"),
    ]
    assert shedding.choose(uneven, (), CONFIG) == []


def test_a_small_difference_takes_eight_rounds() -> None:
    shedding = AverageShedding()
    uneven = cluster(b1=[6000, 700, 500], b2=[4000])
    config = LoadConfig(shedding=AVERAGE_SHEDDER, placement=AVERAGE_SHEDDER, unload_messages_least=100)
    rounds = [shedding.choose(uneven, (), config) for _ in range(8)]
    assert [len(moves) for moves in rounds] == [0] * 7 + [1]


def test_a_round_without_a_difference_begins_anew() -> None:
    shedding = AverageShedding()
    shedding.choose(cluster(b1=[6000, 700], b2=[]), (), CONFIG)
    assert shedding.choose(cluster(b1=[1000, 700], b2=[1000]), (), CONFIG) == []
    assert shedding.choose(cluster(b1=[6000, 700], b2=[]), (), CONFIG) == []

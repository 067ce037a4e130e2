"""Drawn reports of brokers over a few rounds, for strategies to decide about."""

from __future__ import annotations

import random
from typing import NamedTuple

from geminga.broker.load_rules.config import LoadConfig
from geminga.broker.load_rules.reports import BrokerReport, BundleStats, HostUsage, LoadRates, Usage


class ScenarioRound(NamedTuple):
    """What is known in one round."""

    reports: dict[str, BrokerReport]
    moved_lately: set[str]


class Scenario(NamedTuple):
    """Settings and rounds."""

    config: LoadConfig
    rounds: list[ScenarioRound]


def scenarios(strategy: str, placements: tuple[str, ...], count: int) -> list[Scenario]:
    """So many, the same ones each time."""
    return [_scenario(random.Random(seed), strategy, placements) for seed in range(count)]


def _scenario(rng: random.Random, strategy: str, placements: tuple[str, ...]) -> Scenario:
    config = LoadConfig(
        shedding=strategy,
        placement=rng.choice(placements),
        history_part=rng.choice([0.0, 0.5, 0.9]),
        unload_least_mb=rng.choice([0.0, 10.0]),
        sheds_to_idle=rng.random() < 0.5,
        unload_part_max=rng.choice([0.2, 0.5]),
        unload_messages_least=rng.choice([100, 1000]),
        average_high_hits=rng.choice([1, 2]),
    )
    return Scenario(config, [_round(rng) for _ in range(rng.randrange(1, 4))])


def _round(rng: random.Random) -> ScenarioRound:
    reports: dict[str, BrokerReport] = {}
    bundles: list[str] = []
    # Usages are points apart, since Apache's classes sort in whole points, and never at a threshold.
    usages = [cpu + rng.uniform(0.1, 0.4) for cpu in rng.sample(range(50, 100, 2), 4)]
    for broker, cpu in zip(["b1:1", "b2:1", "b3:1", "b4:1"], usages, strict=True):
        stats: dict[str, BundleStats] = {}
        for _ in range(rng.choice([0, 1, 2, 8])):
            namespace = rng.choice(["a/x", "b/y", "b/y", "pulsar/system", "pulsar/b1:1"])
            bundles.append(f"{namespace}/0x{len(bundles):08x}_0x{len(bundles) + 1:08x}")
            rate, size = rng.uniform(1, 20_000), rng.uniform(100, 5000)
            stats[bundles[-1]] = BundleStats(LoadRates(rate, 2 * rate, rate * size, 2 * rate * size), 1, 1, 3)
        usage = HostUsage(Usage(cpu, 100), Usage(99, 100), Usage(rng.randrange(100), 200), Usage(1, 7), Usage(2, 0))
        reports[broker] = BrokerReport(usage, stats)
    return ScenarioRound(reports, {bundle for bundle in bundles if rng.random() < 0.2})

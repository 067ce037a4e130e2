"""Clusters under uneven load, as traces: 64 bundles on one broker, then two more brokers join."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from geminga.broker.load_rules.config import UNIFORM_SHEDDER, LoadConfig
from geminga.broker.load_rules.replay import Capacity, Replay, RoundOutcome, TraceRound
from geminga.broker.load_rules.reports import BundleStats, LoadRates

BUNDLES: Final = 64
ROUNDS: Final = 10
CAPACITY: Final = Capacity(100_000, 100_000_000)
BROKERS: Final = ("b1:8080", "b2:8080", "b3:8080")

#: Pulsar's settings that reach 1.2 times the mean within ten rounds. Its defaults compare usage, in points.
BALANCED: Final[Mapping[str, str]] = {
    "loadBalancerLoadSheddingStrategy": UNIFORM_SHEDDER,
    "loadBalancerMsgRateDifferenceShedderThreshold": "10",
    "loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold": "1.1",
    "maxUnloadPercentage": "0.5",
    "minUnloadMessage": "1",
    "minUnloadMessageThroughput": "1",
    "loadBalancerDistributeBundlesEvenlyEnabled": "false",
}
#: Sheds alone: where bundles are placed is another matter.
SHEDDING_CONFIG: Final = LoadConfig(
    shedding=UNIFORM_SHEDDER,
    uniform_messages_percent=10,
    uniform_bytes_factor=1.1,
    unload_part_max=0.5,
    unload_messages_least=1,
    unload_bytes_least=1,
)
BALANCED_CONFIG: Final = replace(SHEDDING_CONFIG, distributes_evenly=False)

Pattern = Callable[[random.Random], Sequence[float]]
#: How much each of the bundles carries, in parts of nothing in particular.
PATTERNS: Final[Mapping[str, Pattern]] = {
    "all equal": lambda rng: [1.0] * BUNDLES,
    "one to ten": lambda rng: [rng.uniform(1, 10) for _ in range(BUNDLES)],
    "exponential": lambda rng: [rng.expovariate(1) for _ in range(BUNDLES)],
    "zipf": lambda rng: [1 / (rank + 1) for rank in rng.sample(range(BUNDLES), BUNDLES)],
    "one has half": lambda rng: [BUNDLES - 1.0] + [1.0] * (BUNDLES - 1),
    "pareto": lambda rng: [rng.paretovariate(1.2) for _ in range(BUNDLES)],
    "six carry all": lambda rng: [1.0] * 6 + [0.0] * (BUNDLES - 6),
    "no load": lambda rng: [0.0] * BUNDLES,
    "first half busy": lambda rng: [9.0] * (BUNDLES // 2) + [1.0] * (BUNDLES // 2),
    "second half busy": lambda rng: [1.0] * (BUNDLES // 2) + [9.0] * (BUNDLES // 2),
}


def bundle_names(count: int = BUNDLES) -> list[str]:
    """Of one namespace."""
    size = (1 << 32) // count
    ends = [index * size for index in range(count)] + [0xFFFFFFFF]
    return [f"public/default/0x{ends[index]:08x}_0x{ends[index + 1]:08x}" for index in range(count)]


def draws_of(seed: int) -> Iterator[int]:
    """Draws without an end."""
    rng = random.Random(seed)
    while True:
        yield rng.randrange(1 << 30)


def stats_of(pattern: str, seed: int, messages: float) -> dict[str, BundleStats]:
    """Bundles that carry ``messages`` a second together, of 500 to 1,500 bytes each."""
    rng = random.Random(seed)
    weights = PATTERNS[pattern](rng)
    total = sum(weights) or 1.0
    stats: dict[str, BundleStats] = {}
    for name, weight in zip(bundle_names(), weights, strict=True):
        rate = messages * weight / total / 2
        size = rng.uniform(500, 1500)
        stats[name] = BundleStats(LoadRates(rate, rate, rate * size, rate * size), 1, 1, 10)
    return stats


def joined(replay: Replay, stats: Mapping[str, BundleStats], rounds: int = ROUNDS) -> list[RoundOutcome]:
    """One broker has all; two more join; so many rounds."""
    replay.step(TraceRound({BROKERS[0]: CAPACITY}, stats))
    three = TraceRound(dict.fromkeys(BROKERS, CAPACITY))
    return [replay.step(three if number == 0 else TraceRound()) for number in range(rounds)]


def largest_part(stats: Mapping[str, BundleStats]) -> float:
    """Of the largest bundle, in parts of what one of three brokers carries in the mean."""
    parts: list[float] = []
    for values in ([one.rates.messages for one in stats.values()], [one.rates.bytes for one in stats.values()]):
        parts.append(max(values) * len(BROKERS) / (sum(values) or 1.0))
    return max(parts)


def moves_of(outcomes: Sequence[RoundOutcome]) -> list[str]:
    """Bundles that moved, as often as they did."""
    return [move.bundle for outcome in outcomes for move in outcome.moves]

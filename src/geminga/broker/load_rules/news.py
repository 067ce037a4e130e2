"""Whether a broker's load changed so much that others are to hear of it. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from geminga.broker.load_rules.config import LoadConfig
from geminga.broker.load_rules.reports import BundleStats, HostUsage, sum_of


class Said(NamedTuple):
    """What a broker said last."""

    usage: HostUsage
    stats: Mapping[str, BundleStats]
    #: Monotonic.
    at_s: float


def is_news(
    said: Said | None, usage: HostUsage, stats: Mapping[str, BundleStats], now_s: float, config: LoadConfig
) -> bool:
    """Whether to say it now: a change by more than a threshold, bundles that came or went, or the longest interval."""
    if said is None or now_s - said.at_s >= config.report_interval_max_minutes * 60:
        return True
    if said.stats.keys() != stats.keys():
        # In Pulsar one of many is no news; a bundle that moved would count at two brokers then.
        return True
    before, after = (sum_of(one.rates for one in each.values()) for each in (said.stats, stats))
    changes = (
        _percent(before.messages, after.messages),
        _percent(before.bytes, after.bytes),
        100 * abs(said.usage.largest_share(config.weights) - usage.largest_share(config.weights)),
    )
    return max(changes) > config.report_threshold_percent


def _percent(before: float, after: float) -> float:
    if before == 0:
        return 0.0 if after == 0 else math.inf
    return 100 * abs(after - before) / before

"""Where a bundle is cut: the four algorithms, by Pulsar's names. Pure.

Each returns keys for :meth:`Bundles.with_split`; none where it sees no reason or no way, which is no error:
``docs/formats/namespace-bundles.md`` says when.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from geminga.broker.ownership.core.bundles import Bundle, shown, topic_hash
from geminga.model.errors import PreconditionFailedError

RANGE_EQUALLY_DIVIDE: Final = "range_equally_divide"
TOPIC_COUNT_EQUALLY_DIVIDE: Final = "topic_count_equally_divide"
SPECIFIED_POSITIONS_DIVIDE: Final = "specified_positions_divide"
FLOW_OR_QPS_EQUALLY_DIVIDE: Final = "flow_or_qps_equally_divide"
ALGORITHMS: Final = (
    RANGE_EQUALLY_DIVIDE,
    TOPIC_COUNT_EQUALLY_DIVIDE,
    SPECIFIED_POSITIONS_DIVIDE,
    FLOW_OR_QPS_EQUALLY_DIVIDE,
)
_MIB: Final = 1024 * 1024


class TopicLoad(NamedTuple):
    """What goes through a topic, in and out together."""

    messages_per_s: float
    bytes_per_s: float


class FlowLimits(NamedTuple):
    """When a bundle carries too much; the defaults are Pulsar's."""

    #: ``loadBalancerNamespaceBundleMaxMsgRate``.
    messages_per_s_max: float = 30_000
    #: ``loadBalancerNamespaceBundleMaxBandwidthMbytes``.
    bandwidth_mib_max: float = 100
    #: ``flowOrQpsDifferenceThresholdPercentage``: how far beyond before anything is done.
    threshold_percent: float = 10

    @property
    def bytes_per_s_max(self) -> float:
        """Of one bundle."""
        return self.bandwidth_mib_max * _MIB


def split_keys(
    algorithm: str,
    bundle: Bundle,
    topics: Mapping[str, TopicLoad],
    positions: Sequence[int] = (),
    limits: FlowLimits | None = None,
) -> list[int]:
    """``topics``: the full names of those that are loaded from the bundle. Raises PreconditionFailedError.

    ``positions``: hashes, which only ``specified_positions_divide`` takes.
    """
    if positions and algorithm != SPECIFIED_POSITIONS_DIVIDE:
        raise PreconditionFailedError(f"positions are for {SPECIFIED_POSITIONS_DIVIDE}, not for {shown(algorithm)}")
    if algorithm == RANGE_EQUALLY_DIVIDE:
        return within(bundle, [bundle.lower + (bundle.upper - bundle.lower) // 2])
    if algorithm == TOPIC_COUNT_EQUALLY_DIVIDE:
        return within(bundle, _between_halves([topic_hash(name) for name in topics]))
    if algorithm == SPECIFIED_POSITIONS_DIVIDE:
        if not positions:
            raise PreconditionFailedError(f"{SPECIFIED_POSITIONS_DIVIDE} needs the positions to split at")
        return within(bundle, positions) if len(topics) > 1 else []
    if algorithm == FLOW_OR_QPS_EQUALLY_DIVIDE:
        return within(bundle, _by_flow(topics, limits or FlowLimits()))
    raise PreconditionFailedError(f"bundles are split by one of {', '.join(ALGORITHMS)}, not by {shown(algorithm)}")


def within(bundle: Bundle, keys: Iterable[int]) -> list[int]:
    """Those that cut something off, ascending, each once."""
    return sorted({key for key in keys if bundle.lower < key < bundle.upper})


def _between_halves(hashes: list[int]) -> list[int]:
    if len(hashes) < 2:
        return []
    hashes.sort()
    below, above = hashes[len(hashes) // 2 - 1], hashes[len(hashes) // 2]
    return [below + (above - below) // 2]


def _by_flow(topics: Mapping[str, TopicLoad], limits: FlowLimits) -> list[int]:
    """Cut wherever one topic more would be too much for what was gathered since the cut before."""
    loads: dict[int, TopicLoad] = {}
    for name, load in topics.items():
        if load.messages_per_s > 0 or load.bytes_per_s > 0:
            key = topic_hash(name)
            before = loads.get(key, TopicLoad(0, 0))
            loads[key] = TopicLoad(before.messages_per_s + load.messages_per_s, before.bytes_per_s + load.bytes_per_s)
    factor = 1 + limits.threshold_percent / 100
    total = _sum(loads.values())
    is_much = (
        total.messages_per_s >= limits.messages_per_s_max * factor
        or total.bytes_per_s >= limits.bytes_per_s_max * factor
    )
    if len(loads) < 2 or not is_much:
        return []
    hashes = sorted(loads)
    keys: list[int] = []
    gathered = loads[hashes[0]]
    for below, above in itertools.pairwise(hashes):
        more = _sum((gathered, loads[above]))
        if more.messages_per_s > limits.messages_per_s_max or more.bytes_per_s > limits.bytes_per_s_max:
            keys.append(below + (above - below) // 2 + 1)
            gathered = loads[above]
        else:
            gathered = more
    return keys


def _sum(loads: Iterable[TopicLoad]) -> TopicLoad:
    messages = size = 0.0
    for load in loads:
        messages += load.messages_per_s
        size += load.bytes_per_s
    return TopicLoad(messages, size)

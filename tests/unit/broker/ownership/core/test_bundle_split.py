"""Where the four algorithms cut a bundle."""

from __future__ import annotations

import itertools

import pytest

from geminga.broker.ownership.core.bundle_split import (
    FLOW_OR_QPS_EQUALLY_DIVIDE,
    RANGE_EQUALLY_DIVIDE,
    SPECIFIED_POSITIONS_DIVIDE,
    TOPIC_COUNT_EQUALLY_DIVIDE,
    FlowLimits,
    TopicLoad,
    split_keys,
)
from geminga.broker.ownership.core.bundles import LAST_HASH, Bundle, topic_hash
from geminga.model.errors import PreconditionFailedError

ALL = Bundle("a/b", 0, LAST_HASH)
#: Ascending by hash.
NAMES = sorted((f"persistent://a/b/{number}" for number in range(6)), key=topic_hash)
HASHES = [topic_hash(name) for name in NAMES]


def loads(*messages_per_s: float) -> dict[str, TopicLoad]:
    return {name: TopicLoad(rate, 0) for name, rate in zip(NAMES, messages_per_s, strict=False)}


def test_by_range_whatever_there_is() -> None:
    assert split_keys(RANGE_EQUALLY_DIVIDE, ALL, {}) == [0x7FFFFFFF]
    assert split_keys(RANGE_EQUALLY_DIVIDE, Bundle("a/b", 0, 0x40000000), {}) == [0x20000000]
    assert split_keys(RANGE_EQUALLY_DIVIDE, Bundle("a/b", 4, 5), {}) == []


def test_by_number_of_topics_between_the_halves() -> None:
    assert split_keys(TOPIC_COUNT_EQUALLY_DIVIDE, ALL, loads(0)) == []
    middle = HASHES[2] + (HASHES[3] - HASHES[2]) // 2
    assert split_keys(TOPIC_COUNT_EQUALLY_DIVIDE, ALL, loads(*[0] * 6)) == [middle]
    assert split_keys(TOPIC_COUNT_EQUALLY_DIVIDE, ALL, loads(0, 0)) == [HASHES[0] + (HASHES[1] - HASHES[0]) // 2]


def test_at_positions_that_lie_within() -> None:
    bundle = Bundle("a/b", 10, 20)
    assert split_keys(SPECIFIED_POSITIONS_DIVIDE, bundle, loads(0, 0), [15, 10, 12, 99, 20, 12]) == [12, 15]
    assert split_keys(SPECIFIED_POSITIONS_DIVIDE, bundle, loads(0), [15]) == []


def test_by_flow_wherever_one_more_is_too_much() -> None:
    limits = FlowLimits(messages_per_s_max=10, bandwidth_mib_max=1, threshold_percent=10)
    keys = split_keys(FLOW_OR_QPS_EQUALLY_DIVIDE, ALL, loads(6, 4, 1, 30, 0, 2), limits=limits)
    bounds = [0, *keys, LAST_HASH + 1]
    groups = [
        [index for index, value in enumerate(HASHES) if lower <= value < upper]
        for lower, upper in itertools.pairwise(bounds)
    ]
    assert groups == [[0, 1], [2], [3], [4, 5]] or groups == [[0, 1], [2], [3, 4], [5]]
    assert split_keys(FLOW_OR_QPS_EQUALLY_DIVIDE, ALL, loads(5, 5.9), limits=limits) == []
    assert split_keys(FLOW_OR_QPS_EQUALLY_DIVIDE, ALL, loads(50), limits=limits) == []
    assert split_keys(FLOW_OR_QPS_EQUALLY_DIVIDE, ALL, loads(11, 0), limits=limits) == []
    heavy = {name: TopicLoad(0, 600 * 1024) for name in NAMES[:2]}
    assert split_keys(FLOW_OR_QPS_EQUALLY_DIVIDE, ALL, heavy, limits=limits) == [
        HASHES[0] + (HASHES[1] - HASHES[0]) // 2 + 1
    ]


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(PreconditionFailedError, match=r"one of range_equally_divide, .* not by 'by_hand'"):
        split_keys("by_hand", ALL, {})
    with pytest.raises(PreconditionFailedError, match="needs the positions"):
        split_keys(SPECIFIED_POSITIONS_DIVIDE, ALL, loads(0, 0))
    with pytest.raises(PreconditionFailedError, match="positions are for specified_positions_divide"):
        split_keys(RANGE_EQUALLY_DIVIDE, ALL, {}, [5])

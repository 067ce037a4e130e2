"""Quotas of bundles: what an operator says, where it is kept, and that the leader reads it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.broker.core.coercion import BodyError, encode_document
from geminga.broker.load.stored_histories import StoredHistories
from geminga.broker.load_rules.histories import decode_quota, quota_path
from geminga.broker.load_rules.members import AMOUNT_MAX
from geminga.broker.resources.bundle_quotas import INITIAL, NUMBERS, BundleQuotas, checked_quota
from geminga.broker.resources.documents import DocumentStore
from geminga.model.errors import NotFoundError, PreconditionFailedError
from support.worlds.broker_world import BrokerWorld
from support.worlds.policy_levels import run_quietly

BUNDLE = "public/default/0x00000000_0x40000000"
OTHER = "public/default/0x40000000_0x80000000"


def test_a_bundles_own_quota_goes_before_the_default_and_leaves_it_when_it_is_removed() -> None:
    async def scenario(world: BrokerWorld) -> None:
        metadata = world.metadata
        quotas = BundleQuotas(DocumentStore(metadata))
        assert await quotas.get(BUNDLE) == await quotas.default() == INITIAL
        own, default = checked_quota({"msgRateIn": 7, "dynamic": False}), checked_quota({"memory": "3.5"})
        for _ in range(2):
            await quotas.set(BUNDLE, own)
            await quotas.set_default(default)
            assert await quotas.get(BUNDLE) == own
            assert await quotas.get(OTHER) == await quotas.default() == default
        found = await StoredHistories(metadata).read([BUNDLE, OTHER])
        assert found.keys() == {BUNDLE}
        assert found[BUNDLE].long.rates.messages_in == 7
        await quotas.remove(BUNDLE)
        assert await quotas.get(BUNDLE) == default
        with pytest.raises(NotFoundError, match=quota_path(BUNDLE)):
            await quotas.remove(BUNDLE)

    run_quietly(scenario)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(NUMBERS, st.floats(0, 1e300) | st.integers(0, 2**63))))
def test_every_amount_is_one_that_the_leader_can_read(given_: dict[str, Any]) -> None:
    quota = checked_quota(given_)
    assert [quota[name] for name in NUMBERS] == [float(given_.get(name, 0)) for name in NUMBERS]
    rates = decode_quota("/path", encode_document(quota)).short.rates
    assert [*rates] == [min(quota[name], AMOUNT_MAX) for name in NUMBERS[:4]]


@pytest.mark.parametrize("value", [-1, -1e-9, "-3", math.inf, "1e999", "Infinity"])
def test_less_than_nothing_and_what_has_no_end_is_refused(value: object) -> None:
    with pytest.raises(PreconditionFailedError, match="memory must be 0 or more, and finite"):
        checked_quota({"memory": value})  # type: ignore[dict-item]


@pytest.mark.parametrize("value", ["x", "", [], {}, True, math.nan, "nan", 10**400])
def test_what_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(BodyError, match="bandwidthIn must be a number"):
        checked_quota({"bandwidthIn": value})  # type: ignore[dict-item]


@pytest.mark.parametrize("body", [None, [], "x", 3])
def test_what_is_no_object_is_refused(body: object) -> None:
    with pytest.raises(BodyError, match="the body must be a JSON object"):
        checked_quota(body)  # type: ignore[arg-type]

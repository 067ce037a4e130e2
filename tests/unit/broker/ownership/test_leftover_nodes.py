"""Nodes of bundles that a failed attempt left: nothing goes with them, and they do not stay."""

from __future__ import annotations

import asyncio

import pytest

from geminga.broker.ownership.bundle_ownership import ROUND_MS
from geminga.broker.ownership.core.bundles import Bundle, equal_bundles, whole
from geminga.broker.ownership.core.owner_data import owner_path
from geminga.broker.ownership.ports import HERE
from geminga.metadata.core.faults import WriteFault
from geminga.model.errors import MetadataError, UnavailableError
from support.clusters.bundle_owners import NAMESPACE
from support.clusters.owning_pair import BUNDLE, NEXT, OTHER, Pair, run_pair, split
from support.house.weekly_sample import sampled


def test_a_node_that_an_attempt_left_is_taken_away_later():
    async def story(pair: Pair):
        pair.a.placed = NEXT
        assert await pair.a.ask() == NEXT
        pair.stores["a"].faults.watch_lost_percent = 100
        await pair.cut(whole(NAMESPACE))
        pair.stores["a"].faults.next_writes.extend([WriteFault.NONE, WriteFault.UNKNOWN_BEFORE])
        with pytest.raises(MetadataError):
            await pair.a.ask(is_authoritative=True)
        await pair.world.sleep((ROUND_MS + 100) / 1000)
        assert pair.server.tree.children(f"/namespace/{NAMESPACE}") == []

    run_pair(story)


def test_nodes_of_parts_that_a_split_left_are_taken_away_later():
    async def story(pair: Pair):
        assert await pair.a.ask() is HERE
        other = Bundle(NAMESPACE, 2, BUNDLE.upper)
        await pair.stores["b"].put(owner_path(other), OTHER, expected_version=-1, ephemeral=True)
        pair.stores["a"].faults.next_writes.extend([WriteFault.NONE, WriteFault.NONE, WriteFault.UNKNOWN_BEFORE])
        with pytest.raises(UnavailableError):
            await split(pair, [2])
        await pair.world.sleep((ROUND_MS + 100) / 1000)
        assert pair.server.tree.children(f"/namespace/{NAMESPACE}") == sorted([BUNDLE.range, other.range])
        assert await pair.a.ask() is HERE

    run_pair(story)


@pytest.mark.parametrize(
    "seed",
    sampled("leftover nodes", range(20), 7),
)
def test_a_leftover_that_is_asked_for_while_it_is_taken_away_is_not_served_without_its_node(seed):
    async def story(pair: Pair):
        pair.a.placed = NEXT
        assert await pair.a.ask() == NEXT
        faults = pair.stores["a"].faults
        faults.watch_lost_percent = 100
        await pair.cut(whole(NAMESPACE))
        faults.next_writes.extend([WriteFault.NONE, WriteFault.UNKNOWN_BEFORE])
        with pytest.raises(MetadataError):
            await pair.a.ask(is_authoritative=True)
        assert pair.owner() == "a"
        await pair.cut(equal_bundles(NAMESPACE, 4))
        faults.delay_ms_max = 40
        begins_s = ROUND_MS / 1000 - 0.05 + pair.world.rng("begins").uniform(0, 0.1)
        await pair.world.sleep(begins_s)
        asking = asyncio.ensure_future(pair.a.ask(is_authoritative=True))
        for _ in range(400):
            await pair.world.sleep(0.001)
            assert BUNDLE not in pair.a.ownership.owned or pair.owner() == "a"
        await asking
        faults.delay_ms_max = 0
        assert await pair.a.ask(is_authoritative=True) is HERE
        assert pair.owner() == "a"
        await pair.world.sleep(3 * ROUND_MS / 1000)
        assert pair.a.ownership.owned == [BUNDLE]

    run_pair(story, seed)


@pytest.mark.parametrize("at_ms", range(0, 120, 10))
def test_a_node_that_a_broker_made_while_it_began_to_close_does_not_stay_as_long_as_it_closes(at_ms: int):
    async def story(pair: Pair):
        pair.stores["a"].faults.delay_ms_max = 40
        asking = asyncio.ensure_future(pair.a.ask(is_authoritative=True))
        await pair.world.sleep(at_ms / 1000)
        owned = pair.a.ownership.begin_close()
        found = await asking
        # It gives away what it has one after the other, which may take minutes.
        assert (pair.owner() == "a") == (found is HERE) == (owned == [BUNDLE])

    run_pair(story)

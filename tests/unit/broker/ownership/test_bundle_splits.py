"""Bundles that are split while they are served: by one, by two at once, with writes whose outcome nobody knows."""

from __future__ import annotations

import asyncio

import pytest

from geminga.broker.ownership.bundle_ownership import ROUND_MS
from geminga.broker.ownership.core.bundles import Bundle, equal_bundles
from geminga.broker.ownership.core.local_policies import local_policies_path
from geminga.broker.ownership.core.owner_data import owner_path
from geminga.broker.ownership.ports import HERE
from geminga.metadata.core.faults import WriteFault
from geminga.model.errors import MetadataError, PreconditionFailedError, UnavailableError
from support.clusters.bundle_owners import NAMESPACE
from support.clusters.owning_pair import BUNDLE, OTHER, PATH, Pair, run_pair, split, topic_names, url
from support.house.weekly_sample import sampled


def test_a_split_is_done_where_the_policies_can_not_be_told_of_it():
    async def story(pair: Pair):
        assert await pair.a.ask() is HERE
        pair.a.cuts_error = UnavailableError("not now")
        assert len(await split(pair, [BUNDLE.lower + 1])) == 2
        assert len(pair.a.ownership.owned) == 2

    run_pair(story)


@pytest.mark.parametrize("faults", [[], [WriteFault.UNKNOWN_AFTER] * 4, [WriteFault.UNKNOWN_BEFORE] * 4])
def test_a_split_bundle_is_served_on_in_its_parts(faults):
    async def story(pair: Pair):
        assert await pair.a.ask() is HERE
        document = b'{"bundles":{"boundaries":["0x00000000","0x40000000","0xffffffff"]},"later":1}'
        await pair.stores["b"].put(local_policies_path(NAMESPACE), document, expected_version=None)
        pair.stores["a"].faults.next_writes.extend(faults)
        middle = BUNDLE.lower + (BUNDLE.upper - BUNDLE.lower) // 2
        parts = await split(pair, [middle])
        assert [(part.lower, part.upper) for part in parts] == [(BUNDLE.lower, middle), (middle, BUNDLE.upper)]
        assert pair.a.ownership.owned == parts
        assert [middle in told.boundaries for told in pair.a.cuts] == [True]
        assert not pair.server.tree.exists(PATH)
        assert await pair.a.ask() is HERE
        assert url(await pair.b.ask(is_authoritative=True)) == "pulsar://a:6650"
        stored = pair.server.tree.get(local_policies_path(NAMESPACE))
        assert stored is not None
        assert stored.value.endswith(b'"later":1}')
        await pair.world.sleep(3 * ROUND_MS / 1000)
        assert pair.a.ownership.owned == parts
        assert pair.a.told.words == ["given"]

    run_pair(story)


@pytest.mark.parametrize("seed", sampled("bundle ownership, 2", range(5), 2))
def test_a_split_of_which_news_comes_before_its_answer_closes_nothing(seed):
    async def story(pair: Pair):
        assert await pair.a.ask() is HERE
        faults = pair.stores["a"].faults
        faults.delay_ms_max = 50
        faults.next_writes.extend([WriteFault.NONE, WriteFault.NONE, WriteFault.UNKNOWN_AFTER])
        assert len(await split(pair, [2])) == 2
        await pair.world.sleep(1)
        assert pair.a.told.words == ["given"]

    run_pair(story, seed)


def test_two_splits_of_one_bundle_at_once_are_one():
    async def story(pair: Pair):
        assert await pair.a.ask() is HERE
        done = await asyncio.gather(split(pair, [1]), split(pair, [2]), return_exceptions=True)
        assert sorted(isinstance(one, UnavailableError) for one in done) == [False, True]
        assert len(pair.a.ownership.owned) == 2
        await pair.world.sleep(3 * ROUND_MS / 1000)
        assert len(pair.server.tree.children(f"/namespace/{NAMESPACE}")) == 2

    run_pair(story)


def test_splits_of_two_bundles_at_two_brokers_at_once_are_both_written():
    async def story(pair: Pair):
        assert await pair.a.ask() is HERE
        name = next(name for name in topic_names() if not BUNDLE.has(name))
        assert await pair.b.ask(name) is HERE
        other = equal_bundles(NAMESPACE, 4).find(name)
        for store in pair.stores.values():
            store.faults.delay_ms_max = 20
        await asyncio.gather(split(pair, [1]), pair.b.ownership.split(other, [other.lower + 1]))
        await pair.world.sleep(1)
        assert (len(pair.a.ownership.owned), len(pair.b.ownership.owned)) == (2, 2)
        assert [one.told.words for one in (pair.a, pair.b)] == [["given"], []]

    run_pair(story)


def test_a_split_whose_part_is_another_s_is_refused_and_leaves_nothing():
    async def story(pair: Pair):
        assert await pair.a.ask() is HERE
        part = Bundle(NAMESPACE, 2, BUNDLE.upper)
        await pair.stores["b"].put(owner_path(part), OTHER, expected_version=-1, ephemeral=True)
        with pytest.raises(UnavailableError, match=f"{part.range}.*is another's"):
            await split(pair, [2])
        assert pair.a.ownership.owned == [BUNDLE]
        assert pair.server.tree.children(f"/namespace/{NAMESPACE}") == sorted([BUNDLE.range, part.range])
        assert await pair.a.ask() is HERE

    run_pair(story)


def test_a_bundle_that_is_lost_or_released_while_it_is_split_is_not_kept():
    async def story(pair: Pair):
        for end in (pair.a.ownership.release([BUNDLE]), None):
            assert await pair.a.ask(is_authoritative=True) is HERE
            pair.stores["a"].faults.delay_ms_max = 50
            splitting = asyncio.ensure_future(split(pair, [2]))
            await pair.world.sleep(0.1)
            if end is not None:
                await end
            else:
                pair.stores["a"].expire_session(outage_ms=0)
            with pytest.raises((UnavailableError, MetadataError)):
                await splitting
            await pair.world.sleep(1)
            assert pair.a.ownership.owned == []
            assert pair.server.tree.children(f"/namespace/{NAMESPACE}") == []
            await pair.cut(equal_bundles(NAMESPACE, 4))
            await pair.world.sleep(1)

    run_pair(story)


def test_what_can_not_be_split_is_refused():
    async def story(pair: Pair):
        with pytest.raises(UnavailableError, match="not this broker's to split"):
            await split(pair, [2])
        assert await pair.a.ask() is HERE
        with pytest.raises(PreconditionFailedError, match="between its boundaries"):
            await split(pair, [BUNDLE.upper])
        with pytest.raises(PreconditionFailedError, match="at 1000 keys at most, not at 1001"):
            await split(pair, list(range(1001)))
        assert pair.a.ownership.owned == [BUNDLE]

    run_pair(story)

"""Ownership of bundles on every metadata store."""

from __future__ import annotations

import asyncio

import pytest

from geminga.broker.ownership.core.bundles import equal_bundles
from geminga.broker.ownership.core.local_policies import local_policies_path
from geminga.broker.ownership.core.owner_data import OwnerData, OwnerListener, owner_path
from geminga.broker.ownership.ports import HERE, Elsewhere, Unknown
from geminga.metadata import MUST_NOT_EXIST, SessionEvent
from support.clusters.bundle_owners import NAMESPACE, ONE, Owning
from support.worlds.metadata_stores import (
    SOCKETS,
    Harness,
    Inbox,
    ZooKeeperCase,
    store_case,
    zookeeper_address,
)

BUNDLE = equal_bundles(NAMESPACE, 4).find(ONE)
OTHER = OwnerData(OwnerListener("pulsar://other:6650", "", "http://other:8080"), {})


@pytest.fixture(params=["memory", "memory-simulated", "sqlite", "zookeeper", *SOCKETS])
def case(request, tmp_path):
    return store_case(request, tmp_path)


def test_a_bundle_is_acquired_by_an_ephemeral_node_and_released(case):
    async def main(h: Harness):
        owning = Owning(h.runtime, h.store)
        assert await owning.ask() is HERE
        policies = await h.store.get(local_policies_path(NAMESPACE))
        assert policies is not None
        assert policies.value.endswith(b'"0xc0000000","0xffffffff"],"numBundles":4},"migrated":false}')
        node = await h.store.get(owner_path(BUNDLE))
        assert node is not None
        assert (node.stat.is_ephemeral, node.stat.is_own) == (True, True)
        assert b'"nativeUrl":"pulsar://a:6650"' in node.value
        assert owning.ownership.owned == [BUNDLE]
        await owning.ownership.release([BUNDLE])
        assert await h.store.get(owner_path(BUNDLE)) is None
        assert owning.told.words == ["given", "taken"]
        assert await owning.ask(is_authoritative=True) is HERE
        await owning.ownership.close()
        assert await h.store.get(owner_path(BUNDLE)) is None

    case.run(main)


def test_the_owner_of_a_node_of_another_is_told_until_it_lets_go(case):
    async def main(h: Harness):
        owning = Owning(h.runtime, h.store)
        await h.store.put(owner_path(BUNDLE), OTHER.encode(), expected_version=MUST_NOT_EXIST)
        heard = Inbox()
        h.store.watch_node(owner_path(BUNDLE), heard)
        for is_authoritative in (False, True):
            owner = await owning.ask(is_authoritative=is_authoritative)
            assert isinstance(owner, Elsewhere)
            assert (owner.endpoints.default.broker_url, owner.is_owner) == ("pulsar://other:6650", True)
        going = OTHER._replace(is_disabled=True)
        await h.store.put(owner_path(BUNDLE), going.encode(), expected_version=0)
        await heard.has(1)
        assert isinstance(await owning.ask(is_authoritative=True), Unknown)
        await h.store.delete(owner_path(BUNDLE))
        assert await owning.ask(is_authoritative=True) is HERE
        await owning.ownership.close()

    case.run(main)


def test_an_expired_session_ends_all_ownership_and_the_next_one_begins_anew(case):
    async def main(h: Harness):
        owning, heard = Owning(h.runtime, h.store), Inbox()
        assert await owning.ask() is HERE
        h.store.on_session_event(heard)
        await h.expire_session()
        await heard.comes(SessionEvent.EXPIRED)
        assert owning.ownership.owned == []
        await heard.comes(SessionEvent.RECONNECTED)
        while await owning.ask() is not HERE:
            pass
        assert owning.told.words == ["given", "taken", "given"]
        node = await h.store.get(owner_path(BUNDLE))
        assert node is not None
        assert node.stat.is_own
        await owning.ownership.close()

    case.run(main)


def test_two_brokers_on_a_zookeeper_follow_each_other_beyond_an_expired_session(request, zookeeper):
    address = zookeeper_address(zookeeper, request.node.name)

    async def main(h: Harness):
        from geminga.metadata.zookeeper import ZooKeeperMetadataStore

        theirs = await ZooKeeperMetadataStore.open(h.runtime, address)
        here, there = Owning(h.runtime, h.store, "a"), Owning(h.runtime, theirs, "b")
        asked = await asyncio.gather(*(one.ask(is_authoritative=True) for one in (here, there) for _ in range(5)))
        assert sum(owner is HERE for owner in asked) == 5
        if asked[0] is not HERE:
            await there.ownership.release([BUNDLE])
            assert await here.ask(is_authoritative=True) is HERE
        owner = await there.ask(is_authoritative=True)
        assert isinstance(owner, Elsewhere)
        assert owner.endpoints.default.broker_url == "pulsar://a:6650"
        middle = BUNDLE.lower + 1
        assert len(await here.ownership.split(BUNDLE, [middle])) == 2
        heard = Inbox()
        h.store.on_session_event(heard)
        await h.expire_session()
        await heard.comes(SessionEvent.EXPIRED)
        assert here.ownership.owned == []
        while await there.ask(is_authoritative=True) is not HERE:
            pass
        await heard.comes(SessionEvent.RECONNECTED)
        while not isinstance(owner := await here.ask(is_authoritative=True), Elsewhere):
            assert owner is not HERE
        assert owner.endpoints.default.broker_url == "pulsar://b:6650"
        assert [bundle.lower for bundle in there.ownership.owned] == [middle]
        await here.ownership.close()
        await there.ownership.close()
        await theirs.close()

    ZooKeeperCase(zookeeper, request.node.name).run(main)

"""Resource groups over several brokers, in virtual time: what they publish together, whoever comes and goes."""

from __future__ import annotations

import asyncio

import pytest

from geminga import sim
from geminga.broker.groups.groups import ASKED_S, BrokerGroups
from geminga.broker.groups.usage import decode_reports
from geminga.broker.resources.documents import DocumentStore
from geminga.broker.resources.resource_groups import group_path, usage_path
from geminga.metadata.memory import MemoryMetadata, MemoryMetadataStore
from geminga.model.errors import StorageError
from support.worlds.subscriptions import settle

INTERVAL_S = 10
TICK_S = 0.05


class Whole:
    def broke(self, what, error):
        raise error


class Broker:
    """One broker: its groups, and somebody who publishes on it as fast as it is let."""

    def __init__(self, runtime, server, *, is_alone=False, store=MemoryMetadataStore):
        self.followed = []
        self.used = {"g"}
        self.metadata = store(runtime, server)
        self.groups = BrokerGroups(
            runtime,
            self.metadata,
            Whole(),
            interval_s=lambda: INTERVAL_S,
            is_alone=is_alone,
            in_use=lambda: self.used,
            follow=self._follow,
        )
        self.throttles = None
        #: Messages that it would publish each second, and has.
        self.wanted = 0
        self.published = 0
        self.is_held = False
        self.is_gone = False

    async def _follow(self, name):
        self.followed.append(name)
        self.throttles = await self.groups.throttles(name)

    async def begin(self, wanted):
        self.throttles = await self.groups.throttles("g")
        self.wanted = wanted
        self._tick()

    def _tick(self):
        if self.is_gone:
            return
        for _ in range(int(self.wanted * TICK_S)):
            if self.is_held:
                break
            self.published += 1
            if self.throttles.publish is not None:
                self.throttles.publish.published(self, 1, 1, 100)
        asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def publish_is_rated(self):
        pass

    def hold_for_rate(self, throttle):
        self.is_held = True

    def free_of_rate(self, throttle):
        self.is_held = False

    def vanish(self):
        """As a killed process: it says nothing more."""
        self.is_gone = True
        self.groups._timer.cancel()


def run(scenario, **limits):
    async def on_node(node):
        server = MemoryMetadata()
        store = DocumentStore(MemoryMetadataStore(node.runtime, server))
        await store.put(group_path("g"), lambda _: dict(limits))
        await scenario(lambda **kw: Broker(node.runtime, server, **kw), store)

    async def main(world):
        await world.node("broker").run(on_node)

    sim.run(main, 0)


async def rate_of(brokers, seconds):
    """Messages a second that they publish together."""
    before = sum(broker.published for broker in brokers)
    await settle(seconds)
    return (sum(broker.published for broker in brokers) - before) / seconds


@pytest.mark.parametrize("demands", [(2000, 2000), (5000, 300), (900, 50), (3000, 0)])
def test_two_brokers_hold_the_limit_of_a_group_within_a_tenth(demands):
    async def scenario(new_broker, store):
        brokers = [new_broker(), new_broker()]
        for broker, wanted in zip(brokers, demands, strict=True):
            await broker.begin(wanted)
        await settle(4 * INTERVAL_S)
        expected = min(1000, sum(demands))
        for _ in range(3):
            rate = await rate_of(brokers, INTERVAL_S)
            assert 0.9 * expected <= rate <= 1.1 * 1000

    run(scenario, publishRateInMsgs=1000)


def test_a_broker_that_comes_never_makes_them_more_than_the_limit_and_soon_has_its_part():
    async def scenario(new_broker, store):
        first, second = new_broker(), new_broker()
        await first.begin(5000)
        await settle(2 * INTERVAL_S)
        assert 900 <= await rate_of([first], INTERVAL_S) <= 1100
        await second.begin(5000)
        before = second.published
        await settle(INTERVAL_S / 2)
        # A floor, from the moment it comes.
        assert second.published - before >= 0.9 * 25 * INTERVAL_S / 2
        for _ in range(4):
            assert await rate_of([first, second], INTERVAL_S) <= 1100
        assert 450 <= await rate_of([second], INTERVAL_S) <= 550

    run(scenario, publishRateInMsgs=1000)


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_broker_that_goes_gives_its_share_back(is_killed):
    async def scenario(new_broker, store):
        first, second = new_broker(), new_broker()
        await first.begin(5000)
        await second.begin(5000)
        await settle(3 * INTERVAL_S)
        if is_killed:
            second.vanish()
        else:
            second.is_gone = True
            await second.groups.close()
        await settle((5 if is_killed else 1) * INTERVAL_S)
        assert 900 <= await rate_of([first], INTERVAL_S) <= 1100
        found = await store.find(usage_path("g"))
        assert len(decode_reports(found.document)) == 1

    run(scenario, publishRateInMsgs=1000)


def test_another_limit_holds_at_once_and_other_kinds_have_topics_look_again():
    async def scenario(new_broker, store):
        broker = new_broker(is_alone=True)
        await broker.begin(5000)
        await settle(2)
        assert 900 <= await rate_of([broker], 10) <= 1100
        await store.put(group_path("g"), lambda _: {"publishRateInMsgs": 100})
        await settle(2)
        assert 90 <= await rate_of([broker], 10) <= 110
        assert broker.followed == []
        await store.put(group_path("g"), lambda _: {"publishRateInBytes": 20_000})
        await settle(2)
        assert 180 <= await rate_of([broker], 10) <= 220
        assert broker.followed == ["g"]
        await store.put(group_path("g"), lambda _: {"publishRateInBytes": -1})
        await settle(2)
        assert await rate_of([broker], 10) >= 4900

    run(scenario, publishRateInMsgs=1000)


def test_a_broker_that_is_alone_has_all_and_tells_nobody():
    async def scenario(new_broker, store):
        broker = new_broker(is_alone=True)
        await broker.begin(500)
        await settle(3 * INTERVAL_S)
        assert broker.groups.groups["g"].shares == {"publishRateInMsgs": 1000}
        assert await store.find(usage_path("g")) is None

    run(scenario, publishRateInMsgs=1000)


def test_a_group_that_no_topic_is_in_any_more_is_let_go():
    async def scenario(new_broker, store):
        broker = new_broker()
        await broker.begin(0)
        broker.used = set()
        await settle(ASKED_S - INTERVAL_S / 2)
        # Who asked last may be a topic that is being loaded.
        assert broker.groups.groups.keys() == {"g"}
        await settle(2 * INTERVAL_S)
        assert broker.groups.groups == {}
        assert decode_reports((await store.find(usage_path("g"))).document) == {}

    run(scenario, publishRateInMsgs=1000)


def test_a_group_that_is_not_there_limits_nobody_until_it_is():
    async def scenario(new_broker, store):
        broker = new_broker(is_alone=True)
        await store.delete(group_path("g"), missing="", not_empty="")
        await broker.begin(5000)
        assert await rate_of([broker], 10) >= 4900
        await store.put(group_path("g"), lambda _: {"publishRateInMsgs": 100})
        await settle(2)
        assert 90 <= await rate_of([broker], 10) <= 110

    run(scenario, publishRateInMsgs=1)


class Hindered(MemoryMetadataStore):
    """One whose writes wait, or fail."""

    def __init__(self, runtime, server):
        super().__init__(runtime, server)
        self.fails = self.failed_reads = 0
        self.waits_for = None

    async def get(self, path):
        if self.failed_reads:
            self.failed_reads -= 1
            raise StorageError("the store is away")
        return await super().get(path)

    async def put(self, path, *args, **kwargs):
        if self.waits_for is not None:
            await self.waits_for.wait()
        if self.fails:
            self.fails -= 1
            raise StorageError("the store is away")
        return await super().put(path, *args, **kwargs)


@pytest.mark.parametrize("away", ["fails", "failed_reads"])
def test_new_limits_hold_though_the_store_was_away_at_that_moment(away):
    async def scenario(new_broker, store):
        broker = new_broker(store=Hindered)
        await broker.begin(5000)
        await settle(2 * INTERVAL_S)
        assert await rate_of([broker], 10) >= 4900
        setattr(broker.metadata, away, 1)
        await store.put(group_path("g"), lambda _: {"publishRateInMsgs": 100})
        await settle(3 * INTERVAL_S)
        assert getattr(broker.metadata, away) == 0
        assert 90 <= await rate_of([broker], 10) <= 110

    run(scenario, publishRateInMsgs=-1)


def test_a_topic_that_comes_into_a_group_while_it_is_being_let_go_is_held_to_it():
    async def scenario(new_broker, store):
        broker = new_broker(store=Hindered)
        await store.put(group_path("f"), lambda _: {"publishRateInMsgs": 1})
        await broker.groups.throttles("f")
        await broker.groups.throttles("g")
        broker.used = {"f"}
        broker.metadata.waits_for = asyncio.Event()
        await settle(ASKED_S + INTERVAL_S)
        # The look tells of the first group meanwhile.
        await broker.begin(5000)
        broker.used = {"f", "g"}
        broker.metadata.waits_for.set()
        await settle(3 * INTERVAL_S)
        assert broker.groups.groups.keys() == {"f", "g"}
        assert 900 <= await rate_of([broker], 10) <= 1100
        await store.put(group_path("g"), lambda _: {"publishRateInMsgs": 100})
        await settle(2 * INTERVAL_S)
        assert 90 <= await rate_of([broker], 10) <= 110

    run(scenario, publishRateInMsgs=1000)

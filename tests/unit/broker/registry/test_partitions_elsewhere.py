"""Partitions without storage, which only the broker that has one loaded knows of: who asks that one before they go."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest

from geminga.broker.core.new_subscription import NewSubscription
from geminga.broker.peers.http_client import PeerAnswer
from geminga.broker.peers.topics import PeerTopics, topic_path
from geminga.broker.registry.partitions import Partitions
from geminga.broker.subscription.seek import is_replicated
from geminga.broker.subscription.subscription import Subscription
from geminga.model.errors import PreconditionFailedError
from geminga.model.position import EARLIEST
from geminga.model.topic_name import TopicName
from support.worlds.broker_world import BrokerWorld, run_with_broker
from support.worlds.rest_world import ask, rest_application

NAME = TopicName.parse("non-persistent://public/default/many")
FIRST, SECOND = NAME.with_partition(0), NAME.with_partition(1)


class OtherBroker:
    """Has every second partition, if it is loaded."""

    def __init__(self) -> None:
        #: Loaded there, and whether somebody is connected to it; first what is no partition of the topic's.
        self.loaded: dict[TopicName, bool] = {NAME: True, TopicName.parse(f"{NAME}-partition-1-partition-0"): True}

    async def is_here(self, name: TopicName) -> bool:
        return name.partition % 2 == 0

    async def non_persistent(self, namespace: str) -> set[str]:
        assert namespace == NAME.namespace
        return {str(name) for name in self.loaded}

    async def is_in_use(self, name: TopicName) -> bool:
        return self.loaded.get(name, False)

    async def delete(self, name: TopicName, *, force: bool) -> None:
        if self.loaded.get(name) and not force:
            raise PreconditionFailedError("it is in use")
        self.loaded.pop(name, None)

    async def subscribe(self, name: TopicName, subscriptions: Sequence[NewSubscription]) -> None:
        raise AssertionError(f"{name} keeps no {subscriptions}")


def run(story: Callable[[BrokerWorld, Partitions, OtherBroker], Awaitable[None]]) -> None:
    async def scenario(world: BrokerWorld) -> None:
        async def forget(_: TopicName) -> None:
            """It has no policies."""

        broker, other = world.broker, OtherBroker()
        partitions = Partitions(
            world.config,
            world.ledgers,
            world.resources,
            broker.registry,
            forget=forget,
            clock=world.runtime.clock,
            is_stopping=lambda: False,
            part=broker,
            elsewhere=other,
        )
        await partitions.create(NAME, 2)
        await broker.registry.get(FIRST, create=True)
        await story(world, partitions, other)

    run_with_broker(scenario)


@pytest.mark.parametrize("is_used", [True, False])
def test_what_is_idle_here_takes_no_partition_along_that_another_broker_has(is_used: bool) -> None:
    """The number of its partitions went while the other broker's were published to."""

    async def story(world: BrokerWorld, partitions: Partitions, other: OtherBroker) -> None:
        other.loaded[SECOND] = is_used
        await world.broker.registry.delete(FIRST)
        assert not await partitions.delete_if_empty(NAME)
        assert await world.resources.partitioned_topic_metadata(NAME) == 2
        del other.loaded[SECOND]
        assert await partitions.delete_if_empty(NAME)
        assert not await world.resources.partitioned_topic_metadata(NAME)

    run(story)


def test_a_deletion_asks_the_brokers_that_have_partitions_and_is_carried_out_there() -> None:
    """Those of other brokers were neither asked nor deleted: their clients went on with what was gone."""

    async def story(world: BrokerWorld, partitions: Partitions, other: OtherBroker) -> None:
        other.loaded[SECOND] = True
        with pytest.raises(PreconditionFailedError):
            await partitions.delete(NAME)
        assert await world.resources.partitioned_topic_metadata(NAME) == 2
        await partitions.delete(NAME, force=True)
        assert SECOND not in other.loaded
        assert len(other.loaded) == 2
        assert str(FIRST) not in world.broker.topics
        assert not await world.resources.partitioned_topic_metadata(NAME)

    run(story)


def test_subscriptions_of_a_partition_elsewhere_are_made_with_what_they_get_by() -> None:
    async def scenario(world: BrokerWorld) -> None:
        application, name = rest_application(world.broker), TopicName.parse("persistent://public/default/single")
        await world.broker.registry.create(name)

        class Asking(PeerTopics):
            def __init__(self) -> None:
                """It asks this broker."""

            async def ask(self, name, method, rest, *, query="", body=b"") -> PeerAnswer:
                answer = await ask(application, method, f"{topic_path(name)}{rest}?{query}", body)
                return PeerAnswer(answer.status, answer.body, "owner")

        wanted = [NewSubscription("a red one", {"only": "red"}, True), NewSubscription("plain", {}, False)]
        for _ in range(2):
            await Asking().subscribe(name, wanted)
        found = (await world.broker.registry.get(name, create=False)).subscriptions
        for one in wanted:
            there = found[one.name]
            assert isinstance(there, Subscription)
            assert there.cursor.mark_delete_position == EARLIEST
            assert (dict(there.cursor.cursor_properties), is_replicated(there)) == one[1:]

    run_with_broker(scenario)

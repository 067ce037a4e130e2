"""Topics: loading, creation on demand, partitions, unload, delete, terminate, lists."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import ClassVar

import pytest

from geminga import sim
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.failures import BrokenPart
from geminga.broker.registry import topic_registry
from geminga.broker.registry.namespaces import TopicMode
from geminga.broker.resources.partitioned_topics import PARTITIONED_TOPICS_PATH
from geminga.broker.topic.parts import PartTopic, TopicPart
from geminga.broker.topic.persistent import PersistentTopic
from geminga.managed_ledger import ManagedLedgerConfig
from geminga.metadata import MetadataFaults
from geminga.model.errors import (
    ConflictError,
    MetadataError,
    NotAllowedError,
    NotFoundError,
    PreconditionFailedError,
    TopicNotFoundError,
)
from geminga.model.position import EARLIEST
from geminga.model.topic_name import TopicName
from geminga.runtime import next_turn, set_strict, wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.clusters.transacting import transacting
from support.worlds.broker_world import TOPIC, BrokerWorld, Type, run_with_broker
from support.worlds.holding_part import with_parts
from support.worlds.metadata_behind import MetadataBehind
from support.worlds.policy_levels import seconds

NAME = TopicName.parse(TOPIC)
MADE = "/managed-ledgers/public/default/persistent/topic"


def test_concurrent_gets_share_one_load() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topics = await asyncio.gather(*(world.broker.registry.get(NAME, create=True) for _ in range(10)))
        assert all(topic is topics[0] for topic in topics)
        assert list(world.broker.topics) == [TOPIC]

    run_with_broker(scenario)


def test_topic_that_is_not_there_is_not_found_and_not_created() -> None:
    async def scenario(world: BrokerWorld) -> None:
        with pytest.raises(TopicNotFoundError):
            await world.broker.registry.get(NAME, create=False)
        assert not await world.broker.registry.exists(NAME)
        assert await world.broker.registry.list("public/default") == []

    run_with_broker(scenario)


def test_a_topic_whose_creation_was_cut_off_has_its_properties_or_is_not_there() -> None:
    """It was there without them, and whoever asked again was told that it exists."""
    properties = {"owner": "orders"}

    async def scenario(world: BrokerWorld) -> None:
        registry = world.broker.registry

        def strike(_: object) -> None:
            world.metadata.faults = MetadataFaults(unknown_before_percent=100)

        world.metadata.watch_node(MADE, strike)
        with suppress(MetadataError):
            await registry.create(NAME, properties)
        world.metadata.faults = MetadataFaults()
        if not await registry.exists(NAME):
            await registry.create(NAME, properties)
        topic = await registry.get(NAME, create=False)
        assert isinstance(topic, PersistentTopic)
        assert topic.ledger.stored.properties == properties

    run_with_broker(scenario)


def test_a_topic_that_a_client_makes_meanwhile_has_the_properties_that_it_was_to_be_made_with() -> None:
    async def scenario(world: BrokerWorld) -> None:
        registry = world.broker.registry
        outcomes = set()
        # The administrator begins so many turns of the loop later.
        for turns in range(30):
            name = TopicName.parse(f"{TOPIC}-{turns}")
            getting = asyncio.ensure_future(registry.get(name, create=True))
            for _ in range(turns):
                await next_turn()
            was_there = await registry.exists(name)
            made = False
            with suppress(ConflictError):
                made = await registry.create(name, {"owner": "orders"}) is await getting
            topic = await getting
            assert isinstance(topic, PersistentTopic)
            assert topic.ledger.stored.properties == ({"owner": "orders"} if made else {})
            outcomes.add(made)
            assert not (was_there and made)
        assert outcomes == {False, True}

    run_with_broker(scenario)


def test_who_may_create_a_topic_gets_it_while_somebody_looks_whether_it_is_there() -> None:
    async def scenario(world: BrokerWorld) -> None:
        registry = world.broker.registry
        outcomes = set()
        # Whoever looks begins so many turns of the loop later.
        for turns in range(40):
            name = TopicName.parse(f"{TOPIC}-{turns}")
            creating = [asyncio.ensure_future(registry.get(name, create=True)) for _ in range(2)]
            for _ in range(turns):
                await next_turn()
            try:
                await registry.get(name, create=False)
                outcomes.add("found")
            except TopicNotFoundError:
                outcomes.add("not found")
            created = await asyncio.gather(*creating)
            assert created == [world.broker.topics[str(name)]] * 2
        assert outcomes == {"found", "not found"}

    run_with_broker(scenario)


def test_creation_on_demand_follows_broker_then_namespace() -> None:
    async def scenario(world: BrokerWorld) -> None:
        with pytest.raises(TopicNotFoundError):
            await world.broker.registry.get(NAME, create=True)
        override = {"allowAutoTopicCreation": True, "topicType": "non-partitioned"}
        await world.resources.namespaces.set_policy("public/default", "autoTopicCreationOverride", override)
        await world.broker.policies_changed("public/default")
        await world.broker.registry.get(NAME, create=True)

    run_with_broker(scenario, allow_auto_topic_creation=False)


def test_partitioned_topics_are_created_on_demand_with_all_partitions() -> None:
    async def scenario(world: BrokerWorld) -> None:
        assert await world.broker.registry.partitioned_count(NAME) == 0
        assert await world.broker.registry.partitioned_count(NAME, create=True) == 3
        assert await world.broker.registry.partitioned_count(NAME, create=True) == 3
        assert await world.broker.registry.list("public/default") == [f"{TOPIC}-partition-{i}" for i in range(3)]
        with pytest.raises(NotAllowedError):
            await world.broker.registry.get(NAME, create=True)
        with pytest.raises(NotAllowedError):
            await world.broker.registry.get(NAME.with_partition(3), create=True)
        await world.broker.registry.get(NAME.with_partition(2), create=True)

    run_with_broker(scenario, auto_topic_creation_type="partitioned", default_partitions=3)


def test_more_partitions_get_the_subscriptions_of_the_first() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.broker.partitions.create(NAME, 1)
        first = await world.broker.registry.get(NAME.with_partition(0), create=False)
        await first.create_subscription("sub", EARLIEST)
        await world.broker.partitions.grow(NAME, 3)
        third = await world.broker.registry.get(NAME.with_partition(2), create=False)
        assert set(third.subscriptions) == {"sub"}
        with pytest.raises(ConflictError):
            await world.broker.partitions.grow(NAME, 2)
        with pytest.raises(ConflictError):
            await world.broker.partitions.create(NAME, 2)
        await world.broker.partitions.delete(NAME)
        assert await world.broker.registry.list("public/default") == []
        assert await world.broker.registry.partitioned_count(NAME) == 0

    run_with_broker(scenario)


def test_explicit_creation_refuses_what_exists() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await world.broker.registry.create(NAME, {"owner": "me"})
        assert isinstance(topic, PersistentTopic)
        assert topic.ledger.stored.properties["owner"] == "me"
        with pytest.raises(ConflictError):
            await world.broker.registry.create(NAME)
        with pytest.raises(ConflictError):
            await world.broker.partitions.create(NAME, 2)
        with pytest.raises(TopicNotFoundError):
            await world.broker.registry.create(TopicName.parse("no/where/t"))

    run_with_broker(scenario, allow_auto_topic_creation=False)


def test_unload_sends_clients_away_and_loses_nothing() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.subscriber()
        await client.create_producer()
        await client.publish(0, b"kept")
        await client.expect(Type.MESSAGE)
        before = world.broker.topics[TOPIC]
        await world.broker.registry.unload(NAME)
        kinds = {command.type for command, _ in client.received}
        assert {Type.CLOSE_PRODUCER, Type.CLOSE_CONSUMER} <= kinds
        assert TOPIC not in world.broker.topics
        client.received.clear()
        client.send_message(1)  # on its way when the topic went: dropped
        assert not client.is_closed
        await client.subscribe()
        _, payload = await client.expect_with_payload(Type.MESSAGE)
        assert payload.endswith(b"kept")
        assert world.broker.topics[TOPIC] is not before

    run_with_broker(scenario)


def test_more_topics_than_are_unloaded_at_a_time_go_with_their_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_registry, "UNLOADS_AT_ONCE", 2)

    async def scenario(world: BrokerWorld) -> None:
        for index in range(5):
            await world.broker.registry.get(TopicName.parse(f"topic-{index}"), create=True)
        await world.broker.registry.taken(lambda _: True)
        assert not world.broker.topics

    run_with_broker(scenario)


class BreakingPart(TopicPart):
    """Of one topic, which can not be closed."""

    name: ClassVar[str] = "breaking"

    def __init__(self, topic: PartTopic) -> None:
        self._is_breaking = topic.name.local_name == "topic-1"

    async def close(self) -> None:
        if self._is_breaking:
            raise RuntimeError("nobody thought of it")


def test_a_topic_that_breaks_when_it_is_closed_keeps_no_other_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those after it stayed open, and were served by a broker that did not own them any more."""
    monkeypatch.setattr(topic_registry, "UNLOADS_AT_ONCE", 2)

    async def scenario(world: BrokerWorld) -> None:
        set_strict(asyncio.get_running_loop(), False)
        with_parts(world.broker, BreakingPart)
        for index in range(5):
            await world.broker.registry.get(TopicName.parse(f"topic-{index}"), create=True)
        await world.broker.registry.taken(lambda _: True)
        assert not world.broker.topics
        # Of the task that ended it, and of who waited for that.
        assert world.broker.failures.counts[BrokenPart.BROKER] == 2
        await world.broker.registry.get(TopicName.parse("topic-1"), create=True)

    run_with_broker(scenario)


def test_gets_during_an_unload_wait_for_a_fresh_topic() -> None:
    async def scenario(world: BrokerWorld) -> None:
        before = await world.broker.registry.get(NAME, create=True)
        _, after = await asyncio.gather(
            world.broker.registry.unload(NAME), world.broker.registry.get(NAME, create=False)
        )
        assert after is not before
        assert not after.is_closing

    run_with_broker(scenario)


def test_topic_in_use_is_deleted_only_by_force() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        with pytest.raises(PreconditionFailedError, match="connected producers"):
            await world.broker.registry.delete(NAME)
        await client.close_producer()
        await client.subscribe()
        with pytest.raises(PreconditionFailedError, match="connected consumers"):
            await world.broker.registry.delete(NAME)
        await world.broker.registry.delete(NAME, force=True)
        assert not await world.broker.registry.exists(NAME)
        with pytest.raises(TopicNotFoundError):
            await world.broker.registry.delete(NAME)

    run_with_broker(scenario)


def test_topic_that_is_unloaded_between_its_load_and_its_deletion_is_deleted() -> None:
    """The answer was that it was done, and the topic stayed."""

    async def scenario(world: BrokerWorld) -> None:
        registry = world.broker.registry
        await registry.get(NAME, create=True)
        await registry.unload(NAME)
        deletion = asyncio.ensure_future(registry.delete(NAME))
        while TOPIC not in registry.loaded:
            await next_turn()
        await registry.unload(NAME)
        await deletion
        assert not await registry.exists(NAME)

    run_with_broker(scenario)


def test_lists_tell_persistent_from_non_persistent() -> None:
    async def scenario(world: BrokerWorld) -> None:
        other = TopicName.parse("non-persistent://public/default/fleeting")
        await world.broker.registry.get(NAME, create=True)
        await world.broker.registry.get(other, create=True)
        await world.broker.partitions.create(TopicName.parse("non-persistent://public/default/parts"), 2)
        parts = [f"non-persistent://public/default/parts-partition-{index}" for index in range(2)]
        assert await world.broker.registry.list("public/default") == [TOPIC]
        assert await world.broker.registry.list("public/default", mode=TopicMode.NON_PERSISTENT) == [str(other), *parts]
        assert await world.broker.registry.list("public/default", mode=TopicMode.ALL) == [str(other), *parts, TOPIC]
        assert await world.broker.registry.list("pulsar/system") == []

    run_with_broker(scenario)


def test_topics_of_a_namespace_are_limited() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.broker.registry.get(NAME, create=True)
        with pytest.raises(PreconditionFailedError):
            await world.broker.registry.get(TopicName.parse("other"), create=True)
        await world.broker.registry.get(NAME, create=True)

    run_with_broker(scenario, topics_per_namespace_max=1)


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_a_burst_of_new_topics_makes_exactly_as_many_as_there_may_be(domain: str) -> None:
    """Each found that there was room, and all of them were made."""

    async def scenario(world: BrokerWorld) -> None:
        names = [TopicName.parse(f"{domain}://public/default/t{number}") for number in range(20)]
        world.metadata.faults.delay_ms_max = 20
        made = await asyncio.gather(
            *(world.broker.registry.get(name, create=True) for name in names for _ in range(2)), return_exceptions=True
        )
        refused = [outcome for outcome in made if isinstance(outcome, PreconditionFailedError)]
        assert (len(refused), len(made) - len(refused)) == (30, 10)
        assert len(await world.broker.registry.list("public/default", mode=TopicMode.ALL)) == 5
        # One that goes leaves its place to another.
        await world.broker.registry.delete(next(topic.name for topic in world.broker.topics.values()))
        await world.broker.registry.get(TopicName.parse(f"{domain}://public/default/next"), create=True)

    run_with_broker(scenario, topics_per_namespace_max=5)


def test_a_burst_of_partitioned_topics_has_no_more_partitions_than_there_may_be() -> None:
    async def scenario(world: BrokerWorld) -> None:
        world.metadata.faults.delay_ms_max = 20
        names = [TopicName.parse(f"t{number}") for number in range(8)]
        made = await asyncio.gather(
            *(world.broker.partitions.create(name, 3) for name in names),
            *(world.broker.registry.create(TopicName.parse(f"single{number}")) for number in range(8)),
            return_exceptions=True,
        )
        refused = [outcome for outcome in made if isinstance(outcome, PreconditionFailedError)]
        assert len(await world.broker.registry.list("public/default")) == 10
        assert len(made) - len(refused) in (4, 6, 8, 10)
        grown = await asyncio.gather(*(world.broker.partitions.grow(name, 4) for name in names), return_exceptions=True)
        assert not [outcome for outcome in grown if outcome is None]

    run_with_broker(scenario, topics_per_namespace_max=10)


def test_who_gives_up_waiting_for_a_new_topic_leaves_no_place_for_another() -> None:
    async def scenario(world: BrokerWorld) -> None:
        world.metadata.faults.delay_ms_max = 20
        given_up = asyncio.ensure_future(world.broker.registry.get(NAME, create=True))
        while world.broker.registry.is_free(NAME):
            await seconds(0.001)
        given_up.cancel()
        with suppress(asyncio.CancelledError):
            await given_up
        with pytest.raises(PreconditionFailedError):
            await world.broker.registry.get(TopicName.parse("other"), create=True)
        assert await world.broker.registry.list("public/default") == [TOPIC]

    run_with_broker(scenario, topics_per_namespace_max=1)


def test_kinds_of_topics_can_be_switched_off() -> None:
    async def scenario(world: BrokerWorld) -> None:
        with pytest.raises(NotAllowedError):
            await world.broker.registry.get(TopicName.parse("non-persistent://public/default/t"), create=True)

    run_with_broker(scenario, enable_non_persistent_topics=False)


def test_termination_of_a_non_persistent_topic_is_not_allowed() -> None:
    async def scenario(world: BrokerWorld) -> None:
        name = TopicName.parse("non-persistent://public/default/t")
        await world.broker.registry.get(name, create=True)
        with pytest.raises(NotAllowedError):
            await world.broker.registry.terminate(name)

    run_with_broker(scenario)


def test_partitions_are_not_added_to_a_partitioned_topic_that_goes() -> None:
    async def scenario(world: BrokerWorld) -> None:
        whole = TopicName.parse("persistent://public/default/whole")
        await world.broker.partitions.create(whole, 2)
        world.metadata.faults.delay_ms_max = 20
        deletion = asyncio.ensure_future(world.broker.partitions.delete(whole))
        while await world.broker.registry.exists(whole.with_partition(0)):
            await seconds(0.005)
        with pytest.raises(TopicNotFoundError):
            await world.broker.partitions.grow(whole, 4)
        await deletion
        assert await world.broker.registry.list("public/default") == []
        # Another broker's growth comes before the mark, and the deletion begins anew, or after it, and is refused.
        await world.broker.partitions.create(whole, 2)
        topics = world.resources.partitioned_topics
        with pytest.raises(ConflictError, match="other partitions"):
            await topics.mark_deleted(whole, True, partitions=1)
        await topics.mark_deleted(whole, True, partitions=2)
        with pytest.raises(NotFoundError, match="is being deleted"):
            await topics.update(whole, 4)
        with pytest.raises(NotFoundError, match="is being deleted"):
            await topics.set_properties(whole, {"a": "b"})

    run_with_broker(scenario)


@pytest.mark.parametrize("turns", range(0, 60, 4))
def test_unload_that_is_called_off_half_way_leaves_a_topic_that_loads(turns: int) -> None:
    """Its ledger would stay open, with cursors that are closed."""

    async def scenario(world: BrokerWorld) -> None:
        client = await transacting(world)
        await client.client.subscribe()
        client.flow(1, 1000)
        await client.client.create_producer()
        await client.publish(b"0")
        await client.publish(b"1")
        await wait_ms(50)
        (first, _), _ = client.messages()
        ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=[first])
        client.client.send(pb.BaseCommand(type=Type.ACK, ack=ack))
        await wait_ms(50)
        unloading = asyncio.ensure_future(world.broker.registry.unload(NAME))
        for _ in range(turns):
            await next_turn()
        unloading.cancel()
        await wait_ms(1000)
        again = await transacting(world)
        await again.client.subscribe()
        again.flow(1, 1000)
        await wait_ms(1000)
        assert again.payloads() == [b"1"]

    run_with_broker(scenario, transaction_coordinator_enabled=True)


@pytest.mark.parametrize("topic_type", ["partitioned", "non-partitioned"])
@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
@pytest.mark.parametrize("is_allowed", [True, False])
def test_partition_of_nothing_is_made_for_no_client(topic_type: str, domain: str, is_allowed: bool) -> None:
    """As in Pulsar 4.2 (PIP-414): it would be a topic that no list of partitioned ones has."""

    async def scenario(world: BrokerWorld) -> None:
        broker, whole = world.broker, f"{domain}://public/default/whole"
        await broker.partitions.create(TopicName.parse(whole), 3)
        client, refused = await world.client(), pb.NotAllowedError if is_allowed else pb.TopicNotFound
        for topic, error, said in (
            (f"{domain}://public/default/none-partition-0", refused, "not found"),
            (f"{whole}-partition-5", pb.NotAllowedError, "with max allowed 3 partitions"),
            (f"{whole}-partition-2147483647", pb.NotAllowedError, "with max allowed 3 partitions"),
        ):
            client.request_producer(topic)
            answer = await client.error()
            assert (answer.error, said in answer.message) == (error, True), (topic, answer)
            client.request_subscribe(topic)
            answer = await client.error()
            assert (answer.error, said in answer.message) == (error, True), (topic, answer)
        assert not [name for name in world.broker.topics if "none" in name or "-5" in name]
        await client.create_producer(f"{whole}-partition-2", producer_id=2)

    run_with_broker(
        scenario, allow_auto_topic_creation=is_allowed, auto_topic_creation_type=topic_type, default_partitions=2
    )


@pytest.mark.parametrize("index", ["00", "-1", "01", "2147483648", "99999999999999", "9" * 300])
def test_name_that_only_looks_like_a_partitions_is_an_ordinary_one(index: str) -> None:
    async def scenario(world: BrokerWorld) -> None:
        name = f"{TOPIC}-partition-{index}"
        await (await world.client()).create_producer(name)
        assert list(world.broker.topics) == [name]
        await world.broker.partitions.create(TopicName.parse(TOPIC), 2)

    run_with_broker(scenario)


def test_partition_that_is_there_without_a_partitioned_topic_is_served() -> None:
    """Earlier versions, and brokers of Apache's before 4.1, made some: what was published to them is there."""

    async def scenario(world: BrokerWorld) -> None:
        name = TopicName.parse(f"{TOPIC}-partition-0")
        await world.ledgers.create(name.managed_ledger_name)
        await (await world.client()).create_producer(str(name))

    run_with_broker(scenario)


def test_partition_of_a_topic_of_which_our_server_does_not_know_yet_is_served() -> None:
    whole = TopicName.parse(TOPIC)
    path = f"{PARTITIONED_TOPICS_PATH}/{whole.managed_ledger_name}"

    async def on_node(node: sim.SimNode) -> None:
        store = MetadataBehind(node.runtime)
        world = BrokerWorld(node.runtime, BrokerConfig(), ManagedLedgerConfig(), store=store)
        await world.start()
        await world.resources.partitioned_topics.create(whole, 2)
        store.nodes_before[path] = None
        await (await world.client()).create_producer(f"{TOPIC}-partition-1")
        assert path not in store.nodes_before
        await world.stop()

    async def main(world: sim.SimWorld) -> None:
        await world.node("broker").run(on_node)

    sim.run(main)

"""Partitioned topics: what is cut off is completed, limits hold everywhere, nothing takes a turn for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from geminga.broker.registry import partitions
from geminga.broker.registry.partitions import PARTITIONS_AT_ONCE
from geminga.broker.resources import Resources
from geminga.broker.topic.persistent import PersistentTopic
from geminga.managed_ledger import AppendResult
from geminga.metadata.core.faults import MetadataFaults
from geminga.metadata.memory import MemoryMetadataStore
from geminga.metadata.ports import Node
from geminga.model.errors import (
    ConflictError,
    InvalidTopicNameError,
    MetadataError,
    NotAllowedError,
    PreconditionFailedError,
    TopicNotFoundError,
    UnavailableError,
)
from geminga.model.limits import PARTITIONS_MAX
from geminga.model.position import EARLIEST
from geminga.model.topic_name import TopicName
from geminga.runtime import next_turn, spawn, wait_ms
from support.worlds.broker_world import TOPIC, BrokerWorld, Type, run_with_broker
from support.worlds.policy_levels import seconds

NAME = TopicName.parse(TOPIC)


async def stored(world: BrokerWorld) -> list[int]:
    names = await world.broker.registry.list("public/default")
    return sorted(TopicName.parse(name).partition for name in names)


def test_partitions_are_made_without_being_loaded() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.broker.partitions.create(NAME, 300)
        assert await stored(world) == list(range(300))
        assert not world.broker.topics
        client = await world.publisher(f"{TOPIC}-partition-299")
        await client.publish(0)
        assert list(world.broker.topics) == [f"{TOPIC}-partition-299"]

    run_with_broker(scenario)


def test_partition_that_is_used_while_it_is_made_is_made_once() -> None:
    async def scenario(world: BrokerWorld) -> None:
        async def use(index: int) -> None:
            while not await world.broker.registry.partitioned_count(NAME):
                await next_turn()
            for _ in range(index):
                await next_turn()
            topic = await world.broker.registry.get(NAME.with_partition(index), create=True)
            await topic.create_subscription("sub", EARLIEST)

        users = [spawn(use(index), name=f"use {index}") for index in range(40)]
        await world.broker.partitions.create(NAME, 40)
        for user in users:
            await user
        assert await stored(world) == list(range(40))
        await world.restart()
        for index in range(40):
            topic = await world.broker.registry.get(NAME.with_partition(index), create=False)
            assert list(topic.subscriptions) == ["sub"]

    run_with_broker(scenario)


def test_creation_that_a_stop_cuts_off_is_completed_with_the_subscriptions_of_the_first() -> None:
    count = 3 * PARTITIONS_AT_ONCE + 5

    async def scenario(world: BrokerWorld) -> None:
        create = world.ledgers.create
        made = 0

        async def counted(name: str, *properties: object) -> None:
            nonlocal made
            made += 1
            if made == PARTITIONS_AT_ONCE + 1:
                world.broker.begin_stop()
            await create(name, *properties)

        world.ledgers.create = counted
        with pytest.raises(UnavailableError, match="stopping"):
            await world.broker.partitions.create(NAME, count)
        assert made == 2 * PARTITIONS_AT_ONCE
        await world.restart()
        assert await world.broker.registry.partitioned_count(NAME) == count
        first = await world.broker.registry.get(NAME.with_partition(0), create=False)
        await first.create_subscription("sub", EARLIEST)
        with pytest.raises(ConflictError):
            await world.broker.partitions.create(NAME, count)
        await world.broker.partitions.create_missing(NAME)
        assert await stored(world) == list(range(count))
        last = await world.broker.registry.get(NAME.with_partition(count - 1), create=False)
        assert list(last.subscriptions) == ["sub"]
        await world.broker.partitions.create_missing(NAME)
        with pytest.raises(TopicNotFoundError):
            await world.broker.partitions.create_missing(TopicName.parse("other"))

    run_with_broker(scenario)


def test_partitions_of_a_namespace_that_another_broker_deletes_meanwhile_are_taken_back() -> None:
    async def scenario(world: BrokerWorld) -> None:
        broker, namespace = world.broker, "public/passing"
        name = TopicName.parse(f"persistent://{namespace}/whole")
        await broker.resources.namespaces.create(namespace, {"replication_clusters": ["standalone"]})
        await broker.registry.require_namespace(name)
        world.metadata.faults.watch_lost_percent = 100
        await broker.resources.namespaces.set_policy(namespace, "deleted", True)
        with pytest.raises(TopicNotFoundError):
            await broker.partitions.create(name, 3)
        assert await broker.ledgers.encoded_names(f"{namespace}/persistent") == []
        assert await broker.resources.partitioned_topics.find_stored(name) is None

    run_with_broker(scenario)


def test_growth_that_a_stop_cuts_off_is_not_seen_and_the_same_request_completes_it() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.broker.partitions.create(NAME, 2)
        first = await world.broker.registry.get(NAME.with_partition(0), create=False)
        await first.create_subscription("sub", EARLIEST)
        create = world.ledgers.create

        async def stopping(name: str, *properties: object) -> None:
            world.broker.begin_stop()
            await create(name, *properties)

        world.ledgers.create = stopping
        with pytest.raises(UnavailableError):
            await world.broker.partitions.grow(NAME, 10)
        await world.restart()
        assert await world.broker.registry.partitioned_count(NAME) == 2
        await world.broker.partitions.grow(NAME, 10)
        assert await world.broker.registry.partitioned_count(NAME) == 10
        assert not world.broker.topics  # a new partition's subscription is a node, too
        for index in range(10):
            topic = await world.broker.registry.get(NAME.with_partition(index), create=False)
            assert list(topic.subscriptions) == (["sub"] if index != 1 else [])

    run_with_broker(scenario)


def test_half_created_topic_is_deleted_by_what_is_there() -> None:
    async def scenario(world: BrokerWorld) -> None:
        # As a crash, or an earlier version, leaves it: the count, and a few partitions.
        await world.resources.create_partitioned_topic(NAME, (1 << 31) - 1)
        for index in (0, 5, 9):
            await world.ledgers.create(NAME.with_partition(index).managed_ledger_name)
        other = TopicName.parse(f"{TOPIC}-partition-x")
        await world.broker.registry.get(other, create=True)
        used = await world.broker.registry.get(NAME.with_partition(7), create=True)
        await used.create_subscription("sub", EARLIEST)
        await world.broker.registry.unload(used.name)
        await world.broker.partitions.delete(NAME)
        assert await world.broker.registry.list("public/default") == [str(other)]
        assert await world.broker.registry.partitioned_count(NAME) == 0
        with pytest.raises(TopicNotFoundError):
            await world.broker.partitions.delete(NAME)

    run_with_broker(scenario)


def test_topic_with_a_client_on_one_partition_is_deleted_only_by_force() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.broker.partitions.create(NAME, 3)
        await world.publisher(f"{TOPIC}-partition-1")
        with pytest.raises(PreconditionFailedError):
            await world.broker.partitions.delete(NAME)
        assert await stored(world) == [0, 1, 2]
        await world.broker.partitions.delete(NAME, force=True)
        assert await stored(world) == []

    run_with_broker(scenario)


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_limit_of_partitions_holds_everywhere(domain: str) -> None:
    name = TopicName.parse(f"{domain}://public/default/p")

    async def scenario(world: BrokerWorld) -> None:
        for count in (5, 0, -1, (1 << 31) - 1):
            with pytest.raises(PreconditionFailedError):
                await world.broker.partitions.create(name, count)
        await world.broker.partitions.create(name, 4)
        with pytest.raises(PreconditionFailedError):
            await world.broker.partitions.grow(name, 5)
        assert await world.broker.registry.partitioned_count(name) == 4
        # The default that topics are made with on demand is more.
        with pytest.raises(PreconditionFailedError):
            await world.broker.registry.partitioned_count(TopicName.parse("other"), create=True)
        override = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 7}
        await world.resources.namespaces.set_policy("public/default", "autoTopicCreationOverride", override)
        await world.broker.policies_changed("public/default")
        with pytest.raises(PreconditionFailedError):
            await world.broker.registry.partitioned_count(TopicName.parse("other"), create=True)

    run_with_broker(scenario, partitions_max=4, auto_topic_creation_type="partitioned", default_partitions=5)


def test_without_a_limit_there_is_one_all_the_same() -> None:
    async def scenario(world: BrokerWorld) -> None:
        for domain in ("persistent", "non-persistent"):
            name = TopicName.parse(f"{domain}://public/default/p")
            with pytest.raises(PreconditionFailedError, match=str(PARTITIONS_MAX)):
                await world.broker.partitions.create(name, PARTITIONS_MAX + 1)
            assert await world.broker.registry.partitioned_count(name) == 0

    run_with_broker(scenario)


def test_growth_counts_for_the_topics_of_the_namespace() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.broker.partitions.create(NAME, 3)
        with pytest.raises(PreconditionFailedError):
            await world.broker.partitions.grow(NAME, 6)
        await world.broker.partitions.grow(NAME, 5)

    run_with_broker(scenario, topics_per_namespace_max=5)


def test_lost_answers_of_the_metadata_store_do_not_stop_the_creation() -> None:
    async def scenario(world: BrokerWorld) -> None:
        world.metadata.faults = MetadataFaults(unknown_before_percent=15, unknown_after_percent=15)
        await world.broker.partitions.create(NAME, 200)
        world.metadata.faults = MetadataFaults()
        assert await stored(world) == list(range(200))

    run_with_broker(scenario)


def test_name_that_no_administrator_could_say_is_not_created() -> None:
    async def scenario(world: BrokerWorld) -> None:
        with pytest.raises(InvalidTopicNameError):
            await world.broker.registry.get(TopicName.parse("x" * 513), create=True)
        client = await world.client()
        client.request_producer("x" * 100_000)
        assert "characters" in (await client.error()).message
        await client.create_producer("x" * 512)

    run_with_broker(scenario)


def test_others_are_served_while_many_partitions_are_made_listed_and_deleted() -> None:
    count = 5000

    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher("persistent://public/default/other")
        works = [
            world.broker.partitions.create(NAME, count),
            world.broker.registry.list("public/default"),
            world.broker.partitions.delete(NAME),
        ]
        published = 0
        for work in works:
            task, before = spawn(work, name="work"), published
            while not task.done():
                client.send_message(published)
                published += 1
                await next_turn()
            await task
            assert published - before >= 2
        for sequence_id in range(published):
            assert (await client.expect(Type.SEND_RECEIPT)).send_receipt.sequence_id == sequence_id

    run_with_broker(scenario)


# ---- deletion


def test_client_that_reconnects_brings_no_partition_of_a_topic_back_that_is_being_deleted() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.broker.partitions.create(NAME, 4)
        for index in range(4):
            await (await world.broker.registry.get(NAME.with_partition(index), create=True)).create_subscription(
                "sub", EARLIEST
            )
        world.metadata.faults.delay_ms_max = 20
        deletion = spawn(world.broker.partitions.delete(NAME, force=True), name="deletion")
        while await world.broker.registry.exists(NAME.with_partition(0)):
            await seconds(0.001)
        with pytest.raises(TopicNotFoundError, match="is being deleted"):
            await world.broker.registry.get(NAME.with_partition(0), create=True)
        with pytest.raises(TopicNotFoundError, match="is being deleted"):
            await world.broker.registry.partitioned_count(NAME, create=True)
        with pytest.raises(TopicNotFoundError, match="is being deleted"):
            await world.broker.registry.get(NAME, create=True)
        await deletion
        assert await stored(world) == []
        assert await world.broker.registry.partitioned_count(NAME) == 0

    run_with_broker(scenario)


def test_client_that_asks_at_any_moment_of_a_deletion_leaves_no_partition_without_its_topic() -> None:
    def outcome(turns: int) -> str:
        outcomes: list[str] = []

        async def scenario(world: BrokerWorld) -> None:
            await world.broker.partitions.create(NAME, 2)
            deletion = spawn(world.broker.partitions.delete(NAME), name="deletion")
            for _ in range(turns):
                await next_turn()
            is_over = deletion.done()
            try:
                await world.broker.registry.get(NAME.with_partition(1), create=True)
            except (TopicNotFoundError, UnavailableError):
                outcomes.append("refused")
            except NotAllowedError:
                outcomes.append("after" if is_over else "refused")
            else:
                outcomes.append("served")
            await deletion
            assert await stored(world) == [], turns
            assert await world.broker.registry.partitioned_count(NAME) == 0

        run_with_broker(scenario)
        return outcomes[0]

    async def length(world: BrokerWorld) -> int:
        await world.broker.partitions.create(NAME, 2)
        deletion = spawn(world.broker.partitions.delete(NAME), name="deletion")
        turns = 0
        while not deletion.done():
            await next_turn()
            turns += 1
        return turns

    end = run_with_broker(length)
    outcomes = [outcome(turns) for turns in range(end)]
    assert "refused" in outcomes
    assert [outcome(turns) for turns in range(end, end + 3)] == ["after"] * 3


async def cut_off(world: BrokerWorld) -> None:
    """A deletion that ended in the middle: one partition is gone."""
    await world.broker.partitions.create(NAME, 3)
    await world.broker.policies.topics.update(NAME, lambda document: {**document, "messageTTLInSeconds": 7})
    topic = await world.broker.registry.get(NAME.with_partition(2), create=True)
    await topic.create_subscription("sub", EARLIEST)
    found = await world.resources.partitioned_topics.find(NAME)
    assert found is not None
    await world.resources.partitioned_topics.mark_deleted(NAME, True, partitions=3)
    await world.broker.ledgers.delete_unused(NAME.with_partition(0).managed_ledger_name)
    await world.restart()


def test_more_partitions_than_go_at_a_time_are_all_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "PARTITIONS_AT_ONCE", 2)

    async def scenario(world: BrokerWorld) -> None:
        await world.broker.partitions.create(NAME, 7)
        assert await stored(world) == list(range(7))
        await world.broker.partitions.delete(NAME)
        assert await stored(world) == []

    run_with_broker(scenario)


@pytest.mark.parametrize("force", [False, True])
def test_deletion_that_was_cut_off_is_finished_by_the_same_request(force: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await cut_off(world)
        assert await stored(world) == [1, 2]
        for refused in (
            world.broker.partitions.create_missing(NAME),
            world.broker.partitions.grow(NAME, 5),
            world.broker.partitions.create(NAME, 5),
        ):
            with pytest.raises((TopicNotFoundError, ConflictError)):
                await refused
        assert await stored(world) == [1, 2]
        await world.broker.partitions.delete(NAME, force=force)
        assert await stored(world) == []
        assert await world.broker.policies.topics.get(NAME) is None
        await world.broker.partitions.create(NAME, 2)
        await world.broker.registry.get(NAME.with_partition(1), create=True)

    run_with_broker(scenario)


def test_deletion_that_was_cut_off_is_finished_when_a_client_asks() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await cut_off(world)
        client = await world.client()
        client.request_producer(f"{TOPIC}-partition-2")
        assert "is being deleted" in (await client.error()).message
        while await world.resources.partitioned_topics.find_stored(NAME) is not None:
            await next_turn()
        assert await stored(world) == []
        assert await world.broker.policies.topics.get(NAME) is None
        client.request_producer(f"{TOPIC}-partition-2")
        assert "Partition metadata not found" in (await client.error()).message

    run_with_broker(scenario)


def test_deletion_that_fails_half_way_is_not_served_and_finished_by_the_same_request() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.broker.partitions.create(NAME, 3)
        delete = world.ledgers.delete_unused

        async def failing(name: str) -> bool:
            if name.endswith("-partition-1"):
                raise MetadataError("no answer")
            return await delete(name)

        world.ledgers.delete_unused = failing
        with pytest.raises(MetadataError):
            await world.broker.partitions.delete(NAME)
        world.ledgers.delete_unused = delete
        assert await world.resources.partitioned_topics.find(NAME) is None
        assert 1 in await stored(world)
        await world.broker.partitions.delete(NAME)
        assert await stored(world) == []
        with pytest.raises(TopicNotFoundError):
            await world.broker.partitions.delete(NAME)

    run_with_broker(scenario)


def test_refused_deletion_leaves_the_topic_served() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.broker.partitions.create(NAME, 3)
        client = await world.publisher(f"{TOPIC}-partition-1")
        with pytest.raises(PreconditionFailedError):
            await world.broker.partitions.delete(NAME)
        assert await world.broker.registry.partitioned_count(NAME) == 3
        await client.create_producer(f"{TOPIC}-partition-2", producer_id=2)
        # Two requests at a time are one deletion.
        await client.close_producer(1)
        await client.close_producer(2)
        both = [spawn(world.broker.partitions.delete(NAME), name=f"deletion {n}") for n in range(2)]
        for deletion in both:
            await deletion
        assert await stored(world) == []

    run_with_broker(scenario)


def test_client_that_comes_while_partitions_are_deleted_does_not_leave_half_of_them() -> None:
    """What is in memory of an idle partition lets it in; the others are gone by then."""

    async def scenario(world: BrokerWorld) -> None:
        registry = world.broker.registry
        await world.broker.partitions.create(NAME, 3)
        client = await world.client()
        for index in range(3):
            await client.create_producer(f"{NAME}-partition-{index}", producer_id=index)
            await client.publish(0, producer_id=index)
            await client.close_producer(index)
        world.metadata.faults.delay_ms_max = 20
        deletion = spawn(world.broker.partitions.delete(NAME), name="deletion")
        while await registry.exists(NAME.with_partition(0)):
            await wait_ms(1)
        assert not deletion.done()
        await client.create_producer(f"{NAME}-partition-2", producer_id=7)
        await deletion
        assert await world.resources.partitioned_topics.find_stored(NAME) is None
        assert [index for index in range(3) if await registry.exists(NAME.with_partition(index))] == []
        assert (await client.expect(Type.CLOSE_PRODUCER)).close_producer.producer_id == 7

    run_with_broker(scenario)


class LatePartitionStore(MemoryMetadataStore):
    """A client makes a partition just before its topic is marked as deleted; nothing is written after the mark."""

    late: Callable[[], Awaitable[None]] | None = None
    is_cut = False

    async def put(self, path: str, value: bytes, **options) -> Node:
        if self.is_cut:
            raise MetadataError("the store can not be reached")
        late = self.late
        if late is not None and path == f"/admin/partitioned-topics/{NAME.managed_ledger_name}":
            self.late = None
            await late()
            node = await super().put(path, value, **options)
            self.is_cut = True
            return node
        return await super().put(path, value, **options)


def test_what_came_while_an_empty_topic_was_to_go_unasked_is_kept_though_the_broker_was_cut_off() -> None:
    """The next client that asked had the deletion finished, which nobody had asked for, with all that was published."""

    async def scenario(world: BrokerWorld) -> None:
        await world.resources.create_partitioned_topic(NAME, 3)
        metadata = LatePartitionStore(world.runtime, world.metadata.server)
        world.metadata, world.resources = metadata, Resources(metadata)
        await world.restart()

        async def publish() -> None:
            topic = await world.broker.registry.get(NAME.with_partition(1), create=True)
            assert isinstance(topic, PersistentTopic)
            stored: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
            topic.ledger.append([b"message"], stored.set_result)
            assert (await stored).error is None

        metadata.late = publish
        with pytest.raises(MetadataError):
            await world.broker.partitions.delete_if_empty(NAME)
        metadata.is_cut = False
        await world.restart()
        for _ in range(2):
            # Clients come again.
            with suppress(TopicNotFoundError):
                await world.broker.registry.get(NAME.with_partition(1), create=True)
            await seconds(1)
        topic = await world.broker.registry.get(NAME.with_partition(1), create=True)
        assert isinstance(topic, PersistentTopic)
        assert topic.ledger.ledgers.entry_count == 1
        found = await world.resources.partitioned_topics.find_stored(NAME)
        assert found is not None
        assert (found.partitions, found.properties, found.is_deleted) == (3, {}, False)

    run_with_broker(scenario, delete_inactive_topics=False)


def test_an_empty_topic_that_was_to_go_unasked_goes_when_a_client_asks() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.resources.create_partitioned_topic(NAME, 3)
        topics = world.resources.partitioned_topics
        await topics.mark_deleted(NAME, True, partitions=3, is_if_empty=True)
        with pytest.raises(TopicNotFoundError):
            await world.broker.registry.get(NAME.with_partition(1), create=True)
        await seconds(1)
        assert await topics.find_stored(NAME) is None

    run_with_broker(scenario, delete_inactive_topics=False)


def test_a_deletion_that_is_asked_for_takes_the_place_of_one_that_was_not() -> None:
    """Cut off, it is finished by who asks next, whatever is there."""

    async def scenario(world: BrokerWorld) -> None:
        await world.broker.partitions.create(NAME, 3)
        topics = world.resources.partitioned_topics
        await topics.mark_deleted(NAME, True, partitions=3, is_if_empty=True)
        await topics.mark_deleted(NAME, True, partitions=3)
        with pytest.raises(TopicNotFoundError):
            await world.broker.registry.get(NAME.with_partition(1), create=True)
        await seconds(1)
        assert await topics.find_stored(NAME) is None
        assert await world.broker.registry.list(NAME.namespace) == []

    run_with_broker(scenario, delete_inactive_topics=False)


@pytest.mark.parametrize("gone", [0, 1])
def test_refused_deletion_of_a_topic_that_could_not_be_unmarked_has_it_served_again(gone: int) -> None:
    """It stayed marked for as long as somebody used it, and nobody else could. What is half gone is not served."""

    async def scenario(world: BrokerWorld) -> None:
        await world.broker.partitions.create(NAME, 3)
        await world.publisher(str(NAME.with_partition(2)))
        # A refusal that could not write so.
        await world.resources.partitioned_topics.mark_deleted(NAME, True, partitions=3)
        for index in range(gone):
            await world.broker.ledgers.delete_unused(NAME.with_partition(index).managed_ledger_name)
        with pytest.raises(PreconditionFailedError, match="active producers"):
            await world.broker.partitions.delete(NAME)
        found = await world.resources.partitioned_topics.find_stored(NAME)
        assert found is not None
        assert found.is_deleted == bool(gone)
        if not gone:
            await world.broker.registry.get(NAME.with_partition(1), create=True)

    run_with_broker(scenario)

"""Topics that are given to a broker and taken from it, at every moment of their lives."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from geminga import sim
from geminga.bookkeeper.memory import MemoryBookie
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.registry import topic_registry
from geminga.broker.registry.topic_loads import Load
from geminga.broker.rest.calls.targets import partitions_or_self
from geminga.broker.rest.namespace_routes.deletion import delete_empty_namespace, delete_namespace_and_topics
from geminga.broker.subscription.seek import is_replicated, set_replicated
from geminga.managed_ledger import ManagedLedgerConfig
from geminga.metadata.memory import MemoryMetadata
from geminga.model.errors import GemingaError, NotFoundError, ServerError, TopicNotFoundError, TopicNotServedError
from geminga.model.position import EARLIEST
from geminga.model.topic_name import TopicName
from geminga.runtime import wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.broker_world import TOPIC, BrokerWorld, run_with_broker
from support.worlds.ownership import OwnershipTable

NAME = TopicName.parse(TOPIC)
OTHER = TopicName.parse("persistent://public/default/other")
#: How long after a topic began to load it is taken; the store takes up to a tenth of a second for each answer.
LEADS_MS = (0, 5, 20, 50, 90, 150, 250, 400)


def run(scenario: Callable[[BrokerWorld, OwnershipTable], Awaitable[None]], **settings: object) -> None:
    table = OwnershipTable(["a", "b"])

    async def main(world: BrokerWorld) -> None:
        await scenario(world, table)

    run_with_broker(main, ownership=table.brokers["a"], **settings)


def run_two(scenario: Callable[[BrokerWorld, BrokerWorld, OwnershipTable], Awaitable[None]]) -> None:
    """With two brokers on one metadata store and one bookie; the first has what the table does not say."""
    table = OwnershipTable(["a", "b"])

    async def main(world: sim.SimWorld) -> None:
        server, bookie = MemoryMetadata(), MemoryBookie()
        runtime = world.node("brokers").runtime

        async def on_node(_: sim.SimNode) -> None:
            a, b = (
                BrokerWorld(
                    runtime,
                    BrokerConfig(),
                    ManagedLedgerConfig(),
                    server=server,
                    bookie=bookie,
                    ownership=table.brokers[name],
                )
                for name in ("a", "b")
            )
            await a.start()
            await b.start()
            await scenario(a, b, table)
            await a.stop()
            await b.stop()

        await world.node("brokers").run(on_node)

    sim.run(main)


def test_taken_topic_is_closed_before_another_one_has_finished_loading() -> None:
    async def scenario(world: BrokerWorld, table: OwnershipTable) -> None:
        client = await world.publisher()
        await client.publish(0)
        world.metadata.faults.delay_ms_max = 20
        loading = asyncio.ensure_future(world.broker.registry.get(OTHER, create=True))
        while str(OTHER) not in world.broker.registry.loads:
            await wait_ms(1)
        world.metadata.faults.delay_ms_max = 60_000
        giving = asyncio.ensure_future(table.give([NAME, OTHER], "b"))
        await wait_ms(1)
        assert world.broker.topics[str(NAME)].is_closing
        assert not loading.done()
        await giving
        await asyncio.gather(loading, return_exceptions=True)
        assert not world.broker.topics
        world.metadata.faults.delay_ms_max = 0

    run(scenario, keep_alive_interval_s=1_000_000)


def test_topic_that_is_taken_while_it_is_loaded_is_never_registered() -> None:
    async def scenario(world: BrokerWorld, table: OwnershipTable) -> None:
        world.metadata.faults.delay_ms_max = 20
        loading = asyncio.ensure_future(world.broker.registry.get(OTHER, create=True))
        while world.ledgers.get(OTHER.managed_ledger_name) is None:
            await wait_ms(1)
        # Its policies change while it reads them, and again: then they can not be read for long.
        for _ in range(100):
            world.broker.namespaces.forget(OTHER.namespace)
            await wait_ms(1)
        world.metadata.faults.delay_ms_max = 60_000
        world.broker.namespaces.forget(OTHER.namespace)
        await wait_ms(100)
        assert not loading.done()
        assert not world.broker.topics
        giving = asyncio.ensure_future(table.give([OTHER], "b"))
        with pytest.raises(TopicNotServedError):
            await loading
        assert not world.broker.topics
        await giving
        assert world.ledgers.get(OTHER.managed_ledger_name) is None
        world.metadata.faults.delay_ms_max = 0

    run(scenario, keep_alive_interval_s=1_000_000, topic_load_timeout_s=1_000_000)


def test_topic_that_ended_loading_is_closed_while_another_one_is_stuck() -> None:
    stuck_name = TopicName.parse("persistent://public/default/stuck")

    async def scenario(world: BrokerWorld, table: OwnershipTable) -> None:
        loads = world.broker.registry.loads
        stuck = loads._loads[str(stuck_name)] = Load(stuck_name, create=True, is_for_deletion=False)
        loads._running[str(stuck_name)] = 0.0
        world.metadata.faults.delay_ms_max = 20
        loading = asyncio.ensure_future(world.broker.registry.get(OTHER, create=True))
        # Its owner was asked already: it will be opened.
        while not any("/other" in path for path in world.ledgers._opening):
            await wait_ms(1)
        giving = asyncio.ensure_future(table.give([OTHER, stuck_name], "b"))
        with pytest.raises(TopicNotServedError):
            await loading
        assert not world.broker.topics
        assert not giving.done()
        del loads._loads[str(stuck_name)], loads._running[str(stuck_name)]
        stuck.end(GemingaError("it could not be loaded"))
        await giving

    run(scenario)


def test_taken_topic_is_unloaded_and_its_clients_look_it_up_again() -> None:
    async def scenario(world: BrokerWorld, table: OwnershipTable) -> None:
        client = await world.publisher()
        await client.subscribe(consumer_id=7)
        await client.publish(0)
        await world.broker.registry.get(OTHER, create=True)
        await table.give([NAME], "b")
        assert list(world.broker.topics) == [str(OTHER)]
        assert (await client.expect(pb.BaseCommand.CLOSE_PRODUCER)).close_producer.producer_id == 1
        assert (await client.expect(pb.BaseCommand.CLOSE_CONSUMER)).close_consumer.consumer_id == 7
        client.request_producer(producer_id=2)
        assert (await client.error()).error == ServerError.SERVICE_NOT_READY
        await table.give([NAME], "a")
        await client.create_producer(producer_id=3)
        assert str(NAME) in world.broker.topics

    run(scenario)


@pytest.mark.parametrize("lead_ms", LEADS_MS)
def test_topic_taken_while_it_is_loaded_is_not_open_when_the_next_owner_begins(lead_ms: int) -> None:
    async def scenario(world: BrokerWorld, table: OwnershipTable) -> None:
        await (await world.broker.registry.get(NAME, create=True)).create_subscription("sub", EARLIEST)
        await world.broker.registry.unload(NAME)
        world.metadata.faults.delay_ms_max = 100
        client = await world.client()
        client.request_producer()
        await wait_ms(lead_ms)
        await table.give([NAME], "b")
        assert not world.broker.topics
        assert world.ledgers.get(NAME.managed_ledger_name) is None
        await wait_ms(5000)
        assert not world.broker.topics
        kinds = [command.type for command, _ in client.received]
        # It got in for a moment, or was refused; in any case it knows.
        assert kinds[-1] in (pb.BaseCommand.ERROR, pb.BaseCommand.CLOSE_PRODUCER)

    run(scenario)


@pytest.mark.parametrize("lead_ms", LEADS_MS)
@pytest.mark.parametrize("is_deleted", [False, True])
def test_topic_taken_while_it_is_unloaded_or_deleted_is_gone_when_the_next_owner_begins(
    lead_ms: int, is_deleted: bool
) -> None:
    async def scenario(world: BrokerWorld, table: OwnershipTable) -> None:
        topic = await world.broker.registry.get(NAME, create=True)
        await topic.create_subscription("sub", EARLIEST)
        world.metadata.faults.delay_ms_max = 100
        ending = world.broker.registry.delete(NAME) if is_deleted else world.broker.registry.unload(NAME)
        task = asyncio.ensure_future(ending)
        await wait_ms(lead_ms)
        await table.give([NAME], "b")
        assert not world.broker.topics
        try:
            await task
            assert await world.broker.registry.exists(NAME) is not is_deleted
        except TopicNotServedError:
            assert is_deleted
            assert await world.broker.registry.exists(NAME)

    run(scenario)


def test_topic_given_back_at_once_opens_again() -> None:
    async def scenario(world: BrokerWorld, table: OwnershipTable) -> None:
        first = await world.broker.registry.get(NAME, create=True)
        giving = asyncio.ensure_future(table.give([NAME], "b"))
        while not first.is_closing:
            await wait_ms(0)
        again = asyncio.ensure_future(world.broker.registry.get(NAME, create=True))
        await giving
        with pytest.raises(TopicNotServedError):
            await again
        await table.give([NAME], "a")
        assert await world.broker.registry.get(NAME, create=True) is not first

    run(scenario)


def test_what_only_the_owner_of_each_partition_can_do_is_refused_with_nothing_done() -> None:
    async def scenario(world: BrokerWorld, table: OwnershipTable) -> None:
        broker, second = world.broker, NAME.with_partition(1)
        await broker.partitions.create(NAME, 3)
        await broker.registry.get(OTHER, create=True)
        await table.give([second], "b")
        with pytest.raises(TopicNotServedError, match="topic-partition-1"):
            await broker.partitions.delete(NAME, force=True)
        with pytest.raises(TopicNotServedError, match="topic-partition-1"):
            await delete_namespace_and_topics(broker.administered, "public/default")
        with pytest.raises(TopicNotServedError, match="topic-partition-1"):
            async for _ in partitions_or_self(broker.administered, NAME):
                pytest.fail("something was done to the first partition")
        assert await broker.registry.partitioned_count(NAME) == 3
        assert len(await broker.registry.list("public/default")) == 4
        assert not (await world.resources.namespaces.get("public/default")).is_deleted
        await table.give([second], "a")
        await broker.partitions.delete(NAME, force=True)
        assert await broker.registry.list("public/default") == [str(OTHER)]

    run(scenario)


def test_partitions_grow_with_their_subscriptions_whoever_will_serve_them() -> None:
    async def scenario(a: BrokerWorld, b: BrokerWorld, table: OwnershipTable) -> None:
        for index in (0, 3):
            table.owners[str(NAME.with_partition(index))] = "b"
        await a.broker.partitions.create(NAME, 2)
        first = await b.broker.registry.get(NAME.with_partition(0), create=False)
        for subscription in ("sub", "other / sub"):
            await first.create_subscription(subscription, EARLIEST)
        await a.broker.partitions.grow(NAME, 5)
        assert not a.broker.topics
        assert await b.broker.registry.partitioned_count(NAME) == 5
        for index in range(2, 5):
            owner = b if index == 3 else a
            topic = await owner.broker.registry.get(NAME.with_partition(index), create=False)
            assert sorted(topic.subscriptions) == ["other / sub", "sub"]
            assert all(one.cursor.mark_delete_position == EARLIEST for one in topic.subscriptions.values())

    run_two(scenario)


@pytest.mark.parametrize("is_loaded", [True, False])
def test_subscriptions_of_new_partitions_get_what_those_of_the_first_do(is_loaded: bool) -> None:
    """Entry filters go by properties of a subscription, which are taken as it is made: consumers bring them in vain."""

    async def scenario(a: BrokerWorld, b: BrokerWorld, table: OwnershipTable) -> None:
        table.owners[str(NAME.with_partition(3))] = "b"
        await a.broker.partitions.create(NAME, 2)
        first = await a.broker.registry.get(NAME.with_partition(0), create=False)
        await first.create_subscription("red", EARLIEST, {"only": "red", "#pulsar.internal.delayed.bucket0": "7"})
        late = await first.create_subscription("late", EARLIEST)
        await set_replicated(late, True)
        if not is_loaded:
            await a.broker.registry.unload(first.name)
            await a.broker.registry.load(NAME.with_partition(2))
        await a.broker.partitions.grow(NAME, 4)
        for index in range(2, 4):
            owner = b if index == 3 else a
            topic = await owner.broker.registry.get(NAME.with_partition(index), create=False)
            found = {name: dict(one.cursor.cursor_properties) for name, one in topic.subscriptions.items()}
            assert found == {"late": {}, "red": {"only": "red"}}
            assert [name for name, one in topic.subscriptions.items() if is_replicated(one)] == ["late"]

    run_two(scenario)


def test_what_one_broker_stored_is_served_by_the_next() -> None:
    async def scenario(a: BrokerWorld, b: BrokerWorld, table: OwnershipTable) -> None:
        owners = [a, b]
        stored = []
        for turn in range(6):
            owner = owners[turn % 2]
            await table.give([NAME], "ab"[turn % 2])
            client = await owner.client()
            await client.create_producer()
            stored += [await client.publish(number) for number in range(turn * 3, turn * 3 + 3)]
            assert [len(one.broker.topics) for one in owners] == ([1, 0] if owner is a else [0, 1])
        await client.subscribe()
        got = [(await client.expect(pb.BaseCommand.MESSAGE)).message.message_id for _ in stored]
        assert [(one.ledgerId, one.entryId) for one in got] == stored
        assert stored == sorted(set(stored))

    run_two(scenario)


def test_an_owner_that_was_not_told_stores_nothing_once_the_next_one_began() -> None:
    async def scenario(a: BrokerWorld, b: BrokerWorld, table: OwnershipTable) -> None:
        slow, quick = await a.client(), await b.client()
        await slow.create_producer()
        stored = [await slow.publish(number) for number in range(3)]
        # What it is sent from here on is on its way while the next one takes over.
        tell = await table.seize([NAME], "b")
        await quick.create_producer()
        slow.send_message(3)
        error = await slow.expect(pb.BaseCommand.CLOSE_PRODUCER)
        assert error.close_producer.producer_id == 1
        stored.append(await quick.publish(0))
        await tell()
        assert not a.broker.topics
        await quick.subscribe()
        got = [(await quick.expect(pb.BaseCommand.MESSAGE)).message.message_id for _ in stored]
        assert [(one.ledgerId, one.entryId) for one in got] == stored

    run_two(scenario)


def test_watchers_of_both_brokers_hear_of_topics_of_each() -> None:
    async def scenario(a: BrokerWorld, b: BrokerWorld, table: OwnershipTable) -> None:
        table.owners[str(NAME)] = "b"
        clients = [await a.client(), await b.client()]
        for client in clients:
            watch = pb.CommandWatchTopicList(
                request_id=client.next_request_id(),
                watcher_id=1,
                namespace="public/default",
                topics_pattern="persistent://public/default/.*",
            )
            client.send(pb.BaseCommand(type=pb.BaseCommand.WATCH_TOPIC_LIST, watchTopicList=watch))
            await client.expect(pb.BaseCommand.WATCH_TOPIC_LIST_SUCCESS)
        for world, name in ((a, OTHER), (b, NAME)):
            await world.broker.registry.get(name, create=True)
            for client in clients:
                update = (await client.expect(pb.BaseCommand.WATCH_TOPIC_UPDATE)).watchTopicUpdate
                assert list(update.new_topics) == [str(name)]
        await b.broker.registry.delete(NAME)
        for client in clients:
            update = (await client.expect(pb.BaseCommand.WATCH_TOPIC_UPDATE)).watchTopicUpdate
            assert list(update.deleted_topics) == [str(NAME)]

    run_two(scenario)


def test_a_topic_of_a_namespace_that_goes_is_deleted_without_the_policies_that_another_broker_keeps() -> None:
    async def scenario(a: BrokerWorld, b: BrokerWorld, table: OwnershipTable) -> None:
        namespace = "public/passing"
        name = TopicName.parse(f"persistent://{namespace}/one")
        await a.broker.resources.namespaces.create(namespace, {"replication_clusters": ["standalone"]})
        for ledger in (name, TopicName.parse(f"persistent://{namespace}/__change_events")):
            await b.broker.ledgers.create(ledger.managed_ledger_name)
        await table.give([name], "b")
        with pytest.raises(TopicNotServedError, match="__change_events"):
            await b.broker.registry.get(name, create=False)
        await a.broker.resources.namespaces.set_policy(namespace, "deleted", True)
        await wait_ms(100)
        await b.broker.registry.delete(name, force=True, is_namespace_going=True)
        assert not await a.broker.registry.exists(name)

    run_two(scenario)


@pytest.mark.parametrize("is_partition", [False, True])
def test_who_did_not_hear_of_a_deletion_leaves_no_topic_behind(is_partition: bool) -> None:
    async def scenario(a: BrokerWorld, b: BrokerWorld, table: OwnershipTable) -> None:
        namespace = "public/passing"
        whole = TopicName.parse(f"persistent://{namespace}/whole")
        name = TopicName.parse(f"{whole}-partition-0") if is_partition else whole
        await a.broker.resources.namespaces.create(namespace, {"replication_clusters": ["standalone"]})
        if is_partition:
            await a.broker.partitions.create(whole, 2)
        await table.give([name], "b")
        assert await b.broker.registry.require_namespace(name)
        b.metadata.faults.watch_lost_percent = 100
        # As one that was cut off after it deleted what it found, and before it deletes the rest.
        if is_partition:
            found = await a.broker.resources.partitioned_topics.find_stored(whole)
            assert found is not None
            await a.broker.ledgers.delete(name.managed_ledger_name)
            b.metadata.faults.delay_ms_max = 20
            loading = asyncio.ensure_future(b.broker.registry.get(name, create=True))
            while not b.ledgers._opening:
                await wait_ms(1)
            await a.broker.resources.partitioned_topics.mark_deleted(whole, True, partitions=found.partitions)
        else:
            await delete_namespace_and_topics(a.broker.administered, namespace)
            loading = asyncio.ensure_future(b.broker.registry.get(name, create=True))
        with pytest.raises(TopicNotFoundError):
            await loading
        assert not b.broker.topics
        assert not await a.broker.registry.exists(name)

    run_two(scenario)


def test_two_brokers_create_and_delete_the_same_topic_and_none_sees_half_of_it() -> None:
    async def scenario(a: BrokerWorld, b: BrokerWorld, table: OwnershipTable) -> None:
        for world in (a, b):
            world.metadata.faults.delay_ms_max = 50
        for _ in range(5):
            results = await asyncio.gather(
                a.broker.partitions.create(NAME, 3),
                b.broker.partitions.create(NAME, 3),
                return_exceptions=True,
            )
            assert any(one is None for one in results), results
            assert [await one.broker.registry.partitioned_count(NAME) for one in (a, b)] == [3, 3]
            await a.broker.partitions.create_missing(NAME)
            assert len(await b.broker.registry.list("public/default")) == 3
            results = await asyncio.gather(
                a.broker.partitions.delete(NAME),
                b.broker.partitions.delete(NAME),
                return_exceptions=True,
            )
            assert all(one is None or isinstance(one, GemingaError) for one in results), results
            assert await b.broker.registry.list("public/default") == []
            assert await b.broker.registry.partitioned_count(NAME) == 0

    run_two(scenario)


def test_topics_that_are_taken_are_unloaded_in_groups_to_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_registry, "UNLOADS_AT_ONCE", 2)

    async def scenario(world: BrokerWorld, _: OwnershipTable) -> None:
        for number in range(5):
            await world.broker.registry.get(TopicName.parse(f"persistent://public/default/t{number}"), create=True)
        await world.broker.registry.taken(lambda name: name.local_name.startswith("t"))
        assert not [name for name in world.broker.topics if "/t" in name]

    run(scenario)


@pytest.mark.parametrize("is_forced", [False, True])
def test_a_forced_deletion_is_finished_beside_another_one_on_the_other_broker(is_forced: bool) -> None:
    """The other one, refused, took the mark back, clients came, and both ended with 409, as did each retry."""
    namespace = "public/passing"
    names = [TopicName.parse(f"persistent://{namespace}/{name}") for name in ("one", "two", "three")]

    async def scenario(a: BrokerWorld, b: BrokerWorld, table: OwnershipTable) -> None:
        del table
        other = delete_namespace_and_topics if is_forced else delete_empty_namespace
        for lead_ms in (0, 20, 50, 90, 150, 250, 400, 600):
            await a.broker.resources.namespaces.create(namespace, {"replication_clusters": ["standalone"]})
            for name in names:
                await a.broker.registry.get(name, create=True)
            a.metadata.faults.delay_ms_max = b.metadata.faults.delay_ms_max = 50
            forced = asyncio.ensure_future(delete_namespace_and_topics(a.broker.administered, namespace))
            await wait_ms(lead_ms)

            async def come() -> None:
                # A client that comes again and again.
                with suppress(GemingaError):
                    while not forced.done():  # noqa: B023
                        await a.broker.registry.get(names[0], create=True)
                        await wait_ms(5)

            outcomes = await asyncio.gather(
                forced, other(b.broker.administered, namespace), come(), come(), return_exceptions=True
            )
            assert outcomes[0] is None or outcomes[1] is None, (lead_ms, outcomes)
            assert isinstance(outcomes[0], NotFoundError | None), (lead_ms, outcomes)
            assert await a.broker.resources.namespaces.find(namespace) is None
            a.metadata.faults.delay_ms_max = b.metadata.faults.delay_ms_max = 0
            assert not await a.broker.registry.list(namespace)

    run_two(scenario)

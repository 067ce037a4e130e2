"""What a failed command held is gone with its error: no cycle of traceback and future waits for the collector."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable, Generator

from geminga.broker.compaction.ledger import CompactedLedger
from geminga.broker.compaction.paced import PacedWork
from geminga.broker.compaction.run import name_it
from geminga.broker.handlers.producer_names import ProducerNames
from geminga.broker.rest.message_routes.consumers import HttpConsumer, JoinedConsumer
from geminga.broker.rest.message_routes.core.held import Acked
from geminga.broker.system_topics.table import TopicTable
from geminga.broker.topic import delayed_snapshots
from geminga.model.errors import DiskIOError, MetadataUnavailableError, StorageError
from geminga.model.position import EARLIEST
from geminga.model.topic_name import TopicName
from geminga.runtime import answer_of, next_turn, wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.clusters.transacting import transacting
from support.house.uncollected import fails, uncollected
from support.stories.compaction_story import compacted
from support.stories.lake_latest_story import FOREVER, LAKE_LEDGERS, LakeLatestStory
from support.worlds.broker_world import TOPIC, BrokerWorld, run_with_broker
from support.worlds.lake_world import MemoryLakeStore
from support.worlds.policy_levels import run_quietly
from support.worlds.schema_world import SchemaWorld, run_with_schemas
from unit.broker.rest.message_routes.test_consume import Web

CALLS = 5


async def failing(call: Callable[[], Awaitable[object]]) -> list[str]:
    """What several that fail, one after the other and together, leave."""

    for at_once in (1, CALLS):
        assert await asyncio.gather(*(fails(call) for _ in range(at_once))) == [True] * at_once
    with uncollected() as found:
        for at_once in (1, 1, CALLS):
            assert await asyncio.gather(*(fails(call) for _ in range(at_once))) == [True] * at_once
        await next_turn()
    return found


def test_topic_that_is_not_there_leaves_nothing() -> None:
    async def scenario(world: BrokerWorld) -> None:
        name = TopicName.parse(TOPIC)
        assert await failing(lambda: world.broker.registry.get(name, create=False)) == []

    run_with_broker(scenario)


def test_topic_that_may_not_be_made_leaves_nothing() -> None:
    async def scenario(world: BrokerWorld) -> None:
        name = TopicName.parse("persistent://public/nowhere/topic")
        assert await failing(lambda: world.broker.registry.get(name, create=True)) == []

    run_with_broker(scenario)


def test_value_of_a_table_that_can_not_be_stored_leaves_nothing() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await world.broker.registry.get(TopicName.parse(TOPIC), create=True)
        await topic.ledger.close()
        assert await failing(lambda: TopicTable._append(topic, [bytes(1000)])) == []

    run_with_broker(scenario)


def test_delays_that_can_not_be_stored_leave_nothing() -> None:
    async def scenario(world: SchemaWorld) -> None:
        handle = await world.bookkeeper.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
        await handle.close()
        assert await failing(lambda: delayed_snapshots._append(handle, bytes(1000))) == []

    run_with_schemas(scenario)


def test_schema_that_can_not_be_stored_leaves_nothing(caplog) -> None:
    caplog.set_level(logging.CRITICAL, "geminga")  # what is logged is kept, with its errors

    async def scenario(world: SchemaWorld) -> None:
        async def write() -> None:
            world.new_process()  # one that takes the bookie for a good one
            world.bookie.add_error = DiskIOError("eio")
            try:
                await world.store._write_entry("public/default/topic", bytes(1000))
            finally:
                world.bookie.add_error = None

        assert await failing(write) == []

    run_with_schemas(scenario)


def test_compacted_ledger_that_can_not_be_read_or_named_leaves_nothing() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await world.broker.registry.get(TopicName.parse(TOPIC), create=True)
        ledger = await topic.ledger.attached().create(topic.ledger.persistence, {})
        ledger.append([b"x"], lambda *_: None)
        await ledger.close()
        compacted = CompactedLedger(topic.ledger, ledger.ledger_id, EARLIEST)
        await compacted.open()

        def read() -> Awaitable[object]:
            world.bookie.read_error = DiskIOError("eio")
            return compacted.at(0, 1, 1)

        assert await failing(read) == []
        cursor = await topic.ledger.open_cursor("c", initial=EARLIEST)
        cursor.is_closed = True
        assert await failing(lambda: name_it(cursor, EARLIEST, ledger.ledger_id)) == []

    run_with_broker(scenario)


def test_messages_that_were_compacted_and_can_not_be_read_leave_nothing() -> None:
    async def scenario(world: BrokerWorld) -> None:
        story = await compacted(world, ("a", "1"))
        served = (await story.topic()).compacted
        assert served is not None

        def read() -> Awaitable[object]:
            world.bookie.read_error = DiskIOError("eio")
            return answer_of(lambda done: served.read(EARLIEST, 1, 1, done))

        assert await failing(read) == []

    run_quietly(scenario)


def test_messages_that_can_not_be_read_from_the_lake_leave_nothing() -> None:
    store = MemoryLakeStore()

    async def scenario(world: BrokerWorld) -> None:
        story = LakeLatestStory(world)
        await story.publish(("a", "1"))
        await story.offload()
        await story.read()
        view = (await story.latest()).view
        assert view is not None
        view._log._services.lake().groups.forget("")

        def read() -> Awaitable[object]:
            store.fail["read"] = OSError(errno.EIO, "eio")
            return answer_of(lambda done: view.read(EARLIEST, 1, 1, done))

        assert await failing(read) == []
        store.fail.clear()

    run_quietly(
        scenario, ledger_config=LAKE_LEDGERS, lake_store=store, **{"reads_compacted_from_lake": True, **FOREVER}
    )


def test_work_in_turns_that_fails_leaves_nothing() -> None:
    def steps() -> Generator[None, None, None]:
        yield
        raise StorageError("disk")

    async def scenario(world: BrokerWorld) -> None:
        topic = await world.broker.registry.get(TopicName.parse(TOPIC), create=True)
        clock = world.broker.runtime.clock
        assert await failing(lambda: PacedWork(topic.ledger.reader.catch_up, clock, None).do(steps())) == []

    run_with_broker(scenario)


class Away:
    """Metadata that can not be had."""

    async def put(self, path: str, value: bytes, **options: object) -> None:
        await next_turn()
        raise MetadataUnavailableError("away")


def test_name_of_a_producer_that_can_not_be_made_leaves_nothing() -> None:
    async def main() -> None:
        names = ProducerNames(Away(), "c")  # type: ignore[arg-type]
        assert await failing(names.next) == []

    asyncio.run(main())


def test_acknowledgment_that_a_transaction_can_not_have_leaves_nothing() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await transacting(world)
        await client.client.subscribe(subType=pb.CommandSubscribe.Shared)
        await client.client.create_producer()
        client.client.send_message(1)
        await wait_ms(50)
        ((message_id, _),) = client.messages()
        one, two = await client.begin(), await client.begin()
        for txn_id in (one, two):
            await client.add_subscription(txn_id)
        assert not (await client.acknowledge([message_id], one)).HasField("error")

        async def refused() -> None:
            assert (await client.acknowledge([message_id], two)).error == pb.TransactionConflict

        await refused()
        with uncollected() as found:
            await refused()
            await refused()
            await wait_ms(1)
        assert found == []

    run_with_broker(scenario, transaction_coordinator_enabled=True)


def test_acknowledgment_over_http_that_is_not_stored_leaves_nothing() -> None:
    async def scenario(world: BrokerWorld) -> None:
        web = Web(world)
        await web.make()
        topic = world.broker.registry.loaded[TOPIC]
        (member,) = topic.subscriptions["s"].consumers
        consumer = HttpConsumer("c", "", TopicName.parse(TOPIC), "s", 1000, 1000)
        consumer.members[1] = JoinedConsumer(-1, member)
        await web.produce("a")
        await topic.ledger.close()
        acked = Acked(-1, topic.ledger.ledgers.first_position, 0, 1)
        assert await failing(lambda: consumer._store([acked], is_cumulative=False)) == []

    run_with_broker(scenario)

"""What the load of a topic asks of the metadata, one row each: an addition shows here what it costs every topic."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from geminga.bookkeeper import MemoryBookie
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.managed_ledger import ManagedLedgerConfig
from geminga.metadata import MemoryMetadataStore
from geminga.metadata.ports import Node, PutResult
from geminga.model.topic_name import TopicName
from geminga.sim import SimNode, SimWorld
from geminga.sim import run as run_world
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.broker_world import BrokerWorld

TOPIC = "persistent://public/default/topic"
LEDGER = "/managed-ledgers/public/default/persistent/topic"
PARTITIONED = "get /admin/partitioned-topics/public/default/persistent/topic"
DELAYS = "get /geminga/delayed-index/public/default/persistent/topic"
#: A topic's first ledger, and any after it: its node, and the list that names it.
NEW_LEDGER = Counter({"put /ledgers/N": 1, f"put {LEDGER}": 1})


class CountingMetadata(MemoryMetadataStore):
    """Notes what it is asked for; numbers of ledgers are all alike."""

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self.asked: Counter[str] = Counter()

    def _note(self, operation: str, path: str) -> None:
        self.asked[f"{operation} " + re.sub(r"^/ledgers/.*L\d+$", "/ledgers/N", path)] += 1

    def take(self) -> Counter[str]:
        """Since the last call; ids of ledgers come in groups, and are not counted."""
        asked, self.asked = self.asked, Counter()
        return asked

    async def get(self, path: str) -> Node | None:
        self._note("get", path)
        return await super().get(path)

    async def exists(self, path: str) -> bool:
        self._note("exists", path)
        return await super().exists(path)

    async def children(self, path: str) -> list[str]:
        self._note("children", path)
        return await super().children(path)

    async def put(self, path: str, value: bytes, **options) -> PutResult:
        self._note("put", path)
        return await super().put(path, value, **options)


def run(scenario) -> None:
    async def main(world: SimWorld) -> None:
        async def on_node(node: SimNode) -> None:
            store = CountingMetadata(node.runtime)
            broker = BrokerWorld(
                node.runtime, BrokerConfig(), ManagedLedgerConfig(), store=store, bookie=MemoryBookie()
            )
            await broker.start()
            # What the first topic of a namespace asks for is remembered.
            client = await broker.client()
            await client.create_producer(f"{TOPIC}-before", producer_id=2)
            await client.publish(0, producer_id=2)
            store.take()
            await scenario(broker, store)
            await broker.stop()

        await world.node("broker").run(on_node)

    run_world(main, seed=1)


def test_first_send_to_a_new_topic_reads_five_nodes_and_writes_three() -> None:
    async def scenario(world: BrokerWorld, store: CountingMetadata) -> None:
        client = await world.client()
        assert await world.broker.registry.partitioned_count(TopicName.parse(TOPIC), create=True) == 0
        assert store.take() == Counter({PARTITIONED: 1})
        await client.create_producer(TOPIC)
        # The namespace's policies, and whether a partitioned topic was made meanwhile, are read again behind the
        # topic's node: see broker/registry/new_topics.py.
        assert store.take() == Counter(
            {PARTITIONED: 2, f"get {LEDGER}": 1, f"put {LEDGER}": 1, "get /admin/policies/public/default": 1}
        )
        await client.publish(0)
        assert store.take() == NEW_LEDGER
        # Who waits for a message has to be there: what is known to wait is looked for once.
        await client.subscribe(TOPIC)
        assert store.take() == Counter({DELAYS: 1, f"put {LEDGER}/sub": 1})
        await client.subscribe(TOPIC, consumer_id=2, subscription="other")
        assert store.take() == Counter({f"put {LEDGER}/other": 1})

    run(scenario)


def test_load_of_a_topic_that_is_there_writes_nothing() -> None:
    async def scenario(world: BrokerWorld, store: CountingMetadata) -> None:
        client = await world.publisher(TOPIC)
        await client.publish(0)
        await world.broker.registry.unload(TopicName.parse(TOPIC))
        store.take()
        await client.create_producer(TOPIC)
        loaded = Counter({PARTITIONED: 1, f"get {LEDGER}": 1, f"children {LEDGER}": 1})
        assert store.take() == loaded
        await client.subscribe(TOPIC)
        await world.broker.registry.unload(TopicName.parse(TOPIC))
        store.take()
        await client.create_producer(TOPIC, producer_id=2)
        cursor = f"get {LEDGER}/sub"
        assert store.take() == loaded + Counter({cursor: 1, DELAYS: 1})

    run(scenario)


@pytest.mark.parametrize(
    ("name", "shared"),
    [
        ("new-{}", "get /admin/policies/public/default"),
        ("whole-partition-{}", f"{PARTITIONED.removesuffix('topic')}whole"),
    ],
)
def test_what_topics_that_are_made_together_share_is_read_for_all_of_them(name, shared) -> None:
    async def scenario(world: BrokerWorld, store: CountingMetadata) -> None:
        client = await world.client()
        await world.resources.partitioned_topics.create(TopicName.parse(TOPIC.replace("topic", "whole")), 100)
        store.take()
        for number in range(100):
            client.request_producer(TOPIC.replace("topic", name.format(number)), producer_id=number)
        for _ in range(100):
            await client.expect(pb.BaseCommand.PRODUCER_SUCCESS)
        # Each of them asks once, or, of partitions, three times.
        assert store.take()[shared] <= 10

    run(scenario)


def test_topic_of_the_name_of_a_partitioned_one_is_served_as_long_as_it_is_there() -> None:
    """Other makes of brokers have left both; what is not there is made of neither."""

    async def scenario(world: BrokerWorld, store: CountingMetadata) -> None:
        client, name = await world.client(), TopicName.parse(TOPIC)
        await world.ledgers.create(name.managed_ledger_name)
        await world.resources.partitioned_topics.create(name, 3)
        await client.create_producer(TOPIC)
        await world.resources.partitioned_topics.create(TopicName.parse(f"{TOPIC}-all"), 3)
        await client.create_producer(f"{TOPIC}-all-partition-2", producer_id=4)
        client.request_producer(f"{TOPIC}-all", producer_id=5)
        assert "is a partitioned topic" in (await client.error()).message

    run(scenario)


def test_client_of_a_topic_that_is_loaded_asks_for_nothing_that_is_stored() -> None:
    async def scenario(world: BrokerWorld, store: CountingMetadata) -> None:
        client = await world.publisher()
        await client.subscribe()
        store.take()
        other = await world.client()
        other.send(
            pb.BaseCommand(
                type=pb.BaseCommand.LOOKUP,
                lookupTopic=pb.CommandLookupTopic(topic=TOPIC, request_id=other.next_request_id()),
            )
        )
        await other.expect(pb.BaseCommand.LOOKUP_RESPONSE)
        await other.create_producer(producer_name="other")
        await other.subscribe(subType=pb.CommandSubscribe.Shared, subscription="sub-2", durable=False)
        assert store.take() == Counter()
        # How many partitions there are may change at any time: it is asked for each time.
        asked = pb.CommandPartitionedTopicMetadata(topic=TOPIC, request_id=other.next_request_id())
        other.send(pb.BaseCommand(type=pb.BaseCommand.PARTITIONED_METADATA, partitionMetadata=asked))
        await other.expect(pb.BaseCommand.PARTITIONED_METADATA_RESPONSE)
        assert store.take() == Counter({PARTITIONED: 1})

    run(scenario)

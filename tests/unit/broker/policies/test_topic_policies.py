"""Policies of topics as events of their namespace: durable, followed at once, rewritten when most are superseded."""

from __future__ import annotations

import asyncio
import io
import json

import fastavro
import pytest

from geminga.bookkeeper.memory import MemoryBookie
from geminga.broker.registry.namespaces import TopicMode
from geminga.broker.rest.namespace_routes.deletion import delete_namespace_and_topics
from geminga.broker.schema.core.strategy import Strategy
from geminga.broker.schema.registry import schema_id_of
from geminga.broker.system_topics import events, table
from geminga.broker.system_topics.namespace_events import SCHEMA_NAME
from geminga.broker.topic.persistent import PersistentTopic
from geminga.model.errors import DiskIOError, NotAllowedError, StorageError
from geminga.model.position import EARLIEST
from geminga.model.topic_name import EVENTS_CURSOR, TopicName
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.compacted import COMPACTED_LEDGER, CompactedEntry, encode_compacted
from geminga.wire.pulsar.metadata import encode_entry, split_entry
from geminga.wire.pulsar.schema_info import SchemaInfo, SchemaType, decode_version, encode_version
from support.house.turn_probe import TurnProbe
from support.worlds.broker_world import TOPIC, BrokerWorld, run_with_broker
from support.worlds.ledgers import Appends
from support.worlds.policy_levels import NAME, NAMESPACE, SMALL_LEDGERS, run_quietly, seconds, set_topic, topic_of

EVENTS = TopicName.parse(f"persistent://{NAMESPACE}/__change_events")


async def events_topic(world: BrokerWorld) -> PersistentTopic:
    topic = await world.broker.registry.get(EVENTS, create=False)
    assert isinstance(topic, PersistentTopic)
    return topic


async def document_of(world: BrokerWorld, name: TopicName = NAME) -> dict[str, object] | None:
    found = await world.broker.policies.topics.get(name)
    return None if found is None else dict(found.document)


def test_policies_of_a_topic_survive_a_restart() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await topic_of(world)
        quota = {"message_age": {"limitTime": 7, "policy": "producer_exception", "limit": 0, "limitSize": None}}
        await set_topic(world, "messageTTLInSeconds", 5)
        await set_topic(world, "backLogQuotaMap", quota)
        await set_topic(world, "maxUnackedMessagesOnConsumer", 0)
        await set_topic(world, "maxUnackedMessagesOnSubscription", 9)
        await set_topic(world, "subscriptionTypesEnabled", ["Shared", "Key_Shared"])
        await world.restart()
        assert await document_of(world) == {
            "messageTTLInSeconds": 5,
            "backLogQuotaMap": quota,
            "maxUnackedMessagesOnConsumer": 0,
            "maxUnackedMessagesOnSubscription": 9,
            "subscriptionTypesEnabled": ["Shared", "Key_Shared"],
        }
        rules = (await topic_of(world)).rules
        assert rules.ttl_ms == 5000
        assert rules.unacked == (0, 9)
        assert rules.subscription_types == ("Shared", "Key_Shared")

    run_quietly(scenario)


def test_change_is_followed_by_the_partitions_that_are_loaded() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.broker.partitions.create(NAME, 2)
        await set_topic(world, "messageTTLInSeconds", 5)
        for index in range(2):
            partition = await world.broker.registry.get(NAME.with_partition(index), create=False)
            assert isinstance(partition, PersistentTopic)
            assert partition.rules.ttl_ms == 5000
        await set_topic(world, "messageTTLInSeconds", None, NAME.with_partition(1))
        assert partition.rules.ttl_ms == 0
        assert await document_of(world) is None

    run_quietly(scenario)


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_policies_go_with_their_topic(is_partitioned: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        if is_partitioned:
            await world.broker.partitions.create(NAME, 2)
        else:
            await topic_of(world)
        await set_topic(world, "messageTTLInSeconds", 5)
        if is_partitioned:
            await world.broker.partitions.delete(NAME)
        else:
            await world.broker.registry.delete(NAME)
        assert await document_of(world) is None
        await world.restart()
        assert await document_of(world) is None

    run_quietly(scenario)


def test_policies_go_with_their_namespace() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await topic_of(world)
        await set_topic(world, "messageTTLInSeconds", 5)
        await delete_namespace_and_topics(world.broker.administered, NAMESPACE)
        await world.resources.namespaces.create(NAMESPACE, {})
        await world.broker.policies_changed(NAMESPACE)
        assert await document_of(world) is None
        assert not await world.broker.registry.exists(EVENTS)

    run_quietly(scenario)


def test_events_topic_is_neither_listed_nor_deleted_when_idle() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await topic_of(world)
        await (await topic_of(world)).create_subscription("sub", (await topic_of(world)).last_position)
        await set_topic(world, "messageTTLInSeconds", 5)
        await seconds(10_000)
        assert await world.broker.registry.list(NAMESPACE, mode=TopicMode.ALL) == [str(NAME)]
        assert str(EVENTS) in await world.broker.registry.list(NAMESPACE, has_system=True)
        assert await document_of(world) == {"messageTTLInSeconds": 5}

    run_quietly(scenario, delete_inactive_topics=True)


def test_superseded_events_are_trimmed_and_the_live_ones_kept(monkeypatch) -> None:
    monkeypatch.setattr(table, "SUPERSEDED_MAX", 20)
    names = [TopicName.parse(f"topic-{index}") for index in range(3)]

    async def scenario(world: BrokerWorld) -> None:
        for value in range(1, 101):
            await set_topic(world, "messageTTLInSeconds", value, names[value % 3])
        await seconds(1)
        await (await events_topic(world)).ledger.trimmer.trim()
        assert (await events_topic(world)).ledger.ledgers.entry_count < 60
        await world.restart()
        assert [await document_of(world, name) for name in names] == [
            {"messageTTLInSeconds": value} for value in (99, 100, 98)
        ]

    run_quietly(scenario, ledger_config=SMALL_LEDGERS)


@pytest.mark.parametrize("is_deletion", [False, True])
def test_change_that_is_stored_holds_though_the_live_ones_can_not_be_written_again(monkeypatch, is_deletion) -> None:
    monkeypatch.setattr(table, "SUPERSEDED_MAX", 0)

    async def scenario(world: BrokerWorld) -> None:
        topic, bookie = await topic_of(world), world.bookie
        assert isinstance(bookie, MemoryBookie)
        await set_topic(world, "messageTTLInSeconds", 5, TopicName.parse("other"))
        for value in range(1, 4):
            await set_topic(world, "messageTTLInSeconds", value)
        add_entries = bookie.add_entries
        added = 0

        def one_alone(*call, **options) -> None:
            nonlocal added
            added += 1
            bookie.add_error = None if added == 1 else DiskIOError("the disk failed")
            add_entries(*call, **options)

        monkeypatch.setattr(bookie, "add_entries", one_alone)
        if is_deletion:
            await world.broker.policies.topics.forget_topic(NAME)
        else:
            await set_topic(world, "messageTTLInSeconds", 4)
        assert added > 1
        monkeypatch.undo()
        monkeypatch.setattr(table, "SUPERSEDED_MAX", 0)
        bookie.add_error = None
        if not is_deletion:
            assert topic.rules.ttl_ms == 4000
        # It is tried again with the next change, and nothing is lost.
        await set_topic(world, "maxProducerPerTopic", 3)
        await world.restart()
        kept = {} if is_deletion else {"messageTTLInSeconds": 4}
        assert await document_of(world) == {**kept, "maxProducerPerTopic": 3}
        assert await document_of(world, TopicName.parse("other")) == {"messageTTLInSeconds": 5}

    run_quietly(scenario)


def test_events_are_kept_by_a_cursor_of_the_broker_until_superseded() -> None:
    async def scenario(world: BrokerWorld) -> None:
        for index in range(20):
            await set_topic(world, "messageTTLInSeconds", 1, TopicName.parse(f"topic-{index}"))
        await seconds(3600)
        topic = await events_topic(world)
        assert topic.ledger.ledgers.entry_count == 20
        assert EVENTS_CURSOR in topic.ledger.cursors
        assert not topic.subscriptions

    run_quietly(scenario, ledger_config=SMALL_LEDGERS)


def test_event_written_by_another_program_with_its_own_schema_is_read() -> None:
    """A cluster that Apache Pulsar wrote has a schema with more fields, in another order."""
    foreign = json.loads(events.SCHEMA)
    event = next(field for field in foreign["fields"] if field["name"] == "topicPoliciesEvent")["type"][1]
    policies = next(field for field in event["fields"] if field["name"] == "policies")["type"][1]
    policies["fields"] = [{"name": "later", "type": ["null", "int"], "default": None}, *policies["fields"]]
    definition = json.dumps(foreign).encode()

    async def scenario(world: BrokerWorld) -> None:
        await topic_of(world)
        await set_topic(world, "messageTTLInSeconds", 5)
        info = SchemaInfo(SCHEMA_NAME, SchemaType.AVRO, definition)
        version = await world.broker.schemas.registry.put_if_absent(
            schema_id_of(EVENTS), info, Strategy.ALWAYS_COMPATIBLE
        )
        buffer = io.BytesIO()
        value = {
            "eventType": "TOPIC_POLICY",
            "actionType": "UPDATE",
            "topicPoliciesEvent": {
                "domain": "persistent",
                "tenant": "public",
                "namespace": "default",
                "topic": NAME.local_name,
                # Apache Pulsar writes an empty list for "not set".
                "policies": {
                    "later": 7,
                    "messageTTLInSeconds": 9,
                    "maxMessageSize": 1,
                    "subscriptionTypesEnabled": [],
                },
            },
        }
        fastavro.schemaless_writer(buffer, events.parse(definition), value)
        await append(world, buffer.getvalue(), schema_version=encode_version(version))
        await world.restart()
        assert await document_of(world) == {
            "later": 7,
            "messageTTLInSeconds": 9,
            "maxMessageSize": 1,
            "subscriptionTypesEnabled": [],
        }

    run_quietly(scenario)


async def append(world: BrokerWorld, payload: bytes, **fields) -> None:
    """An event of somebody else."""
    metadata = pb.MessageMetadata(producer_name="other", sequence_id=1, publish_time=1, **fields)
    stored = []
    (await events_topic(world)).ledger.append([encode_entry(metadata, payload)], stored.append)
    while not stored:
        await seconds(0.01)
    assert stored[0].error is None


@pytest.mark.parametrize(
    "fields", [{}, {"schema_version": encode_version(77)}, {"schema_version": encode_version(0)}, {"compression": 1}]
)
def test_event_that_can_not_be_read_is_passed_over_and_loses_no_other(fields) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await topic_of(world)
        await set_topic(world, "messageTTLInSeconds", 5)
        await append(world, b"\xff\xff\xff", **fields)
        await set_topic(world, "deduplicationEnabled", True)
        await world.restart()
        assert await document_of(world) == {"messageTTLInSeconds": 5, "deduplicationEnabled": True}

    run_quietly(scenario)


def test_policies_of_topics_are_refused_when_switched_off_and_for_the_broker_s_own_topics() -> None:
    async def scenario(world: BrokerWorld) -> None:
        with pytest.raises(NotAllowedError, match="broker's own"):
            await set_topic(world, "messageTTLInSeconds", 5, EVENTS)

    async def switched_off(world: BrokerWorld) -> None:
        with pytest.raises(NotAllowedError, match="topicLevelPoliciesEnabled"):
            await set_topic(world, "messageTTLInSeconds", 5)

    run_quietly(scenario)
    run_quietly(switched_off, topic_policies=False)


def test_topic_without_policies_in_its_namespace_makes_no_events_topic() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await topic_of(world)
        await world.broker.registry.delete(NAME)
        assert not await world.broker.registry.exists(EVENTS)

    run_quietly(scenario)


def test_events_that_another_broker_wrote_without_our_cursor_are_not_trimmed() -> None:
    """Apache's brokers keep no cursor there; a client may load the topic before its policies are asked for."""

    async def scenario(world: BrokerWorld) -> None:
        for seconds_to_live in range(1, 30):
            await set_topic(world, "messageTTLInSeconds", seconds_to_live)
        before = (await events_topic(world)).ledger.ledgers.entry_count
        # As Apache's broker leaves them.
        (await events_topic(world)).ledger.trimmer.set_retention(retention_ms=-1, retention_bytes=-1)
        await (await events_topic(world)).ledger.delete_cursor(EVENTS_CURSOR)
        await world.restart()
        await world.subscriber(str(EVENTS), durable=False)
        await seconds(3600)
        topic = await events_topic(world)
        assert EVENTS_CURSOR not in topic.ledger.cursors
        assert topic.ledger.ledgers.entry_count == before, "policies of topics were trimmed away"
        # Asked for, they are read and get their cursor: from then on it says what is needed.
        await topic_of(world)
        assert await document_of(world) == {"messageTTLInSeconds": 29}
        assert topic.ledger.trimmer.retention_ms == 0

    run_quietly(scenario, ledger_config=SMALL_LEDGERS)


def test_events_that_anybody_may_have_written_are_passed_over() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.broker.policies.topics.update(TopicName.parse(TOPIC), lambda _: {"messageTTLInSeconds": 7})
        client = await world.publisher("persistent://public/default/__change_events")
        for sequence_id, metadata in enumerate(
            (
                {"null_value": True},
                {"null_value": True, "partition_key": "no topic"},
                {"partition_key": "x", "schema_version": b"\xff" * 8},
                {"schema_version": b"\x00" * 8},
                {"num_messages_in_batch": -1},
            )
        ):
            client.send_message(sequence_id, b"\xff" * 40, metadata=metadata)
        await client.receipt()
        client.lose()
        await world.restart()
        policies = await world.broker.policies.topics.get(TopicName.parse(TOPIC))
        assert policies is not None
        assert policies.document["messageTTLInSeconds"] == 7
        await (await world.client()).create_producer()

    run_with_broker(scenario)


def test_policies_of_many_topics_are_read_in_many_turns() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await topic_of(world)
        for i in range(700):
            name = TopicName.parse(f"persistent://{NAMESPACE}/many-{i}")
            await world.broker.policies.topics.update(name, lambda _: {"messageTTLInSeconds": 5})
        await world.restart()
        with TurnProbe() as probe:
            await seconds(0)
            assert await document_of(world, TopicName.parse(f"persistent://{NAMESPACE}/many-699"))
            await seconds(0)
        assert probe.longest_s < 0.05, probe.what

    run_quietly(scenario)


def test_who_waits_for_policies_that_can_not_be_read_waits_for_one_attempt() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await topic_of(world)
        await set_topic(world, "messageTTLInSeconds", 5)
        await world.restart()
        policies, clock = world.broker.policies.topics, world.runtime.clock
        world.bookie.fail(DiskIOError("a disk is gone"))
        world.metadata.faults.delay_ms_max = 1000

        async def wait_s(count: int) -> float:
            began_s = clock.monotonic()
            found = await asyncio.gather(*(policies.get(NAME) for _ in range(count)), return_exceptions=True)
            assert all(isinstance(each, StorageError) for each in found)
            return clock.monotonic() - began_s

        longest_s = max([await wait_s(1) for _ in range(5)])
        assert longest_s > 0
        assert await wait_s(50) <= 3 * longest_s
        world.bookie.fail(None)
        assert await document_of(world) == {"messageTTLInSeconds": 5}

    run_with_broker(scenario)


def test_policies_that_another_broker_compacted_and_trimmed_are_read_and_written_again() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await topic_of(world)
        other = TopicName.parse(f"persistent://{NAMESPACE}/other")
        await set_topic(world, "messageTTLInSeconds", 5)
        await world.broker.policies.topics.update(other, lambda _: {"messageTTLInSeconds": 6})
        await compact_as_another_make(world)
        await world.broker.policies.topics.update(other, lambda found: {**found, "maxProducerPerTopic": 3})
        for _ in range(2):
            await world.restart()
            assert await document_of(world) == {"messageTTLInSeconds": 5}
            assert await document_of(world, other) == {"messageTTLInSeconds": 6, "maxProducerPerTopic": 3}
        # Whoever reads the topic alone finds all of it, too.
        log = (await events_topic(world)).ledger
        found = [
            table.message_of(each.data, each.position)
            for each in await log.reader.read_range(log.ledgers.first_position, 100, 1 << 20)
        ]
        assert {message.key for message in found if message is not None} == {TOPIC, str(other)}

    run_with_broker(scenario)


async def compact_as_another_make(world: BrokerWorld) -> None:
    """What is live goes to a ledger that a cursor names, and nothing keeps the rest; as Pulsar's brokers leave it."""
    log = (await events_topic(world)).ledger
    kept = [
        encode_compacted(CompactedEntry(each.position, each.data))
        for each in await log.reader.read_range(log.ledgers.first_position, 100, 1 << 20)
    ]
    handle = await world.broker.ledgers.bookkeeper.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
    assert await Appends(handle).append_and_wait(*kept) is None
    await handle.close()
    compaction = await log.open_cursor(table.COMPACTION_CURSOR, initial=EARLIEST)
    done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    compaction.acknowledge_cumulative(
        log.extent.last_confirmed_position, done=done.set_result, properties={COMPACTED_LEDGER: handle.ledger_id}
    )
    await done
    await log.delete_cursor(EVENTS_CURSOR)
    log.trimmer.set_retention(retention_ms=0, retention_bytes=0)
    await log.roll()
    await log.trimmer.trim()
    assert log.ledgers.entry_count == 0
    await world.restart()
    await topic_of(world)


def newer_schema() -> bytes:
    """Of a version that does not exist yet: more fields in the event, in the policies, and within a policy."""
    document = json.loads(events.SCHEMA)

    def field(of: dict, name: str) -> dict:
        return next(one for one in of["fields"] if one["name"] == name)

    event = field(document, "topicPoliciesEvent")["type"][1]
    policies = field(event, "policies")["type"][1]
    retention = field(policies, "retentionPolicies")["type"][1]
    retention["fields"].append({"name": "kept", "type": "double"})
    later = {"type": "record", "name": "Later", "fields": [{"name": "mode", "type": "string"}]}
    policies["fields"] += [
        {"name": "later", "type": ["null", later], "default": None},
        {"name": "other", "type": ["null", "Later"], "default": None},
    ]
    # One that we have is not there.
    policies["fields"] = [one for one in policies["fields"] if one["name"] != "messageTTLInSeconds"]
    document["fields"].append({"name": "origin", "type": ["null", "string"], "default": None})
    return json.dumps(document).encode()


@pytest.mark.parametrize("is_rewritten", [False, True])
def test_what_a_newer_version_wrote_is_kept_through_edit_and_rewrite(is_rewritten: bool, monkeypatch) -> None:
    """Fields that we do not know, those whose effect is not built, and policies for all clusters."""
    definition = newer_schema()
    policies = {
        "retentionPolicies": {"retentionTimeInMinutes": 5, "retentionSizeInMB": 7, "kept": 0.25},
        "later": {"mode": "x"},
        "other": {"mode": "y"},
        "compactionThreshold": 99,
        "entryFilters": {"entryFilterNames": "f"},
        "subscriptionPolicies": {"s": {"dispatchRate": None}},
        "isGlobal": False,
    }

    def event(held: dict) -> dict:
        name = {"domain": "persistent", "tenant": "public", "namespace": "default", "topic": NAME.local_name}
        of_topic = {**name, "policies": held}
        common = {"eventType": "TOPIC_POLICY", "actionType": "UPDATE", "replicateTo": ["far"], "origin": "elsewhere"}
        return {**common, "topicPoliciesEvent": of_topic}

    async def scenario(world: BrokerWorld) -> None:
        if is_rewritten:
            monkeypatch.setattr(table, "SUPERSEDED_MAX", 0)
        await topic_of(world)
        await set_topic(world, "maxProducerPerTopic", 1)
        registry = world.broker.schemas.registry
        info = SchemaInfo(SCHEMA_NAME, SchemaType.AVRO, definition)
        version = await registry.put_if_absent(schema_id_of(EVENTS), info, Strategy.ALWAYS_COMPATIBLE)
        for held in (policies, {**policies, "isGlobal": True, "compactionThreshold": 1, "maxConsumerPerTopic": 8}):
            buffer = io.BytesIO()
            fastavro.schemaless_writer(buffer, events.parse(definition), event(held))
            await append(world, buffer.getvalue(), schema_version=encode_version(version))
        await world.restart()
        assert await document_of(world) == policies
        # What the topic has for all clusters counts less than its own, and more than the namespace's.
        assert (await topic_of(world)).limits.consumers == 8
        for number in range(4):
            await set_topic(world, "messageTTLInSeconds", 5 + number)
        await world.restart()
        assert await document_of(world) == {**policies, "messageTTLInSeconds": 8}
        assert (await topic_of(world)).limits.consumers == 8
        # As whoever knows the newer schema reads the newest event of the topic: by the schema it names.
        topic = await events_topic(world)
        found = []
        for entry in await topic.ledger.reader.read_range(topic.ledger.ledgers.first_position, 100, 1 << 20):
            metadata, offset = split_entry(entry.data)
            assert metadata is not None
            stored = await registry.get(schema_id_of(EVENTS), decode_version(metadata.schema_version))
            assert stored is not None
            if metadata.partition_key == str(NAME):
                schema = events.parse(stored.info.schema)
                found.append(fastavro.schemaless_reader(io.BytesIO(entry.data[offset:]), schema, None))
        assert found[-1]["origin"] == "elsewhere"
        assert found[-1]["replicateTo"] == ["far"]
        held = {key: value for key, value in found[-1]["topicPoliciesEvent"]["policies"].items() if value is not None}
        assert held == {**policies, "messageTTLInSeconds": 8}
        # With the topic everything of it goes, also what it has for all clusters.
        await world.broker.registry.delete(NAME)
        await world.restart()
        assert await world.broker.policies.topics.get(NAME) is None

    run_quietly(scenario)

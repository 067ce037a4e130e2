"""Consumers of several topics, by list and by pattern, and their parts, against a broker in virtual time."""

from __future__ import annotations

import asyncio
import re

import pytest

import geminga.client as gc
from geminga.client._consuming.acknowledgment import ACKERS_MAX
from geminga.client._consuming.last_message import has_message_available, last_message_ids
from geminga.client._consuming.listening import Listening
from geminga.client._consuming.multi_consumer import TopicSet
from geminga.client._consuming.pattern_consumer import PatternTopics
from geminga.client._consuming.topic_list_watch import UPDATES_MAX, TopicListWatch
from geminga.client._messages.consumer import Consumer
from geminga.client._messages.consumer_options import ConsumerOptions
from geminga.client._reader import Reader
from geminga.client._table_view import TableView
from geminga.client.consumer_rules.topic_pattern import TopicPattern
from geminga.client.schema import BytesSchema
from geminga.client.schema._protocol import SchemaInfo, SchemaType
from geminga.model import TopicName
from geminga.runtime import spawn, wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands
from geminga.wire.pulsar.hot import encode_partitions
from support.worlds.scripted_broker import polite, run_against, run_with_broker
from support.worlds.scripted_consumer import take

EARLIEST = gc.InitialPosition.Earliest


async def publish(client, topic: str, *payloads: bytes) -> None:
    async with await client.create_producer(topic, batching_enabled=False) as producer:
        for payload in payloads:
            await producer.send(payload, partition_key="k")


async def drain(consumer: Consumer[bytes]) -> list[bytes]:
    found = []
    while True:
        try:
            found.append((await consumer.receive(300)).data())
        except gc.Timeout:
            return sorted(found)


def test_a_pattern_leaves_topics_that_are_gone() -> None:
    async def scenario(client, broker):
        await publish(client, "a-1", b"1")
        await publish(client, "a-2", b"2")
        consumer = await client.subscribe(re.compile("a-.*"), "s", initial_position=EARLIEST)
        assert await drain(consumer) == [b"1", b"2"]
        assert isinstance(consumer.discovery, PatternTopics)
        held = {one.topic.local_name: one for one in consumer.topic_set._held.all()}
        await broker.broker.registry.delete(TopicName.parse("a-1"), force=True)
        await consumer.discovery.discover()
        assert (held["a-1"]._phase.name, held["a-2"]._phase.name) == ("CLOSED", "SUBSCRIBED")
        assert consumer.topics() == ["persistent://public/default/a-2"]
        await publish(client, "a-2", b"3")
        assert await drain(consumer) == [b"3"]

    run_with_broker(scenario)


@pytest.mark.parametrize("partitions", [0, 1, 2])
def test_an_id_of_a_topic_that_a_pattern_left_does_nothing_to_the_others(partitions: int) -> None:
    async def scenario(client, broker):
        for topic in ("a-1", "a-2"):
            if partitions:
                await broker.broker.partitions.create(TopicName.parse(topic), partitions)
            for number in range(3):
                await publish(client, topic, b"%d" % number)
        options = {"initial_position": EARLIEST, "pattern_auto_discovery_period_ms": 500}
        consumer = await client.subscribe(re.compile("a-.*"), "s", **options)
        messages = await take(consumer, 6)
        gone = max(message.message_id() for message in messages if "a-2" in message.topic_name())
        if partitions:
            await broker.broker.partitions.delete(TopicName.parse("a-2"), force=True)
        else:
            await broker.broker.registry.delete(TopicName.parse("a-2"), force=True)
        await wait_ms(5000)
        assert {topic.partition("a-")[2][0] for topic in consumer.topics()} == {"1"}
        for call in (
            consumer.acknowledge,
            consumer.acknowledge_cumulative,
            consumer.negative_acknowledge,
            consumer.seek,
        ):
            with pytest.raises(gc.OperationNotSupported, match="names no topic of this consumer"):
                await call(gone)
        await wait_ms(500)
        left = 0
        for topic in consumer.topics():
            found = await broker.broker.registry.get(TopicName.parse(topic), create=False)
            left += found.subscriptions["s"].cursor.backlog_count
        assert left == 3
        await consumer.acknowledge_cumulative(
            max(message.message_id() for message in messages if "a-1" in message.topic_name())
        )

    run_with_broker(scenario)


# ---- patterns whose topics the broker tells of


def pattern_consumer(client, text: str = "a-.*", **options):
    return client.subscribe(re.compile(text), "s", **{"initial_position": EARLIEST, **options})


def names(consumer) -> list[str]:
    return sorted(topic.rpartition("/")[2] for topic in consumer.topics())


def test_a_pattern_is_told_of_topics_at_once() -> None:
    async def scenario(client, broker):
        await publish(client, "a-1", b"1")
        consumer = await pattern_consumer(client, "a-.*|b-1")
        await wait_ms(100)
        assert consumer.discovery.is_watching
        await publish(client, "a-2", b"2")
        await publish(client, "b-1", b"3")
        await publish(client, "c-1", b"4")
        await wait_ms(500)
        assert names(consumer) == ["a-1", "a-2", "b-1"]
        assert await drain(consumer) == [b"1", b"2", b"3"]
        await broker.broker.registry.delete(TopicName.parse("a-1"), force=True)
        await wait_ms(500)
        assert names(consumer) == ["a-2", "b-1"]
        (connection,) = broker.broker.connections.open
        assert len(connection.members.watchers) == 1
        await consumer.close()
        await wait_ms(100)
        assert not connection.members.watchers

    run_with_broker(scenario)


def test_a_deleted_topic_of_a_pattern_is_left_and_not_created_again() -> None:
    """Also without a watch, where its consumer hears first that the topic is gone."""

    async def scenario(client, broker):
        await publish(client, "a-1", b"1")
        await publish(client, "a-2", b"2")
        consumer = await pattern_consumer(client)
        await broker.broker.registry.delete(TopicName.parse("a-1"), force=True)
        await wait_ms(5000)
        assert names(consumer) == ["a-2"]
        listed = await broker.broker.registry.list("public/default")
        assert [topic.rpartition("/")[2] for topic in listed] == ["a-2"]
        await publish(client, "a-2", b"3")
        assert await drain(consumer) == [b"2", b"3"]
        # Deleted and there again at once: another topic of the same name.
        await broker.broker.registry.delete(TopicName.parse("a-2"), force=True)
        await publish(client, "a-2", b"4")
        assert (await consumer.receive(5000)).data() == b"4"

    run_with_broker(scenario)
    run_with_broker(scenario, broker={"topic_list_watcher": False})


def test_a_broker_without_watches_and_one_that_refuses_are_asked_from_time_to_time() -> None:
    async def scenario(client, broker):
        await publish(client, "a-1", b"1")
        # 50 characters are a broker's limit by default.
        pattern = (
            "a-.*" if not broker.config.topic_list_watcher else "a-(1|2|3|4|5|6|7|8|9|10|11|12|13|14|15|16|17|18|19)"
        )
        consumer = await pattern_consumer(client, pattern, pattern_auto_discovery_period_ms=2000)
        await wait_ms(500)
        assert not consumer.discovery.is_watching
        await publish(client, "a-2", b"2")
        await wait_ms(500)
        assert names(consumer) == ["a-1"]
        await wait_ms(2000)
        assert names(consumer) == ["a-1", "a-2"]

    run_with_broker(scenario, broker={"topic_list_watcher": False})
    run_with_broker(scenario)


def test_a_topic_that_is_deleted_between_list_and_subscribing_and_made_again_is_found() -> None:
    """The list is the same as before then, and its hash said that there is nothing new."""

    async def scenario(client, broker):
        await publish(client, "a", b"1")
        consumer = await pattern_consumer(client, "a.*", pattern_auto_discovery_period_ms=0)
        for steps in range(40):
            topic = f"a-{steps}"
            await publish(client, topic, b"2")
            looking = spawn(consumer.discovery.discover(), name="look")
            for _ in range(steps):
                await wait_ms(0.1)
            await broker.broker.registry.delete(TopicName.parse(topic), force=True)
            await looking
            await wait_ms(5000)
            await publish(client, topic, b"3")
            await consumer.discovery.discover()
            assert topic in names(consumer), steps

    run_with_broker(scenario, broker={"topic_list_watcher": False})


def test_topics_that_are_not_persistent_are_asked_for() -> None:
    async def scenario(client, broker):
        mode = gc.RegexSubscriptionMode.AllTopics
        consumer = await pattern_consumer(client, regex_subscription_mode=mode, pattern_auto_discovery_period_ms=1000)
        await client.create_producer("non-persistent://public/default/a-1")
        await wait_ms(1500)
        assert not consumer.discovery.is_watching
        assert consumer.topics() == ["non-persistent://public/default/a-1"]

    run_with_broker(scenario)


def test_a_period_of_zero_looks_once() -> None:
    async def scenario(client, broker):
        await publish(client, "a-1", b"1")
        consumer = await pattern_consumer(client, pattern_auto_discovery_period_ms=0)
        await publish(client, "a-2", b"2")
        await wait_ms(100_000)
        assert names(consumer) == ["a-1"]
        assert not consumer.discovery.is_watching

    run_with_broker(scenario)


def test_what_a_lost_watch_did_not_tell_is_found_when_it_stands_again() -> None:
    async def scenario(client, broker):
        await publish(client, "a-1", b"1")
        await publish(client, "a-2", b"1")
        consumer = await pattern_consumer(client)
        await wait_ms(100)
        for connection in list(client.pool._connections.values()):
            connection.close()
        assert not consumer.discovery.is_watching
        await broker.broker.registry.get(TopicName.parse("a-3"), create=True)
        await broker.broker.registry.delete(TopicName.parse("a-2"), force=True)
        await wait_ms(1000)
        assert consumer.discovery.is_watching
        assert names(consumer) == ["a-1", "a-3"]

    run_with_broker(scenario)


def test_an_update_that_does_not_come_to_our_list_makes_us_ask() -> None:
    async def scenario(client, broker):
        await publish(client, "a-1", b"1")
        consumer = await pattern_consumer(client)
        await wait_ms(100)
        watch = consumer.discovery._watch
        assert isinstance(watch, TopicListWatch)
        ghost = pb.CommandWatchTopicUpdate(watcher_id=1, deleted_topics=consumer.topics(), topics_hash="not that")
        watch.on_topic_update(ghost)
        await wait_ms(100)
        assert names(consumer) == ["a-1"]
        for _ in range(UPDATES_MAX + 1):
            watch.on_topic_update(ghost)
        assert (watch.has_missed, len(watch.take())) == (True, 0)
        await wait_ms(100)
        assert names(consumer) == ["a-1"]

    run_with_broker(scenario)


def test_partitions_that_are_added_to_a_watched_topic_are_consumed() -> None:
    async def scenario(client, broker):
        consumer = await pattern_consumer(client)
        await broker.broker.resources.create_partitioned_topic(TopicName.parse("a-p"), 2)
        await publish(client, "a-p", b"1", b"2")
        await wait_ms(500)
        assert names(consumer) == ["a-p-partition-0", "a-p-partition-1"]
        await broker.broker.resources.update_partitioned_topic(TopicName.parse("a-p"), 4)
        await publish(client, "a-p-partition-3", b"3")
        await wait_ms(500)
        assert names(consumer) == [f"a-p-partition-{index}" for index in range(4)]
        assert await drain(consumer) == [b"1", b"2", b"3"]

    run_with_broker(scenario)


@pytest.mark.parametrize("kind", [gc.ConsumerType.Shared, gc.ConsumerType.Exclusive])
def test_partitions_that_are_found_twice_at_a_time_are_consumed_once(kind) -> None:
    """The watch tells of them while they are looked for from time to time."""

    async def scenario(client, broker):
        topic = TopicName.parse("a-p")
        await broker.broker.resources.create_partitioned_topic(topic, 1)
        await publish(client, "a-p", b"0")
        consumer = await pattern_consumer(client, consumer_type=kind)
        await broker.broker.resources.update_partitioned_topic(topic, 3)
        await asyncio.gather(*(consumer.topic_set.update_partitions() for _ in range(3)))
        await publish(client, "a-p-partition-2", b"1")
        assert await drain(consumer) == [b"0", b"1"]
        assert names(consumer) == [f"a-p-partition-{index}" for index in range(3)]
        found = await broker.broker.registry.get(topic.with_partition(2), create=False)
        assert len(found.subscriptions["s"].consumers) == 1
        await consumer.close()
        assert not found.subscriptions["s"].consumers

    run_with_broker(scenario)


@pytest.mark.parametrize("is_told", [True, False])
def test_a_topic_of_a_pattern_that_can_not_be_had_keeps_no_other_away(is_told) -> None:
    async def scenario(client, broker):
        await publish(client, "a-1", b"1")
        consumer = await pattern_consumer(client, pattern_auto_discovery_period_ms=1000)
        await wait_ms(100)
        assert consumer.discovery.is_watching is is_told
        # Somebody else's: the subscription is exclusive.
        others = [await client.subscribe(f"a-{number}", "s") for number in (2, 5)]
        for number in (2, 3, 4, 5, 6):
            await publish(client, f"a-{number}", b"%d" % number)
        await wait_ms(12_000)
        assert await drain(consumer) == [b"1", b"3", b"4", b"6"]
        for each in others:
            await each.close()
        await wait_ms(12_000)
        assert await drain(consumer) == [b"2", b"5"]
        assert names(consumer) == [f"a-{number}" for number in range(1, 7)]

    run_with_broker(scenario, broker={"topic_list_watcher": is_told})


def test_partitions_of_a_topic_that_can_not_be_had_keep_no_other_topics_away() -> None:
    async def scenario(client, broker):
        resources = broker.broker.resources
        for topic in ("a", "b"):
            await resources.create_partitioned_topic(TopicName.parse(topic), 1)
        consumer = await client.subscribe(
            ["a", "b"], "s", initial_position=EARLIEST, auto_update_partitions_interval_ms=1000
        )
        for topic in ("a", "b"):
            await resources.update_partitioned_topic(TopicName.parse(topic), 2)
        other = await client.subscribe("a-partition-1", "s")
        await publish(client, "b-partition-1", b"1")
        await wait_ms(3000)
        assert await drain(consumer) == [b"1"]
        await other.close()
        await publish(client, "a-partition-1", b"2")
        await wait_ms(3000)
        assert await drain(consumer) == [b"2"]

    run_with_broker(scenario)


class RefusingSchema:
    """Takes no topic whose name it holds, with an error of its own."""

    def __init__(self) -> None:
        self.refused: set[str] = set()

    async def bind_consumer(self, topic, source):
        if TopicName.parse(topic).local_name in self.refused:
            raise ZeroDivisionError(topic)
        return await BytesSchema().bind_consumer(topic, source)


def test_what_a_schema_of_the_users_raises_ends_no_search_for_partitions() -> None:
    async def scenario(client, broker):
        resources = broker.broker.resources
        for topic in ("a", "b"):
            await resources.create_partitioned_topic(TopicName.parse(topic), 1)
        schema = RefusingSchema()
        options = {"schema": schema, "initial_position": EARLIEST, "auto_update_partitions_interval_ms": 1000}
        consumer = await client.subscribe(["a", "b"], "s", **options)
        schema.refused.add("a")
        for topic in ("a", "b"):
            await resources.update_partitioned_topic(TopicName.parse(topic), 2)
        with pytest.raises(ZeroDivisionError):
            await consumer.topic_set.update_partitions()
        assert names(consumer) == ["a-partition-0", "b-partition-0", "b-partition-1"]
        await wait_ms(3000)
        schema.refused.clear()
        await wait_ms(3000)
        assert names(consumer) == ["a-partition-0", "a-partition-1", "b-partition-0", "b-partition-1"]

    run_with_broker(scenario)


@pytest.mark.parametrize("is_told", [True, False])
def test_what_a_schema_of_the_users_raises_ends_no_search_for_topics(is_told) -> None:
    async def scenario(client, broker):
        await publish(client, "a-1", b"1")
        schema = RefusingSchema()
        consumer = await pattern_consumer(client, schema=schema, pattern_auto_discovery_period_ms=1000)
        schema.refused.add("a-2")
        for number in (2, 3):
            await publish(client, f"a-{number}", b"%d" % number)
        await wait_ms(12_000)
        assert names(consumer) == ["a-1", "a-3"]
        schema.refused.clear()
        await wait_ms(12_000)
        assert names(consumer) == ["a-1", "a-2", "a-3"]

    run_with_broker(scenario, broker={"topic_list_watcher": is_told})


def test_the_retry_letter_topic_of_a_pattern_stays() -> None:
    async def scenario(client, broker):
        await publish(client, "a-1", b"1")
        consumer = await pattern_consumer(client, retry_enabled=True)
        await publish(client, "a-2", b"2")
        await wait_ms(500)
        assert names(consumer) == ["a-1", "a-2", "pattern-s-RETRY"]
        await consumer.reconsume_later(await consumer.receive(1000), 0.01)
        assert sorted([(await consumer.receive(1000)).data() for _ in range(2)]) == [b"1", b"2"]

    run_with_broker(scenario)


def test_a_list_of_topics_fails_as_a_whole_and_leaves_nothing() -> None:
    async def scenario(client, broker):
        other = await client.subscribe("b", "s")
        with pytest.raises(gc.ConsumerBusy):
            await client.subscribe(["a", "b", "c"], "s")
        await other.close()
        for topic in ("a", "b", "c"):
            loaded = await broker.broker.registry.get(TopicName.parse(topic), create=False)
            assert not any(subscription.consumers for subscription in loaded.subscriptions.values())
        with pytest.raises(gc.InvalidConfiguration, match="empty list"):
            await client.subscribe([], "s")
        with pytest.raises(gc.InvalidConfiguration, match="subscription_name"):
            await client.subscribe("a", "")
        with pytest.raises(gc.InvalidConfiguration, match="receiver_queue_size"):
            await client.subscribe(["a", "b"], "s", receiver_queue_size=0)
        with pytest.raises(gc.InvalidTopicName):
            await client.subscribe(re.compile("x/y"), "s")

    run_with_broker(scenario)


def test_unsubscribing_that_failed_at_one_of_several_topics_goes_on_there_when_it_is_called_again() -> None:
    async def scenario(client, broker):
        options = {"consumer_type": gc.ConsumerType.Shared}
        consumer = await client.subscribe(["one", "two"], "s", **options)
        other = await client.subscribe("two", "s", **options)
        with pytest.raises(gc.BrokerMetadataError):  # it is shared with another
            await consumer.unsubscribe()
        await other.close()
        await consumer.unsubscribe()
        assert consumer.is_closed
        for topic in ("one", "two"):
            found = await broker.broker.registry.get(TopicName.parse(topic), create=False)
            assert not found.subscriptions

    run_with_broker(scenario)


def test_partitions_are_closed_at_once_where_one_can_not_be_had_and_the_broker_says_no_more() -> None:
    """One after the other, each for the operation timeout: with a hundred of them an hour went by before the error."""

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == pb.BaseCommand.PARTITIONED_METADATA:
            return [encode_partitions(command.partitionMetadata.request_id, 8)]
        if command.type == pb.BaseCommand.SUBSCRIBE:
            request = command.subscribe
            if request.topic.endswith("-7"):
                return [commands.error(request.request_id, pb.AuthorizationError, "not this one")]
            return [commands.success(request.request_id)]
        return polite(command)  # CLOSE_CONSUMER has no answer

    async def scenario(client) -> None:
        began = asyncio.get_running_loop().time()
        with pytest.raises(gc.AuthorizationError):
            await client.subscribe("topic", "s")
        assert asyncio.get_running_loop().time() - began < 15

    run_against(script, scenario, operation_timeout_ms=10_000)


def test_topics_share_the_total_of_prefetched_messages() -> None:
    async def scenario(client, broker):
        topics = [f"t{number}" for number in range(10)]
        consumer = await client.subscribe(topics, "s", max_total_receiver_queue_size_across_partitions=50)
        assert [topic.flow.capacity for topic in consumer.held.all()] == [5] * 10
        assert isinstance(consumer.topic_set, TopicSet)
        assert consumer.topic_set.topics == [f"persistent://public/default/{topic}" for topic in topics]
        assert consumer.is_connected()
        assert consumer.is_active()

    run_with_broker(scenario)


def test_a_listener_may_close_its_consumer() -> None:
    async def scenario(client, broker):
        closed = []

        async def listener(consumer, message):
            closed.append(message.data())
            await consumer.close()

        await publish(client, "t", b"1", b"2")
        consumer = await client.subscribe("t", "s", message_listener=listener, initial_position=EARLIEST)
        assert isinstance(consumer.listening, Listening)
        await wait_ms(1000)
        assert closed == [b"1"]
        assert consumer.is_closed

    run_with_broker(scenario)


def test_a_paused_listener_is_not_called() -> None:
    async def scenario(client, broker):
        heard = []
        consumer = await client.subscribe(
            "t", "s", message_listener=lambda _, message: heard.append(message.data()), initial_position=EARLIEST
        )
        consumer.pause_message_listener()
        await publish(client, "t", b"1", b"2")
        await wait_ms(500)
        assert heard == []
        consumer.resume_message_listener()
        await wait_ms(500)
        assert heard == [b"1", b"2"]
        without = await client.subscribe("t", "other")
        with pytest.raises(gc.InvalidConfiguration):
            without.pause_message_listener()
        with pytest.raises(gc.InvalidConfiguration):
            without.resume_message_listener()

    run_with_broker(scenario)


def test_messages_are_available_from_where_a_consumer_stands() -> None:
    async def scenario(client, broker):
        consumer = await client.subscribe("t", "s")
        (topic,) = consumer.held.all()
        assert not await has_message_available(topic)
        await publish(client, "t", b"1", b"2")
        last, marked = await last_message_ids(topic)
        assert (last.entry_id(), marked.entry_id()) == (1, -1)
        for entry in range(2):
            assert await has_message_available(topic)
            message = await consumer.receive(1000)
            assert message.message_id().entry_id() == entry
            await consumer.acknowledge(message)
        assert not await has_message_available(topic)
        await consumer.close()
        # Another consumer of the subscription goes by what is acknowledged.
        (topic,) = (await client.subscribe("t", "s")).held.all()
        assert not await has_message_available(topic)

    run_with_broker(scenario)


def test_parts_are_made_by_the_client_as_a_user_gets_them() -> None:
    async def scenario(client, broker):
        await publish(client, "t", b"1")
        consumer = await client.consumers.subscribe("t", "s", None, ConsumerOptions(initial_position=EARLIEST))
        assert isinstance(consumer, Consumer)
        assert consumer.receive_nowait() is None or consumer.counters.messages_received == 1
        async with await client.create_reader("t", gc.MessageId.earliest) as reader:
            assert isinstance(reader, Reader)
            assert (reader.topic(), reader.is_connected()) == ("persistent://public/default/t", True)
            async for message in reader:
                assert message.data() == b"1"
                break
        async with await client.create_table_view("t") as view:
            assert isinstance(view, TableView)
            assert (list(view), view["k"], len(view), list(view.keys()), list(view.values())) == (
                ["k"],
                b"1",
                1,
                ["k"],
                [b"1"],
            )
        assert TopicPattern.parse("x").namespace == "public/default"
        assert SchemaInfo("s", SchemaType.STRING).schema == b""
        assert ACKERS_MAX == 10_000

    run_with_broker(scenario)

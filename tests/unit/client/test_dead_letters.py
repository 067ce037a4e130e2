"""Dead-letter and retry-letter topics: which, and what messages carry, as the Java client has it."""

from __future__ import annotations

import asyncio
import dataclasses
import re

import pytest

import geminga.client as gc
from geminga.client._messages.letter_producers import PRODUCERS_MAX, PRODUCERS_OF_TOPIC_MAX, LetterProducers
from geminga.client.schema import AutoConsumeSchema, AvroSchema, Int64Schema, StringSchema
from geminga.model import EARLIEST, TopicName
from geminga.runtime import next_turn, wait_ms
from geminga.runtime.waiting import delay
from geminga.wire.pulsar.schema_info import SchemaInfo, SchemaType
from support.worlds.policy_levels import set_topic
from support.worlds.scripted_broker import run_with_broker

PREFIX = "persistent://public/default/"
OPTIONS: gc.ConsumerArguments = {
    "consumer_type": gc.ConsumerType.Shared,
    "initial_position": gc.InitialPosition.Earliest,
    "negative_ack_redelivery_delay_ms": 10,
}


async def publish(client, topic: str, *payloads: bytes, **fields) -> None:
    async with await client.create_producer(topic, batching_enabled=False, **fields) as producer:
        for payload in payloads:
            await producer.send(payload, partition_key="k", properties={"own": "1"})


async def letters(client, topic: str, count: int) -> list[gc.Message[bytes]]:
    async with await client.subscribe(topic, "look", initial_position=gc.InitialPosition.Earliest) as consumer:
        return [await consumer.receive(5000) for _ in range(count)]


def test_retries_of_a_partition_carry_what_the_java_client_carries() -> None:
    async def scenario(client, broker):
        await broker.broker.partitions.create(TopicName.parse("t"), 2)
        await publish(client, "t", b"m")
        policy = gc.ConsumerDeadLetterPolicy(1)
        consumer = await client.subscribe("t", "s", retry_enabled=True, dead_letter_policy=policy, **OPTIONS)
        first = await consumer.receive(5000)
        await consumer.reconsume_later(first, 0.02, {"own": "2", "RECONSUMETIMES": "0"})
        again = await consumer.receive(5000)
        origin = f"{first.message_id().ledger_id()}:{first.message_id().entry_id()}:{first.message_id().partition()}"
        carried = {
            "own": "2",
            "REAL_TOPIC": f"{PREFIX}t",
            "REAL_SUBSCRIPTION": "s",
            "ORIGIN_MESSAGE_ID": origin,
            "ORIGIN_MESSAGE_IDY_TIME": origin,
            "RECONSUMETIMES": "1",
            "DELAY_TIME": "20",
        }
        assert (again.topic_name(), again.properties()) == (f"{PREFIX}t-s-RETRY", carried)
        await consumer.reconsume_later(again, -1)
        (dead,) = await letters(client, "t-s-DLQ", 1)
        assert dead.properties() == {**carried, "RECONSUMETIMES": "2", "DELAY_TIME": "0"}
        assert (dead.data(), dead.partition_key()) == (b"m", "k")

    run_with_broker(scenario)


@pytest.mark.parametrize("delay_s", [0, 5])
def test_message_put_off_comes_when_its_time_is_over_and_not_before(delay_s: int) -> None:
    async def scenario(client, broker):
        await publish(client, "t", b"m")
        consumer = await client.subscribe("t", "s", retry_enabled=True, **OPTIONS)
        await consumer.reconsume_later(await consumer.receive(5000), float(delay_s))
        if delay_s:
            with pytest.raises(gc.Timeout):
                await consumer.receive(delay_s * 1000 - 500)
        assert (await consumer.receive(2000)).data() == b"m"

    run_with_broker(scenario)


def test_times_that_are_given_count() -> None:
    """The Java client reads them after the caller's properties were put in."""

    async def scenario(client, broker):
        await publish(client, "t", b"m")
        policy = gc.ConsumerDeadLetterPolicy(5)
        consumer = await client.subscribe("t", "s", retry_enabled=True, dead_letter_policy=policy, **OPTIONS)
        await consumer.reconsume_later(await consumer.receive(5000), 0, {"RECONSUMETIMES": "5"})
        (dead,) = await letters(client, "t-s-DLQ", 1)
        assert dead.properties()["RECONSUMETIMES"] == "6"

    run_with_broker(scenario)


@pytest.mark.parametrize("topics", [["t1", "t2"], re.compile("t.")])
def test_each_topic_has_its_own_dead_letter_topic(topics) -> None:
    async def scenario(client, broker):
        await publish(client, "t1", *[b"%d" % number for number in range(5)])
        await publish(client, "t2", b"other")
        policy = gc.ConsumerDeadLetterPolicy(1)
        consumer = await client.subscribe(topics, "s", dead_letter_policy=policy, **OPTIONS)
        for _ in range(12):
            await consumer.negative_acknowledge(await consumer.receive(5000))
        found = await letters(client, "t1-s-DLQ", 5)
        assert sorted(message.data() for message in found) == [b"%d" % number for number in range(5)]
        (other,) = await letters(client, "t2-s-DLQ", 1)
        assert (other.data(), other.properties()["REAL_TOPIC"]) == (b"other", f"{PREFIX}t2")
        assert "RECONSUMETIMES" not in other.properties()
        dead = await broker.broker.registry.get(TopicName.parse("t1-s-DLQ"), create=False)
        assert len(dead.producers) == 1, "several burials at once make one producer"

    run_with_broker(scenario)


def test_a_pattern_with_retries_buries_in_the_topic_a_message_came_from() -> None:
    async def scenario(client, broker):
        await publish(client, "t1", b"m")
        policy = gc.ConsumerDeadLetterPolicy(1)
        consumer = await client.subscribe(
            re.compile("t."), "s", retry_enabled=True, dead_letter_policy=policy, **OPTIONS
        )
        await consumer.reconsume_later(await consumer.receive(5000))
        await consumer.reconsume_later(await consumer.receive(5000), 0, {"REAL_TOPIC": f"{PREFIX}t1"})
        assert len(await letters(client, "t1-s-DLQ", 1)) == 1

    run_with_broker(scenario)


def test_a_chunked_message_is_buried_whole() -> None:
    async def scenario(client, broker):
        size = broker.config.message_bytes_max + 1000
        await publish(client, "t", b"x" * size, chunking_enabled=True)
        consumer = await client.subscribe("t", "s", dead_letter_policy=gc.ConsumerDeadLetterPolicy(1), **OPTIONS)
        for _ in range(2):
            await consumer.negative_acknowledge(await consumer.receive(5000))
        (dead,) = await letters(client, "t-s-DLQ", 1)
        assert len(dead.data()) == size
        assert re.fullmatch(r"\d+:\d+:-1;\d+:\d+:-1", dead.properties()["ORIGIN_MESSAGE_ID"])

    run_with_broker(scenario, broker={"message_bytes_max": 100_000})


def test_a_bad_retry_letter_topic_is_named_at_once() -> None:
    async def scenario(client, broker):
        policy = gc.ConsumerDeadLetterPolicy(1, retry_letter_topic="persistent://a")
        with pytest.raises(gc.InvalidTopicName):
            await client.subscribe("t", "s", retry_enabled=True, dead_letter_policy=policy)

    run_with_broker(scenario)


def burials_that_failed(caplog) -> int:
    return sum(record.getMessage().startswith("dead letter of") for record in caplog.records)


@pytest.mark.parametrize("is_there_first", [False, True])
def test_letters_that_can_not_be_stored_are_tried_again_and_not_without_a_pause(caplog, is_there_first) -> None:
    async def scenario(client, broker):
        registry, name = broker.broker.registry, TopicName.parse("t-s-DLQ")
        topics = ["t", "t-s-DLQ"] if not is_there_first else ["t"]
        for topic in topics:
            await publish(client, topic, b"m")
        policy = gc.ConsumerDeadLetterPolicy(1)
        consumer = await client.subscribe("t", "s", dead_letter_policy=policy, **OPTIONS)
        if is_there_first:
            for _ in range(2):
                await consumer.negative_acknowledge(await consumer.receive(5000))
            assert len(await letters(client, "t-s-DLQ", 1)) == 1
            await publish(client, "t", b"n")
        await (await registry.get(name, create=False)).terminate()
        for _ in range(2):
            await consumer.negative_acknowledge(await consumer.receive(5000))
        await delay(100_000)
        assert 5 <= burials_that_failed(caplog) <= 20
        await registry.delete(name, force=True)
        await delay(70_000)
        (dead,) = await letters(client, "t-s-DLQ", 1)
        assert dead.data() == (b"n" if is_there_first else b"m")
        await delay(1000)
        topic = await registry.get(TopicName.parse("t"), create=False)
        assert topic.subscriptions["s"].cursor.backlog_count == 0

    run_with_broker(scenario)


def test_a_consumer_that_closes_while_a_letter_is_on_its_way_leaves_no_producer() -> None:
    async def scenario(client, broker):
        dead = await broker.broker.registry.get(TopicName.parse("letters"), create=True)
        has_producer = set()
        # It is made within these milliseconds: each close comes a little further into that.
        for step in range(24):
            await publish(client, f"t{step}", b"m")
            policy = gc.ConsumerDeadLetterPolicy(1, "letters")
            consumer = await client.subscribe(f"t{step}", "s", dead_letter_policy=policy, **OPTIONS)
            for _ in range(2):
                await consumer.negative_acknowledge(await consumer.receive(5000))
            await delay(25 + step / 2)
            has_producer.add(bool(dead.producers))
            await consumer.close()
            await delay(1000)
            assert not dead.producers, step
        assert has_producer == {False, True}

    run_with_broker(scenario)


def test_a_close_that_is_cancelled_leaves_no_producer_of_letters() -> None:
    async def scenario(client, broker):
        await publish(client, "t", b"m")
        heard: list[str] = []

        class Hearing(gc.ConsumerInterceptor):
            def close(self) -> None:
                heard.append("closed")

        consumer = await client.subscribe("t", "s", retry_enabled=True, interceptors=[Hearing()], **OPTIONS)
        await consumer.reconsume_later(await consumer.receive(5000))
        assert len(client.lifetime.producers) == 1
        closing = asyncio.ensure_future(consumer.close())
        await next_turn()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await delay(1000)
        assert not client.lifetime.producers
        assert heard == ["closed"]

    run_with_broker(scenario)


def test_letters_of_a_batch_that_were_stored_are_not_stored_again_for_the_others() -> None:
    async def scenario(client, broker):
        registry, name = broker.broker.registry, TopicName.parse("t-s-DLQ")
        dead = await registry.get(name, create=True)
        await dead.create_subscription("look", EARLIEST)
        await set_topic(broker, "backLogQuotaMap", quota_of(2500), name)
        async with await client.create_producer("t", batching_max_publish_delay_ms=100) as producer:
            for number in range(6):
                producer.send_nowait(b"%d" % number * 1000)
            await producer.flush()
        policy = gc.ConsumerDeadLetterPolicy(1)
        consumer = await client.subscribe("t", "s", dead_letter_policy=policy, **OPTIONS)
        for _ in range(2):
            messages = [await consumer.receive(5000) for _ in range(6)]
            assert len({message.message_id().entry_id() for message in messages}) == 1
            await consumer.negative_acknowledge(messages[0])
        # So many as the topic has room for, and each try would store them again.
        await delay(200_000)
        await set_topic(broker, "backLogQuotaMap", quota_of(1_000_000), name)
        await delay(70_000)
        assert dead.ledger.ledgers.entry_count == 6
        found = await letters(client, "t-s-DLQ", 6)
        assert [message.data()[:1] for message in found] == [b"%d" % number for number in range(6)]
        topic = await registry.get(TopicName.parse("t"), create=False)
        assert topic.subscriptions["s"].cursor.backlog_count == 0

    run_with_broker(scenario)


async def enforced(client, broker, letters_topic: str) -> None:
    """No producer without a schema where there is one, and the letters have one."""
    await broker.broker.resources.namespaces.set_policy("public/default", "schema_validation_enforced", True)
    await broker.broker.policies_changed("public/default")
    async with await client.create_producer(letters_topic, schema=StringSchema()):
        pass


@pytest.mark.parametrize("schema", [StringSchema(), AutoConsumeSchema(), None], ids=["typed", "auto", "bytes"])
def test_letters_have_the_schema_that_they_were_written_with(schema) -> None:
    async def scenario(client, broker):
        for topic in ("t-s-DLQ", "t-s-RETRY"):
            await enforced(client, broker, topic)
        async with await client.create_producer("t", schema=StringSchema()) as producer:
            await producer.send("text")
        policy = gc.ConsumerDeadLetterPolicy(1)
        options = {**OPTIONS, "dead_letter_policy": policy, "retry_enabled": True}
        consumer = await client.subscribe("t", "s", schema=schema, **options)
        await consumer.reconsume_later(await consumer.receive(5000), 0)
        again = await consumer.receive(5000)
        assert again.topic_name() == f"{PREFIX}t-s-RETRY"
        assert again.value() == (b"text" if schema is None else "text")
        assert again.schema_version()
        await consumer.reconsume_later(again, 0)
        look = await client.subscribe(
            "t-s-DLQ", "look", schema=AutoConsumeSchema(), initial_position=gc.InitialPosition.Earliest
        )
        assert (await look.receive(5000)).value() == "text"

    run_with_broker(scenario)


class Closing:
    """A producer that can be closed."""

    def __init__(self) -> None:
        self.is_closed = False

    async def close(self) -> None:
        self.is_closed = True


def test_the_producer_of_letters_that_was_used_longest_ago_goes_when_there_are_too_many() -> None:
    made: dict[str, Closing] = {}

    async def make(topic: str, *_: object) -> Closing:
        made[topic] = Closing()
        return made[topic]

    async def scenario() -> None:
        producers = LetterProducers(make)
        for number in range(PRODUCERS_MAX):
            await producers.find(str(number), "", None)
        assert await producers.find("0", "", None) is made["0"]
        for number in range(PRODUCERS_MAX, PRODUCERS_MAX + 3):
            await producers.find(str(number), "", None)
        await next_turn()
        assert [topic for topic, one in made.items() if one.is_closed] == ["1", "2", "3"]
        await producers.drop(made["0"])
        assert await producers.find("0", "", None) is made["0"]
        await producers.close()
        assert all(one.is_closed for one in made.values())
        with pytest.raises(gc.AlreadyClosed):
            await producers.find("late", "", None)
        assert made["late"].is_closed

    asyncio.run(scenario())


class Stuck(Closing):
    """Its broker does not answer."""

    async def close(self) -> None:
        await asyncio.get_running_loop().create_future()


def test_letters_wait_for_no_producer_that_goes_or_has_failed() -> None:
    made: dict[str, Closing] = {}

    async def make(topic: str, *_: object) -> Closing:
        made[topic] = Stuck() if topic in ("0", "1") else Closing()
        return made[topic]

    async def scenario() -> None:
        producers = LetterProducers(make)
        for number in range(PRODUCERS_MAX):
            await producers.find(str(number), "", None)
        async with asyncio.timeout(1):
            new = await producers.find("new", "", None)
            await producers.drop(made["1"])
        assert await producers.find("new", "", None) is new

    asyncio.run(scenario())


def test_letters_of_many_schema_versions_take_a_few_producers_of_their_topic() -> None:
    """Any number of versions may be named by what is to be buried; a topic may have few producers."""

    @dataclasses.dataclass
    class First:
        a: int = 0

    @dataclasses.dataclass
    class Second:
        a: int = 0
        b: int = 0

    async def scenario(client, broker):
        for value in (First(1), Second(2), First(3)):
            async with await client.create_producer("t", schema=AvroSchema(type(value))) as producer:
                await producer.send(value)
        name = TopicName.parse(f"{PREFIX}t-s-DLQ")
        await broker.broker.registry.create(name)
        await set_topic(broker, "maxProducerPerTopic", 1, name)
        policy = gc.ConsumerDeadLetterPolicy(1)
        consumer = await client.subscribe("t", "s", dead_letter_policy=policy, **OPTIONS)
        for _ in range(6):
            await consumer.negative_acknowledge(await consumer.receive(5000))
        assert len({each.schema_version() for each in await letters(client, "t-s-DLQ", 3)}) == 2

    run_with_broker(scenario)


def test_of_one_topic_of_letters_only_the_last_producers_are_kept() -> None:
    made: list[Closing] = []

    async def make(*_: object) -> Closing:
        made.append(Closing())
        return made[-1]

    async def scenario() -> None:
        producers = LetterProducers(make)
        kept = await producers.find("other", "", None)
        for number in range(PRODUCERS_OF_TOPIC_MAX + 2):
            await producers.find("t", "", SchemaInfo("", SchemaType.STRING, b"%d" % number))
        assert [each.is_closed for each in made] == [False, True, True, *[False] * PRODUCERS_OF_TOPIC_MAX]
        assert await producers.find("other", "", None) is kept

    asyncio.run(scenario())


def test_letters_of_bytes_have_the_schema_of_their_consumer_as_with_java() -> None:
    async def scenario(client, broker):
        policy = gc.ConsumerDeadLetterPolicy(1)
        consumer = await client.subscribe("t", "s", schema=StringSchema(), dead_letter_policy=policy, **OPTIONS)
        await publish(client, "t", b"text")
        await enforced(client, broker, "t-s-DLQ")
        for _ in range(2):
            await consumer.negative_acknowledge(await consumer.receive(5000))
        (dead,) = await letters(client, "t-s-DLQ", 1)
        assert dead.data() == b"text"
        assert dead.schema_version()

    run_with_broker(scenario)


def test_letters_whose_schema_does_not_fit_those_of_other_topics_are_stored_without_one() -> None:
    async def scenario(client, _):
        for topic, schema, value in (("t1", StringSchema(), "text"), ("t2", Int64Schema(), 7)):
            async with await client.create_producer(topic, schema=schema) as producer:
                await producer.send(value)
        found = {}
        for topic in ("t1", "t2"):
            policy = gc.ConsumerDeadLetterPolicy(1, "all-DLQ")
            consumer = await client.subscribe(topic, "s", dead_letter_policy=policy, **OPTIONS)
            for _ in range(2):
                await consumer.negative_acknowledge(await consumer.receive(5000))
        for message in await letters(client, "all-DLQ", 2):
            found[message.properties()["REAL_TOPIC"]] = (message.data(), bool(message.schema_version()))
        assert found == {f"{PREFIX}t1": (b"text", True), f"{PREFIX}t2": ((7).to_bytes(8, "big"), False)}

    run_with_broker(scenario)


def quota_of(size_bytes: int) -> dict[str, object]:
    return {"destination_storage": {"limitSize": size_bytes, "policy": "producer_exception"}}


def test_a_letter_keeps_its_schema_though_another_one_that_asked_for_it_first_was_given_up() -> None:
    async def scenario(client, broker):
        async with await client.create_producer("t", schema=StringSchema()) as producer:
            for value in ("a", "b"):
                await producer.send(value)
        consumer = await client.subscribe("t", "s", retry_enabled=True, **OPTIONS)
        first, second = [await consumer.receive(5000) for _ in range(2)]
        given_up = asyncio.ensure_future(consumer.reconsume_later(first, 10))
        await next_turn()
        kept = asyncio.ensure_future(consumer.reconsume_later(second, 0))
        await next_turn()
        given_up.cancel()
        await kept
        again = await consumer.receive(5000)
        assert again.data() == b"b"
        assert again.schema_version()

    run_with_broker(scenario)


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("is_nacked", [True, False], ids=["nack", "timeout"])
def test_what_an_open_transaction_acknowledged_of_a_batch_is_no_letter(is_nacked: bool, commits: bool) -> None:
    async def scenario(client, broker):
        async with await client.create_producer("t", batching_max_messages=2) as producer:
            await asyncio.gather(*(producer.send(b"%d" % number) for number in range(2)))
        options = {**OPTIONS, "dead_letter_policy": gc.ConsumerDeadLetterPolicy(1)}
        if not is_nacked:
            options |= {"unacked_messages_timeout_ms": 2000, "unacked_messages_tick_ms": 1000}
        consumer = await client.subscribe("t", "s", **options)
        for _ in range(2):
            await consumer.negative_acknowledge(await consumer.receive(5000))
        done, failed = [await consumer.receive(5000) for _ in range(2)]
        assert done.redelivery_count() == 1
        txn = await client.transaction()
        await consumer.acknowledge(done, txn=txn)
        if is_nacked:
            await consumer.negative_acknowledge(failed)
        look = await client.subscribe("t-s-DLQ", "look", initial_position=gc.InitialPosition.Earliest)
        assert (await look.receive(10_000)).data() == b"1"
        await wait_ms(1000)
        if commits:
            await txn.commit()
        else:
            await txn.abort()
            assert (await look.receive(10_000)).data() == b"0"
        with pytest.raises(gc.Timeout):
            await look.receive(3000)
        with pytest.raises(gc.Timeout):
            await consumer.receive(3000)

    run_with_broker(scenario, broker={"transaction_coordinator_enabled": True})

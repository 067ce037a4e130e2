"""Our consumer: subscription type x acknowledgement kind x batch or not x partitioned or not, and what
consumers do besides."""

from __future__ import annotations

import asyncio
import itertools
import re
from datetime import timedelta

import pytest

import geminga.client as gc
from support.client_stories import RECEIVE_MS, contents, drain, publish, run
from support.partitions import delete_topic, set_partitions, stats

pytestmark = pytest.mark.integration

EARLIEST = gc.InitialPosition.Earliest
Type = gc.ConsumerType
MESSAGES = 60

_numbers = itertools.count()


@pytest.fixture
def topic() -> str:
    return f"consumer-{next(_numbers)}"


def test_a_failure_tells_what_client_and_broker_knew(broker, topic) -> None:
    async def main(client):
        await client.subscribe(topic, "sub")
        raise AssertionError("on purpose")

    with pytest.raises(AssertionError, match="on purpose") as failure:
        run(broker, main)
    told = "\n".join(failure.value.__notes__)
    assert "client: sub connected=True" in told
    assert "msgBacklog" in told


# ---- the matrix


@pytest.mark.parametrize("partitions", [0, 3])
@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("receipts", [False, True], ids=["", "receipts"])
@pytest.mark.parametrize("kind", ["one", "list", "cumulative", "id", "index"])
@pytest.mark.parametrize("type_", list(Type))
def test_acknowledged_messages_do_not_come_again(broker, topic, type_, kind, receipts, batched, partitions) -> None:
    """1. Publish, receive all. 2. Acknowledge. 3. A new consumer of the subscription gets nothing."""
    if partitions:
        set_partitions(broker.web_service_url, topic, partitions)
    options = {
        "consumer_type": type_,
        "initial_position": EARLIEST,
        "ack_receipt_enabled": receipts,
        "batch_index_ack_enabled": kind == "index",
    }

    async def main(client):
        consumer = await client.subscribe(topic, "sub", **options)
        await publish(client, topic, MESSAGES, batched=batched)
        messages = [await consumer.receive(RECEIVE_MS) for _ in range(MESSAGES)]
        assert contents(messages) == list(range(MESSAGES))
        assert {message.partition_key() for message in messages} == {f"k{n}" for n in range(5)}
        if kind == "cumulative":
            if type_ in (Type.Shared, Type.KeyShared):
                with pytest.raises(gc.CumulativeAcknowledgementNotAllowedError, match="cumulatively"):
                    await consumer.acknowledge_cumulative(messages[-1])
                await consumer.acknowledge(messages)
            else:
                last = {message.topic_name(): message for message in messages}
                for message in last.values():
                    await consumer.acknowledge_cumulative(message)
        elif kind == "list":
            await consumer.acknowledge(messages)
        elif kind == "id":
            await consumer.acknowledge([message.message_id() for message in messages])
        else:
            # With receipts each of those that are awaited one by one waits for a group of its own.
            await asyncio.gather(*(consumer.acknowledge(message) for message in messages[:-3]))
            for message in messages[-3:]:
                await consumer.acknowledge(message)
        await consumer.close()
        again = await client.subscribe(topic, "sub", **options)
        assert await drain(again) == []
        await again.close()

    run(broker, main)


@pytest.mark.parametrize("type_", list(Type))
@pytest.mark.parametrize("batched", [True, False])
def test_messages_not_acknowledged_come_again_to_the_next_consumer(broker, topic, type_, batched) -> None:
    async def main(client):
        options = {"consumer_type": type_, "initial_position": EARLIEST, "batch_index_ack_enabled": True}
        consumer = await client.subscribe(topic, "sub", **options)
        await publish(client, topic, 20, batched=batched)
        messages = [await consumer.receive(RECEIVE_MS) for _ in range(20)]
        kept = [message for message in messages if int(message.data()[1:]) % 2]
        await consumer.acknowledge([message for message in messages if message not in kept])
        await consumer.close()
        again = await client.subscribe(topic, "sub", **options)
        assert contents([await again.receive(RECEIVE_MS) for _ in kept]) == contents(kept)
        assert await drain(again) == []

    run(broker, main)


# ---- receiving


def test_iteration_batches_listeners_and_waiting_receivers_get_every_message_once(broker, topic) -> None:
    async def main(client):
        heard = []
        done = asyncio.Event()

        async def listener(consumer, message):
            heard.append(message)
            await consumer.acknowledge(message)
            if len(heard) == 30:
                done.set()

        options = {"initial_position": EARLIEST}
        listening = await client.subscribe(topic, "listener", message_listener=listener, **options)
        with pytest.raises(gc.OperationNotSupported):
            await listening.receive(1)
        iterating = await client.subscribe(topic, "iteration", **options)
        policy = gc.BatchReceivePolicy(7, -1, 300)
        batches = await client.subscribe(topic, "batches", batch_receive_policy=policy, **options)
        waiting = await client.subscribe(topic, "waiting", **options)
        receivers = [asyncio.ensure_future(waiting.receive()) for _ in range(30)]
        await asyncio.wait(receivers, timeout=0.05)
        receivers[3].cancel()
        await publish(client, topic, 30)
        got = await asyncio.gather(*receivers, return_exceptions=True)
        assert contents([*(m for m in got if isinstance(m, gc.Message)), await waiting.receive(RECEIVE_MS)]) == list(
            range(30)
        )
        found = []
        async for message in iterating:
            found.append(message)
            if len(found) == 30:
                break
        assert [int(message.data()[1:]) for message in found] == list(range(30))
        taken = []
        sizes = []
        while len(taken) < 30:
            batch = await batches.batch_receive()
            sizes.append(len(batch))
            taken += batch
        assert contents(taken) == list(range(30))
        assert sizes == [7, 7, 7, 7, 2]
        assert await batches.batch_receive() == []
        await done.wait()
        assert contents(heard) == list(range(30))

    run(broker, main)


def test_a_listener_that_fails_gets_the_next_message(broker, topic) -> None:
    async def main(client):
        heard = []
        done = asyncio.Event()

        def listener(consumer, message):
            heard.append(message.data())
            if len(heard) == 3:
                done.set()
            if len(heard) == 1:
                raise ValueError("cannot work with this")

        await client.subscribe(topic, "sub", message_listener=listener, initial_position=EARLIEST)
        await publish(client, topic, 3)
        await done.wait()
        assert heard == [b"m0", b"m1", b"m2"]

    run(broker, main)


def test_batch_receive_is_limited_by_bytes(broker, topic) -> None:
    async def main(client):
        policy = gc.BatchReceivePolicy(-1, 1000, 2000)
        consumer = await client.subscribe(topic, "sub", batch_receive_policy=policy, initial_position=EARLIEST)
        producer = await client.create_producer(topic)
        for _ in range(20):
            producer.send_nowait(b"x" * 300)
        producer.send_nowait(b"y" * 5000)
        await producer.flush()
        batches = []
        while sum(map(len, batches)) < 21:
            batches.append(await consumer.batch_receive())
        assert all(len(batch) == 1 or sum(len(m.data()) for m in batch) <= 1000 for batch in batches)
        assert max(map(len, batches)) == 3

    run(broker, main)


def test_a_closed_consumer_ends_iteration_and_refuses_to_receive(broker, topic) -> None:
    async def main(client):
        consumer = await client.subscribe(topic, "sub")

        async def iterate():
            return [message async for message in consumer]

        iterating = asyncio.ensure_future(iterate())
        receiving = asyncio.ensure_future(consumer.receive())
        await asyncio.wait([iterating], timeout=0.05)
        await consumer.close()
        assert await iterating == []
        with pytest.raises(gc.AlreadyClosed):
            await receiving
        with pytest.raises(gc.AlreadyClosed):
            await consumer.receive()
        await consumer.close()

    run(broker, main)


def test_without_prefetching_a_message_comes_when_it_is_wanted(broker, topic) -> None:
    async def main(client):
        options = {"consumer_type": Type.Shared, "initial_position": EARLIEST}
        first = await client.subscribe(topic, "sub", receiver_queue_size=0, **options)
        await publish(client, topic, 5, batched=False)
        assert [(await first.receive(RECEIVE_MS)).data() for _ in range(2)] == [b"m0", b"m1"]
        second = await client.subscribe(topic, "sub", **options)
        assert contents(await drain(second, count=3)) == [2, 3, 4]
        with pytest.raises(gc.Timeout):
            await first.receive(50)

    run(broker, main)


def test_a_paused_consumer_asks_for_no_more(broker, topic) -> None:
    async def main(client):
        consumer = await client.subscribe(topic, "sub", receiver_queue_size=4, initial_position=EARLIEST)
        consumer.pause()
        await publish(client, topic, 20, batched=False)
        assert len(await drain(consumer)) <= 8
        consumer.resume()
        assert contents(await drain(consumer, count=12))[-1] == 19

    run(broker, main)


# ---- redelivery


def test_negative_acknowledgement_brings_one_message_again_on_shared(broker, topic) -> None:
    async def main(client):
        options = {"consumer_type": Type.Shared, "initial_position": EARLIEST, "negative_ack_redelivery_delay_ms": 100}
        consumer = await client.subscribe(topic, "sub", **options)
        await publish(client, topic, 5, batched=False)
        messages = [await consumer.receive(RECEIVE_MS) for _ in range(5)]
        await consumer.negative_acknowledge(messages[2])
        again = await consumer.receive(RECEIVE_MS)
        assert again.message_id() == messages[2].message_id()
        assert again.redelivery_count() == 1
        await consumer.acknowledge([*messages, again])
        assert await drain(consumer) == []
        assert consumer.stats().negative_acks == 1

    run(broker, main)


def test_negative_acknowledgement_brings_the_rest_of_a_batch_again(broker, topic) -> None:
    async def main(client):
        options = {"consumer_type": Type.Shared, "initial_position": EARLIEST, "negative_ack_redelivery_delay_ms": 100}
        consumer = await client.subscribe(topic, "sub", **options)
        await publish(client, topic, 6)
        messages = [await consumer.receive(RECEIVE_MS) for _ in range(6)]
        await consumer.acknowledge(messages[:4])
        await consumer.negative_acknowledge(messages[5])
        again = await drain(consumer, count=2)
        assert contents(again) == [4, 5]
        await consumer.acknowledge(again)
        await consumer.close()
        assert await drain(await client.subscribe(topic, "sub", **options)) == []

    run(broker, main)


def test_ack_timeout_brings_everything_again_in_order_on_exclusive(broker, topic) -> None:
    async def main(client):
        options = {"unacked_messages_timeout_ms": 1000, "unacked_messages_tick_ms": 100, "initial_position": EARLIEST}
        consumer = await client.subscribe(topic, "sub", **options)
        await publish(client, topic, 4, batched=False)
        messages = [await consumer.receive(RECEIVE_MS) for _ in range(4)]
        await consumer.acknowledge(messages[0])
        again = [await consumer.receive(RECEIVE_MS) for _ in range(3)]
        assert [message.data() for message in again] == [b"m1", b"m2", b"m3"]
        await consumer.acknowledge(again)
        assert await drain(consumer, 1500) == []

    run(broker, main)


def test_what_is_prefetched_and_not_received_does_not_time_out(broker, topic) -> None:
    async def main(client):
        options = {"unacked_messages_timeout_ms": 1000, "unacked_messages_tick_ms": 100, "consumer_type": Type.Shared}
        consumer = await client.subscribe(topic, "sub", initial_position=EARLIEST, **options)
        await publish(client, topic, 3, batched=False)
        await consumer.acknowledge(await consumer.receive(RECEIVE_MS))
        await asyncio.wait([asyncio.ensure_future(asyncio.Event().wait())], timeout=1.5)
        messages = [await consumer.receive(RECEIVE_MS) for _ in range(2)]
        assert [message.redelivery_count() for message in messages] == [0, 0]
        assert consumer.stats().redelivery_requests == 0

    run(broker, main)


def test_redeliver_unacknowledged_messages_drops_what_was_sent_before(broker, topic) -> None:
    async def main(client):
        consumer = await client.subscribe(topic, "sub", initial_position=EARLIEST)
        await publish(client, topic, 10, batched=False)
        for _ in range(3):
            await consumer.receive(RECEIVE_MS)
        consumer.redeliver_unacknowledged_messages()
        assert [m.data() for m in await drain(consumer, count=10)] == [b"m%d" % n for n in range(10)]

    run(broker, main)


@pytest.mark.parametrize("batched", [True, False])
def test_dead_letters_are_stored_with_pulsars_names_and_properties(broker, topic, batched) -> None:
    async def main(client):
        consumer = await client.subscribe(
            topic,
            "sub",
            consumer_type=Type.Shared,
            initial_position=EARLIEST,
            negative_ack_redelivery_delay_ms=100,
            dead_letter_policy=gc.ConsumerDeadLetterPolicy(2, initial_subscription_name="kept"),
        )
        await publish(client, topic, 3, batched=batched, properties={"own": "1"})
        deliveries = 0
        while deliveries < 9:
            await consumer.negative_acknowledge(await consumer.receive(RECEIVE_MS))
            deliveries += 1
        dead = await client.subscribe(f"{topic}-sub-DLQ", "kept")
        letters = [await dead.receive(RECEIVE_MS) for _ in range(3)]
        assert contents(letters) == [0, 1, 2]
        properties = letters[0].properties()
        assert properties["own"] == "1"
        assert properties["REAL_TOPIC"] == f"persistent://public/default/{topic}"
        assert properties["REAL_SUBSCRIPTION"] == "sub"
        assert re.fullmatch(r"\d+:\d+:-1:0" if batched else r"\d+:\d+:-1", properties["ORIGIN_MESSAGE_ID"])
        assert letters[0].partition_key().startswith("k")
        assert await drain(consumer) == []
        assert consumer.stats().dead_lettered == 3
        await consumer.close()
        assert stats(broker.web_service_url, topic)["subscriptions"]["sub"]["msgBacklog"] == 0

    run(broker, main)


def test_reconsume_later_brings_a_message_again_and_then_buries_it(broker, topic) -> None:
    async def main(client):
        consumer = await client.subscribe(
            topic,
            "sub",
            consumer_type=Type.Shared,
            initial_position=EARLIEST,
            retry_enabled=True,
            dead_letter_policy=gc.ConsumerDeadLetterPolicy(2, initial_subscription_name="kept"),
        )
        await publish(client, topic, 1)
        for times in range(3):
            message = await consumer.receive(RECEIVE_MS)
            assert message.data() == b"m0"
            assert message.properties().get("RECONSUMETIMES", "0") == str(times)
            await consumer.reconsume_later(message, timedelta(milliseconds=10), {"more": "1"})
        assert message.topic_name() == f"persistent://public/default/{topic}-sub-RETRY"
        assert message.properties()["REAL_TOPIC"] == f"persistent://public/default/{topic}"
        dead = await client.subscribe(f"{topic}-sub-DLQ", "kept")
        assert (await dead.receive(RECEIVE_MS)).properties()["more"] == "1"
        assert await drain(consumer) == []

    run(broker, main)


def test_reconsume_later_without_retry_topic_is_refused(broker, topic) -> None:
    async def main(client):
        consumer = await client.subscribe(topic, "sub", initial_position=EARLIEST)
        await publish(client, topic, 1)
        with pytest.raises(gc.NotAllowedError, match="retry_enabled"):
            await consumer.reconsume_later(await consumer.receive(RECEIVE_MS))

    run(broker, main)


# ---- moving


@pytest.mark.parametrize("is_inclusive", [True, False])
@pytest.mark.parametrize("batched", [True, False])
def test_seek_goes_to_a_message_a_time_and_both_ends(broker, topic, batched, is_inclusive) -> None:
    async def main(client):
        consumer = await client.subscribe(
            topic, "sub", initial_position=EARLIEST, start_message_id_inclusive=is_inclusive
        )
        await publish(client, topic, 10, batched=batched)
        messages = [await consumer.receive(RECEIVE_MS) for _ in range(10)]
        await consumer.acknowledge(messages)
        await consumer.seek(messages[6].message_id())
        expected = range(6, 10) if is_inclusive else range(7, 10)
        assert [m.data() for m in await drain(consumer, count=len(expected))] == [b"m%d" % n for n in expected]
        await consumer.seek(gc.MessageId.earliest)
        assert contents(await drain(consumer, count=10)) == list(range(10))
        await consumer.seek(gc.MessageId.latest)
        await publish(client, topic, 3, first=10, batched=batched)
        found = await drain(consumer, count=3)
        assert contents(found) == [10, 11, 12]
        await consumer.seek(found[0].publish_timestamp())
        assert 12 in contents(await drain(consumer, count=1))
        await consumer.seek(0)
        assert contents(await drain(consumer, count=13)) == list(range(13))

    run(broker, main)


def test_seek_past_a_message_leaves_no_backlog_behind(broker, topic) -> None:
    async def main(client):
        consumer = await client.subscribe(topic, "sub", initial_position=EARLIEST)
        await publish(client, topic, 4, batched=False)
        messages = [await consumer.receive(RECEIVE_MS) for _ in range(4)]
        await consumer.seek(messages[1].message_id())
        await consumer.acknowledge(await drain(consumer, count=2))
        await consumer.close()
        assert stats(broker.web_service_url, topic)["subscriptions"]["sub"]["msgBacklog"] == 0

    run(broker, main)


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("is_inclusive", [True, False])
def test_reader_starts_at_or_behind_a_message_and_knows_when_it_is_through(broker, topic, batched, is_inclusive):
    async def main(client):
        await publish(client, topic, 10, batched=batched)
        async with await client.create_reader(topic, gc.MessageId.earliest) as reader:
            found = []
            while await reader.has_message_available():
                found.append(await reader.read_next(RECEIVE_MS))
            assert contents(found) == list(range(10))
        start = gc.MessageId.deserialize(found[4].message_id().serialize())
        async with await client.create_reader(topic, start, start_message_id_inclusive=is_inclusive) as reader:
            rest = []
            while await reader.has_message_available():
                rest.append(await reader.read_next(RECEIVE_MS))
            assert contents(rest) == list(range(4 if is_inclusive else 5, 10))
            await reader.seek(found[8].message_id())
            assert (await reader.read_next(RECEIVE_MS)).data() == (b"m8" if is_inclusive else b"m9")
        async with await client.create_reader(topic, gc.MessageId.latest) as reader:
            assert not await reader.has_message_available()
            await publish(client, topic, 1, first=10, batched=batched)
            assert await reader.has_message_available()
            assert (await reader.read_next(RECEIVE_MS)).data() == b"m10"
            assert (await reader.get_last_message_id()).entry_id() >= 0
        last = found[9].message_id()
        async with await client.create_reader(topic, last) as reader:
            assert [(await reader.read_next(RECEIVE_MS)).data()] == [b"m10"]

    run(broker, main)


def test_reader_of_an_empty_topic_has_nothing(broker, topic) -> None:
    async def main(client):
        async with await client.create_reader(topic, gc.MessageId.earliest) as reader:
            assert not await reader.has_message_available()
            with pytest.raises(gc.Timeout):
                await reader.read_next(50)

    run(broker, main)


def test_reader_over_partitions_and_with_listener(broker, topic) -> None:
    set_partitions(broker.web_service_url, topic, 3)

    async def main(client):
        await publish(client, topic, 30)
        async with await client.create_reader(topic, gc.MessageId.earliest) as reader:
            found = []
            while await reader.has_message_available():
                found.append(await reader.read_next(RECEIVE_MS))
            assert contents(found) == list(range(30))
        heard = []
        done = asyncio.Event()

        def listener(reader, message):
            assert isinstance(reader, gc.Reader)
            heard.append(message)
            if len(heard) == 30:
                done.set()

        async with await client.create_reader(topic, gc.MessageId.earliest, reader_listener=listener):
            await done.wait()
        assert contents(heard) == list(range(30))

    run(broker, main)


# ---- several topics


def test_several_topics_and_their_ids(broker, topic) -> None:
    async def main(client):
        names = [f"{topic}-a", f"{topic}-b"]
        consumer = await client.subscribe(names, "sub", initial_position=EARLIEST)
        for index, name in enumerate(names):
            await publish(client, name, 5, first=5 * index)
        messages = [await consumer.receive(RECEIVE_MS) for _ in range(10)]
        assert contents(messages) == list(range(10))
        await consumer.acknowledge([message.message_id() for message in messages])
        with pytest.raises(gc.OperationNotSupported, match="names no topic"):
            await consumer.acknowledge(gc.MessageId.deserialize(messages[0].message_id().serialize()))
        with pytest.raises(gc.OperationNotSupported, match="2 topics"):
            await consumer.get_last_message_id()
        assert len(await consumer.get_last_message_ids()) == 2
        await consumer.unsubscribe()
        assert "sub" not in stats(broker.web_service_url, names[0])["subscriptions"]

    run(broker, main)


def test_a_pattern_follows_topics_that_come_and_grow(broker, topic) -> None:
    async def main(client):
        await publish(client, f"{topic}-one", 3)
        consumer = await client.subscribe(
            re.compile(f"persistent://public/default/{topic}-.*"),
            "sub",
            initial_position=EARLIEST,
            pattern_auto_discovery_period_ms=100,
            auto_update_partitions_interval_ms=100,
        )
        assert contents([await consumer.receive(RECEIVE_MS) for _ in range(3)]) == [0, 1, 2]
        await publish(client, f"{topic}-two", 3, first=3)
        await publish(client, f"other-{topic}", 3, first=100)
        assert contents([await consumer.receive(RECEIVE_MS) for _ in range(3)]) == [3, 4, 5]
        assert await drain(consumer) == []
        assert len(consumer.topics()) == 2

    run(broker, main)


def test_a_pattern_is_told_of_topics_by_the_broker(broker, topic) -> None:
    """With the list asked for every hour, what comes and goes is known by the watch alone."""

    async def main(client):
        await publish(client, f"{topic}-one", 1)
        consumer = await client.subscribe(
            re.compile(f"persistent://public/default/{topic}-.*"),
            "sub",
            initial_position=EARLIEST,
            pattern_auto_discovery_period_ms=3_600_000,
        )
        assert contents([await consumer.receive(RECEIVE_MS)]) == [0]
        while not consumer.discovery.is_watching:
            await drain(consumer, 50)
        await publish(client, f"{topic}-two", 1, first=1)
        assert contents([await consumer.receive(RECEIVE_MS)]) == [1]
        delete_topic(broker.web_service_url, f"{topic}-one")
        while len(consumer.topics()) > 1:
            assert await drain(consumer, 50) == []
        assert consumer.topics() == [f"persistent://public/default/{topic}-two"]
        await publish(client, f"{topic}-two", 1, first=2)
        assert contents([await consumer.receive(RECEIVE_MS)]) == [2]

    run(broker, main)


def test_partitions_that_are_added_are_consumed(broker, topic) -> None:
    set_partitions(broker.web_service_url, topic, 2)

    async def main(client):
        consumer = await client.subscribe(
            topic, "sub", initial_position=EARLIEST, auto_update_partitions_interval_ms=100
        )
        set_partitions(broker.web_service_url, topic, 4, is_new=False)
        await publish(client, f"{topic}-partition-3", 2)
        assert contents([await consumer.receive(RECEIVE_MS) for _ in range(2)]) == [0, 1]
        assert len(consumer.topics()) == 4

    run(broker, main)


# ---- options that reach the broker


def test_non_durable_subscriptions_vanish_with_their_consumer(broker, topic) -> None:
    async def main(client):
        await publish(client, topic, 3)
        consumer = await client.subscribe(
            topic, "sub", is_durable=False, start_message_id=gc.MessageId.earliest, initial_position=EARLIEST
        )
        assert len([await consumer.receive(RECEIVE_MS) for _ in range(3)]) == 3
        assert "sub" in stats(broker.web_service_url, topic)["subscriptions"]
        await consumer.close()
        assert "sub" not in stats(broker.web_service_url, topic)["subscriptions"]

    run(broker, main)


def test_exclusive_subscriptions_take_one_consumer_and_failover_switches(broker, topic) -> None:
    async def main(client):
        first = await client.subscribe(topic, "exclusive")
        with pytest.raises(gc.ConsumerBusy):
            await client.subscribe(topic, "exclusive")
        await first.close()
        options = {"consumer_type": Type.Failover, "initial_position": EARLIEST}
        both = {name: await client.subscribe(topic, "failover", consumer_name=name, **options) for name in "ab"}
        # Which of the two it is goes by a hash of topic and names.
        name = stats(broker.web_service_url, topic)["subscriptions"]["failover"]["activeConsumerName"]
        active = both.pop(name)
        (standby,) = both.values()
        await publish(client, topic, 4, batched=False)
        messages = [await active.receive(RECEIVE_MS) for _ in range(4)]
        await active.acknowledge(messages[:2])
        assert await drain(standby, 100) == []
        await active.close()
        assert [(await standby.receive(RECEIVE_MS)).data() for _ in range(2)] == [b"m2", b"m3"]

    run(broker, main)


def test_sticky_ranges_divide_the_keys(broker, topic) -> None:
    async def main(client):
        halves = []
        for ranges in ([(0, 32767)], [(32768, 65535)]):
            policy = gc.ConsumerKeySharedPolicy(gc.KeySharedMode.Sticky, sticky_ranges=ranges)
            halves.append(
                await client.subscribe(
                    topic, "sub", consumer_type=Type.KeyShared, key_shared_policy=policy, initial_position=EARLIEST
                )
            )
        await publish(client, topic, 40, batched=False)
        found = [[], []]
        while len(found[0] + found[1]) < 40:
            for half, consumer in zip(found, halves, strict=True):
                half += await drain(consumer)
        assert contents(found[0] + found[1]) == list(range(40))
        keys = [{message.partition_key() for message in half} for half in found]
        assert not keys[0] & keys[1]

    run(broker, main)


def test_interceptors_see_what_is_received_and_acknowledged(broker, topic) -> None:
    class Recorder(gc.ConsumerInterceptor):
        def __init__(self):
            self.seen = []

        def before_consume(self, consumer, message):
            self.seen.append(("consume", message.data()))
            return message

        def on_acknowledge(self, consumer, message_id, error):
            self.seen.append(("ack", error))

        def on_acknowledge_cumulative(self, consumer, message_id, error):
            self.seen.append(("cumulative", error))

        def on_negative_acks_send(self, consumer, message_ids):
            self.seen.append(("nack", len(message_ids)))

        def close(self):
            self.seen.append(("close", None))

    recorder = Recorder()

    async def main(client):
        consumer = await client.subscribe(
            topic, "sub", interceptors=[recorder], initial_position=EARLIEST, negative_ack_redelivery_delay_ms=100
        )
        await publish(client, topic, 3, batched=False)
        messages = [await consumer.receive(RECEIVE_MS) for _ in range(3)]
        await consumer.acknowledge(messages[0])
        await consumer.acknowledge_cumulative(messages[1])
        await consumer.negative_acknowledge(messages[2])
        await consumer.receive(RECEIVE_MS)

    run(broker, main)
    assert recorder.seen == [
        ("consume", b"m0"),
        ("consume", b"m1"),
        ("consume", b"m2"),
        ("ack", None),
        ("cumulative", None),
        ("nack", 1),
        ("consume", b"m2"),
        ("close", None),
    ]


def test_non_persistent_topics_are_consumed_without_acknowledgement(broker, topic) -> None:
    async def main(client):
        name = f"non-persistent://public/default/{topic}"
        consumer = await client.subscribe(name, "sub", ack_receipt_enabled=True)
        await publish(client, name, 5)
        messages = [await consumer.receive(RECEIVE_MS) for _ in range(5)]
        await consumer.acknowledge(messages)
        assert consumer.stats().pending_acks == 0

    run(broker, main)


# ---- table view


def test_table_view_has_what_was_there_and_follows(broker, topic) -> None:
    async def main(client):
        producer = await client.create_producer(topic)
        for number in range(10):
            await producer.send(b"v%d" % number, partition_key=f"k{number % 3}")
        await producer.send(b"no key")
        view = await client.create_table_view(topic)
        assert dict(view.items()) == {"k0": b"v9", "k1": b"v7", "k2": b"v8"}
        changes = []
        await view.for_each_and_listen(lambda key, value: changes.append((key, value)))
        await producer.send(b"new", partition_key="k3")
        await producer.send(None, partition_key="k0")
        await view.refresh()
        assert view.get("k3") == b"new"
        assert view.get("k0") is None
        assert "k0" not in view
        assert changes[3:] == [("k3", b"new"), ("k0", None)]
        every = []
        await view.for_each(lambda key, value: every.append(key))
        assert sorted(every) == ["k1", "k2", "k3"]
        await view.close()
        with pytest.raises(gc.AlreadyClosed):
            view.get("k1")

    run(broker, main)

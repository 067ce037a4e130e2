"""When a consumer says what to its broker, in virtual time: permits, redelivery, statistics."""

from __future__ import annotations

import asyncio
import logging

import pytest

import geminga.client as gc
from geminga.client._consuming.attachment import Attachment
from geminga.client._consuming.receiving import Receiving
from geminga.client._consuming.redelivery import Redelivery
from geminga.client._consuming.requests import redeliver
from geminga.client._consuming.topic_consumer import TopicConsumer
from geminga.client._messages.entry_batch import EntryBatch
from geminga.runtime import wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.scripted_broker import run_against, run_with_broker
from support.worlds.scripted_consumer import ConsumerScript, Type, entry_bytes, message_frame, singles, take

SHARED = gc.ConsumerType.Shared
COVERED = (Attachment, Receiving, Redelivery, TopicConsumer)


def test_permits_go_back_by_half_of_the_queue() -> None:
    script = ConsumerScript(singles(10))

    async def scenario(client):
        consumer = await client.subscribe("t", "s", receiver_queue_size=10)
        await take(consumer, 10)
        await wait_ms(10)
        assert [command.flow.messagePermits for _, command in script.of(Type.FLOW)] == [10, 5, 5]

    run_against(script, scenario)


def test_without_prefetching_one_message_is_asked_for_at_a_time() -> None:
    script = ConsumerScript(singles(1))

    async def scenario(client):
        consumer = await client.subscribe("t", "s", receiver_queue_size=0)
        await wait_ms(100)
        assert script.of(Type.FLOW) == []
        assert (await consumer.receive()).data() == b"0"
        with pytest.raises(gc.Timeout):
            await consumer.receive(50)
        with pytest.raises(gc.Timeout):
            await consumer.receive(50)
        assert [command.flow.messagePermits for _, command in script.of(Type.FLOW)] == [1, 1]

    run_against(script, scenario)


def test_negative_acks_are_merged_and_sent_after_the_delay() -> None:
    script = ConsumerScript(singles(4))

    async def scenario(client):
        consumer = await client.subscribe("t", "s", consumer_type=SHARED)
        messages = await take(consumer, 4)
        started = asyncio.get_running_loop().time()
        for message in messages[:3]:
            await consumer.negative_acknowledge(message)
            await wait_ms(1)
        await consumer.acknowledge(messages[1])
        await wait_ms(59_900)
        assert script.of(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES) == []
        await wait_ms(400)
        ((when, command),) = script.of(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES)
        assert 60 <= when - started <= 60.27
        assert [one.entryId for one in command.redeliverUnacknowledgedMessages.message_ids] == [0, 2]

    run_against(script, scenario, keep_alive_interval_ms=3_600_000)


def test_ack_timeout_asks_for_entries_on_shared_and_for_everything_on_failover() -> None:
    for type_, expected in ((SHARED, [1, 2]), (gc.ConsumerType.Failover, [])):
        script = ConsumerScript(singles(5))

        async def scenario(client, type_=type_, expected=expected, script=script):
            consumer = await client.subscribe(
                "t", "s", consumer_type=type_, unacked_messages_timeout_ms=2000, unacked_messages_tick_ms=500
            )
            started = asyncio.get_running_loop().time()
            messages = await take(consumer, 3)
            await consumer.acknowledge(messages[0])
            await wait_ms(3000)
            ((when, command),) = script.of(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES)
            assert 2.0 <= when - started <= 2.55
            request = command.redeliverUnacknowledgedMessages
            assert [one.entryId for one in request.message_ids] == expected
            assert request.HasField("consumer_epoch") == (type_ is not SHARED)
            prefetched = consumer.stats().prefetched_messages
            assert prefetched == (2 if type_ is SHARED else 0), "3 and 4 were never received"

        run_against(script, scenario)


def test_messages_of_an_epoch_before_the_last_redelivery_are_dropped() -> None:
    script = ConsumerScript()

    def sending(command):
        answers = script(command)
        if command.type == Type.REDELIVER_UNACKNOWLEDGED_MESSAGES:
            epoch = command.redeliverUnacknowledgedMessages.consumer_epoch
            old, new = (
                message_frame(0, 7, entry_bytes([text]), consumer_epoch=e)
                for text, e in ((b"old", epoch - 1), (b"new", epoch))
            )
            answers += [old, new]
        return answers

    async def scenario(client):
        consumer = await client.subscribe("t", "s")
        await consumer.redeliver_unacknowledged_messages()
        assert (await consumer.receive(1000)).data() == b"new"
        with pytest.raises(gc.Timeout):
            await consumer.receive(100)

    run_against(sending, scenario)


def test_redelivery_asked_for_at_any_moment_of_a_reconnect_does_not_lose_messages() -> None:
    """An epoch that the broker was not told of would make everything that comes count as sent before."""

    async def scenario(client, _):
        async with await client.create_producer("t") as producer:
            await producer.send(b"0")
        consumer = await client.subscribe("t", "s", initial_position=gc.InitialPosition.Earliest)
        (topic,) = consumer.held.all()
        attaching = 0
        for step in range(160):
            assert (await consumer.receive(5000)).data() == b"0"
            for connection in list(client.pool._connections.values()):
                connection.close()
            await wait_ms(step / 4)
            attaching += topic._attachment.is_subscribing
            await consumer.redeliver_unacknowledged_messages()
        assert attaching > 0
        assert (await consumer.receive(5000)).data() == b"0"

    # It is lost again and again, and comes back as soon each time.
    run_with_broker(scenario, initial_backoff_ms=20, maximum_backoff_ms=20)


def test_more_than_a_thousand_redeliveries_are_several_commands() -> None:
    frames = list(redeliver(1, [(1, entry) for entry in range(2500)], -1))
    found = [pb.BaseCommand.FromString(frame[8:]).redeliverUnacknowledgedMessages for frame in frames]
    assert [len(one.message_ids) for one in found] == [1000, 1000, 500]


@pytest.mark.parametrize("how", ["acknowledge", "acknowledge_cumulative", "negative_acknowledge"])
def test_message_that_no_consumer_gave_can_not_be_acknowledged(how: str) -> None:
    async def scenario(client):
        consumer = await client.subscribe("t", "s")
        own = gc.Message(EntryBatch(b"payload", 0, pb.MessageMetadata(), 1, 2), 0)
        with pytest.raises(gc.OperationNotSupported, match="does not come from a consumer"):
            await getattr(consumer, how)(own)

    run_against(ConsumerScript(), scenario)


def test_a_line_of_statistics_is_logged_for_each_interval_in_which_something_happened(caplog) -> None:
    script = ConsumerScript(singles(100))
    caplog.set_level(logging.INFO, "geminga.client")

    def lines() -> list[str]:
        """Of this subscription: a client of an earlier test in this process may still be there, and says its own."""
        found = [record.getMessage() for record in caplog.records if ", subscription s: " in record.getMessage()]
        caplog.clear()
        return found

    async def scenario(client):
        consumer = await client.subscribe("t", "s", stats_interval_ms=1000)
        await consumer.acknowledge(await take(consumer, 60))
        await wait_ms(1010)
        (line,) = lines()
        assert line.startswith("persistent://public/default/t, subscription s: prefetched 40 messages, received ")
        assert "in all received 60, acknowledged 60, failed 0, negative 0" in line
        await wait_ms(1010)
        (line,) = lines()
        assert "prefetched 40 messages, received 0.0 msg/s" in line, "they wait for the application"
        await take(consumer, 40)
        await wait_ms(1010)
        assert len(lines()) == 1
        await wait_ms(3000)
        assert lines() == []

    run_against(script, scenario)


def test_statistics_have_the_rates_of_the_last_interval() -> None:
    script = ConsumerScript(singles(100))

    async def scenario(client):
        consumer = await client.subscribe("t", "s", stats_interval_ms=1000)
        await consumer.acknowledge(await take(consumer, 100))
        assert consumer.stats().message_rate == 0.0
        await wait_ms(1010)
        stats = consumer.stats()
        assert 95 < stats.message_rate <= 100
        assert 95 < stats.ack_rate <= 100
        assert stats.messages_received == 100
        await wait_ms(1010)
        assert consumer.stats().message_rate == 0.0

    run_against(script, scenario)

"""Acknowledgments that somebody waits for leave at once, together; a list is acknowledged whole or not at all."""

from __future__ import annotations

import asyncio

import pytest

import geminga.client as gc
from geminga.client._messages import acks
from geminga.runtime import next_turn, wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.varint import signed64
from support.worlds.scripted_broker import run_against, run_with_broker
from support.worlds.scripted_consumer import ConsumerScript, entry_bytes, singles, take

Type = pb.BaseCommand
SHARED = gc.ConsumerType.Shared
#: What a round trip to the scripted broker takes at most, seconds: far less than the grouping time.
ROUND_TRIP_S_MAX = 0.02


def seconds() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("how", ["message", "id", "list", "cumulative", "cumulative id", "part of a batch"])
def test_awaited_acknowledgment_takes_a_round_trip(how) -> None:
    batch = [entry_bytes([b"a", b"b", b"c"], batched=True)]
    script = ConsumerScript(batch if how == "part of a batch" else singles(3))

    async def scenario(client) -> None:
        consumer = await client.subscribe("t", "s", ack_receipt_enabled=True, batch_index_ack_enabled=True)
        messages = await take(consumer, 3)
        for message in messages:
            before = seconds()
            if how.startswith("cumulative"):
                await consumer.acknowledge_cumulative(message.message_id() if how.endswith("id") else message)
            else:
                await consumer.acknowledge({"id": message.message_id(), "list": [message]}.get(how, message))
            assert seconds() - before < ROUND_TRIP_S_MAX
        assert len(script.of(Type.ACK)) == 3

    run_against(script, scenario)


def test_acknowledgments_awaited_in_one_turn_go_in_one_command() -> None:
    script = ConsumerScript(singles(200))

    async def scenario(client) -> None:
        consumer = await client.subscribe("t", "s", consumer_type=SHARED, ack_receipt_enabled=True)
        messages = await take(consumer, 200)
        before = seconds()
        await asyncio.gather(*(consumer.acknowledge(message) for message in messages))
        assert seconds() - before < ROUND_TRIP_S_MAX
        assert len(script.of(Type.ACK)) == 1
        assert script.acked() == list(range(200))

    run_against(script, scenario)


def test_acknowledgments_that_nobody_waits_for_are_grouped() -> None:
    script = ConsumerScript(singles(10))

    async def scenario(client) -> None:
        consumer = await client.subscribe("t", "s", consumer_type=SHARED)
        for message in await take(consumer, 10):
            await consumer.acknowledge(message)
            await wait_ms(1)
        assert script.acked() == []
        await wait_ms(200)
        assert len(script.of(Type.ACK)) == 1
        assert script.acked() == list(range(10))

    run_against(script, scenario)


def test_interceptors_do_not_make_a_list_wait_for_each_message() -> None:
    script = ConsumerScript(singles(50))
    heard: list[tuple[int, object]] = []

    class Hearing(gc.ConsumerInterceptor):
        def on_acknowledge(self, consumer, message_id, error) -> None:
            heard.append((message_id.entry_id(), error))

    async def scenario(client) -> None:
        consumer = await client.subscribe(
            "t", "s", consumer_type=SHARED, ack_receipt_enabled=True, interceptors=[Hearing()]
        )
        messages = await take(consumer, 50)
        before = seconds()
        await consumer.acknowledge(messages)
        assert seconds() - before < ROUND_TRIP_S_MAX
        assert heard == [(number, None) for number in range(50)]

    run_against(script, scenario)


def test_flushing_acknowledgments_waits_for_the_broker() -> None:
    script = ConsumerScript(singles(4))

    async def scenario(client) -> None:
        plain = await client.subscribe("t", "s", consumer_type=SHARED)
        await plain.acknowledge(await take(plain, 2))
        await plain.flush_acknowledgements()
        await wait_ms(5)
        assert script.acked() == [0, 1]
        sure = await client.subscribe("t", "r", consumer_type=SHARED, ack_receipt_enabled=True)
        (message,) = await take(sure, 1)
        acknowledging = asyncio.ensure_future(sure.acknowledge(message))
        await next_turn()
        await sure.flush_acknowledgements()
        assert script.acked() == [0, 1, 0]
        assert acknowledging.done()

    run_against(script, scenario)


@pytest.mark.parametrize("wrong", [5, None, "text", b"bytes", 0.5, True, {}, object(), [5], [None], "in a list"])
def test_what_is_no_message_is_refused_and_nothing_of_its_list_is_acknowledged(wrong) -> None:
    script = ConsumerScript(singles(3))

    async def scenario(client) -> None:
        consumer = await client.subscribe("t", "s", consumer_type=gc.ConsumerType.Failover)
        first, second, third = await take(consumer, 3)
        with pytest.raises(gc.InvalidMessage, match="expected a message"):
            await consumer.acknowledge([first, second.message_id(), wrong])
        if not isinstance(wrong, str):
            for call in (consumer.acknowledge, consumer.acknowledge_cumulative, consumer.negative_acknowledge):
                if wrong == {} and call == consumer.acknowledge:
                    continue
                with pytest.raises(gc.InvalidMessage, match="expected a message"):
                    await call(wrong)
        of_unknown_size = gc.MessageId(-1, 7, 7, 2)
        with pytest.raises(gc.OperationNotSupported, match="unknown size"):
            await consumer.acknowledge([first, of_unknown_size])
        await wait_ms(200)
        assert script.acked() == []
        assert consumer.stats().acks_sent == consumer.stats().negative_acks == 0
        await consumer.acknowledge([first, second.message_id(), third])
        await wait_ms(200)
        assert script.acked() == [0, 1, 2]

    run_against(script, scenario)


@pytest.mark.parametrize("has_receipts", [False, True])
def test_a_closed_consumer_acknowledges_nothing_and_says_so(has_receipts) -> None:
    script = ConsumerScript(singles(2))

    async def scenario(client) -> None:
        consumer = await client.subscribe("t", "s", ack_receipt_enabled=has_receipts)
        message, _ = await take(consumer, 2)
        await consumer.close()
        for use in (message, [message], message.message_id()):
            with pytest.raises(gc.AlreadyClosed):
                await consumer.acknowledge(use)
        with pytest.raises(gc.AlreadyClosed):
            await consumer.acknowledge_cumulative(message)
        with pytest.raises(gc.AlreadyClosed):
            await consumer.flush_acknowledgements()
        with pytest.raises(gc.AlreadyClosed):
            await consumer.redeliver_unacknowledged_messages()

    run_against(script, scenario)


def test_receipts_of_a_consumer_that_can_not_go_on_end() -> None:
    """The topic is deleted and may not be made again: an acknowledgment that waits for its receipt is told."""

    async def scenario(client, broker) -> None:
        producer = await client.create_producer("t")
        await producer.send(b"a")
        consumer = await client.subscribe(
            "t",
            "s",
            initial_position=gc.InitialPosition.Earliest,
            ack_receipt_enabled=True,
            force_topic_creation=False,
        )
        (topic,) = consumer.held.all()
        message = await consumer.receive(5000)
        topic._on_failed(gc.TopicNotFound("gone"))
        with pytest.raises(gc.TopicNotFound):
            await asyncio.wait_for(consumer.acknowledge(message), 5)

    run_with_broker(scenario)


def test_a_message_is_here_soon_after_a_seek() -> None:
    """The broker closes the consumer for the seek: it comes back when that is done, not after a reconnect's delay."""

    async def scenario(client, _) -> None:
        async with client.create_producer("t") as producer:
            await producer.send(b"a")
        consumer = await client.subscribe("t", "s", initial_position=gc.InitialPosition.Earliest)
        assert (await consumer.receive(5000)).data() == b"a"
        for _ in range(3):
            before = seconds()
            await consumer.seek(gc.MessageId.earliest)
            assert (await consumer.receive(5000)).data() == b"a"
            assert seconds() - before < ROUND_TRIP_S_MAX

    run_with_broker(scenario, initial_backoff_ms=100)


def told(script: ConsumerScript) -> list[tuple[int, list[int], dict[str, int]]]:
    """Of each ACK: its kind, its entries, and what it took along."""
    return [
        (
            command.ack.ack_type,
            [one.entryId for one in command.ack.message_id],
            {pair.key: signed64(pair.value) for pair in command.ack.properties},
        )
        for _, command in script.of(Type.ACK)
    ]


@pytest.mark.parametrize("receipts", [True, False])
def test_properties_go_with_their_acknowledgment_alone(receipts: bool) -> None:
    single, cumulative = pb.CommandAck.Individual, pb.CommandAck.Cumulative
    script = ConsumerScript(singles(8))

    async def scenario(client) -> None:
        consumer = await client.subscribe("t", "s", ack_receipt_enabled=receipts)
        m = await take(consumer, 8)
        await consumer.acknowledge(m[0])
        await consumer.acknowledge([m[1], m[2].message_id()], properties={"a": 1, "b": -(1 << 63)})
        await consumer.acknowledge(m[3])
        await consumer.acknowledge_cumulative(m[4], properties={"offset": 17})
        await consumer.acknowledge_cumulative(m[5].message_id(), properties={})
        await consumer.flush_acknowledgements()
        await wait_ms(10)
        assert told(script) == [
            (single, [0], {}),
            (single, [1, 2], {"a": 1, "b": -(1 << 63)}),
            *([(single, [3], {})] if receipts else []),
            (cumulative, [4], {"offset": 17}),
            (cumulative, [5], {}),
        ]

    run_against(script, scenario)


def test_properties_that_can_not_be_are_refused() -> None:
    script = ConsumerScript(singles(1))

    async def scenario(client) -> None:
        consumer = await client.subscribe("t", "s")
        (message,) = await take(consumer, 1)
        for wrong in ({"a": 1 << 63}, {"a": "1"}, {"a": True}, {"": 1}, {"\ud800": 1}, {1: 1}, [("a", 1)], "a"):
            for call in (consumer.acknowledge, consumer.acknowledge_cumulative):
                with pytest.raises(gc.InvalidMessage, match="names to 64-bit integers"):
                    await call(message, properties=wrong)
        assert told(script) == []

    run_against(script, scenario)


def test_more_acknowledgments_than_a_command_takes_go_in_several(monkeypatch) -> None:
    monkeypatch.setattr(acks, "ACK_IDS_MAX", 3)
    script = ConsumerScript(singles(8))

    async def scenario(client) -> None:
        consumer = await client.subscribe("t", "s", consumer_type=SHARED, ack_receipt_enabled=True)
        await consumer.acknowledge(await take(consumer, 8))
        assert [len(command.ack.message_id) for _, command in script.of(Type.ACK)] == [3, 3, 2]
        assert script.acked() == list(range(8))

    run_against(script, scenario)


@pytest.mark.parametrize("how", ["list", "cumulative"])
def test_interceptors_hear_of_acknowledgments_whose_caller_gave_up(how: str) -> None:
    script = ConsumerScript(singles(3), refuses_acks=pb.ServerError.UnknownError)
    heard: list[tuple[int, type | None]] = []

    class Hearing(gc.ConsumerInterceptor):
        def on_acknowledge(self, consumer, message_id, error) -> None:
            heard.append((message_id.entry_id(), type(error)))

        on_acknowledge_cumulative = on_acknowledge

    async def scenario(client) -> None:
        consumer = await client.subscribe("t", "s", ack_receipt_enabled=True, interceptors=[Hearing()])
        messages = await take(consumer, 3)
        call = consumer.acknowledge(messages) if how == "list" else consumer.acknowledge_cumulative(messages[2])
        acknowledging = asyncio.ensure_future(call)
        await next_turn()
        acknowledging.cancel()
        await wait_ms(100)
        assert acknowledging.cancelled()
        assert heard == [(number, gc.UnknownError) for number in ((0, 1, 2) if how == "list" else (2,))]
        await consumer.close()

    run_against(script, scenario)

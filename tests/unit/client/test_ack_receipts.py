"""Acknowledgments of a consumer on the wire: which leave together and when, receipts, what a reconnect sends again."""

from __future__ import annotations

import asyncio

import pytest

import geminga.client as gc
from geminga.client._messages.acks import AckSender
from geminga.runtime import wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.scripted_broker import run_against
from support.worlds.scripted_consumer import ConsumerScript, Type, entry_bytes, singles, take

SHARED = gc.ConsumerType.Shared
COVERED = (AckSender,)


def test_acks_leave_together_a_tenth_of_a_second_after_the_first() -> None:
    script = ConsumerScript(singles(5))

    async def scenario(client):
        consumer = await client.subscribe("t", "s", consumer_type=SHARED)
        messages = await take(consumer, 5)
        started = asyncio.get_running_loop().time()
        await consumer.acknowledge(messages[:2])
        await wait_ms(60)
        await consumer.acknowledge(messages[2])
        assert consumer.stats().pending_acks == 3
        await wait_ms(60)
        ((when, ack),) = script.of(Type.ACK)
        assert 0.1 <= when - started < 0.115
        assert [one.entryId for one in ack.ack.message_id] == [0, 1, 2]
        await consumer.acknowledge(messages[3:])

    run_against(script, scenario)
    assert script.acked() == [0, 1, 2, 3, 4], "closing sends what waits"


def test_acks_leave_at_once_when_a_thousand_wait_or_no_time_is_given() -> None:
    script = ConsumerScript(singles(1000))

    async def scenario(client):
        consumer = await client.subscribe("t", "s", consumer_type=SHARED, receiver_queue_size=2000)
        messages = await take(consumer, 1000)
        await consumer.acknowledge(messages)
        await wait_ms(20)
        assert len(script.of(Type.ACK)) == 1
        assert len(script.acked()) == 1000

    run_against(script, scenario)
    script = ConsumerScript(singles(3))

    async def at_once(client):
        consumer = await client.subscribe("t", "s", ack_group_time_ms=0)
        for message in await take(consumer, 3):
            await consumer.acknowledge(message)
        await wait_ms(20)
        assert len(script.of(Type.ACK)) == 3

    run_against(script, at_once)


def test_only_the_newest_cumulative_ack_is_sent() -> None:
    script = ConsumerScript(singles(5))

    async def scenario(client):
        consumer = await client.subscribe("t", "s")
        for message in await take(consumer, 5):
            await consumer.acknowledge_cumulative(message)
        await wait_ms(200)
        ((_, ack),) = script.of(Type.ACK)
        assert ack.ack.ack_type == pb.CommandAck.Cumulative
        assert [one.entryId for one in ack.ack.message_id] == [4]

    run_against(script, scenario)


@pytest.mark.parametrize("by_index", [True, False])
def test_parts_of_a_batch_are_sent_by_index_or_not_at_all(by_index) -> None:
    script = ConsumerScript([entry_bytes([b"%d" % n for n in range(70)], batched=True)])

    async def scenario(client):
        consumer = await client.subscribe("t", "s", consumer_type=SHARED, batch_index_ack_enabled=by_index)
        messages = await take(consumer, 70)
        await consumer.acknowledge(messages[:3])
        await wait_ms(200)
        acks = script.of(Type.ACK)
        if by_index:
            ((_, ack),) = acks
            assert list(ack.ack.message_id[0].ack_set) == [~0b111, 0b111111]
        else:
            assert acks == []
        await consumer.acknowledge(messages[3:])
        await wait_ms(200)
        last = script.of(Type.ACK)[-1][1]
        assert (last.ack.message_id[0].entryId, list(last.ack.message_id[0].ack_set)) == (0, [])

    run_against(script, scenario)


def test_cumulative_ack_inside_a_batch_covers_what_is_before_the_batch() -> None:
    batch = entry_bytes([b"a", b"b", b"c"], batched=True)
    script = ConsumerScript([*singles(2), batch])

    async def scenario(client):
        consumer = await client.subscribe("t", "s", batch_index_ack_enabled=False)
        messages = await take(consumer, 5)
        await consumer.acknowledge_cumulative(messages[3])
        await wait_ms(200)
        assert script.acked() == [1]
        await consumer.acknowledge_cumulative(messages[4])
        await wait_ms(200)
        assert script.acked() == [1, 2]

    run_against(script, scenario)


def test_receipts_are_awaited_and_errors_raised() -> None:
    script = ConsumerScript(singles(3))

    def refusing(command):
        if command.type == Type.ACK and command.ack.message_id[0].entryId == 1:
            response = pb.CommandAckResponse(
                consumer_id=command.ack.consumer_id,
                request_id=command.ack.request_id,
                error=pb.MetadataError,
                message="no",
            )
            encoded = pb.BaseCommand(type=Type.ACK_RESPONSE, ackResponse=response).SerializeToString()
            return [len(encoded).__add__(4).to_bytes(4, "big") + len(encoded).to_bytes(4, "big") + encoded]
        return script(command)

    async def scenario(client):
        consumer = await client.subscribe("t", "s", consumer_type=SHARED, ack_receipt_enabled=True)
        messages = await take(consumer, 3)
        await consumer.acknowledge(messages[0])
        assert script.acked() == [0]
        with pytest.raises(gc.BrokerMetadataError, match="no"):
            await consumer.acknowledge(messages[1])
        assert consumer.stats().ack_failures == 1

    run_against(refusing, scenario)


def test_unanswered_acks_are_sent_again_after_a_reconnect_and_messages_start_over() -> None:
    script = ConsumerScript(singles(4), answers_acks=False)

    async def scenario(client):
        consumer = await client.subscribe(
            "t", "s", consumer_type=gc.ConsumerType.Failover, ack_receipt_enabled=True, ack_group_time_ms=0
        )
        messages = await take(consumer, 2)
        acknowledging = asyncio.ensure_future(consumer.acknowledge(messages[0]))
        await wait_ms(50)
        assert script.acked() == [0]
        assert not acknowledging.done()
        for connection in list(client.pool._connections.values()):
            connection.close()
        script.answers_acks = True
        await acknowledging
        assert script.acked() == [0, 0]
        again = await take(consumer, 4)
        assert [message.data() for message in again] == [b"0", b"1", b"2", b"3"]
        first, second = (command.subscribe for _, command in script.of(Type.SUBSCRIBE))
        assert first.consumer_id == second.consumer_id
        assert (first.consumer_epoch, second.consumer_epoch) == (0, 1)
        assert first.consumer_name == second.consumer_name
        acknowledged = [when for when, _ in script.of(Type.ACK)][-1]
        assert acknowledged <= script.of(Type.FLOW)[-1][0], "acknowledgments go before new permits"

    run_against(script, scenario)


def test_an_acknowledgment_without_answer_ends_with_a_timeout() -> None:
    script = ConsumerScript(singles(3), answers_acks=False)

    async def scenario(client):
        consumer = await client.subscribe("t", "s", ack_receipt_enabled=True, ack_group_time_ms=0)
        messages = await take(consumer, 3)
        started = asyncio.get_running_loop().time()
        ends: list[float] = []

        async def acknowledge(message) -> None:
            with pytest.raises(gc.Timeout, match="unknown whether it was stored"):
                await consumer.acknowledge(message)
            ends.append(asyncio.get_running_loop().time() - started)

        first = asyncio.ensure_future(acknowledge(messages[0]))
        await wait_ms(1000)
        second = asyncio.ensure_future(acknowledge(messages[1]))
        await asyncio.wait([first, second])
        assert ends == pytest.approx([8.0, 9.0], abs=0.01)
        assert consumer.stats().ack_failures == 2
        script.answers_acks = True
        await consumer.acknowledge(messages[2])

    run_against(script, scenario, operation_timeout_ms=8000)


@pytest.mark.parametrize("is_gone", [False, True])
def test_close_does_not_wait_for_ever_for_receipts(is_gone) -> None:
    """1. An acknowledgment gets no answer, and with ``is_gone`` no connection is taken any more. 2. Close ends all the
    same, and whoever waits for the receipt gets a named error."""
    script = ConsumerScript(singles(1), answers_acks=False)
    gone: list[bool] = []

    def dying(command):
        return [] if gone else script(command)

    async def scenario(client):
        consumer = await client.subscribe("t", "s", ack_receipt_enabled=True, ack_group_time_ms=0)
        (message,) = await take(consumer, 1)
        acknowledging = asyncio.ensure_future(consumer.acknowledge(message))
        await wait_ms(50)
        if is_gone:
            gone.append(True)
            for connection in list(client.pool._connections.values()):
                connection.close()
        started = asyncio.get_running_loop().time()
        await consumer.close()
        assert asyncio.get_running_loop().time() - started <= 2 * client.options.operation_timeout_ms / 1000
        with pytest.raises((gc.AlreadyClosed, gc.Timeout)):
            await acknowledging

    run_against(dying, scenario)


def test_topics_are_closed_side_by_side_and_cancelled_closing_leaves_the_broker() -> None:
    script = ConsumerScript(singles(1), answers_acks=False)
    closed: list[int] = []

    def slow(command):
        if command.type == Type.CLOSE_CONSUMER:
            closed.append(command.close_consumer.consumer_id)
            return []
        return script(command)

    async def scenario(client):
        consumer = await client.subscribe(["a", "b", "c"], "s")
        started = asyncio.get_running_loop().time()
        await consumer.close()
        assert asyncio.get_running_loop().time() - started == pytest.approx(8, abs=0.1)
        assert len(closed) == 3
        other = await client.subscribe(["a", "b"], "s", ack_receipt_enabled=True, ack_group_time_ms=0)
        messages = await take(other, 2)
        waiting = [asyncio.ensure_future(other.acknowledge(message)) for message in messages]
        await wait_ms(10)
        closing = asyncio.ensure_future(other.close())
        await wait_ms(10)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(result) for result in results] == [gc.AlreadyClosed] * 2
        await wait_ms(10)
        assert len(closed) == 5

    run_against(slow, scenario, operation_timeout_ms=8000)


def test_an_acknowledged_message_of_a_batch_does_not_come_again_after_a_reconnect() -> None:
    script = ConsumerScript([entry_bytes([b"a", b"b", b"c"], batched=True)])

    async def scenario(client):
        consumer = await client.subscribe("t", "s", consumer_type=SHARED, batch_index_ack_enabled=False)
        messages = await take(consumer, 3)
        await consumer.acknowledge(messages[1])
        for connection in list(client.pool._connections.values()):
            connection.close()
        again = await take(consumer, 2)
        assert [message.data() for message in again] == [b"a", b"c"]
        await consumer.acknowledge(again)
        await wait_ms(200)
        assert script.acked() == [0]

    run_against(script, scenario)

"""What a consumer says to its broker and when, in virtual time, against a scripted broker."""

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
from geminga.client._messages.acks import AckSender
from geminga.client._messages.entry_batch import EntryBatch
from geminga.client.consumer_rules.discards import Discard
from geminga.runtime import wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.scripted_broker import run_against, run_with_broker
from support.worlds.scripted_consumer import ConsumerScript, Type, entry_bytes, message_frame

SHARED = gc.ConsumerType.Shared
COVERED = (AckSender, Attachment, Receiving, Redelivery, TopicConsumer)


def singles(count: int) -> list[bytes]:
    return [entry_bytes([b"%d" % number]) for number in range(count)]


async def take(consumer, count: int):
    return [await consumer.receive(1000) for _ in range(count)]


# ---- acknowledgement grouping


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


# ---- receipts and reconnects


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
        assert acknowledged <= script.of(Type.FLOW)[-1][0], "acknowledgements go before new permits"

    run_against(script, scenario)


def test_an_acknowledgement_without_answer_ends_with_a_timeout() -> None:
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
    """1. An acknowledgement gets no answer, and with ``is_gone`` no connection is taken any more. 2. Close ends all the
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


# ---- permits


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


# ---- redelivery


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


# ---- what can not be read


def test_damaged_bytes_cost_the_connection_first_and_are_discarded_when_they_stay_damaged() -> None:
    damaged = bytearray(entry_bytes([b"damaged"]))
    damaged[-1] ^= 1
    script = ConsumerScript([bytes(damaged), entry_bytes([b"fine"])])

    async def scenario(client):
        consumer = await client.subscribe("t", "s")
        assert (await consumer.receive(5000)).data() == b"fine"
        await wait_ms(500)
        assert len(script.of(Type.SUBSCRIBE)) == 2
        ((_, ack),) = script.of(Type.ACK)
        assert ack.ack.validation_error == pb.CommandAck.ChecksumMismatch
        assert consumer.stats().entries_discarded == 2

    run_against(script, scenario)


def test_bytes_without_checksum_that_can_not_be_read_count_as_damaged_on_the_way() -> None:
    whole = entry_bytes([b"whole"])
    script = ConsumerScript([b"\x00\x00\x00\x03abc" + whole])

    def healing(command):
        answers = script(command)
        if command.type == Type.FLOW:
            script.entries = [whole]
        return answers

    async def scenario(client):
        consumer = await client.subscribe("t", "s")
        assert (await consumer.receive(5000)).data() == b"whole"
        assert script.of(Type.ACK) == []

    run_against(healing, scenario)


@pytest.mark.parametrize("why", [Discard.BROKEN, Discard.DECOMPRESSION])
def test_broken_batches_and_bad_compression_are_acknowledged_with_the_reason(why) -> None:
    if why is Discard.BROKEN:
        bad = entry_bytes([b"no batch"], num_messages_in_batch=3)
        expected = pb.CommandAck.BatchDeSerializeError
    else:
        bad = entry_bytes([b"no lz4"], compression=pb.LZ4, uncompressed_size=100)
        expected = pb.CommandAck.DecompressionError
    script = ConsumerScript([bad, entry_bytes([b"fine"])])

    async def scenario(client):
        consumer = await client.subscribe("t", "s")
        assert (await consumer.receive(5000)).data() == b"fine"
        await wait_ms(50)
        ((_, ack),) = script.of(Type.ACK)
        assert ack.ack.validation_error == expected

    run_against(script, scenario)


def test_incomplete_chunks_give_way_and_are_asked_for_again_or_acknowledged() -> None:
    def chunk(uuid, part, of=2):
        return entry_bytes([b"xx"], uuid=uuid, chunk_id=part, num_chunks_from_msg=of, total_chunk_msg_size=2 * of)

    for auto_ack in (True, False):
        script = ConsumerScript([chunk("a", 0), chunk("b", 0), chunk("b", 1), chunk("c", 1)])

        async def scenario(client, auto_ack=auto_ack, script=script):
            consumer = await client.subscribe(
                "t",
                "s",
                consumer_type=SHARED,
                max_pending_chunked_message=1,
                auto_ack_oldest_chunked_message_on_queue_full=auto_ack,
                negative_ack_redelivery_delay_ms=100,
                expire_time_of_incomplete_chunked_message_ms=0,
            )
            message = await consumer.receive(1000)
            assert message.data() == b"xxxx"
            assert message.message_id().entry_id() == 2
            first = message.message_id().first_chunk_message_id()
            assert first is not None
            assert first.entry_id() == 1
            await consumer.acknowledge(message)
            await wait_ms(500)
            redelivered = [
                one.entryId
                for _, command in script.of(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES)
                for one in command.redeliverUnacknowledgedMessages.message_ids
            ]
            assert sorted(script.acked()) == ([0, 1, 2, 3] if auto_ack else [1, 2])
            assert redelivered == ([] if auto_ack else [0, 3])

        run_against(script, scenario)


def test_parts_of_a_message_that_never_comes_whole_are_acknowledged_in_time() -> None:
    part = {"num_chunks_from_msg": 3, "total_chunk_msg_size": 6}
    script = ConsumerScript([entry_bytes([b"xx"], uuid="a", chunk_id=number, **part) for number in (0, 1)])

    async def scenario(client):
        consumer = await client.subscribe("t", "s", expire_time_of_incomplete_chunked_message_ms=2000)
        await wait_ms(1500)
        assert script.acked() == []
        await wait_ms(1500)
        assert script.acked() == [0, 1]
        await consumer.close()

    run_against(script, scenario)


def test_time_in_which_no_part_could_come_does_not_count() -> None:
    """Of a message that is whole at the broker nothing is acknowledged: what was sent waits for the application, which
    then pauses; the connection is gone; then the rest comes."""
    parts = [
        entry_bytes([b"xx"], uuid="a", chunk_id=number, num_chunks_from_msg=2, total_chunk_msg_size=4)
        for number in (0, 1)
    ]
    script = ConsumerScript([parts[0], *singles(1)])
    gone: list[bool] = []

    def dying(command):
        return [] if gone else script(command)

    async def scenario(client):
        consumer = await client.subscribe("t", "s", expire_time_of_incomplete_chunked_message_ms=2000)
        await wait_ms(9000)
        await consumer.acknowledge(await consumer.receive())
        consumer.pause()
        await wait_ms(9000)
        consumer.resume()
        await wait_ms(500)
        gone.append(True)
        for connection in list(client.pool._connections.values()):
            connection.close()
        await wait_ms(9000)
        assert script.acked() == [1]
        script.entries = parts
        gone.clear()
        assert (await consumer.receive()).data() == b"xxxx"
        await consumer.close()

    run_against(dying, scenario)


# ---- statistics


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

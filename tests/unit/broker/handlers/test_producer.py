"""PRODUCER, SEND, CLOSE_PRODUCER: names, epochs, access modes, errors and the order of answers."""

from __future__ import annotations

import pytest

from geminga.broker.core.producer_access import TOPIC_EPOCH_MAX
from geminga.broker.topic.deduplication import KNOWN_WAIT_S
from geminga.model.errors import DiskFullError, ServerError
from geminga.model.position import EARLIEST
from geminga.model.topic_name import TopicName
from geminga.runtime import wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.frame import encode_frame_head
from geminga.wire.pulsar.metadata import broker_entry_metadata, encode_entry
from support.house.waiting import turns
from support.worlds.broker_world import TOPIC, BrokerWorld, Client, Type, run_with_broker, send_frame

EXCLUSIVE, WAIT, FENCING = pb.Exclusive, pb.WaitForExclusive, pb.ExclusiveWithFencing


# ---- names


def test_generated_names_differ_also_after_a_restart() -> None:
    async def scenario(world: BrokerWorld) -> None:
        names = set()
        for _ in range(2):
            client = await world.client()
            for producer_id in (1, 2):
                success = await client.create_producer(producer_id=producer_id)
                assert success.producer_name.startswith("standalone-")
                assert success.last_sequence_id == -1
                assert success.schema_version == b""
                names.add(success.producer_name)
            await world.restart()
        assert len(names) == 4

    run_with_broker(scenario)


def test_same_name_twice_is_busy() -> None:
    async def scenario(world: BrokerWorld) -> None:
        first, second = await world.client(), await world.client()
        await first.create_producer(producer_name="p")
        second.request_producer(producer_name="p")
        await first.expect(Type.PING)
        first.send(pb.BaseCommand(type=Type.PONG, pong=pb.CommandPong()))
        await second.check_error(pb.ProducerBusy, "'p' is already connected")

    run_with_broker(scenario)


def test_same_name_on_a_dead_connection_gives_way() -> None:
    async def scenario(world: BrokerWorld) -> None:
        first, second = await world.client(), await world.client()
        await first.create_producer(producer_name="p")
        success = await second.create_producer(producer_name="p")
        assert success.producer_name == "p"
        assert first.is_closed

    run_with_broker(scenario)


def test_newer_epoch_on_the_same_connection_takes_over() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(producer_name="p", epoch=0)
        old = world.topic.producers["p"]
        client.connection.members.producer_closed_by_broker(1)
        await client.create_producer(producer_name="p", epoch=1)
        assert world.topic.producers["p"] is not old
        await client.publish(0)

    run_with_broker(scenario)


def test_repeated_request_gets_the_same_answer() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        first = await client.create_producer()
        again = await client.create_producer()
        assert first.producer_name == again.producer_name

    run_with_broker(scenario)


def test_creation_in_a_missing_namespace_is_topic_not_found() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        client.request_producer("persistent://no/where/t")
        assert (await client.error()).error == pb.TopicNotFound
        client.request_producer("persistent://not-a-topic")
        assert (await client.error()).error == pb.InvalidTopicName
        client.request_producer("persistent://public/standalone/default/t")
        error = await client.error()
        assert (error.error, "a name with a cluster in it" in error.message) == (pb.TopicNotFound, True)

    run_with_broker(scenario)


def test_close_waits_for_answers_under_way() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        await client.publish(0)
        world.bookie.holds_replies = True
        client.send_message(1)
        close = pb.CommandCloseProducer(producer_id=1, request_id=99)
        client.send(pb.BaseCommand(type=Type.CLOSE_PRODUCER, close_producer=close))
        await turns()
        assert not client.received
        assert world.topic.producers == {}
        world.bookie.holds_replies = False
        world.bookie.release()
        assert (await client.receipt()).sequence_id == 1
        assert (await client.expect(Type.SUCCESS)).success.request_id == 99

    run_with_broker(scenario)


def test_close_during_creation_ends_both() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        creation = client.request_producer()
        close = pb.CommandCloseProducer(producer_id=1, request_id=99)
        client.send(pb.BaseCommand(type=Type.CLOSE_PRODUCER, close_producer=close))
        error = await client.error()
        assert (error.request_id, error.error) == (creation, pb.ServiceNotReady)
        assert (await client.expect(Type.SUCCESS)).success.request_id == 99
        await turns(60)
        assert world.topic.producers == {}
        world.topic.check_invariants()

    run_with_broker(scenario)


def test_initial_subscription_is_created() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(initial_subscription_name="init")
        await client.create_producer(producer_id=2, initial_subscription_name="init")
        assert set(world.topic.subscriptions) == {"init"}

    run_with_broker(scenario)


# ---- access modes


def test_exclusive_producer_keeps_others_out() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, other = await world.client(), await world.client()
        assert (await client.create_producer(producer_access_mode=EXCLUSIVE)).topic_epoch == 0
        other.request_producer(producer_access_mode=EXCLUSIVE)
        assert (await other.error()).error == pb.ProducerFenced
        other.request_producer()
        assert (await other.error()).error == pb.ProducerBusy

    run_with_broker(scenario)


def test_waiting_producer_gets_a_second_success() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, other = await world.client(), await world.client()
        await client.create_producer(producer_access_mode=EXCLUSIVE)
        waiting = await other.create_producer(producer_access_mode=WAIT)
        assert not waiting.producer_ready
        await client.close_producer()
        ready = (await other.expect(Type.PRODUCER_SUCCESS)).producer_success
        assert ready.producer_ready
        assert ready.request_id == waiting.request_id
        assert ready.topic_epoch == 1
        await other.publish(0)
        world.topic.check_invariants()

    run_with_broker(scenario)


def test_waiting_producer_that_leaves_is_forgotten() -> None:
    async def scenario(world: BrokerWorld) -> None:
        first, second, third = [await world.client() for _ in range(3)]
        await first.create_producer(producer_access_mode=EXCLUSIVE)
        await second.create_producer(producer_access_mode=WAIT)
        await third.create_producer(producer_access_mode=WAIT)
        second.lose()
        await turns()
        await first.close_producer()
        assert (await third.expect(Type.PRODUCER_SUCCESS)).producer_success.producer_ready

    run_with_broker(scenario)


@pytest.mark.parametrize(
    ("happens", "error"), [("nothing", None), ("fenced", pb.ProducerFenced), ("unloaded", pb.ServiceNotReady)]
)
def test_what_becomes_of_a_waiting_producer_while_its_last_sequence_id_is_found_out_is_told(
    happens: str, error: int | None
) -> None:
    async def scenario(world: BrokerWorld) -> None:
        holder, waiting, other = [await world.client() for _ in range(3)]
        await holder.create_producer(producer_access_mode=EXCLUSIVE)
        topic = world.topic
        # As after a failed write: nobody is told a last sequence id.
        assert topic.dedup is not None
        topic.dedup.state.begin_settling()
        assert not (await waiting.create_producer(producer_name="w", producer_access_mode=WAIT)).producer_ready
        assert "w" not in topic.producers
        await holder.close_producer()
        await turns(20)
        assert "w" in topic.producers
        assert not waiting.received
        if happens == "fenced":
            other.request_producer(producer_access_mode=FENCING)
        elif happens == "unloaded":
            await world.broker.registry.unload(topic.name)
        await wait_ms(int(KNOWN_WAIT_S * 1000) + 100)
        if error is None:
            assert (await waiting.expect(Type.PRODUCER_SUCCESS)).producer_success.producer_ready
            assert topic.producers["w"].topic_epoch == 1
        else:
            assert (await waiting.error()).error == error
            assert "w" not in topic.producers
        assert not waiting.connection.members.waiting_producers
        topic.check_invariants()

    run_with_broker(scenario, deduplication=True)


def test_fencing_disconnects_the_holder_for_good_also_after_a_restart() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, other = await world.client(), await world.client()
        epoch = (await client.create_producer(producer_access_mode=EXCLUSIVE)).topic_epoch
        waiting = await world.publisher(producer_access_mode=WAIT)
        assert (await other.create_producer(producer_access_mode=FENCING)).topic_epoch == epoch + 1
        await client.expect(Type.CLOSE_PRODUCER)
        assert (await waiting.error()).error == pb.ProducerFenced
        await world.restart()
        client = await world.client()
        client.request_producer(producer_access_mode=EXCLUSIVE, topic_epoch=epoch)
        await client.check_error(pb.ProducerFenced, "epoch has already moved")

    run_with_broker(scenario)


# ---- publishing and its errors


def test_bad_checksum_is_answered_in_its_place_and_not_stored() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        damaged = bytearray(send_frame(1))
        damaged[-1] ^= 1
        client.send_bytes(send_frame(0) + bytes(damaged) + send_frame(2))
        assert (await client.receipt()).message_id.entryId == 0
        error = (await client.expect(Type.SEND_ERROR)).send_error
        assert (error.sequence_id, error.error) == (1, pb.ChecksumError)
        receipt = await client.receipt()
        assert (receipt.sequence_id, receipt.message_id.entryId) == (2, 1)

    run_with_broker(scenario)


def test_message_without_checksum_is_stored() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        entry = encode_entry(pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1), b"x")[6:]
        send = pb.BaseCommand(type=Type.SEND, send=pb.CommandSend(producer_id=1, sequence_id=0))
        client.send_bytes(encode_frame_head(send.SerializeToString(), len(entry)) + entry)
        await client.receipt()

    run_with_broker(scenario)


def test_too_big_a_message_closes_the_connection() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        client.send_message(0, b"x" * 20_000)
        assert client.is_closed

    run_with_broker(scenario, message_bytes_max=1000)


def test_transactional_message_is_not_allowed() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        client.send_message(0, txnid_most_bits=1, txnid_least_bits=1)
        error = (await client.expect(Type.SEND_ERROR)).send_error
        assert error.error == pb.NotAllowedError
        await client.publish(1)

    run_with_broker(scenario)


def test_terminated_topic_refuses_messages_and_producers() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        await client.publish(0)
        position = await world.broker.registry.terminate(TopicName.parse(TOPIC))
        assert position.entry_id == 0
        await client.expect(Type.CLOSE_PRODUCER)
        client.request_producer(producer_id=2)
        assert (await client.error()).error == pb.TopicTerminatedError

    run_with_broker(scenario)


def test_failed_write_is_answered_and_the_producer_disconnected_then_it_goes_on() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(producer_name="p")
        await world.topic.create_subscription("keeper", EARLIEST)
        await client.publish(0)
        world.bookie.add_error = DiskFullError("no space left on device")
        client.send_bytes(send_frame(1) + send_frame(2))
        for sequence_id in (1, 2):
            error = (await client.expect(Type.SEND_ERROR)).send_error
            assert (error.sequence_id, error.error) == (sequence_id, pb.PersistenceError)
        close = (await client.expect(Type.CLOSE_PRODUCER)).close_producer
        assert close.producer_id == 1
        # What was on its way is dropped: it must not overtake what failed.
        client.send_message(3)
        await turns()
        assert not client.received
        assert not client.is_closed
        world.bookie.add_error = None
        await turns(50)
        await client.create_producer(producer_name="p", epoch=1)
        for sequence_id in (1, 2, 3):
            await publish_patiently(client, sequence_id)
        assert world.topic.ledger.ledgers.entry_count == 4
        assert client.connection.publishes.pending == 0
        assert world.broker.publish_buffer.size_bytes == 0

    run_with_broker(scenario)


def test_what_comes_in_the_turn_of_a_failure_does_not_overtake_what_failed() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(producer_name="p")
        await world.topic.create_subscription("keeper", EARLIEST)
        await client.publish(0)
        world.bookie.add_error, world.bookie.holds_replies = DiskFullError("no space left on device"), True
        client.send_message(1)
        await turns(10)
        client.send_message(2)
        assert world.topic.publishing._turn is not None
        world.bookie.add_error, world.bookie.holds_replies = None, False
        world.bookie.release()
        assert (await client.expect(Type.SEND_ERROR)).send_error.sequence_id == 1
        await client.expect(Type.CLOSE_PRODUCER)
        await turns(50)
        assert world.topic.ledger.ledgers.entry_count == 1
        await client.create_producer(producer_name="p", epoch=1)
        for sequence_id in (1, 2):
            await publish_patiently(client, sequence_id)
        assert world.topic.ledger.ledgers.entry_count == 3

    run_with_broker(scenario)


async def publish_patiently(client: Client, sequence_id: int) -> None:
    """Publish, coming back as a client does while the ledger is being replaced."""
    for _ in range(20):
        client.send_message(sequence_id)
        await client.wait_for_news()
        command, _ = client.received.popleft()
        if command.type == Type.SEND_RECEIPT:
            assert command.send_receipt.sequence_id == sequence_id
            return
        assert command.type == Type.SEND_ERROR
        await client.expect(Type.CLOSE_PRODUCER)
        await client.create_producer(producer_name="p", epoch=2)
    raise AssertionError("the topic did not come back")


def test_broker_entry_metadata_is_prepended_and_goes_on_after_a_restart() -> None:
    names = ("org.apache.pulsar.x.AppendBrokerTimestampMetadataInterceptor", "AppendIndexMetadataInterceptor")

    async def scenario(world: BrokerWorld) -> None:
        for first in (0, 1):
            client = await world.publisher()
            client.send_message(first, metadata={"num_messages_in_batch": 3}, num_messages=3)
            await client.receipt()
            if first == 0:
                await world.restart()
        ledger = world.topic.ledger
        entries = await ledger.reader.read_range(ledger.ledgers.first_position, 10, 1 << 20)
        found = [broker_entry_metadata(entry.data) for entry in entries]
        assert [metadata.index for metadata in found] == [2, 5]
        assert all(metadata.broker_timestamp > 0 for metadata in found)

    run_with_broker(scenario, entry_metadata_interceptors=names)


def test_index_goes_on_where_nothing_is_stored_any_more() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        client.send_message(0, metadata={"num_messages_in_batch": 3}, num_messages=3)
        await client.receipt()
        ledger = world.topic.ledger
        await ledger.roll()
        await ledger.trimmer.truncate()
        assert ledger.ledgers.entry_count == 0
        # Pulsar's own broker goes by this property, too.
        assert ledger.stored.properties["index"] == "2"
        for number in (1, 2):
            await world.restart()
            client = await world.publisher()
            client.send_message(number)
            await client.receipt()
            ledger = world.topic.ledger
            entry = (await ledger.reader.read_range(ledger.extent.last_confirmed_position, 1, 1 << 20))[0]
            assert broker_entry_metadata(entry.data).index == 2 + number

    run_with_broker(scenario, entry_metadata_interceptors=("AppendIndexMetadataInterceptor",))


def test_encryption_can_be_required() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        client.request_producer()
        assert (await client.error()).error == int(ServerError.METADATA_ERROR)
        await client.create_producer(encrypted=True)
        client.send_message(0)
        assert (await client.expect(Type.SEND_ERROR)).send_error.error == pb.NotAllowedError
        keys = [pb.EncryptionKeys(key="k", value=b"v")]
        client.send_message(1, metadata={"encryption_keys": keys})
        await client.receipt()

    run_with_broker(scenario, encryption_required=True)


def test_counters_count_messages_and_bytes() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(producer_name="p")
        client.send_message(0, num_messages=10)
        await client.receipt()
        topic = world.topic
        assert topic.publishing.messages_in == topic.producers["p"].messages_in == 10
        assert topic.publishing.bytes_in == topic.producers["p"].bytes_in > 0

    run_with_broker(scenario)


def test_non_persistent_messages_get_receipts_and_reach_consumers() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        topic = "non-persistent://public/default/topic"
        await client.subscribe(topic)
        await client.create_producer(topic)
        client.send_message(0, b"now")
        message, payload = await client.expect_with_payload(Type.MESSAGE)
        assert payload.endswith(b"now")
        assert (message.message.message_id.ledgerId, message.message.message_id.entryId) == (0, 0)
        receipt = await client.receipt()
        assert (receipt.message_id.ledgerId, receipt.message_id.entryId) == (0, 0)

    run_with_broker(scenario)


@pytest.mark.parametrize("limit", [1])
def test_producers_per_topic_are_limited(limit: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        client.request_producer(producer_id=2)
        assert (await client.error()).error == pb.ProducerBusy

    run_with_broker(scenario, producers_per_topic_max=limit)


def test_an_epoch_beyond_reason_keeps_no_later_producer_from_coming_back() -> None:
    """The highest that a client may say for itself leaves those that are granted behind it their way back."""

    async def scenario(world: BrokerWorld) -> None:
        greedy = await world.client()
        assert (await greedy.create_producer(producer_access_mode=EXCLUSIVE)).topic_epoch == 0
        await greedy.close_producer()
        success = await greedy.create_producer(producer_access_mode=EXCLUSIVE, topic_epoch=TOPIC_EPOCH_MAX)
        assert success.topic_epoch == TOPIC_EPOCH_MAX
        greedy.lose()
        await wait_ms(100)
        client = await world.client()
        granted = (await client.create_producer(producer_access_mode=EXCLUSIVE)).topic_epoch
        assert granted == TOPIC_EPOCH_MAX + 1
        for _ in range(2):
            client.lose()
            await wait_ms(100)
            await world.broker.registry.unload(TopicName.parse(TOPIC))
            client = await world.client()
            client.request_producer(producer_access_mode=EXCLUSIVE, topic_epoch=granted + 1)
            assert (await client.error()).error == pb.NotAllowedError, "nobody was given that"
            again = await client.create_producer(producer_access_mode=EXCLUSIVE, topic_epoch=granted)
            assert again.topic_epoch == granted

    run_with_broker(scenario)

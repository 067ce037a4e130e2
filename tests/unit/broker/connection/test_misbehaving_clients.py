"""Clients that are slow, greedy, or change their mind: what the broker holds for them, and what it answers."""

from __future__ import annotations

import pytest

from geminga.broker.connection.back_pressure import REQUESTS_PENDING_MAX, WRITE_BUFFER_STOP_READING_BYTES
from geminga.broker.connection.core.read_gate import PauseReason
from geminga.broker.core.ack_set import WORDS_MAX
from geminga.model.errors import StorageError
from geminga.model.topic_name import TopicName
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.commands import PING_FRAME, encode_command
from geminga.wire.pulsar.numbers import FLOW_PERMITS_MAX
from support.house.waiting import turns
from support.worlds.broker_world import TOPIC, BrokerWorld, Client, Type, run_with_broker

NAME = TopicName.parse(TOPIC)
Sub = pb.CommandSubscribe
#: Turns of the loop within which a request on a quiet broker over memory storage is through.
TURNS = 60


def subscribe_frame(request_id: int, *, consumer_id: int = 1, subscription: str = "s", topic: str = TOPIC) -> bytes:
    request = Sub(
        topic=topic,
        subscription=subscription,
        subType=Sub.Exclusive,
        consumer_id=consumer_id,
        request_id=request_id,
        initialPosition=Sub.Earliest,
    )
    return encode_command(pb.BaseCommand(type=Type.SUBSCRIBE, subscribe=request))


def close_consumer_frame(request_id: int, consumer_id: int = 1) -> bytes:
    request = pb.CommandCloseConsumer(consumer_id=consumer_id, request_id=request_id)
    return encode_command(pb.BaseCommand(type=Type.CLOSE_CONSUMER, close_consumer=request))


def producer_frame(request_id: int, producer_id: int = 1, epoch: int = 0) -> bytes:
    request = pb.CommandProducer(
        topic=TOPIC, producer_id=producer_id, request_id=request_id, producer_name="p", epoch=epoch
    )
    return encode_command(pb.BaseCommand(type=Type.PRODUCER, producer=request))


def close_producer_frame(request_id: int, producer_id: int = 1) -> bytes:
    request = pb.CommandCloseProducer(producer_id=producer_id, request_id=request_id)
    return encode_command(pb.BaseCommand(type=Type.CLOSE_PRODUCER, close_producer=request))


def answers_to(client: Client, request_id: int) -> list[int]:
    """Types of the commands received that answer the request."""
    found = []
    for command, _ in client.received:
        for field in ("success", "error", "producer_success"):
            if command.HasField(field) and getattr(command, field).request_id == request_id:
                found.append(command.type)
    return found


# ---- one that does not read


def test_client_that_takes_no_answers_is_not_read_until_it_does() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        client.connection.pause_writing()
        client.transport.buffered_bytes = WRITE_BUFFER_STOP_READING_BYTES + 1
        client.send_bytes(PING_FRAME)
        assert client.transport.is_reading_paused
        assert client.connection.gate.reasons == PauseReason.WRITE_BUFFER
        client.transport.buffered_bytes = 0
        client.connection.resume_writing()
        assert not client.transport.is_reading_paused

    run_with_broker(scenario)


def test_client_with_too_many_requests_under_way_is_not_read_until_half_are_answered() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        frames = []
        for request_id in range(REQUESTS_PENDING_MAX + 1):
            request = pb.CommandLookupTopic(topic=f"persistent://no/where/{request_id}", request_id=request_id)
            frames.append(encode_command(pb.BaseCommand(type=Type.LOOKUP, lookupTopic=request)))
        client.send_bytes(b"".join(frames[:-1]))
        assert not client.transport.is_reading_paused
        client.send_bytes(frames[-1])
        assert client.transport.is_reading_paused
        for _ in frames:
            await client.expect(Type.LOOKUP_RESPONSE)
        await turns(2)
        assert not client.transport.is_reading_paused
        assert client.connection.gate.reasons == PauseReason.NONE

    run_with_broker(scenario)


def test_publisher_that_is_not_read_counts_as_alive() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        await client.publish(0)
        world.bookie.holds_replies = True
        for sequence_id in range(1, 12):
            client.send_message(sequence_id)
        assert client.connection.gate.reasons == PauseReason.PENDING_PUBLISHES
        # Its PONG waits behind what is not read.
        assert await client.connection.check_liveness()
        assert not client.is_closed
        world.bookie.holds_replies = False
        world.bookie.release()

    run_with_broker(scenario, pending_publishes_max=10)


def test_connection_beyond_the_limit_is_told_why() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.client()
        second = Client(world.broker)
        await second.check_error(pb.NotAllowedError, "brokerMaxConnections")
        assert second.is_closed

    run_with_broker(scenario, connections_max=1)


# ---- one that changes its mind


@pytest.mark.parametrize("first_turns", [0, 1, 3])
def test_consumer_closed_and_made_again_while_it_is_made_is_answered(first_turns: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        client.send_bytes(subscribe_frame(1))
        await turns(first_turns)
        client.send_bytes(close_consumer_frame(2) + subscribe_frame(3))
        await turns(TURNS)
        assert answers_to(client, 2) == [Type.SUCCESS]
        assert answers_to(client, 3) == [Type.SUCCESS]
        (consumer,) = world.broker.topics[TOPIC].subscriptions["s"].consumers
        assert client.connection.members.consumers == {1: consumer}
        assert client.connection.members.requests == {}

    run_with_broker(scenario)


@pytest.mark.parametrize("first_turns", [0, 1, 3])
def test_producer_closed_and_made_again_while_it_is_made_is_answered(first_turns: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        client.send_bytes(producer_frame(1))
        await turns(first_turns)
        client.send_bytes(close_producer_frame(2) + producer_frame(3, epoch=1))
        await turns(TURNS)
        assert answers_to(client, 2) == [Type.SUCCESS]
        assert answers_to(client, 3) == [Type.PRODUCER_SUCCESS]
        assert list(world.broker.topics[TOPIC].producers) == ["p"]
        client.received.clear()
        await client.publish(0)

    run_with_broker(scenario)


def test_consumer_made_while_its_topic_is_unloaded_is_refused_or_closed_after_its_answer() -> None:
    async def scenario(world: BrokerWorld) -> None:
        for before_unload in range(25):
            client = await world.client()
            await world.broker.registry.get(NAME, create=True)
            client.send_bytes(subscribe_frame(1, subscription=f"s{before_unload}"))
            await turns(before_unload)
            await world.broker.registry.unload(NAME)
            await turns(TURNS)
            kinds = [command.type for command, _ in client.received]
            # Closed before it exists would be overheard, and the client would wait for messages for ever.
            assert kinds in ([Type.ERROR], [Type.SUCCESS], [Type.SUCCESS, Type.CLOSE_CONSUMER]), before_unload
            is_open = kinds == [Type.SUCCESS]
            assert is_open == (1 in client.connection.members.consumers), before_unload
            client.lose()

    run_with_broker(scenario)


def test_producer_made_while_its_topic_is_unloaded_is_refused_or_closed_after_its_answer() -> None:
    async def scenario(world: BrokerWorld) -> None:
        for before_unload in range(25):
            client = await world.client()
            await world.broker.registry.get(NAME, create=True)
            client.send_bytes(producer_frame(1))
            await turns(before_unload)
            await world.broker.registry.unload(NAME)
            await turns(TURNS)
            kinds = [command.type for command, _ in client.received]
            allowed = ([Type.ERROR], [Type.PRODUCER_SUCCESS], [Type.PRODUCER_SUCCESS, Type.CLOSE_PRODUCER])
            assert kinds in allowed, before_unload
            assert (kinds == [Type.PRODUCER_SUCCESS]) == (1 in client.connection.members.producers), before_unload
            client.lose()

    run_with_broker(scenario)


def test_messages_sent_while_the_topic_is_unloaded_are_stored_or_not_acknowledged() -> None:
    async def scenario(world: BrokerWorld) -> None:
        acknowledged: set[tuple[int, int]] = set()
        for before_unload in range(25):
            client = await world.publisher()
            for sequence_id in range(5):
                client.send_message(sequence_id)
            await turns(before_unload)
            await world.broker.registry.unload(NAME)
            await turns(TURNS)
            for command, _ in client.received:
                if command.type == Type.SEND_RECEIPT:
                    receipt = command.send_receipt.message_id
                    acknowledged.add((receipt.ledgerId, receipt.entryId))
            assert any(command.type == Type.CLOSE_PRODUCER for command, _ in client.received)
            client.lose()
        assert acknowledged
        reader = await world.subscriber(permits=1000)
        received = set()
        while len(received) < 25 * 5 and acknowledged - received:
            message = (await reader.expect(Type.MESSAGE)).message.message_id
            received.add((message.ledgerId, message.entryId))
        assert acknowledged <= received

    run_with_broker(scenario)


def test_unsubscribing_that_fails_sends_the_consumer_back() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.subscriber()
        subscription = world.broker.topics[TOPIC].subscriptions["sub"]
        world.broker.topics[TOPIC].ledger = _FailingLedger(subscription.topic.ledger)
        request = pb.CommandUnsubscribe(consumer_id=1, request_id=9)
        client.send(pb.BaseCommand(type=Type.UNSUBSCRIBE, unsubscribe=request))
        await client.expect(Type.CLOSE_CONSUMER)
        assert (await client.error()).request_id == 9
        world.broker.topics[TOPIC].ledger = subscription.topic.ledger.whole

    run_with_broker(scenario)


class _FailingLedger:
    """A ledger whose cursors can not be deleted."""

    def __init__(self, whole) -> None:
        self.whole = whole

    def __getattr__(self, name: str):
        return getattr(self.whole, name)

    async def delete_cursor(self, name: str) -> None:
        raise StorageError("no storage")


# ---- one that asks for what there is not


def test_floods_of_flow_and_negative_permits_change_nothing_but_the_count() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.subscriber(permits=1)
        (consumer,) = world.broker.topics[TOPIC].subscriptions["sub"].consumers
        for permits in (0, FLOW_PERMITS_MAX + 1, (1 << 32) - 1):
            client.send(pb.BaseCommand(type=Type.FLOW, flow=pb.CommandFlow(consumer_id=1, messagePermits=permits)))
        assert consumer.permits == 1
        flow = encode_command(pb.BaseCommand(type=Type.FLOW, flow=pb.CommandFlow(consumer_id=1, messagePermits=1)))
        client.send_bytes(flow * 1000)
        assert consumer.permits == 1001
        client.send(pb.BaseCommand(type=Type.FLOW, flow=pb.CommandFlow(consumer_id=77, messagePermits=5)))
        assert not client.is_closed

    run_with_broker(scenario)


@pytest.mark.parametrize("sub_type", [Sub.Exclusive, Sub.Shared, Sub.Key_Shared])
@pytest.mark.parametrize("is_cumulative", [False, True])
def test_acknowledgments_outside_of_the_topic_are_answered_and_leave_nothing(
    sub_type: int, is_cumulative: bool
) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        ledger_id, _ = await client.publish(0)
        await client.subscribe(subType=sub_type)
        await client.expect(Type.MESSAGE)
        largest = (1 << 64) - 1
        outside = [(ledger_id + 5, 0), (largest, largest), (ledger_id, largest), (0, 0), (1 << 63, 1 << 63)]
        if not is_cumulative:
            outside += [(ledger_id, entry_id) for entry_id in range(1, 20_000)]
        lists = [outside] if not is_cumulative else [[one] for one in outside[:3]]
        for request_id, ids in enumerate(lists, 50):
            ack = pb.CommandAck(
                consumer_id=1,
                ack_type=pb.CommandAck.Cumulative if is_cumulative else pb.CommandAck.Individual,
                message_id=[
                    pb.MessageIdData(ledgerId=ledger, entryId=entry, ack_set=[-1] * (entry % 3))
                    for ledger, entry in ids
                ],
                request_id=request_id,
            )
            client.send(pb.BaseCommand(type=Type.ACK, ack=ack))
            assert (await client.expect(Type.ACK_RESPONSE)).ackResponse.request_id == request_id
        cursor = world.broker.topics[TOPIC].subscriptions["sub"].cursor
        assert cursor.state.acked.count == 0
        assert cursor.mark_delete_position <= world.broker.topics[TOPIC].last_position
        world.broker.topics[TOPIC].check_invariants()

    run_with_broker(scenario)


def test_subscription_without_a_name_is_refused() -> None:
    async def scenario(world: BrokerWorld) -> None:
        for topic in (TOPIC, "non-persistent://public/default/np"):
            client = await world.client()
            client.send_bytes(subscribe_frame(1, subscription="", topic=topic))
            error = await client.error()
            assert error.error == pb.NotAllowedError
            assert error.message == "Empty subscription name"

    run_with_broker(scenario)


def test_ack_set_larger_than_any_batch_is_refused() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        ledger_id, entry_id = await client.publish(0)
        await client.subscribe(subType=Sub.Shared)
        await client.expect(Type.MESSAGE)
        ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, request_id=9)
        ack.message_id.add(ledgerId=ledger_id, entryId=entry_id, ack_set=[-1] * (WORDS_MAX + 1))
        client.send(pb.BaseCommand(type=Type.ACK, ack=ack))
        assert (await client.expect(Type.ACK_RESPONSE)).ackResponse.error == pb.NotAllowedError
        cursor = world.broker.topics[TOPIC].subscriptions["sub"].cursor
        assert cursor.state.ack_set((ledger_id, entry_id)) is None

    run_with_broker(scenario)


# ---- one that leaves


@pytest.mark.parametrize("sub_type", [Sub.Exclusive, Sub.Shared, Sub.Key_Shared])
def test_acknowledgment_right_before_the_consumer_closes_counts(sub_type: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        positions = [await client.publish(sequence_id) for sequence_id in range(3)]
        await client.subscribe(subType=sub_type)
        for _ in positions:
            await client.expect(Type.MESSAGE)
        ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, request_id=50)
        ack.message_id.add(ledgerId=positions[0][0], entryId=positions[0][1])
        client.send_bytes(encode_command(pb.BaseCommand(type=Type.ACK, ack=ack)) + close_consumer_frame(51))
        await turns(TURNS)
        answers = [command.ackResponse for command, _ in client.received if command.type == Type.ACK_RESPONSE]
        assert [(answer.request_id, answer.HasField("error")) for answer in answers] == [(50, False)]
        assert answers_to(client, 51) == [Type.SUCCESS]
        client.received.clear()
        await world.restart()
        other = await world.subscriber(subType=sub_type)
        again = [(await other.expect(Type.MESSAGE)).message.message_id.entryId for _ in range(2)]
        assert again == [1, 2]

    run_with_broker(scenario)


@pytest.mark.parametrize("lost_turns", range(6))
def test_crash_of_the_exclusive_producer_passes_its_place_on_and_on(lost_turns: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        holder, first, second = [await world.client() for _ in range(3)]
        await holder.create_producer(producer_name="holder", producer_access_mode=pb.WaitForExclusive)
        for client, name in ((first, "first"), (second, "second")):
            client.request_producer(producer_name=name, producer_access_mode=pb.WaitForExclusive)
            assert not (await client.expect(Type.PRODUCER_SUCCESS)).producer_success.producer_ready
        holder.lose()
        await turns(lost_turns)
        # The next one goes too, perhaps while it is being let in.
        first.lose()
        granted = (await second.expect(Type.PRODUCER_SUCCESS)).producer_success
        assert granted.producer_ready
        assert granted.topic_epoch >= 1
        await second.publish(0)
        assert list(world.broker.topics[TOPIC].producers) == ["second"]
        world.broker.topics[TOPIC].check_invariants()

    run_with_broker(scenario)


def test_topic_deleted_by_force_sends_producers_and_consumers_away_and_keeps_nothing() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        await client.publish(0)
        await client.subscribe()
        await client.expect(Type.MESSAGE)
        for sequence_id in range(1, 4):
            client.send_message(sequence_id)
        await world.broker.registry.delete(NAME, force=True)
        await turns(TURNS)
        kinds = {command.type for command, _ in client.received}
        assert {Type.CLOSE_PRODUCER, Type.CLOSE_CONSUMER} <= kinds
        assert world.broker.topics == {}
        assert not await world.broker.registry.exists(NAME)
        client.received.clear()
        # SENDs still on their way are dropped, and the client makes the topic anew.
        client.send_message(9)
        assert not client.is_closed
        await client.create_producer(producer_id=2)
        await client.publish(0, producer_id=2)

    run_with_broker(scenario)


def test_slow_consumer_of_a_non_persistent_topic_misses_messages_and_costs_nothing() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = "non-persistent://public/default/np"
        publisher, slow, quick = [await world.client() for _ in range(3)]
        await publisher.create_producer(topic)
        await slow.subscribe(topic, subscription="slow")
        await quick.subscribe(topic, subscription="quick")
        slow.connection.pause_writing()
        for sequence_id in range(100):
            publisher.send_message(sequence_id)
            await publisher.receipt()
        assert [(await quick.expect(Type.MESSAGE)).message.message_id.entryId for _ in range(100)] == [0] * 100
        assert not slow.received
        assert world.broker.topics[topic].subscriptions["slow"].messages_dropped == 100
        slow.connection.resume_writing()
        publisher.send_message(100)
        await slow.expect(Type.MESSAGE)

    run_with_broker(scenario)


def test_partitions_added_while_consumers_are_connected_have_their_subscriptions() -> None:
    async def scenario(world: BrokerWorld) -> None:
        name = TopicName.parse("persistent://public/default/growing")
        await world.broker.partitions.create(name, 1)
        consumer, publisher = await world.client(), await world.client()
        await consumer.subscribe(str(name.with_partition(0)))
        await world.broker.partitions.grow(name, 3)
        request = pb.CommandPartitionedTopicMetadata(topic=str(name), request_id=70)
        consumer.send(pb.BaseCommand(type=Type.PARTITIONED_METADATA, partitionMetadata=request))
        answer = (await consumer.expect(Type.PARTITIONED_METADATA_RESPONSE)).partitionMetadataResponse
        assert answer.partitions == 3
        # Published before the consumer notices, and not missed.
        await publisher.create_producer(str(name.with_partition(2)))
        position = await publisher.publish(0)
        await consumer.subscribe(str(name.with_partition(2)), consumer_id=2)
        message = (await consumer.expect(Type.MESSAGE)).message
        assert (message.message_id.ledgerId, message.message_id.entryId) == position

    run_with_broker(scenario)

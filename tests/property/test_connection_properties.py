"""Whatever a client sends, a connection never raises, never leaks, and never harms the broker beside it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from geminga.broker.connection.connection import TURN_COMMANDS_MAX
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.commands import PING_FRAME, PONG_FRAME, encode_command
from geminga.wire.pulsar.frame import encode_frame
from support.house.examples import many
from support.worlds.broker_world import TOPIC, BrokerWorld, Client, Type, run_with_broker, send_frame
from support.worlds.policy_levels import seconds


def command(kind: int, **field) -> bytes:
    return encode_command(pb.BaseCommand(type=kind, **field))


MESSAGE_ID = pb.MessageIdData(ledgerId=0, entryId=0)
NON_PERSISTENT = "non-persistent://public/default/t"
CONNECT = command(Type.CONNECT, connect=pb.CommandConnect(client_version="fuzz", protocol_version=21))
FRAMES = [
    CONNECT,
    PING_FRAME,
    PONG_FRAME,
    command(Type.PRODUCER, producer=pb.CommandProducer(topic=TOPIC, producer_id=1, request_id=1, producer_name="p")),
    command(Type.PRODUCER, producer=pb.CommandProducer(topic=TOPIC, producer_id=2, request_id=2)),
    command(
        Type.PRODUCER,
        producer=pb.CommandProducer(topic=NON_PERSISTENT, producer_id=3, request_id=3, producer_access_mode=3),
    ),
    send_frame(0),
    send_frame(1, producer_id=2),
    send_frame(2, producer_id=3),
    send_frame(3, txnid_most_bits=1),
    send_frame(4, is_chunk=True, metadata={"chunk_id": 0, "num_chunks_from_msg": 2}),
    command(Type.CLOSE_PRODUCER, close_producer=pb.CommandCloseProducer(producer_id=1, request_id=4)),
    command(
        Type.SUBSCRIBE,
        subscribe=pb.CommandSubscribe(topic=TOPIC, subscription="s", subType=1, consumer_id=1, request_id=5),
    ),
    command(
        Type.SUBSCRIBE,
        subscribe=pb.CommandSubscribe(
            topic=TOPIC,
            subscription="k",
            subType=3,
            consumer_id=2,
            request_id=6,
            keySharedMeta=pb.KeySharedMeta(keySharedMode=pb.STICKY, hashRanges=[pb.IntRange(start=0, end=65535)]),
        ),
    ),
    command(
        Type.SUBSCRIBE,
        subscribe=pb.CommandSubscribe(
            topic=TOPIC,
            subscription="r",
            subType=0,
            consumer_id=3,
            request_id=7,
            durable=False,
            start_message_id=MESSAGE_ID,
        ),
    ),
    command(Type.FLOW, flow=pb.CommandFlow(consumer_id=1, messagePermits=100)),
    command(Type.FLOW, flow=pb.CommandFlow(consumer_id=2, messagePermits=100)),
    command(Type.ACK, ack=pb.CommandAck(consumer_id=1, ack_type=0, message_id=[MESSAGE_ID], request_id=8)),
    command(Type.ACK, ack=pb.CommandAck(consumer_id=3, ack_type=1, message_id=[MESSAGE_ID])),
    command(
        Type.REDELIVER_UNACKNOWLEDGED_MESSAGES,
        redeliverUnacknowledgedMessages=pb.CommandRedeliverUnacknowledgedMessages(
            consumer_id=1, message_ids=[MESSAGE_ID]
        ),
    ),
    command(Type.SEEK, seek=pb.CommandSeek(consumer_id=1, request_id=9, message_id=MESSAGE_ID)),
    command(Type.SEEK, seek=pb.CommandSeek(consumer_id=3, request_id=9, message_publish_time=1)),
    command(Type.GET_LAST_MESSAGE_ID, getLastMessageId=pb.CommandGetLastMessageId(consumer_id=1, request_id=10)),
    command(Type.CONSUMER_STATS, consumerStats=pb.CommandConsumerStats(consumer_id=1, request_id=11)),
    command(Type.UNSUBSCRIBE, unsubscribe=pb.CommandUnsubscribe(consumer_id=2, request_id=12)),
    command(Type.CLOSE_CONSUMER, close_consumer=pb.CommandCloseConsumer(consumer_id=1, request_id=13)),
    command(Type.LOOKUP, lookupTopic=pb.CommandLookupTopic(topic=TOPIC, request_id=14)),
    command(
        Type.PARTITIONED_METADATA, partitionMetadata=pb.CommandPartitionedTopicMetadata(topic=TOPIC, request_id=15)
    ),
    command(
        Type.GET_TOPICS_OF_NAMESPACE,
        getTopicsOfNamespace=pb.CommandGetTopicsOfNamespace(namespace="public/default", request_id=16),
    ),
    command(
        Type.WATCH_TOPIC_LIST,
        watchTopicList=pb.CommandWatchTopicList(
            namespace="public/default", topics_pattern="public/default/.*", watcher_id=1, request_id=17
        ),
    ),
    command(
        Type.WATCH_TOPIC_LIST_CLOSE, watchTopicListClose=pb.CommandWatchTopicListClose(watcher_id=1, request_id=18)
    ),
    command(Type.GET_SCHEMA, getSchema=pb.CommandGetSchema(topic=TOPIC, request_id=19)),
    command(Type.NEW_TXN, newTxn=pb.CommandNewTxn(request_id=20)),
    command(Type.AUTH_RESPONSE, authResponse=pb.CommandAuthResponse()),
    encode_frame(b"\x08\x5a"),
    command(Type.SUCCESS, success=pb.CommandSuccess(request_id=1)),
]

MUTATION = st.tuples(st.sampled_from(["none", "none", "none", "flip", "cut", "grow"]), st.integers(0, 1 << 30))


def mutated(frame: bytes, mutation: tuple[str, int]) -> bytes:
    kind, number = mutation
    if kind == "flip":
        damaged = bytearray(frame)
        damaged[number // 8 % len(frame)] ^= 1 << number % 8
        return bytes(damaged)
    if kind == "cut":
        return frame[: number % len(frame)]
    if kind == "grow":
        return frame + frame[: number % len(frame)]
    return frame


@settings(max_examples=many(120), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(FRAMES), MUTATION, st.booleans()), min_size=1, max_size=25),
    st.booleans(),
    st.sampled_from([1, 2, 5, TURN_COMMANDS_MAX]),
)
def test_any_stream_of_frames_is_survived(steps, deduplication, turn_commands_max) -> None:
    async def scenario(world: BrokerWorld) -> None:
        fuzzer = Client(world.broker, turn_commands_max=turn_commands_max)
        fuzzer.send_bytes(CONNECT)
        for frame, mutation, waits in steps:
            if fuzzer.is_closed:
                break
            fuzzer.send_bytes(mutated(frame, mutation))
            if waits:
                await seconds(0.5)
        fuzzer.lose()
        await seconds(0.5)
        assert not world.broker.connections.open
        assert world.broker.publish_buffer.size_bytes == 0
        assert fuzzer.connection.publishes.pending == 0
        assert fuzzer.connection.members.requests == {}
        for topic in world.broker.topics.values():
            topic.check_invariants()
            assert topic.producers == {}
            assert not any(subscription.consumers for subscription in topic.subscriptions.values())
        # The broker serves the next client as if nothing had been.
        client = await world.client()
        topic = "persistent://public/default/after"
        await client.subscribe(topic)
        await client.create_producer(topic)
        await client.publish(0, b"fine")
        _, payload = await client.expect_with_payload(Type.MESSAGE)
        assert payload.endswith(b"fine")

    run_with_broker(scenario, deduplication=deduplication)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300), st.booleans())
def test_garbage_is_survived(data: bytes, is_connected: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = Client(world.broker)
        client.send_bytes((CONNECT if is_connected else b"") + data)
        client.lose()
        await seconds(0.5)
        assert not world.broker.connections.open

    run_with_broker(scenario)

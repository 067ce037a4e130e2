"""What waits in a broker for the peers of WebSockets is bounded over all of them, whatever it is."""

from __future__ import annotations

import json
import zlib

import pytest

from geminga.broker.websocket.core.frames import message_id_text
from geminga.broker.websocket.core.parameters import consumer_parameters
from geminga.broker.websocket.sessions import ConsumerSession
from geminga.broker.websocket.socket import WebSocket
from geminga.client import MessageId
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.broker_world import BrokerWorld, Client, send_frame
from support.worlds.policy_levels import seconds
from support.worlds.socket_stories import LARGE, SHARED, TOPIC, consumer, producer, published, with_sockets
from support.worlds.web_sockets import SocketWorld


async def send_pieces(client: Client, uuid: str, pieces: list[bytes], count: int, **metadata: object) -> None:
    """Of a message of ``count`` pieces those that are there."""
    total = metadata.pop("total", sum(map(len, pieces)) * count // len(pieces))
    for index, piece in enumerate(pieces):
        told = {
            "uuid": uuid,
            "num_chunks_from_msg": count,
            "total_chunk_msg_size": total,
            "chunk_id": index,
            **metadata,
        }
        client.send_bytes(send_frame(0, piece, metadata=told, is_chunk=True))
        await client.receipt()


def test_whoever_has_most_waiting_and_takes_nothing_is_cut_off_and_loses_nothing() -> None:
    """A consumer that does not acknowledge is sent no more; one message of 30,000 bytes waits for each of them."""

    async def story(sockets: SocketWorld, world: BrokerWorld) -> None:
        names = [f"s{number}" for number in range(4)]
        given = consumer_parameters({"subscriptionType": "Shared", "receiverQueueSize": "1"})
        peers = []
        for name in names:
            session = await sockets.service.open_consumer(sockets.admitted(), TOPIC, name, given)
            peers.append(await sockets.socket(session))
        await published(sockets, 3)
        for peer in peers:
            await peer.told(1)
        await seconds(1)
        assert len(list(sockets.service.sessions)) == 5 - 1, "three of them, and the producer"
        (gone,) = (peer for peer in peers if peer.protocol.close_rcvd is not None)
        assert await gone.ended() == (1013, "more messages wait for sockets than the broker has room for")
        found = sockets.service.metrics()
        assert found["geminga_websocket_cut_off_total"] == 1
        assert 90_000 <= found["geminga_websocket_inbox_bytes"] <= 100_000
        # The others go on, and everything is there for who comes again.
        for peer in peers:
            for number in range(3 if peer is not gone else 0):
                message = (await peer.told(number + 1))[number]
                peer.tell(messageId=message["messageId"])
        session = await sockets.service.open_consumer(sockets.admitted(), TOPIC, names[peers.index(gone)], SHARED)
        again = await sockets.socket(session)
        for message in await again.told(3):
            again.tell(messageId=message["messageId"])
        await seconds(2)
        subscriptions = world.broker.topics[TOPIC].subscriptions
        assert [subscriptions[name].cursor.backlog_count for name in names] == [0] * 4

    with_sockets(story, inbox_bytes_max=100_000)


def test_nothing_waits_for_a_socket_that_has_permitted_nothing() -> None:
    """Other consumers of its subscription have the messages."""

    async def story(sockets: SocketWorld, world: BrokerWorld) -> None:
        pulling = await consumer(sockets, pullMode="true")
        await published(sockets, 3)
        await seconds(1)
        assert sockets.service.metrics()["geminga_websocket_inbox_bytes"] == 0
        other = await consumer(sockets)
        assert len(await other.told(3)) == 3
        await published(sockets, 40)
        pulling.tell(type="permit", permitMessages=1)
        assert len(await pulling.told(1)) == 1
        await seconds(1)
        assert sockets.service.metrics()["geminga_websocket_inbox_bytes"] >= len(LARGE) * 3 // 4
        for peer in (pulling, other):
            peer.transport.abort()
        await seconds(1)
        assert sockets.service.metrics()["geminga_websocket_inbox_bytes"] == 0, "nothing waits for who is gone"

    with_sockets(story)


def test_nothing_counts_for_a_socket_that_went_as_a_batch_came() -> None:
    """Its first message is taken before the session ends, the others wait behind it."""

    async def story(sockets: SocketWorld, world: BrokerWorld) -> None:
        await consumer(sockets)
        sending = await producer(sockets, batchingEnabled="true", batchingMaxMessages="5")
        (session,) = (one for one in sockets.service.sessions if isinstance(one, ConsumerSession))
        heard: list[int] = []

        def go(size_bytes: int) -> None:
            heard.append(size_bytes)
            assert isinstance(session.socket, WebSocket)
            session.socket.connection_lost(None)

        session._consumer.watch_prefetched(go)
        for number in range(5):
            sending.tell(payload="YWE=", context=str(number))
        await sending.told(5)
        await seconds(2)
        assert len(heard) == 1
        assert sockets.service.metrics()["geminga_websocket_inbox_bytes"] == 0

    with_sockets(story)


def test_pieces_of_messages_that_never_come_whole_count_as_what_waits() -> None:
    """Whoever sends them decides how many wait; each socket's client keeps those of ten messages for a minute."""

    async def story(sockets: SocketWorld, world: BrokerWorld) -> None:
        given = consumer_parameters({"subscriptionType": "Shared"})
        most, less = [
            await sockets.socket(await sockets.service.open_consumer(sockets.admitted(), topic, "s", given))
            for topic in (TOPIC, f"{TOPIC}-less")
        ]
        client = await world.publisher(TOPIC)
        for number in range(3):
            await send_pieces(client, f"u{number}", [b"x" * 30_000], 2)
        other = await world.publisher(f"{TOPIC}-less")
        await send_pieces(other, "u", [b"x" * 8_000], 2)
        await seconds(1)
        assert sockets.service.metrics()["geminga_websocket_inbox_bytes"] == 98_000
        await send_pieces(client, "u3", [b"x" * 30_000], 2)
        assert await most.ended() == (1013, "more messages wait for sockets than the broker has room for")
        found = sockets.service.metrics()
        assert (found["geminga_websocket_cut_off_total"], found["geminga_websocket_inbox_bytes"]) == (1, 8_000)
        # A message that becomes whole goes on, and what never does is gone after its time.
        await send_pieces(other, "v", [b"a", b"b"], 2)
        assert [one["payload"] for one in await less.told()] == ["YWI="]
        assert sockets.service.metrics()["geminga_websocket_inbox_bytes"] == 8_000
        await seconds(120)
        assert sockets.service.metrics()["geminga_websocket_inbox_bytes"] == 0

    with_sockets(story, inbox_bytes_max=100_000)


@pytest.mark.parametrize("how", ["as it is", "inflated"])
def test_message_in_pieces_that_is_larger_than_all_that_may_wait_stays_in_its_topic(how: str) -> None:
    """A few kilobytes can be inflated to 4 GiB, in the broker."""

    async def story(sockets: SocketWorld, world: BrokerWorld) -> None:
        receiving = await consumer(sockets)
        client = await world.publisher(TOPIC)
        if how == "inflated":
            deflated = zlib.compress(bytes(100_001))
            half, metadata = len(deflated) // 2, {"compression": pb.ZLIB, "uncompressed_size": 100_001}
            await send_pieces(client, "u", [deflated[:half], deflated[half:]], 2, total=len(deflated), **metadata)
        else:
            await send_pieces(client, "u", [bytes(50_000), bytes(50_001)], 2, total=100_001)
        await send_pieces(client, "v", [bytes(30_000), b"z"], 2, total=30_001)
        assert len((await receiving.told())[0]["payload"]) == 40_004
        receiving.tell(messageId=json.loads(receiving.texts[0])["messageId"])
        await seconds(120)
        assert len(receiving.texts) == 1
        assert receiving.protocol.close_rcvd is None
        assert sockets.service.metrics()["geminga_websocket_inbox_bytes"] == 0
        assert world.broker.topics[TOPIC].subscriptions["s"].cursor.backlog_count == 2, "it is for who can take it"

    with_sockets(story, inbox_bytes_max=100_000)


@pytest.mark.parametrize("how", ["ledgers", "entries"])
def test_refused_ids_that_wait_count_as_what_waits(how: str) -> None:
    """Whoever invents them decides how many wait, and for up to 24 days."""

    async def story(sockets: SocketWorld, world: BrokerWorld) -> None:
        honest = await consumer(sockets, negativeAckRedeliveryDelay=str(2**31 - 1))
        sending = await producer(sockets)
        sending.tell(payload="YQ==")
        (message,) = await honest.told()
        honest.tell(messageId=message["messageId"], type="negativeAcknowledge")
        hostile = await consumer(sockets, negativeAckRedeliveryDelay=str(2**31 - 1))
        for number in range(1, 1000):
            ledger, entry = (number, 0) if how == "ledgers" else (7, number << 20)
            told = message_id_text(MessageId(-1, ledger, entry).serialize())
            hostile.tell(messageId=told, type="negativeAcknowledge")
        assert await hostile.ended() == (1013, "more messages wait for sockets than the broker has room for")
        assert honest.protocol.close_rcvd is None
        assert 0 < sockets.service.metrics()["geminga_websocket_inbox_bytes"] < 5_000
        honest.tell(messageId=message["messageId"])
        await seconds(1)
        assert sockets.service.metrics()["geminga_websocket_inbox_bytes"] == 0
        assert world.broker.topics[TOPIC].subscriptions["s"].cursor.backlog_count == 0

    with_sockets(story, inbox_bytes_max=100_000)

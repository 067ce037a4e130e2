"""The sockets of a broker in virtual time: what stands behind them, what ends them, and that nothing stays."""

from __future__ import annotations

import gc
import json
import weakref

import pytest

from geminga.broker.websocket.clients import Carried, SocketOwner, carried_by
from geminga.broker.websocket.core.frames import message_id_text
from geminga.broker.websocket.core.named_batches import BATCH_MESSAGES_MAX, SMALL_BATCH
from geminga.broker.websocket.core.parameters import consumer_parameters, producer_parameters, reader_parameters
from geminga.broker.websocket.opening import OpeningError
from geminga.broker.websocket.room import STUCK_S
from geminga.broker.websocket.service import INTERVAL_S, LOOK_S, LOOKED_AT_PER_TURN
from geminga.broker.websocket.sessions import KNOWN_IDS_MAX, OPERATIONS_MAX
from geminga.client import MessageId
from geminga.client._transport.handshake import CLIENT_VERSION
from geminga.model.errors import UnavailableError
from geminga.model.position import EARLIEST
from geminga.model.topic_name import TopicName
from support.worlds.broker_world import BrokerWorld, run_with_broker
from support.worlds.policy_levels import seconds, set_topic
from support.worlds.rights_world import ACCESS, Story, tell
from support.worlds.socket_stories import LARGE, SHARED, TOPIC, consumer, producer, with_sockets
from support.worlds.web_sockets import Peer, SocketWorld


def test_messages_go_through_and_are_counted() -> None:
    async def story(sockets: SocketWorld, world: BrokerWorld) -> None:
        receiving, sending = await consumer(sockets), await producer(sockets)
        for number in range(3):
            sending.tell(payload="YQ==", context=str(number))
        assert [one["context"] for one in await sending.told(3)] == ["0", "1", "2"]
        for message in await receiving.told(3):
            receiving.tell(messageId=message["messageId"])
        await seconds(2)
        found = sockets.service.metrics()
        assert found["geminga_websocket_connections"] == 2
        assert found["geminga_websocket_messages_in_total"] == 3
        assert found["geminga_websocket_bytes_out_total"] == 3
        assert found["geminga_websocket_acknowledged_total"] == 3
        await seconds(INTERVAL_S)
        assert sockets.service.last_interval["public/default"]["ns_msg_publish_rate"] == 3
        topic = world.broker.topics[TOPIC]
        assert topic.subscriptions["s"].cursor.backlog_count == 0
        # What statistics show is who they are.
        (publisher,) = topic.producers.values()
        assert publisher.connection.client_version == f"{CLIENT_VERSION}-websocket"
        await seconds(INTERVAL_S)
        assert sockets.service.last_interval["public/default"]["ns_msg_publish_rate"] == 0

    with_sockets(story)


def test_namespaces_without_sockets_are_forgotten_and_their_counts_are_not() -> None:
    async def story(sockets: SocketWorld, world: BrokerWorld) -> None:
        receiving, sending = await consumer(sockets), await producer(sockets)
        sending.tell(payload="YQ==", context="0")
        await sending.told(1)
        await receiving.told(1)
        await seconds(3 * INTERVAL_S)
        assert list(sockets.service._counts) == ["public/default"], "it has sockets, which do nothing"
        for peer in (sending, receiving):
            peer.transport.close()
        await seconds(3 * INTERVAL_S)
        assert sockets.service._counts == {}
        found = sockets.service.metrics()
        assert (found["geminga_websocket_messages_in_total"], found["geminga_websocket_messages_out_total"]) == (1, 1)
        again = await producer(sockets)
        again.tell(payload="YQ==", context="1")
        await again.told(1)
        await seconds(INTERVAL_S)
        assert sockets.service.last_interval["public/default"]["ns_msg_publish_rate"] == 1
        assert sockets.service.metrics()["geminga_websocket_messages_in_total"] == 2

    with_sockets(story)


def test_more_messages_than_a_turn_sends_and_acknowledgments_than_are_kept_all_go() -> None:
    async def story(sockets: SocketWorld, world: BrokerWorld) -> None:
        receiving, sending = await consumer(sockets), await producer(sockets)
        count = OPERATIONS_MAX + 100
        for _ in range(count):
            sending.tell(payload="")
        done = 0
        while done < count:
            await receiving.arrived(done + 1)
            texts = receiving.texts[done:]
            for text in texts:
                receiving.tell(messageId=json.loads(text)["messageId"])
            done += len(texts)
        await seconds(2)
        assert sockets.service.metrics()["geminga_websocket_acknowledged_total"] == count
        assert world.broker.topics[TOPIC].subscriptions["s"].cursor.backlog_count == 0

    with_sockets(story)


def test_acknowledged_before_the_end_is_acknowledged() -> None:
    async def story(sockets: SocketWorld, world: BrokerWorld) -> None:
        receiving, sending = await consumer(sockets), await producer(sockets)
        sending.tell(payload="")
        (message,) = await receiving.told()
        receiving.tell(messageId=message["messageId"])
        receiving.protocol.send_close(1000)
        receiving.flush()
        await seconds(2)
        assert world.broker.topics[TOPIC].subscriptions["s"].cursor.backlog_count == 0

    with_sockets(story)


def test_cumulative_acknowledgment_takes_all_before_it() -> None:
    async def story(sockets: SocketWorld, world: BrokerWorld) -> None:
        given = consumer_parameters({"receiverQueueSize": "3"})
        session = await sockets.service.open_consumer(sockets.admitted(), TOPIC, "s", given)
        receiving, sending = await sockets.socket(session), await producer(sockets)
        for _ in range(6):
            sending.tell(payload="")
        messages = await receiving.told(3)
        receiving.tell(messageId=messages[2]["messageId"], ackType="CUMULATIVE")
        await receiving.told(6)
        await seconds(2)
        assert world.broker.topics[TOPIC].subscriptions["s"].cursor.backlog_count == 3

    with_sockets(story)


def test_reader_reads_all_and_stays_no_longer_than_its_socket() -> None:
    async def story(sockets: SocketWorld, world: BrokerWorld) -> None:
        sending = await producer(sockets)
        for number in range(5):
            sending.tell(payload="", context=str(number))
        await sending.told(5)
        given = reader_parameters({"messageId": "earliest", "receiverQueueSize": "2"})
        reading = await sockets.socket(await sockets.service.open_reader(sockets.admitted(), TOPIC, given))
        await reading.told(2)
        await seconds(1)
        assert len(reading.texts) == 2
        for passed, told in ((2, 4), (1, 5)):
            for _ in range(passed):
                reading.tell()
            await reading.told(told)
        reading.transport.abort()
        await seconds(2)
        assert not world.broker.topics[TOPIC].subscriptions

    with_sockets(story)


def test_those_who_brought_the_same_share_a_client_which_goes_with_the_last() -> None:
    async def run(world: BrokerWorld) -> None:
        sockets = SocketWorld(world, asks_who=True)
        peers = [await producer(sockets, role) for role in ("jane", "jane", "joe")]
        assert sockets.clients.count == 2
        roles = sorted(connection.principal.role for connection in world.broker.connections.open)
        assert roles == ["jane", "joe"]
        for peer in peers[::2]:
            peer.transport.abort()
        await seconds(1)
        assert sockets.clients.count == 1
        peers[1].transport.abort()
        await seconds(1)
        assert sockets.clients.count == 0
        assert not list(world.broker.connections.open)
        await sockets.service.close()

    run_with_broker(run, access=ACCESS)


def test_credentials_go_on_where_they_can() -> None:
    assert carried_by("") is None
    assert carried_by("Digest x") is None
    assert carried_by("Basic %") is None
    token, password = carried_by("Bearer file:///etc/passwd"), carried_by("Basic am9lOng=")
    assert isinstance(token, Carried)
    assert (token.method_name, token.data()) == ("token", b"file:///etc/passwd")
    assert password is not None
    assert (password.method_name, password.data()) == ("basic", b"joe:x")
    assert "passwd" not in repr(token)
    # As the door takes it: else who it let in would have the broker's own rights behind it.
    for authorization in ("basic am9lOng=", "BASIC  am9lOng= "):
        as_taken = carried_by(authorization)
        assert as_taken is not None
        assert (as_taken.method_name, as_taken.data()) == ("basic", b"joe:x")


def test_certificate_goes_on_to_a_broker_that_is_alone() -> None:
    async def run(world: BrokerWorld) -> None:
        alone = SocketWorld(world, asks_who=True)
        shown, proxied = SocketOwner(certificate=b"DER"), SocketOwner("Bearer p", is_through_proxy=True)
        assert alone.clients.take(shown)[0] == shown
        # A proxy's own rights are not those of whom it asks for.
        assert alone.clients.take(proxied)[0] == SocketOwner()
        for member in (SocketWorld(world, asks_who=True, is_alone=False), SocketWorld(world)):
            assert member.clients.take(shown)[0] == SocketOwner()
        await alone.clients.close()

    run_with_broker(run)


def test_socket_ends_with_its_credentials() -> None:
    async def story(sockets: SocketWorld, world: BrokerWorld) -> None:
        now_s = world.runtime.clock.monotonic()
        given = producer_parameters({})
        admitted = sockets.admitted(until_s=now_s + 30)
        peer = await sockets.socket(await sockets.service.open_producer(admitted, TOPIC, given))
        await seconds(28)
        assert peer.protocol.close_rcvd is None
        code, reason = await peer.ended()
        assert world.runtime.clock.monotonic() - now_s <= 30 + 2 * LOOK_S
        assert (code, reason) == (4005, "Failed to authenticate client: the credentials have expired")

    with_sockets(story)


def test_every_socket_is_looked_at() -> None:
    async def story(sockets: SocketWorld, world: BrokerWorld) -> None:
        until_s = world.runtime.clock.monotonic() + 5
        count = 3 * LOOKED_AT_PER_TURN
        admitted = sockets.admitted(until_s=until_s)
        peers = [await sockets.socket(sockets.service.open_ping(admitted)) for _ in range(count)]
        await seconds(5 + 1.3 * LOOK_S)
        assert {peer.protocol.close_rcvd.code for peer in peers if peer.protocol.close_rcvd} == {4005}
        assert all(peer.protocol.close_rcvd for peer in peers)

    with_sockets(story, sockets_max=1000)


def test_broker_itself_sends_away_who_lost_a_right() -> None:
    async def story(story: Story) -> None:
        await story.grant("jane", "produce", "consume")
        sockets = SocketWorld(story.world, asks_who=True)
        peer = await consumer(sockets, "jane")
        await story.revoke("jane")
        code, _ = await peer.ended()
        assert code == 4006
        with pytest.raises(OpeningError) as refused:
            await producer(sockets, "jane")
        assert refused.value.http_status == 403
        await sockets.service.close()

    tell(story)


def test_there_are_so_many_sockets_and_no_more() -> None:
    async def story(sockets: SocketWorld, world: BrokerWorld) -> None:
        peers = [await producer(sockets) for _ in range(2)]
        with pytest.raises(UnavailableError, match="2 WebSockets are open"):
            await producer(sockets)
        with pytest.raises(UnavailableError):
            sockets.service.open_ping(sockets.admitted())
        assert sockets.service.metrics()["geminga_websocket_refused_total"] == 2
        peers[0].transport.abort()
        await seconds(1)
        await producer(sockets)

    with_sockets(story, sockets_max=2)


def test_what_was_behind_a_socket_waits_for_no_collector() -> None:
    async def story(sockets: SocketWorld, world: BrokerWorld) -> None:
        sending = await producer(sockets)
        gc.collect()
        gc.disable()
        try:
            gone = []
            for _ in range(2):
                session = await sockets.service.open_consumer(sockets.admitted(), TOPIC, "s", SHARED)
                peer = await sockets.socket(session)
                sending.tell(payload="")
                (message,) = await peer.told()
                peer.tell(messageId=message["messageId"])
                gone.append(weakref.ref(session))
                del session
                peer.protocol.send_close(1000)
                peer.flush()
                await seconds(3)
            assert [one() for one in gone] == [None, None]
        finally:
            gc.enable()

    with_sockets(story)


def test_failed_openings_leave_nothing() -> None:
    async def story(sockets: SocketWorld, world: BrokerWorld) -> None:
        exclusive = consumer_parameters({})
        holder = await sockets.service.open_consumer(sockets.admitted(), TOPIC, "s", exclusive)
        with pytest.raises(OpeningError) as refused:
            await sockets.service.open_consumer(sockets.admitted(), TOPIC, "s", exclusive)
        assert refused.value.http_status == 409
        # And one whose connection was gone before it became a socket.
        holder.lost()
        holder.lost()
        await seconds(1)
        assert sockets.clients.count == 0
        assert not world.broker.topics[TOPIC].subscriptions["s"].consumers

    with_sockets(story)


def test_stopping_tells_sockets_and_refuses_new_ones() -> None:
    async def story(sockets: SocketWorld, world: BrokerWorld) -> None:
        peer = await consumer(sockets)
        await sockets.service.close()
        assert await peer.ended() == (1001, "the broker is stopping")
        with pytest.raises(UnavailableError, match="stopping"):
            await consumer(sockets)

    with_sockets(story)


def test_published_bytes_without_an_answer_hold_sockets_back() -> None:
    async def story(sockets: SocketWorld, world: BrokerWorld) -> None:
        peers = [await producer(sockets), await producer(sockets)]
        for number in range(30):
            for peer in peers:
                peer.tell(payload="YWFhYWFhYWFhYQ==", context=str(number))
        for peer in peers:
            assert [one["context"] for one in await peer.told(30)] == [str(number) for number in range(30)]
        found = sockets.service.metrics()
        assert found["geminga_websocket_published_unanswered_bytes"] == 0
        assert found["geminga_websocket_waiting_producers"] == 0

    with_sockets(story, published_bytes_max=20)


def test_who_gets_no_answers_does_not_keep_all_others_from_publishing_for_ever() -> None:
    """A topic of one's own that is full, and a socket that waits for as long as that takes."""

    async def story(sockets: SocketWorld, world: BrokerWorld) -> None:
        full, given = TOPIC + "-full", producer_parameters({"sendTimeoutMillis": "0"})
        quota = {"limitSize": 1, "policy": "producer_request_hold"}
        name = TopicName.parse(full)
        topic = await world.broker.registry.get(name, create=True)
        await set_topic(world, "backLogQuotaMap", {"destination_storage": quota}, name)
        await topic.create_subscription("s", EARLIEST)
        hogs = []
        for _ in range(3):
            hogs.append(await sockets.socket(await sockets.service.open_producer(sockets.admitted(), full, given)))
        hogs[0].tell(payload="YQ==")
        await hogs[0].told()
        await seconds(1)
        for hog in hogs:
            hog.tell(payload="", properties={"large": LARGE}) if hog is hogs[1] else hog.tell(payload=LARGE)
        await seconds(0.1)
        assert 100_000 < sockets.service.metrics()["geminga_websocket_published_unanswered_bytes"] < 100_500
        sending = await producer(sockets)
        for number in range(20):
            sending.tell(payload="YQ==", context=str(number))
        await seconds(STUCK_S - 2)
        assert sockets.service.metrics()["geminga_websocket_cut_off_total"] == 0
        await seconds(120)
        assert len(sending.texts) == 20
        # No more than had to go.
        gone = [hog for hog in hogs if hog.protocol.close_rcvd is not None]
        assert len(gone) == 2
        for hog in gone:
            assert await hog.ended() == (1013, "what it published got no answer, and others wait for its room")
        await topic.subscriptions["s"].cursor.clear_backlog()
        (left,) = (hog for hog in hogs if hog not in gone)
        await left.arrived(2 if left is hogs[0] else 1)

    with_sockets(story, published_bytes_max=65_000)


def test_delays_hashes_and_clusters_of_a_message_are_passed_on() -> None:
    async def story(sockets: SocketWorld, world: BrokerWorld) -> None:
        receiving, sending = await consumer(sockets), await producer(sockets)
        now_ms = world.runtime.clock.wall_ms()
        sending.tell(payload="YQ==", deliverAfterMs=60_000)
        sending.tell(payload="Yg==", deliverAt=now_ms + 90_000)
        sending.tell(payload="Yw==", sequenceId=7)
        sending.tell(payload="ZA==", sequenceId=7, context="again")
        sending.tell(payload="ZQ==", replicationClusters=["nowhere"], context="r")
        await sending.told(5)
        first = await receiving.told()
        assert first[0]["payload"] == "Yw=="
        await seconds(50)
        assert "YQ==" not in {one["payload"] for one in map(json.loads, receiving.texts)}
        await seconds(11)
        assert "YQ==" in {one["payload"] for one in map(json.loads, receiving.texts)}
        await seconds(31)
        assert "Yg==" in {one["payload"] for one in map(json.loads, receiving.texts)}

    with_sockets(story)


def test_ids_that_are_nobodys_here_are_passed_over_and_end_no_socket() -> None:
    async def story(sockets: SocketWorld, world: BrokerWorld) -> None:
        topics, given = [f"{TOPIC}-{number}" for number in range(2)], consumer_parameters({})
        senders = [
            await sockets.socket(
                await sockets.service.open_producer(sockets.admitted(), topic, producer_parameters({}))
            )
            for topic in topics
        ]

        async def receiver() -> Peer:
            return await sockets.socket(await sockets.service.open_consumer(sockets.admitted(), topics, "s", given))

        receiving = await receiver()
        for sender in senders:
            sender.tell(payload="")
            await sender.told()
        before = [message["messageId"] for message in await receiving.told(2)]
        receiving.protocol.send_close(1000)
        receiving.flush()
        await seconds(2)
        # Whoever worked on them has come again meanwhile, and knows them by what the former socket told.
        receiving = await receiver()
        receiving.tell(messageId=message_id_text(MessageId(0, 7, 99).serialize()))
        messages = [message["messageId"] for message in await receiving.told(2)]
        assert sorted(messages) == sorted(before)
        # One of them twice, among others that are sent together.
        for message_id in (messages[0], messages[0], messages[1]):
            receiving.tell(messageId=message_id)
        await seconds(2)
        assert [world.broker.topics[topic].subscriptions["s"].cursor.backlog_count for topic in topics] == [0, 0]
        assert sockets.service.metrics()["geminga_websocket_acknowledged_total"] == 2
        for more in ({"type": "negativeAcknowledge"}, {"ackType": "CUMULATIVE"}, {}):
            receiving.tell(messageId=messages[0], **more)
        senders[1].tell(payload="")
        await receiving.told(3)

    with_sockets(story)


@pytest.mark.parametrize(
    ("size", "ids_taken"), [(2**31 - 1, 0), (SMALL_BATCH + 1, BATCH_MESSAGES_MAX // (SMALL_BATCH + 1))]
)
def test_ids_of_large_batches_that_nobody_was_told_cost_no_memory(size: int, ids_taken: int) -> None:
    """A batch of 2,147,483,647 messages would be a set of 256 MB."""

    async def story(sockets: SocketWorld, world: BrokerWorld) -> None:
        receiving = await consumer(sockets)

        def tell(entry: int, messages: int) -> None:
            receiving.tell(messageId=message_id_text(MessageId(-1, 7, entry, 0, messages).serialize()))

        for entry in range(ids_taken):
            tell(entry, size)
            tell(1_000_000 + entry, SMALL_BATCH)
        await seconds(1)
        assert receiving.protocol.close_rcvd is None
        tell(ids_taken, size)
        code, reason = await receiving.ended()
        assert (code, reason.rpartition(": ")[2]) == (4003, "too large batches that it was not told")

    with_sockets(story)


def test_ids_of_large_batches_that_were_told_are_taken_however_many_were_told_since() -> None:
    """A socket in pull mode knows the last 10,000; those before were told all the same."""

    async def story(sockets: SocketWorld, world: BrokerWorld) -> None:
        receiving = await consumer(sockets, pullMode="true")
        sending = await producer(
            sockets, batchingEnabled="true", batchingMaxMessages="2000", maxPendingMessages="10000"
        )
        count = KNOWN_IDS_MAX + 2000
        for _ in range(count):
            sending.tell(payload="")
        await sending.arrived(count)
        receiving.tell(type="permit", permitMessages=count)
        await receiving.arrived(count)
        for text in receiving.texts:
            receiving.tell(messageId=json.loads(text)["messageId"])
        await seconds(5)
        assert receiving.protocol.close_rcvd is None
        assert world.broker.topics[TOPIC].subscriptions["s"].cursor.backlog_count == 0

    with_sockets(story)

"""Commands of consumers from bytes to answers: subscribe, close, seek, unsubscribe, last message id, statistics."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from geminga.broker.handlers import consumer
from geminga.broker.handlers import subscription as handlers
from geminga.broker.handlers.rows import by_command
from geminga.broker.subscription import seek
from geminga.broker.subscription.stats import consumers_stats, subscription_counts
from geminga.broker.subscription.subscribe import check_subscription_name
from geminga.model import EARLIEST, LATEST, TopicName
from geminga.model.errors import NotAllowedError, ServerError
from geminga.model.topic_name import COMPACTION_CURSOR, DEDUP_CURSOR, EVENTS_CURSOR, SNAPSHOTS_CURSOR
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.subscriptions import Sub, settle, with_topic

TEXTS = [f"m{i}" for i in range(10)]
UINT64_MINUS_ONE = (1 << 64) - 1


async def call(connection, topic=None, **command):
    """Run a handler as the connection does."""
    name = next(iter(command))
    types = {
        "subscribe": pb.BaseCommand.SUBSCRIBE,
        "seek": pb.BaseCommand.SEEK,
        "unsubscribe": pb.BaseCommand.UNSUBSCRIBE,
        "close_consumer": pb.BaseCommand.CLOSE_CONSUMER,
        "consumerStats": pb.BaseCommand.CONSUMER_STATS,
        "getLastMessageId": pb.BaseCommand.GET_LAST_MESSAGE_ID,
    }
    services = SimpleNamespace(topics=topic)
    by_command(consumer.ROWS)[types[name]].handle(services, connection, pb.BaseCommand(type=types[name], **command))
    await settle()


def subscribe_request(topic, consumer_id=1, request_id=1, **fields):
    return Sub(
        topic=str(topic.name),
        subscription="sub",
        subType=fields.pop("subType", Sub.Shared),
        consumer_id=consumer_id,
        request_id=request_id,
        **fields,
    )


def answers(connection):
    return [
        c.success.request_id if c.type == pb.BaseCommand.SUCCESS else (c.error.request_id, c.error.error)
        for c in connection.commands
        if c.type in (pb.BaseCommand.SUCCESS, pb.BaseCommand.ERROR)
    ]


def test_subscribe_answers_success_and_repeats_it():
    async def scenario(topic):
        connection = topic.connect()
        await call(connection, topic, subscribe=subscribe_request(topic))
        await call(connection, topic, subscribe=subscribe_request(topic, request_id=2))
        assert answers(connection) == [1, 2]
        assert connection.requests == {}
        assert len(topic.subscriptions["sub"].consumers) == 1
        assert connection.consumers[1].name  # made up

    with_topic(scenario)


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("name", [DEDUP_CURSOR, EVENTS_CURSOR, SNAPSHOTS_CURSOR, "pulsar.repl.east"])
def test_subscribe_to_a_cursor_of_the_broker_is_refused(name, durable):
    """Whoever acknowledged on it would let go of what the broker still needs, and could delete it."""

    async def scenario(topic):
        own = await topic.ledger.open_cursor(name)
        await topic.publish("m")
        connection = topic.connect()
        request = subscribe_request(topic, durable=durable)
        request.subscription = name
        await call(connection, topic, subscribe=request)
        assert answers(connection) == [(1, ServerError.NOT_ALLOWED_ERROR)]
        with pytest.raises(NotAllowedError, match="reserved"):
            await topic.create_subscription(name)
        assert topic.subscriptions == {}
        assert topic.ledger.cursors[name] is own

    with_topic(scenario)


@pytest.mark.parametrize("topic", ["persistent://public/default/__change_events", "topic"])
def test_subscribe_as_compaction_is_refused(topic):
    """A ledger named in its acknowledgments would be read in place of messages, and of a namespace's policies."""
    with pytest.raises(NotAllowedError, match="reserved"):
        check_subscription_name(TopicName.parse(topic), COMPACTION_CURSOR)


def test_subscribe_twice_at_once_gets_service_not_ready():
    async def scenario(topic):
        connection = topic.connect()
        handlers.handle_subscribe(topic, connection, pb.BaseCommand(subscribe=subscribe_request(topic)))
        await call(connection, topic, subscribe=subscribe_request(topic, request_id=2))
        assert answers(connection) == [(2, ServerError.SERVICE_NOT_READY), 1]

    with_topic(scenario)


def test_subscribe_closed_while_it_is_made_leaves_nothing():
    async def scenario(topic):
        connection = topic.connect()
        handlers.handle_subscribe(topic, connection, pb.BaseCommand(subscribe=subscribe_request(topic)))
        await call(connection, close_consumer=pb.CommandCloseConsumer(consumer_id=1, request_id=2))
        assert answers(connection) == [2]
        assert connection.consumers == {}
        assert not topic.subscriptions["sub"].consumers

    with_topic(scenario)


def test_two_connections_create_one_subscription():
    async def scenario(topic):
        first, second = topic.connect(), topic.connect()
        handlers.handle_subscribe(topic, first, pb.BaseCommand(subscribe=subscribe_request(topic)))
        handlers.handle_subscribe(topic, second, pb.BaseCommand(subscribe=subscribe_request(topic)))
        await settle()
        assert answers(first) == answers(second) == [1]
        assert len(topic.subscriptions["sub"].consumers) == 2

    with_topic(scenario)


def test_initial_position_latest_skips_what_was_published():
    async def scenario(topic):
        await topic.publish("old")
        connection = topic.connect()
        await call(connection, topic, subscribe=subscribe_request(topic))
        handlers.handle_flow(connection, 1, 10)
        await topic.publish("new")
        assert connection.texts() == ["new"]

    with_topic(scenario)


@pytest.mark.parametrize("sub_type", [Sub.Exclusive, Sub.Shared])
def test_seek_disconnects_and_starts_over_at_the_id(sub_type):
    async def scenario(topic):
        connection = await topic.joined(sub_type)
        positions = await topic.publish(*TEXTS)
        target = pb.MessageIdData(ledgerId=positions[6].ledger_id, entryId=positions[6].entry_id)
        await call(connection, seek=pb.CommandSeek(consumer_id=1, request_id=3, message_id=target))
        assert answers(connection) == [3]
        assert len(connection.of_type(pb.BaseCommand.CLOSE_CONSUMER)) == 1
        assert connection.consumers == {}
        await topic.join(connection, sub_type, consumer_id=2)
        assert connection.texts(2) == TEXTS[6:]

    with_topic(scenario)


@pytest.mark.parametrize(("entry", "expected"), [(-1, TEXTS), ((1 << 63) - 1, [])])
def test_seek_to_the_ends(entry, expected):
    async def scenario(topic):
        connection = await topic.joined()
        await topic.publish(*TEXTS)
        target = pb.MessageIdData(ledgerId=entry & UINT64_MINUS_ONE, entryId=entry & UINT64_MINUS_ONE)
        await call(connection, seek=pb.CommandSeek(consumer_id=1, request_id=3, message_id=target))
        await topic.join(connection, consumer_id=2)
        assert connection.texts(2) == expected

    with_topic(scenario)


def test_seek_by_time_finds_the_first_published_then():
    async def scenario(topic):
        connection = await topic.joined()
        for i, text in enumerate(TEXTS):
            await topic.publish(text, publish_time=1000 + 10 * i)
        for time, first in ((1050, 5), (1051, 6), (5, 0)):
            request = pb.CommandSeek(consumer_id=1, request_id=3, message_publish_time=time)
            await call(connection, seek=request)
            connection.messages.clear()
            await topic.join(connection)
            assert connection.texts() == TEXTS[first:]

    with_topic(scenario)


@pytest.mark.parametrize(
    ("time", "expected"), [(-1, TEXTS), (-(1 << 63), TEXTS), ((1 << 63) - 1, [])], ids=["before", "least", "largest"]
)
def test_a_time_to_seek_to_is_a_signed_number_as_clients_mean_it(time, expected):
    async def scenario(topic):
        connection = await topic.joined()
        await topic.publish(*TEXTS)
        asked = time & UINT64_MINUS_ONE
        await call(connection, seek=pb.CommandSeek(consumer_id=1, request_id=3, message_publish_time=asked))
        connection.messages.clear()
        await topic.join(connection)
        assert connection.texts() == expected

    with_topic(scenario)


def test_seek_inside_a_batch_brings_the_rest_of_it():
    async def scenario(topic):
        connection = await topic.joined()
        positions = await topic.publish("batch", batch=4)
        target = pb.MessageIdData(ledgerId=positions[0].ledger_id, entryId=positions[0].entry_id, ack_set=[0b1100])
        await call(connection, seek=pb.CommandSeek(consumer_id=1, request_id=3, message_id=target))
        await topic.join(connection, consumer_id=2)
        assert connection.messages[-1].ack_set == [0b1100]

    with_topic(scenario)


def test_seek_of_reader_keeps_its_subscription_until_it_returns():
    async def scenario(topic):
        await topic.publish(*TEXTS)
        connection = topic.connect()
        latest = pb.MessageIdData(ledgerId=(1 << 63) - 1, entryId=(1 << 63) - 1)
        await topic.join(connection, Sub.Exclusive, durable=False, start_message_id=latest)
        request = pb.CommandSeek(consumer_id=1, request_id=3, message_publish_time=1)
        await call(connection, seek=request)
        await topic.join(connection, Sub.Exclusive, consumer_id=2, durable=False, start_message_id=latest)
        assert connection.texts(2) == TEXTS
        request = pb.CommandSeek(consumer_id=2, request_id=3, message_publish_time=1)
        await call(connection, seek=request)
        assert "sub" in topic.subscriptions
        await settle(61)
        assert topic.subscriptions == {}

    with_topic(scenario)


def test_unsubscribe_needs_to_be_alone_unless_forced():
    async def scenario(topic):
        first, second = topic.connect(), topic.connect()
        await topic.join(first)
        await topic.join(second)
        await call(first, unsubscribe=pb.CommandUnsubscribe(consumer_id=1, request_id=3))
        assert answers(first) == [(3, ServerError.METADATA_ERROR)]
        await call(first, unsubscribe=pb.CommandUnsubscribe(consumer_id=1, request_id=4, force=True))
        await settle(1)
        assert answers(first)[1:] == [4]
        assert topic.subscriptions == {}
        assert not topic.ledger.cursors
        assert len(second.of_type(pb.BaseCommand.CLOSE_CONSUMER)) == 1
        assert not first.of_type(pb.BaseCommand.CLOSE_CONSUMER)

    with_topic(scenario)


def test_last_message_id_names_batch_index_and_skips_markers():
    async def scenario(topic):
        connection = await topic.joined()

        async def last():
            await call(connection, getLastMessageId=pb.CommandGetLastMessageId(consumer_id=1, request_id=3))
            return connection.of_type(pb.BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE)[-1].getLastMessageIdResponse

        assert (await last()).last_message_id.entryId == UINT64_MINUS_ONE
        positions = [*(await topic.publish("a")), *(await topic.publish("b", batch=7))]
        await topic.publish("marker", marker_type=10)
        answer = await last()
        assert answer.last_message_id.entryId == positions[1].entry_id
        assert answer.last_message_id.batch_index == 6
        assert answer.consumer_mark_delete_position.entryId == UINT64_MINUS_ONE
        # All is acknowledged: the last message, and not the marker behind it, is how far it is.
        cursor = topic.subscriptions["sub"].cursor
        cursor.acknowledge_cumulative(topic.ledger.extent.last_confirmed_position)
        assert cursor.mark_delete_position > positions[1]
        marked = (await last()).consumer_mark_delete_position
        assert (marked.ledgerId, marked.entryId) == positions[1]

    with_topic(scenario)


def test_consumer_stats_tells_of_the_consumer_or_of_none():
    async def scenario(topic):
        connection = await topic.joined(name="me")
        await topic.publish(*TEXTS)
        await call(connection, consumerStats=pb.CommandConsumerStats(consumer_id=1, request_id=3))
        await call(connection, consumerStats=pb.CommandConsumerStats(consumer_id=2, request_id=4))
        known, unknown = [c.consumerStatsResponse for c in connection.of_type(pb.BaseCommand.CONSUMER_STATS_RESPONSE)]
        assert (known.consumerName, known.unackedMessages, known.msgBacklog) == ("me", 10, 10)
        assert known.type == "Shared"
        assert unknown.error_code == ServerError.CONSUMER_NOT_FOUND

    with_topic(scenario)


def test_subscription_statistics_have_pulsars_names_and_rates():
    async def scenario(topic):
        connection = await topic.joined(Sub.Key_Shared, name="me")
        stats = subscription_counts(topic.subscriptions["sub"])
        assert stats["msgRateOut"] == 0
        await topic.publish(*TEXTS)
        await settle(10)
        stats = subscription_counts(topic.subscriptions["sub"])
        assert stats["msgRateOut"] == pytest.approx(1.0, rel=0.1)
        assert (stats["type"], stats["msgBacklog"], stats["unackedMessages"]) == ("Key_Shared", 10, 10)
        ((_, consumer),) = consumers_stats(topic.subscriptions["sub"])
        assert (consumer["consumerName"], consumer["availablePermits"]) == ("me", 990)
        assert consumer["keyHashRangeArrays"] == [[1, 65535]]
        assert consumer["connectedSince"].endswith("Z")
        ids = [message.id for message in connection.messages[:5]]
        acked = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=ids)
        raw = pb.BaseCommand(type=pb.BaseCommand.ACK, ack=acked).SerializeToString()
        handlers.handle_ack_bytes(connection, raw)
        await settle(10)
        stats = subscription_counts(topic.subscriptions["sub"])
        for told in (stats, *dict(consumers_stats(topic.subscriptions["sub"])).values()):
            assert told["messageAckRate"] == pytest.approx(0.5, rel=0.1)
            assert told["msgRateRedeliver"] == 0

    with_topic(scenario)


def test_administration_looks_on_behind_what_one_read_brings(monkeypatch):
    monkeypatch.setattr(seek, "EXPIRY_READ_BYTES", 1)

    async def scenario(topic):
        await topic.join(topic.connect(), permits=0)
        subscription = topic.subscriptions["sub"]
        positions = []
        for text in TEXTS:
            await settle(1)
            positions += await topic.publish(text, publish_time=subscription.now_ms())
        for number in (1, 2, 3, 5, 6):
            subscription.cursor.acknowledge([positions[number]])
        entry, found = await seek.peek(subscription, 3)
        assert (entry.position, found) == (positions[7], 3)
        assert await seek.peek(subscription, 9) == (None, 5)
        assert (await seek.peek_stored(topic.ledger, 4, 1)).position == positions[3]
        assert await seek.peek_stored(topic.ledger, 11, 1) is None
        assert await seek.expire(subscription, 2500)
        assert subscription.cursor.mark_delete_position == positions[6]

    with_topic(scenario)


@pytest.mark.uncompiled("another limit in a module")
def test_ledgers_of_a_topic_are_told_as_many_as_there_are_up_to_the_limit(monkeypatch):
    monkeypatch.setattr(handlers, "LEDGERS_TOLD_MAX", 3)

    async def scenario(topic):
        connection = await topic.joined()
        for text in TEXTS:
            await topic.publish(text)
            await settle(1)
        request = pb.CommandGetLastMessageId(consumer_id=1, request_id=3, geminga_ledgers_from=0)
        await call(connection, getLastMessageId=request)
        (answer,) = connection.of_type(pb.BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE)
        told = [one.entries for one in answer.getLastMessageIdResponse.geminga_ledgers]
        assert told == [2, 2, 2]

    with_topic(scenario, entries_per_ledger=2)


def test_administration_skips_clears_expires_and_peeks():
    async def scenario(topic):
        connection = topic.connect()
        consumer = await topic.join(connection, permits=3)
        subscription = topic.subscriptions["sub"]
        for text in TEXTS:
            await settle(1)
            await topic.publish(text, publish_time=subscription.now_ms())
        entry, found = await seek.peek(subscription, 3)
        assert (entry is not None and entry.entry_id, found) == (2, 3)
        await seek.skip(subscription, 2)
        assert subscription.cursor.backlog_count == 8
        assert consumer.unacked_count == 1
        assert await seek.expire(subscription, 4000)
        assert subscription.cursor.backlog_count == 5
        assert not await seek.expire(subscription, 4000)
        await seek.clear_backlog(subscription)
        assert subscription.cursor.backlog_count == 0
        assert consumer.unacked_count == 0
        await seek.seek(subscription, EARLIEST)
        assert subscription.cursor.backlog_count == 10
        await seek.seek(subscription, LATEST)
        assert subscription.cursor.backlog_count == 0

    with_topic(scenario)


def test_stats_count_the_hashes_that_drain():
    async def scenario(topic):
        connection = await topic.joined(Sub.Key_Shared, consumer_id=1, name="old")
        for index in range(20):
            await topic.publish("a", "b", key=f"key-{index}")
        await topic.join(connection, Sub.Key_Shared, consumer_id=2, name="new")
        stats = subscription_counts(topic.subscriptions["sub"])
        old, new = (told for _, told in consumers_stats(topic.subscriptions["sub"]))
        assert 0 < old["drainingHashesCount"] < 20
        assert old["drainingHashesUnackedMessages"] == 2 * old["drainingHashesCount"]
        assert (new["drainingHashesCount"], new["drainingHashesUnackedMessages"]) == (0, 0)
        assert stats["drainingHashesCount"] == old["drainingHashesCount"]
        assert stats["drainingHashesUnackedMessages"] == old["drainingHashesUnackedMessages"]

    with_topic(scenario)

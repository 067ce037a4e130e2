"""The parts that a consumer joins, each by itself: its condition, topics, permits, prefetched messages, statistics."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

import pytest

import geminga.client as gc
from geminga.client._api.condition import Condition
from geminga.client._api.place import Place
from geminga.client._consuming.held_topics import HeldTopics
from geminga.client._consuming.permits import Permits
from geminga.client._consuming.receiving import Receiving
from geminga.client._consuming.reporting import Reporting
from geminga.client._consuming.subscription import Subscription
from geminga.client._consuming.subscription_consumer import SubscriptionConsumer
from geminga.client._consuming.topic_consumer import Phase
from geminga.client._messages.consumer_options import ConsumerOptions
from geminga.client.consumer_rules.prefetch import PrefetchBudget
from geminga.client.rules.stats import ConsumerCounters
from geminga.model import TopicName
from geminga.model.errors import ServerError
from geminga.runtime import next_turn, wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands
from support.worlds.client_world import BrokerOnNode
from support.worlds.scripted_broker import polite, run_against, run_with_broker
from support.worlds.scripted_consumer import ConsumerScript, Type, entry_bytes, message_frame

COVERED = (Condition, HeldTopics, Permits, Receiving, Reporting)


def subscription(**options) -> Subscription:
    return Subscription("s", "c", ConsumerOptions(**options), ConsumerCounters(), None, None, None)


# ---- the condition


def test_a_consumer_is_open_then_failed_or_closed_and_says_which() -> None:
    async def scenario() -> None:
        place = Place()
        condition = Condition(place, "the consumer of t")
        condition.check_open()
        condition.check_alive()
        condition.error = gc.TopicNotFound("gone")
        condition.check_alive()  # what came of other topics may be acknowledged
        with pytest.raises(gc.TopicNotFound, match="gone"):
            condition.check_open()
        condition.is_closed = True
        for check in (condition.check_open, condition.check_alive, condition.check_not_closed):
            with pytest.raises(gc.AlreadyClosed, match="the consumer of t is closed"):
                check()

        def elsewhere() -> None:
            async def check() -> None:
                with pytest.raises(gc.WrongLoop):
                    condition.check_open()

            asyncio.run(check())

        await asyncio.to_thread(elsewhere)

    asyncio.run(scenario())


# ---- permits


class Line:
    """What the broker hears; it may be lost."""

    consumer_id = 7

    def __init__(self) -> None:
        self.connection: object | None = self
        self.heard: list[int] = []

    def write(self, frame: bytes) -> None:
        if self.connection is not None:
            command = pb.BaseCommand.FromString(frame[8:])
            assert command.flow.consumer_id == self.consumer_id
            self.heard.append(command.flow.messagePermits)


def test_permits_go_back_by_half_of_the_queue_and_not_while_paused() -> None:
    line = Line()
    permits = Permits(line, 10)
    permits.start_over()
    for _ in range(9):
        permits.give_back(1)
    assert line.heard == [10, 5]
    permits.pause()
    permits.give_back(6)
    assert line.heard == [10, 5]
    permits.resume()
    assert line.heard == [10, 5, 10]
    permits.give_back(4)
    permits.send(permits.flow.take())
    permits.send(permits.flow.take())
    assert line.heard[3:] == [4], "nothing is owed twice, and nothing is said of nothing"
    permits.give_back(4)
    permits.start_over()
    assert line.heard[4:] == [10], "on a fresh connection what was owed before counts no more"


def test_bytes_say_how_many_messages_are_asked_for() -> None:
    line = Line()
    permits = Permits(line, 10, 1000)
    permits.start_over()
    assert line.heard == [1], "nothing is known of their size"
    permits.came(1, 100)
    assert line.heard == [1, 9], "ten of these fit, and one of them is here"
    permits.came(5, 5000)
    for _ in range(9):
        permits.give_back(1)
    assert line.heard == [1, 9], "one fits, and ten were asked for"
    permits.give_back(1)
    assert line.heard == [1, 9, 1]
    permits.came(1, 0)
    assert line.heard == [1, 9, 1, 9], "what has no size is no end of the queue"


def test_whatever_was_asked_for_of_another_size_starts_over_with_a_fresh_connection() -> None:
    line = Line()
    permits = Permits(line, 10, 1000)
    permits.start_over()
    permits.came(1, 100)
    permits.came(1, 1000)
    permits.start_over()
    assert line.heard == [1, 9, 1]


def test_topics_share_what_all_consumers_may_prefetch_and_each_gets_one_message_in_any_case() -> None:
    budget = PrefetchBudget(1000)
    lines = [Line(), Line()]
    first, second = (Permits(line, 10, budget=budget) for line in lines)
    for permits in (first, second):
        permits.start_over()
        permits.came(1, 100)
    assert [line.heard for line in lines] == [[1, 4], [1, 4]], "500 bytes are five messages, one of which is here"
    second.end()
    second.end()
    first.came(1, 100)
    assert lines[0].heard == [1, 4, 5], "all of it is the first one's"
    # A larger one counts at once, smaller ones by and by; what is larger than all of it still comes.
    first.came(1, 5000)
    assert first.flow.capacity == 1
    first.came(1, 100)
    assert first.flow.capacity == 1, "it is asked once for each time that permits are given back"
    sizes = []
    for _ in range(40):
        first.give_back(40)
        first.came(1, 100)
        sizes.append(first.flow.capacity)
    assert sizes == sorted(sizes)
    assert (sizes[0], sizes[-1]) == (1, 10)
    first.start_over()
    assert lines[0].heard[-1] == 10, "what is known of their size holds for a fresh connection"
    # Without prefetching nothing of it is needed.
    assert Permits(Line(), 0, budget=budget).flow.capacity == 0
    assert budget.topics == 1


def test_a_topic_begins_with_as_many_messages_as_there_is_room_for_whatever_their_size() -> None:
    budget = PrefetchBudget(256 << 20)
    line = Line()
    permits = Permits(line, 1000, budget=budget)
    permits.start_over()
    permits.came(1000, 100_000)
    assert line.heard == [51, 949]
    small = Line()
    Permits(small, 10, budget=budget).start_over()
    assert small.heard == [10], "there is room for these at once"


def test_without_prefetching_one_message_is_asked_for_until_it_comes() -> None:
    line = Line()
    permits = Permits(line, 0)
    permits.start_over()
    permits.give_back(3)
    assert line.heard == []
    permits.ask_for_one()
    permits.ask_for_one()
    assert line.heard == [1]
    permits.is_asked = False
    line.connection = None
    permits.ask_for_one()
    line.connection = line
    permits.pause()
    permits.ask_for_one()
    permits.resume()
    assert line.heard == [1], "nobody is asked who is not there, and nobody by who paused"
    permits.ask_for_one()
    permits.start_over()
    permits.ask_for_one()
    assert line.heard == [1, 1, 1], "a fresh connection was not asked yet"


# ---- topics


def test_the_topics_of_a_consumer_are_found_by_the_ids_of_their_messages() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        await broker.broker.resources.create_partitioned_topic(TopicName.parse("parted"), 2)
        held = (await client.subscribe(["a", "parted"], "s")).held
        assert held.names() == [
            str(TopicName.parse(name)) for name in ("a", "parted-partition-0", "parted-partition-1")
        ]
        for topic in held.all():
            name, partition = str(topic.topic), topic.topic.partition
            assert held.source_of(gc.MessageId(partition, 1, 2, -1, topic_name=name)) is topic
            assert held.get(topic.topic) is topic
        assert held.source_of(gc.MessageId(1, 1, 2, -1)) is held.all()[2], "a partition's number is enough"
        with pytest.raises(gc.OperationNotSupported, match="names no topic"):
            held.source_of(gc.MessageId(-1, 1, 2, -1))
        await broker.broker.resources.create_partitioned_topic(TopicName.parse("other"), 2)
        (other, _) = (await client.subscribe("other", "s")).held.all()
        held.add(other)
        with pytest.raises(gc.OperationNotSupported, match="names no topic"):
            held.source_of(gc.MessageId(0, 1, 2, -1))  # two have this partition
        for topic in held.all()[1:]:
            held.remove(topic)
        assert len(held) == 1
        assert held.source_of(gc.MessageId(-1, 1, 2, -1)) is held.all()[0], "there is no other"

    run_with_broker(scenario)


def test_a_topic_that_comes_to_a_paused_consumer_is_paused() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        one = await client.subscribe("a", "s", receiver_queue_size=10)
        other = await client.subscribe("b", "s", receiver_queue_size=10)
        (late,) = other.held.all()
        assert one.held.capacity == 10
        one.held.pause()
        assert not late.flow.is_paused
        one.held.add(late)
        assert one.held.is_paused
        assert [topic.flow.is_paused for topic in one.held] == [True, True]
        assert one.held.capacity == 20
        one.held.resume()
        assert [topic.flow.is_paused for topic in one.held] == [False, False]
        one.held.remove(late)
        assert one.held.pending_acks == 0

    run_with_broker(scenario)


# ---- what is prefetched


def test_a_consumer_that_starts_paused_gets_nothing_before_it_resumes() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        waiting = await client.subscribe("t", "s", consumer_type=gc.ConsumerType.Shared, start_paused=True)
        producer = await client.create_producer("t", batching_enabled=False)
        for number in range(5):
            await producer.send(b"%d" % number)
        with pytest.raises(gc.Timeout):
            await waiting.receive(1000)
        assert waiting.prefetched_bytes() == 0
        other = await client.subscribe("t", "s", consumer_type=gc.ConsumerType.Shared)
        assert [(await other.receive()).data() for _ in range(5)] == [b"0", b"1", b"2", b"3", b"4"]
        await other.close()
        waiting.resume()
        assert {(await waiting.receive()).data() for _ in range(5)} == {b"0", b"1", b"2", b"3", b"4"}

    run_with_broker(scenario)


def test_a_listener_that_starts_paused_hears_nothing_before_it_resumes() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        heard: list[bytes] = []
        consumer = await client.subscribe(
            "t", "s", start_paused=True, message_listener=lambda _, message: heard.append(message.data())
        )
        await (await client.create_producer("t")).send(b"m")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.get_running_loop().create_future(), 1)
        assert heard == []
        consumer.resume()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.get_running_loop().create_future(), 1)
        assert heard == [b"m"]

    run_with_broker(scenario)


@pytest.mark.parametrize(("size", "most"), [(40_000, 1), (20_000, 3), (100, 10)])
def test_no_more_bytes_are_prefetched_than_are_wanted(size: int, most: int) -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        consumer = await client.subscribe("t", "s", receiver_queue_size=10, receiver_queue_bytes=64_000)
        seen: list[int] = []
        consumer.watch_prefetched(seen.append)
        producer = await client.create_producer("t", batching_enabled=False)
        for _ in range(50):
            producer.send_nowait(bytes(size))
        await producer.flush()
        for _ in range(50):
            await consumer.receive(1000)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.get_running_loop().create_future(), 0.1)
        assert max(seen) == most * size
        assert consumer.prefetched_bytes() == 0

    run_with_broker(scenario)


@pytest.mark.parametrize("limit_bytes", [200_000, 0])
def test_all_consumers_of_a_client_prefetch_no_more_bytes_than_they_may(limit_bytes: int) -> None:
    """A thousand messages of each topic waited, whatever their size."""
    size, names = 10_000, ["a", "b", "c", "d"]

    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        consumers = [await client.subscribe(name, "s") for name in names]
        for name in names:
            producer = await client.create_producer(name, batching_enabled=False)
            for number in range(50):
                # One is larger than all that may wait: it comes all the same.
                producer.send_nowait(bytes(300_000 if name == "d" and number == 49 else size))
            await producer.flush()
        waiting = []
        for _ in range(50):
            for consumer in consumers:
                await wait_ms(20)
                waiting.append(sum(one.prefetched_bytes() for one in consumers))
                await consumer.receive(1000)
        if limit_bytes:
            assert limit_bytes // 2 < max(waiting[:-80]) <= limit_bytes
        else:
            assert max(waiting) == 200 * size + 290_000

    run_with_broker(scenario, prefetch_limit_bytes=limit_bytes)


def test_who_waits_hears_of_the_end_and_a_gone_topic_of_a_pattern_is_no_end() -> None:
    async def scenario() -> None:
        held, place = HeldTopics(), Place()
        condition = Condition(place, "the consumer of t")
        receiving: Receiving[bytes] = Receiving("t", subscription(), place, condition, held)
        gone: list[TopicName] = []
        held.on_gone = gone.append
        waiting = [asyncio.ensure_future(receiving.next()) for _ in range(2)]
        await next_turn()
        topic = TopicName.parse("found")
        receiving.on_topic_failed(topic, gc.TopicNotFound("gone"), is_found=True)
        receiving.on_topic_failed(topic, gc.TopicNotFound("gone"), is_found=True)
        await next_turn()
        assert gone == [topic, topic]
        assert not any(one.done() for one in waiting)
        receiving.on_topic_failed(topic, gc.AuthorizationError("not you"), is_found=True)
        for one in waiting:
            with pytest.raises(gc.AuthorizationError, match="not you"):
                await one
        condition.error = None
        last = asyncio.ensure_future(receiving.next())
        await next_turn()
        assert receiving.is_open
        condition.is_closed = True
        receiving.close()
        with pytest.raises(gc.AlreadyClosed):
            await asyncio.wait_for(last, 5)
        assert (receiving.count, receiving.is_open) == (0, False)
        with pytest.raises(StopAsyncIteration):
            await receiving.next_or_end()
        with pytest.raises(gc.AlreadyClosed):
            receiving.check()

    asyncio.run(scenario())


def test_a_topic_that_was_named_and_is_gone_ends_its_consumer() -> None:
    async def scenario() -> None:
        held, place = HeldTopics(), Place()
        held.on_gone = lambda topic: pytest.fail("it was not found by the pattern")
        condition = Condition(place, "the consumer of t")
        receiving: Receiving[bytes] = Receiving("t", subscription(), place, condition, held)
        receiving.on_topic_failed(TopicName.parse("t"), gc.TopicNotFound("gone"), is_found=False)
        with pytest.raises(gc.TopicNotFound):
            await receiving.next()

    asyncio.run(scenario())


def test_messages_of_a_listener_are_received_by_nobody_else() -> None:
    async def scenario() -> None:
        place = Place()
        options = subscription(message_listener=lambda consumer, message: None)
        receiving: Receiving[bytes] = Receiving("t", options, place, Condition(place, "it"), HeldTopics())
        with pytest.raises(gc.OperationNotSupported, match="message_listener"):
            receiving.check()

    asyncio.run(scenario())


# ---- statistics


class Waiting:
    """What waits to be received, and to be sent."""

    count = 3
    pending_acks = 2


def test_a_line_is_written_after_each_interval_with_news_until_it_is_closed(caplog) -> None:
    def lines() -> list[str]:
        """Of this topic: a client of an earlier test in this process may still be there, and says its own."""
        found = [record.getMessage() for record in caplog.records]
        return [line for line in found if line.startswith("t, subscription ")]

    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        about, waiting = subscription(stats_interval_ms=1000), Waiting()
        waiting.count = 0
        reporting = Reporting(client.cluster.runtime.clock, about, "t", waiting, waiting)
        with caplog.at_level(logging.INFO, logger="geminga.client._consuming.reporting"):
            await wait_ms(1500)
            assert lines() == [], "nothing happened"
            about.counters.messages_received += 10
            await wait_ms(1000)
            waiting.count = 3
            await wait_ms(1000)
            assert [line[19:36] for line in lines()] == ["prefetched 0 mess", "prefetched 3 mess"]
            assert (reporting.stats().messages_received, reporting.stats().pending_acks) == (10, 2)
            reporting.close()
            about.counters.messages_received += 1
            await wait_ms(5000)
            assert len(lines()) == 2

    run_with_broker(scenario)


# ---- the phase of one topic


class Seeking(ConsumerScript):
    """Sends a message with its answer to SEEK, which is an error; and another one once that is asked for again."""

    def __call__(self, command: pb.BaseCommand) -> list[bytes]:
        if command.type == Type.SEEK:
            refused = commands.error(command.seek.request_id, ServerError.NOT_ALLOWED_ERROR, "not now")
            return [message_frame(command.seek.consumer_id, 5, entry_bytes([b"unwanted"])), refused]
        if command.type == Type.REDELIVER_UNACKNOWLEDGED_MESSAGES:
            request = command.redeliverUnacknowledgedMessages
            return [message_frame(request.consumer_id, 6, entry_bytes([b"again"]))]
        return super().__call__(command)


def test_what_comes_while_a_consumer_is_moved_is_not_handed_out_and_comes_again_if_that_fails() -> None:
    async def scenario(client: gc.Client) -> None:
        consumer = await client.subscribe("t", "s", consumer_type=gc.ConsumerType.Shared)
        (topic,) = consumer.held.all()
        assert topic._phase is Phase.SUBSCRIBED
        receiving = asyncio.ensure_future(consumer.receive(5000))
        await next_turn()
        moving = asyncio.ensure_future(consumer.seek(gc.MessageId.earliest))
        await next_turn()
        assert topic._phase is Phase.SEEKING
        with pytest.raises(gc.NotAllowedError, match="not now"):
            await moving
        assert topic._phase is Phase.SUBSCRIBED
        assert (await receiving).data() == b"again"
        connection = topic._attachment.connection
        await consumer.close()
        assert topic._phase is Phase.CLOSED
        with pytest.raises(gc.AlreadyClosed):
            await topic._attach(connection)
        topic._attached(connection)  # it was closed while the broker answered
        assert topic._phase is Phase.CLOSED

    run_against(Seeking(), scenario)


@pytest.mark.parametrize("is_durable", [False, True])
@pytest.mark.parametrize("until_given_up_ms", [0.1, 0.2, 0.4, 1.0, 10.0])
def test_moving_that_is_given_up_takes_nothing_back_of_another(until_given_up_ms: float, is_durable: bool) -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer("t", batching_enabled=False)
        ids = [await producer.send(b"%d" % number) for number in range(10)]
        consumer = await client.subscribe("t", "s", is_durable=is_durable)
        await consumer.seek(ids[5])
        assert (await consumer.receive(1000)).data() == b"6"
        given_up, moving = (asyncio.ensure_future(consumer.seek(message_id)) for message_id in (ids[8], ids[1]))
        await wait_ms(until_given_up_ms)
        given_up.cancel()
        await moving
        assert (await consumer.receive(5000)).data() == b"2"
        given_up = asyncio.ensure_future(consumer.seek(ids[8]))
        await wait_ms(until_given_up_ms)
        given_up.cancel()
        await consumer.seek(ids[2])  # which the broker may hear of when it has closed the consumer for the first
        assert (await consumer.receive(5000)).data() == b"3"

    run_with_broker(scenario)


def test_a_reader_that_is_cut_off_loses_no_message_whatever_it_was_to_wait_for() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer("t", batching_enabled=False)
        for number in range(8):
            await producer.send(b"%d" % number)
        # Not among a reader's options for who checks types; who does not may give it.
        options: dict[str, Any] = {"ack_receipt_enabled": True}
        reader = await client.create_reader("t", gc.MessageId.earliest, **options)
        read: list[bytes] = []
        while len(read) < 8:
            try:
                async with asyncio.timeout(0.0001):
                    read.append((await reader.read_next()).data())
            except TimeoutError:
                await wait_ms(1)
                assert await reader.has_message_available()
        assert read == [b"%d" % number for number in range(8)]

    run_with_broker(scenario)


def test_who_asks_while_the_broker_is_away_and_gives_up_leaves_nothing_with_the_consumer() -> None:
    is_away = False

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == Type.LOOKUP and is_away:
            return [commands.lookup_failed(command.lookupTopic.request_id, ServerError.SERVICE_NOT_READY, "away")]
        return [commands.success(command.subscribe.request_id)] if command.type == Type.SUBSCRIBE else polite(command)

    async def scenario(client: gc.Client) -> None:
        nonlocal is_away
        consumer = await client.subscribe("t", "s")
        assert isinstance(consumer, SubscriptionConsumer)
        is_away = True
        for connection in list(client.pool._connections.values()):
            connection.close()
        for call in (consumer.get_last_message_id, partial(consumer.seek, 0), consumer.unsubscribe):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(call(), 0.1)
        (topic,) = consumer.held.all()
        assert topic._attachment._waiting == []

    run_against(script, scenario)

"""A part of a topic holds back reads: nothing behind its limit is seen, counted, moved over or deleted, by any way."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from geminga.broker.core.deletion import Hold, why_topic_stays
from geminga.broker.core.steps import drained
from geminga.broker.rest.topic_routes.internal_stats import log_steps
from geminga.broker.subscription import seek
from geminga.broker.subscription.last_message_id import NO_MESSAGE, last_message_id
from geminga.broker.subscription.stats import backlog_bytes, subscription_counts
from geminga.broker.topic.delays import delays_stats
from geminga.broker.topic.parts import PartTopic, TopicPart
from geminga.broker.topic.publish import PublishBatch
from geminga.managed_ledger import AppendResult, ManagedLedgerConfig
from geminga.model.position import EARLIEST, LATEST, Position
from geminga.model.topic_name import TopicName
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.stories.held_story import Story, texts
from support.worlds.broker_world import TOPIC, BrokerWorld, Type, send_frame
from support.worlds.holding_part import HoldingPart, with_parts
from support.worlds.policy_levels import SMALL_LEDGERS, run_quietly, seconds, set_namespace, topic_of
from support.worlds.subscriptions import settle

Sub = pb.CommandSubscribe
NAME = TopicName.parse(TOPIC)
OTHER = "persistent://public/default/other"
TYPES = [Sub.Exclusive, Sub.Failover, Sub.Shared, Sub.Key_Shared]


async def steps_of(world: BrokerWorld, story: Story, sub_type: int, **fields: object) -> None:
    """The limit moves on in steps: after each exactly what it lets through is there."""
    await story.hold_at(0)
    await story.publish(3)
    await story.client.subscribe(subType=sub_type, **fields)
    assert await story.take() == []
    await story.hold_at(1)
    assert await story.take() == texts(0)
    await story.publish(2)
    assert await story.take() == texts(0)
    for count in (2, 4):
        await story.hold_at(count)
        assert await story.take() == texts(*range(count))
    await story.hold_at(None)
    assert await story.take() == texts(*range(5))
    await story.publish()
    assert await story.take() == texts(*range(6))


@pytest.mark.parametrize("sub_type", TYPES)
def test_consumers_of_every_type_get_exactly_what_each_step_lets_through(sub_type: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await steps_of(world, await Story.begin(world), sub_type)

    run_quietly(scenario, active_consumer_failover_delay_ms=0)


@pytest.mark.parametrize("entries_per_ledger", [1, 2, 50_000])
def test_readers_too_and_over_the_ends_of_ledgers(entries_per_ledger: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await steps_of(world, await Story.begin(world), Sub.Exclusive, durable=False)

    config = ManagedLedgerConfig(max_entries_per_ledger=entries_per_ledger, min_rollover_minutes=0)
    run_quietly(scenario, ledger_config=config)


def test_other_topics_go_on_and_all_subscriptions_of_this_one_wait() -> None:
    async def scenario(world: BrokerWorld) -> None:
        story = await Story.begin(world)
        await story.client.create_producer(OTHER, producer_id=2)
        await story.client.subscribe()
        await story.client.subscribe(subscription="second", consumer_id=2, subType=Sub.Shared)
        await story.client.subscribe(OTHER, subscription="sub", consumer_id=3)
        await story.hold_at(0)
        await story.publish(2)
        await story.client.publish(0, b"free", producer_id=2)
        await story.take()
        assert story.texts == {3: ["free"]}
        await story.hold_at(1)
        assert (story.texts[1], story.texts[2]) == (texts(0), texts(0))

    run_quietly(scenario)


def test_readers_wake_when_readable_moves_and_not_when_entries_are_stored() -> None:
    async def scenario(world: BrokerWorld) -> None:
        story = await Story.begin(world)
        await story.client.subscribe()
        subscription = story.topic.subscriptions["sub"]
        woken = 0

        def count() -> None:
            nonlocal woken
            woken += 1

        await story.hold_at(0)
        story.topic.ledger.tail.add_listener(count)
        await story.publish(3)
        await settle()
        assert woken == 0
        await story.hold_at(2)
        assert woken == 1
        await story.hold_at(2)
        assert woken == 1
        assert await story.take() == texts(0, 1)
        assert subscription.cursor.backlog_count == 2

    run_quietly(scenario)


def test_last_message_backlog_and_statistics_follow_what_is_readable() -> None:
    async def scenario(world: BrokerWorld) -> None:
        story = await Story.begin(world)
        await story.topic.create_subscription("sub", EARLIEST)
        subscription = story.topic.subscriptions["sub"]
        await story.hold_at(0)
        await story.publish(4)
        ledger = story.topic.ledger
        assert await last_message_id(ledger) == (NO_MESSAGE, -1)
        assert (subscription.cursor.backlog_count, backlog_bytes(subscription)) == (0, 0)
        assert await seek.peek(subscription, 1) == (None, 0)
        await story.hold_at(3)
        assert (await last_message_id(ledger))[0] == story.topic.max_read_position == story.positions[2]
        assert story.topic.last_position == story.positions[3]
        stats = subscription_counts(subscription)
        assert stats["msgBacklog"] == 3
        assert (
            0 < backlog_bytes(subscription) < backlog_bytes(subscription, is_limited=False) == ledger.ledgers.size_bytes
        )
        assert (await seek.peek(subscription, 3))[1] == 3
        assert (await seek.peek(subscription, 4))[0] is None
        assert await ledger.reader.read([story.positions[3]]) == []
        await story.client.subscribe(subscription="asks", consumer_id=9, permits=0)
        request = pb.CommandGetLastMessageId(consumer_id=9, request_id=77)
        story.client.send(pb.BaseCommand(type=Type.GET_LAST_MESSAGE_ID, getLastMessageId=request))
        answer = (await story.client.expect(Type.GET_LAST_MESSAGE_ID_RESPONSE)).getLastMessageIdResponse
        assert answer.last_message_id.entryId == story.positions[2].entry_id
        assert drained(log_steps(story.topic))["geminga"]["holding"] == {"readLimit": str(story.positions[2])}
        assert drained(log_steps(story.topic))["lastConfirmedEntry"] == str(story.positions[3])

    run_quietly(scenario)


def test_subscription_at_latest_begins_with_what_becomes_readable_next() -> None:
    async def scenario(world: BrokerWorld) -> None:
        story = await Story.begin(world)
        await story.publish(2)
        await story.hold_at(2)
        await story.publish(2)
        await story.topic.create_subscription("sub", LATEST)
        await story.topic.create_subscription("moved", EARLIEST)
        await seek.seek(story.topic.subscriptions["moved"], LATEST)
        await story.topic.create_subscription("far", EARLIEST)
        await seek.seek(story.topic.subscriptions["far"], story.positions[3])
        await story.topic.create_subscription("timely", EARLIEST)
        await seek.seek_to_time(story.topic.subscriptions["timely"], story.topic.subscriptions["timely"].now_ms() + 1)
        for consumer_id, name in enumerate(("sub", "moved", "far", "timely"), 1):
            await story.client.subscribe(subscription=name, consumer_id=consumer_id)
        await story.take()
        assert story.texts == {}
        await story.hold_at(3)
        await story.hold_at(None)
        assert story.texts == {consumer_id: texts(2, 3) for consumer_id in (1, 2, 3, 4)}

    run_quietly(scenario)


@pytest.mark.parametrize("way", ["unload", "restart"])
@pytest.mark.parametrize("sub_type", TYPES)
def test_limit_holds_from_the_first_read_after_the_topic_was_loaded_anew(sub_type: int, way: str) -> None:
    """What nobody has decided on when the topic goes is as undecided when it comes."""

    async def scenario(world: BrokerWorld) -> None:
        story = await Story.begin(world)
        await story.client.subscribe(subType=sub_type)
        await story.hold_at(0)
        await story.publish(4)
        await story.hold_at(2)
        assert await story.take() == texts(0, 1)
        story.acknowledge(story.ids[1][:1])
        if way == "unload":
            await story.reload()
        else:
            await world.stop()
            world.broker = world._new_broker()
            with_parts(world.broker, HoldingPart)
            await world.start()
            story.client = await world.client()
            story.topic = await topic_of(world)
        story.texts.clear()
        assert story.topic.max_read_position == story.positions[1]
        await story.client.subscribe(subType=sub_type)
        assert await story.take() == texts(1)
        await story.hold_at(3)
        assert await story.take() == texts(1, 2)
        await story.hold_at(None)
        assert await story.take() == texts(1, 2, 3)

    run_quietly(scenario, active_consumer_failover_delay_ms=0)


def test_part_that_comes_while_dispatch_is_under_way_holds_what_is_not_stored_yet() -> None:
    class Late(HoldingPart):
        __slots__ = ()

        is_on = False

        @classmethod
        def is_wanted(cls, topic: PartTopic) -> bool:
            return cls.is_on

        async def load(self) -> None:
            self.limit = Position(0, -1)

    async def scenario(world: BrokerWorld) -> None:
        with_parts(world.broker, Late)
        client = await world.publisher()
        story = Story(world, client, await topic_of(world))
        await story.publish(3)
        await story.client.subscribe(permits=1)
        assert await story.take() == texts(0)
        Late.is_on = True
        await story.topic.apply_policies()
        await story.publish(2)
        flow = pb.CommandFlow(consumer_id=1, messagePermits=100)
        story.client.send(pb.BaseCommand(type=Type.FLOW, flow=flow))
        assert await story.take() == texts(0, 1, 2)
        Late.is_on = False
        await story.topic.apply_policies()
        assert await story.take() == texts(0, 1, 2, 3, 4)

    run_quietly(scenario)


def test_delayed_messages_wait_for_their_time_and_for_the_limit() -> None:
    async def scenario(world: BrokerWorld) -> None:
        story = await Story.begin(world)
        await story.client.subscribe(subType=Sub.Shared)
        await story.hold_at(0)
        due = world.runtime.clock.wall_ms() + 10_000
        await story.publish(2, metadata={"deliver_at_time": due})
        await story.publish()
        await story.hold_at(1)
        assert await story.take() == []
        await seconds(11)
        assert await story.take() == texts(0)
        assert delays_stats(story.topic)["entries"] == 0
        await story.hold_at(None)
        assert sorted(await story.take()) == texts(0, 1, 2)

    run_quietly(scenario)


def test_batches_are_acknowledged_by_index_up_to_the_limit_and_not_behind_it() -> None:
    async def scenario(world: BrokerWorld) -> None:
        story = await Story.begin(world)
        batch = {"num_messages_in_batch": 3}
        await story.client.subscribe(subType=Sub.Shared)
        await story.hold_at(0)
        await story.publish(2, num_messages=3, metadata=batch)
        await story.hold_at(1)
        assert await story.take() == texts(0)
        cursor = story.topic.subscriptions["sub"].cursor
        for position in story.positions:
            partly = pb.MessageIdData(ledgerId=position.ledger_id, entryId=position.entry_id, ack_set=[0b101])
            story.acknowledge([partly])
        await settle()
        assert cursor.state.ack_set(story.positions[0]) == (0b101,)
        assert cursor.state.ack_set(story.positions[1]) is None
        whole = [pb.MessageIdData(ledgerId=p.ledger_id, entryId=p.entry_id) for p in story.positions]
        story.acknowledge(whole)
        await settle()
        assert (cursor.mark_delete_position, cursor.state.acked.count) == (story.positions[0], 0)
        await story.hold_at(None)
        assert await story.take() == texts(0, 1)
        assert cursor.backlog_count == 1

    run_quietly(scenario)


def test_nothing_behind_the_limit_is_acknowledged_skipped_cleared_or_expired() -> None:
    async def scenario(world: BrokerWorld) -> None:
        story = await Story.begin(world)
        for name in ("acked", "skipped", "cleared", "expired", "expired up to"):
            await story.topic.create_subscription(name, EARLIEST)
        subscriptions = story.topic.subscriptions
        await story.hold_at(0)
        await story.publish(4)
        await story.hold_at(2)
        await story.client.subscribe(subscription="acked")
        await story.take()
        last = story.positions[3]
        story.acknowledge([pb.MessageIdData(ledgerId=last.ledger_id, entryId=last.entry_id)], cumulative=True)
        await seek.skip(subscriptions["skipped"], 100)
        await seek.clear_backlog(subscriptions["cleared"])
        await seconds(100)
        assert await seek.expire(subscriptions["expired"], 1000)
        assert seek.expire_up_to(subscriptions["expired up to"], last)
        await settle()
        for subscription in subscriptions.values():
            assert subscription.cursor.mark_delete_position == story.positions[1], subscription.name
            assert subscription.cursor.backlog_count == 0
        assert subscriptions["expired"].entries_expired == 2
        assert not await seek.expire(subscriptions["expired"], 1000)
        await story.hold_at(None)
        assert {s.cursor.backlog_count for s in subscriptions.values()} == {2}

    run_quietly(scenario)


def test_nothing_behind_the_limit_is_trimmed_whatever_retention_says_and_whoever_asks() -> None:
    async def scenario(world: BrokerWorld) -> None:
        story = await Story.begin(world)
        await set_namespace(world, "retention_policies", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
        await story.hold_at(0)
        await story.publish(13)
        ledger = story.topic.ledger
        await ledger.trimmer.trim()
        assert ledger.ledgers.entry_count == 13
        await story.hold_at(6)
        await ledger.trimmer.trim()
        assert ledger.ledgers.first_position == story.positions[4]
        await ledger.trimmer.truncate()
        assert ledger.ledgers.first_position == story.positions[4]
        assert ledger.ledgers.entry_count == 9
        await story.client.subscribe(subscription="late", consumer_id=1)
        await story.hold_at(None)
        assert await story.take() == texts(*range(4, 13))

    run_quietly(scenario, ledger_config=SMALL_LEDGERS)


@pytest.mark.parametrize("action", ["consumer_backlog_eviction", "producer_exception"])
def test_quota_counts_what_is_stored_and_evicts_what_is_readable(action: str) -> None:
    async def scenario(world: BrokerWorld) -> None:
        story = await Story.begin(world)
        await story.topic.create_subscription("sub", EARLIEST)
        await story.hold_at(0)
        cursor = story.topic.subscriptions["sub"].cursor
        quota = {"limitSize": 100, "limitTime": -1, "policy": action}
        await set_namespace(world, "backlog_quota_map", {"destination_storage": quota})
        for _ in range(8):
            await story.publish()
            await story.take()
            if story.others:
                break
        if action == "producer_exception":
            assert [command.type for command in story.others] == [Type.CLOSE_PRODUCER]
            return
        assert (cursor.backlog_count, story.others) == (0, [])
        await story.hold_at(4)
        await story.publish()
        await story.take()
        assert cursor.mark_delete_position == story.positions[3]
        await story.hold_at(None)
        assert 0 < cursor.backlog_count < 9

    run_quietly(scenario)


def test_topic_with_entries_held_back_is_not_deleted_for_being_inactive() -> None:
    async def scenario(world: BrokerWorld) -> None:
        story = await Story.begin(world)
        await story.hold_at(0)
        await story.publish()
        await story.client.close_producer()
        await seconds(1000)

        def why() -> Hold | None:
            mode = "delete_when_no_subscriptions"
            return why_topic_stays(story.topic.deletion_facts(), mode=mode, idle_min_ms=1000, retention_ms=0)

        assert why() is Hold.HELD_BACK
        await story.hold_at(None)
        assert why() is None

    run_quietly(scenario)


@pytest.mark.parametrize("sub_type", [Sub.Exclusive, Sub.Shared])
def test_end_of_a_terminated_topic_is_told_when_what_was_held_back_is_through(sub_type: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        story = await Story.begin(world)
        await story.client.subscribe(subType=sub_type)
        await story.hold_at(0)
        await story.publish(2)
        await story.hold_at(1)
        assert await story.topic.terminate() == story.positions[1]
        assert await story.take() == texts(0)
        story.acknowledge(story.ids[1])
        await story.take()
        assert Type.REACHED_END_OF_TOPIC not in {command.type for command in story.others}
        await story.hold_at(None)
        assert await story.take() == texts(0, 1)
        story.acknowledge(story.ids[1])
        await story.take()
        assert Type.REACHED_END_OF_TOPIC in {command.type for command in story.others}

    run_quietly(scenario)


def test_what_a_part_hides_reaches_nobody_and_is_acknowledged_for_all() -> None:
    class Hiding(TopicPart):
        """Odd sequence ids are not for readers."""

        __slots__ = ()

        name = "hides"

        def __init__(self, topic: PartTopic) -> None:
            del topic

        def hides(self, position: Position, metadata: pb.MessageMetadata) -> bool:
            return metadata.sequence_id % 2 == 1

    async def scenario(world: BrokerWorld) -> None:
        with_parts(world.broker, HoldingPart, Hiding)
        client = await world.publisher()
        story = Story(world, client, await topic_of(world))
        await story.client.subscribe()
        await story.client.subscribe(subscription="shared", subType=Sub.Shared, consumer_id=2)
        await story.hold_at(0)
        await story.publish(4)
        await story.hold_at(None)
        assert story.texts == {1: texts(0, 2), 2: texts(0, 2)}
        hides = story.topic.hides
        assert (await last_message_id(story.topic.ledger, hides))[0] == story.positions[2]
        for consumer_id in (1, 2):
            story.acknowledge(story.ids[consumer_id], consumer_id)
        await settle()
        assert {s.cursor.backlog_count for s in story.topic.subscriptions.values()} == {0}

    run_quietly(scenario)


class Undecided(TopicPart):
    """What the producer ``undecided`` sends waits for a decision; what comes behind it waits with it."""

    __slots__ = ("_first", "_topic", "limit")

    name = "undecided"

    def __init__(self, topic: PartTopic) -> None:
        self._topic = topic
        self.limit = LATEST
        #: Where the first of it is stored.
        self._first: Position | None = None

    def admit(self, batch: PublishBatch) -> Iterable[PublishBatch]:
        if batch.producer.name == "undecided" and self.limit == LATEST:
            self.limit = self._topic.ledger.extent.readable_position
            self._topic.parts.limit_moved()
        return (batch,)

    def stored(self, batch: PublishBatch, result: AppendResult) -> None:
        if batch.producer.name == "undecided" and self._first is None:
            self._first = Position(result.ledger_id, result.first_entry_id)
            # What was under way before it need not wait.
            self.limit = self._topic.ledger.ledgers.previous_position(self._first)
            self._topic.parts.limit_moved()

    def read_limit(self) -> Position:
        return self.limit

    def decide(self) -> None:
        self.limit, self._first = LATEST, None
        self._topic.parts.limit_moved()


@pytest.mark.parametrize("sub_type", TYPES)
def test_part_holds_back_what_is_just_coming_and_nothing_that_came_before(sub_type: int) -> None:
    """In one turn of the loop, and one append, come entries that are free and entries that are not."""

    async def scenario(world: BrokerWorld) -> None:
        with_parts(world.broker, Undecided)
        client = await world.publisher(producer_name="free")
        await client.create_producer(producer_id=2, producer_name="undecided")
        await client.create_producer(producer_id=3, producer_name="free too")
        story = Story(world, client, await topic_of(world))
        await client.subscribe(subType=sub_type)
        part = story.topic.parts.find(Undecided)
        assert part is not None
        for round_ in range(3):
            first = 4 * round_
            client.send_bytes(
                send_frame(2 * round_, f"m{first}".encode(), 1)
                + send_frame(2 * round_, f"m{first + 1}".encode(), 2)
                + send_frame(round_, f"m{first + 2}".encode(), 3)
                + send_frame(2 * round_ + 1, f"m{first + 3}".encode(), 2)
            )
            assert await story.take() == texts(*range(first + 1))
            part.decide()
            assert await story.take() == texts(*range(first + 4))

    run_quietly(scenario, active_consumer_failover_delay_ms=0)

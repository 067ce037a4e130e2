"""When a topic is compacted, what is told of it, and what happens where something goes wrong."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from geminga.broker.compaction import ledger as compacted_ledger
from geminga.broker.compaction import paced, run
from geminga.broker.compaction.part import COMPACTED_PROPERTY, TopicCompaction, compact
from geminga.managed_ledger.cursor import cursor_set
from geminga.managed_ledger.log import attached
from geminga.managed_ledger.rules.attached import ATTACHED_PROPERTY
from geminga.managed_ledger.shared import catch_up_turns
from geminga.managed_ledger.shared import crash_points as points
from geminga.model.errors import ConflictError, CorruptionError, StorageError
from geminga.model.position import EARLIEST, Position
from geminga.model.topic_name import COMPACTION_CURSOR
from geminga.runtime import next_turn
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.compacted import COMPACTED_LEDGER
from support.stories.compaction_story import CompactionStory, compacted, only_compacted
from support.worlds.broker_world import TOPIC, BrokerWorld, Type
from support.worlds.policy_levels import NAME, SMALL_LEDGERS, run_quietly, seconds, set_namespace, set_topic
from support.worlds.subscriptions import settle


async def served(story: CompactionStory) -> TopicCompaction:
    part = await story.part()
    assert part is not None
    assert part.served is not None
    return part


def test_the_threshold_compacts_without_any_subscription() -> None:
    # Pulsar looked at the backlog of subscriptions, of which there may be none (8204).
    async def scenario(world: BrokerWorld) -> None:
        story = CompactionStory(world)
        await story.hold(500)
        await story.publish(("a", "1"), ("a", "2"))
        await seconds(61)
        part = await story.part()
        assert part is not None
        assert part.status == "NOT_RUN"
        await story.publish(*(("a", "x" * 100) for _ in range(6)))
        await seconds(61)
        part = await story.over()
        assert part.status == "SUCCESS"
        story.compacted = len(story.sent)
        assert await story.read() == story.expected()
        # What is behind the horizon counts anew.
        runs = part.record.succeeded_count  # type: ignore[union-attr]
        await (await story.topic()).ledger.roll()
        await (await story.topic()).ledger.open_ledger()  # with nothing in it
        await seconds(200)
        assert part.record.succeeded_count == runs == 1  # type: ignore[union-attr]
        await story.publish(*(("a", "x" * 100) for _ in range(6)))
        await (await story.topic()).ledger.roll()
        await (await story.topic()).ledger.open_ledger()
        await seconds(61)
        assert (await story.over()).record.succeeded_count == 2  # type: ignore[union-attr]

    run_quietly(scenario)


def test_a_threshold_of_the_namespace_and_of_the_broker_count_too() -> None:
    async def of_namespace(world: BrokerWorld) -> None:
        story = CompactionStory(world)
        await story.topic()
        await set_namespace(world, "compaction_threshold", 10)
        await story.publish(("a", "1"))
        await seconds(61)
        assert (await story.over()).status == "SUCCESS"

    async def of_broker(world: BrokerWorld) -> None:
        story = CompactionStory(world)
        await story.publish(("a", "1"))
        await seconds(61)
        assert (await story.over()).status == "SUCCESS"
        await set_topic(world, "compactionThreshold", 0)
        await story.publish(("a", "1"))
        await seconds(61)
        assert (await story.over()).record.succeeded_count == 1  # type: ignore[union-attr]

    run_quietly(of_namespace)
    run_quietly(of_broker, compaction_threshold_bytes=10)


def test_a_threshold_that_goes_lets_the_log_go() -> None:
    async def scenario(world: BrokerWorld) -> None:
        story = CompactionStory(world)
        await story.hold()
        await story.publish(*((f"k{number}", "v") for number in range(9)))
        assert await story.trim() == 9
        await set_topic(world, "compactionThreshold", 0)
        await settle()
        assert COMPACTION_CURSOR not in (await story.topic()).ledger.cursors
        assert await story.trim() == 0

    run_quietly(scenario, ledger_config=SMALL_LEDGERS)


@pytest.mark.parametrize("turns", range(0, 24, 2))
def test_a_threshold_that_goes_and_comes_again_at_once_compacts_on(turns: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        story = CompactionStory(world)
        await story.hold(500)
        topic = await story.topic()
        await story.publish(*(("a", "x" * 100) for _ in range(6)))
        gone = asyncio.ensure_future(set_topic(world, "compactionThreshold", 0))
        for _ in range(turns):
            await next_turn()
        await asyncio.gather(gone, set_topic(world, "compactionThreshold", 500))
        for _ in range(3):
            await seconds(61)
            part = await story.over()
            assert (part.status, part.last_error) == ("SUCCESS", "")
            assert len(topic.ledger.attached().ids) == 1
            await story.publish(*(("a", "x" * 100) for _ in range(6)))

    run_quietly(scenario)


def test_where_the_cursor_is_gone_by_half_an_order_a_run_makes_it_again_and_leaves_no_ledgers() -> None:
    async def scenario(world: BrokerWorld) -> None:
        story = CompactionStory(world)
        await story.hold(500)
        topic = await story.topic()
        await topic.ledger.delete_cursor(COMPACTION_CURSOR)
        for _ in range(3):
            await story.publish(*(("a", "x" * 100) for _ in range(6)))
            await seconds(61)
            assert ((await story.over()).status, len(topic.ledger.attached().ids)) == ("SUCCESS", 1)

    run_quietly(scenario)


@pytest.mark.parametrize("turns", range(0, 40, 2))
def test_a_run_that_is_asked_for_while_all_is_given_up_brings_nothing_back(turns: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        story = await only_compacted(world, ("a", "1"), ("b", "2"), ("a", "3"))
        await story.publish(("a", "4"))
        giving_up = asyncio.ensure_future((await served(story)).forget())
        for _ in range(turns):
            await next_turn()
        with suppress(ConflictError):
            await compact(await story.topic())
        await giving_up
        await story.over()
        assert not (await story.topic()).services.compactions.asked
        for _ in range(2):
            assert [one.value for one in await story.read()] == ["4"]
            assert (await story.compact()).status == "SUCCESS"
            assert len((await story.topic()).ledger.attached().ids) == 1
            await story.restart()

    run_quietly(scenario, ledger_config=SMALL_LEDGERS)


def test_a_second_run_at_the_same_time_is_refused_and_one_without_news_writes_nothing() -> None:
    async def scenario(world: BrokerWorld) -> None:
        story = CompactionStory(world)
        await story.publish(("a", "1"))
        topic = await story.topic()
        await compact(topic)
        with pytest.raises(ConflictError, match="under way"):
            await compact(topic)
        part = await story.over()
        assert part.status == "SUCCESS"
        ledger_id = (await served(story)).served
        assert (await story.compact()).status == "SUCCESS"
        assert (await served(story)).served is ledger_id

    run_quietly(scenario)


@pytest.mark.parametrize("gone", [[("a", "")], [("a", ""), ("b", "")]])
def test_where_nothing_is_kept_readers_are_at_the_end_at_once(gone: list[tuple[str, str]]) -> None:
    # The last message deleted, everything deleted: Pulsar's run did not end, its readers had "more" for ever.
    async def scenario(world: BrokerWorld) -> None:
        story = await compacted(world, ("a", "1"), ("b", "2"), *gone)
        assert await story.read() == story.expected()
        client = await world.subscriber(subscription="r", durable=False, read_compacted=True)
        client.send(
            pb.BaseCommand(
                type=Type.GET_LAST_MESSAGE_ID,
                getLastMessageId=pb.CommandGetLastMessageId(consumer_id=1, request_id=7),
            )
        )
        found = (await client.expect(Type.GET_LAST_MESSAGE_ID_RESPONSE)).getLastMessageIdResponse.last_message_id
        kept = story.expected()
        if kept:
            assert (found.ledgerId, found.entryId) == kept[-1].position
        else:
            assert found.entryId == (1 << 64) - 1

    run_quietly(scenario)


def test_nothing_else_moves_the_cursor_and_unload_keeps_what_it_says() -> None:
    async def scenario(world: BrokerWorld) -> None:
        story = CompactionStory(world)
        await story.hold()
        await story.publish(("a", "1"), ("b", "2"))
        await story.compact()
        part = await served(story)
        horizon = part.horizon
        await set_topic(world, "messageTTLInSeconds", 1)
        await story.publish(("c", "3"))
        await seconds(900)
        topic = await story.topic()
        assert COMPACTION_CURSOR not in topic.subscriptions
        cursor = topic.ledger.cursors[COMPACTION_CURSOR]
        assert (cursor.mark_delete_position, cursor.backlog_count) == (horizon, 1)
        await story.restart()
        again = await served(story)
        assert (again.horizon, again.served.ledger_id) == (horizon, part.served.ledger_id)  # type: ignore[union-attr]
        # Truncated: what was compacted stays, as in Pulsar.
        await (await story.topic()).truncate()
        assert [one.key for one in await story.read()] == ["a", "b"]

    run_quietly(scenario)


@pytest.mark.parametrize("keeps", [False, True])
def test_a_compacted_topic_is_removed_as_inactive_with_all_its_ledgers(keeps: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        story = await compacted(world, ("a", "1"))
        part = await served(story)
        ledger_id = part.served.ledger_id  # type: ignore[union-attr]
        if keeps:
            await (await story.topic()).create_subscription("sub", EARLIEST)
        await world.broker.registry.delete(NAME, force=True)
        assert ledger_id not in await world.ledgers.bookkeeper.ledger_ids()

    run_quietly(scenario)


def test_a_cursor_that_lost_its_properties_or_its_place_is_set_by_what_the_log_says() -> None:
    # Unload or a reset of the cursor lost the property in Pulsar, and with it keys that were nowhere else (21074).
    async def scenario(world: BrokerWorld) -> None:
        story = await only_compacted(world, ("a", "1"), ("b", "2"), ("a", "3"))
        cursor = (await story.topic()).ledger.cursors[COMPACTION_CURSOR]
        await cursor.set_properties({})
        await story.restart()
        assert await story.read() == story.expected()
        cursor = (await story.topic()).ledger.cursors[COMPACTION_CURSOR]
        assert cursor.properties == {COMPACTED_LEDGER: (await served(story)).served.ledger_id}  # type: ignore[union-attr]

    run_quietly(scenario, ledger_config=SMALL_LEDGERS)


def test_a_ledger_that_is_gone_is_an_error_and_never_the_log() -> None:
    # Pulsar went back to the log, where keys were trimmed, and the next run made that durable (PR 26631).
    async def scenario(world: BrokerWorld) -> None:
        story = await only_compacted(world, ("a", "1"), ("b", "2"))
        await story.publish(("b", "3"))
        part = await served(story)
        ledger_id = part.served.ledger_id  # type: ignore[union-attr]
        await story.restart()
        await world.ledgers.bookkeeper.delete_ledger(ledger_id)
        client = await world.client()
        request = pb.CommandSubscribe(
            topic=TOPIC, subscription="r", subType=0, consumer_id=1, request_id=1, durable=False, read_compacted=True
        )
        client.send(pb.BaseCommand(type=Type.SUBSCRIBE, subscribe=request))
        error = await client.error()
        assert error.error == pb.PersistenceError
        assert error.message.startswith("What was compacted of this topic can not be read")
        # Plain readers go on, and compaction is refused until somebody gives up what is gone.
        assert [one.value for one in await story.read(read_compacted=False)] == ["3"]
        assert (await story.compact()).status == "ERROR"
        assert (await story.compact()).status == "ERROR"
        part = await served(story)
        assert part.last_error
        await part.forget()
        assert [one.value for one in await story.read()] == ["3"]
        assert (await story.compact()).status == "SUCCESS"
        assert [one.value for one in await story.read()] == ["3"]

    run_quietly(scenario, ledger_config=SMALL_LEDGERS)


@pytest.mark.uncompiled("another method of CursorStore")
def test_a_cursor_that_can_not_be_written_keeps_readers_waiting_and_nothing_goes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Pulsar served the new ledger before the cursor's write, which failed: the view went back at the next load (26486).
    async def scenario(world: BrokerWorld) -> None:
        story = CompactionStory(world)
        await story.hold()
        await story.publish(("a", "1"))
        await story.compact()
        old = (await served(story)).served
        await story.publish(("a", "2"))
        fails = True
        cursor = (await story.topic()).ledger.cursors[COMPACTION_CURSOR]
        assert cursor.store is not None
        changed = type(cursor.store).changed

        def failing(store, dirty, done):
            if fails and store is cursor.store and done is not None:
                done(StorageError("no bookie"))
            else:
                changed(store, dirty, done)

        monkeypatch.setattr(type(cursor.store), "changed", failing)
        before = len(story.sent)
        await compact(await story.topic())
        await seconds(5)
        part = await story.part()
        assert part is not None
        assert (part.status, part.last_error) == ("RUNNING", "no bookie")
        # The log may be trimmed up to there at any time: who reads on in it waits, too.
        assert part.horizon == story.sent[-1].position
        client = await world.client()
        reading = asyncio.ensure_future(client.subscribe(subscription="r", durable=False, read_compacted=True))
        await seconds(5)
        assert not reading.done()
        fails = False
        assert (await story.over()).status == "SUCCESS"
        story.compacted = before
        assert [one.value for one in await story.read()] == ["2"]
        assert (await served(story)).served is not old
        await reading
        command, _ = await client.expect_with_payload(Type.MESSAGE)
        assert command.message.message_id.entryId == story.sent[-1].position.entry_id

    run_quietly(scenario)


def test_a_run_that_is_cut_off_by_an_unload_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    # Its position was saved in Pulsar: the horizon went back, and the topic was read from its beginning (25118).
    async def scenario(world: BrokerWorld) -> None:
        story = CompactionStory(world)
        await story.hold()
        await story.publish(("a", "1"))
        await story.compact()
        before = await served(story)
        horizon, ledger_id = before.horizon, before.served.ledger_id  # type: ignore[union-attr]
        await story.publish(*((f"k{number}", "v") for number in range(40)))
        monkeypatch.setattr(paced, "STEPS_PER_TURN", 1)
        monkeypatch.setattr(catch_up_turns, "BATCHES_MAX", 1)
        monkeypatch.setattr(run, "READ_ENTRIES", 1)
        await compact(await story.topic())
        await settle()
        assert (await served(story)).is_running
        await story.restart()
        again = await served(story)
        assert (again.horizon, again.served.ledger_id, again.status) == (horizon, ledger_id, "NOT_RUN")  # type: ignore[union-attr]
        log = (await story.topic()).ledger
        assert log.attached().ids == (ledger_id,)
        assert await story.read() == story.expected()

    run_quietly(scenario)


def test_properties_of_the_log_that_say_nothing_intelligible_are_an_error() -> None:
    async def scenario(world: BrokerWorld) -> None:
        story = await compacted(world, ("a", "1"))
        topic = await story.topic()
        await topic.ledger.stored.add_properties({COMPACTED_PROPERTY: "1:2"})
        with pytest.raises(CorruptionError, match="LEDGER:HORIZON LEDGER:ENTRY was expected"):
            await (await served(story))._settle()
        assert ATTACHED_PROPERTY in topic.ledger.stored.properties

    run_quietly(scenario)


def test_places_are_remembered_for_those_who_go_on_and_no_more_than_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: BrokerWorld) -> None:
        story = await compacted(world, *((f"k{number}", "v") for number in range(20)))
        monkeypatch.setattr(compacted_ledger, "PLACES_MAX", 3)
        ledger = (await served(story)).served
        assert ledger is not None
        for number in (0, 2, 4, 14, 8, 18, 11, 6):
            first = story.sent[number].position
            entries = await ledger.read(first, 2, 1 << 20)
            assert [entry.position for entry in entries] == [one.position for one in story.sent[number : number + 2]]
            assert len(ledger._places) <= 3
        assert await ledger.read(Position(1 << 40, 0), 2, 1 << 20) == []
        last = await ledger.last()
        assert last is not None
        assert last.position == story.sent[-1].position

    run_quietly(scenario)


@pytest.mark.parametrize("point", [attached.FORGOTTEN, points.CURSOR_DELETED])
def test_what_is_given_up_comes_back_whole_or_not_at_all(point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: BrokerWorld) -> None:
        story = await compacted(world, ("a", "1"), ("a", "2"))
        ledger_id = (await served(story)).served.ledger_id  # type: ignore[union-attr]

        def cut_off(label: str) -> None:
            if label == point:
                raise asyncio.CancelledError

        for module in (attached, cursor_set):
            monkeypatch.setattr(module, "crash_point", cut_off)
        with pytest.raises(asyncio.CancelledError):
            await (await served(story)).forget()
        monkeypatch.undo()
        await story.restart()
        is_there = point == attached.FORGOTTEN
        assert [one.value for one in await story.read()] == (["2"] if is_there else ["1", "2"])
        await story.publish(("a", "3"))
        await story.compact()
        assert [one.value for one in await story.read()] == ["3"]
        assert ledger_id not in await world.ledgers.bookkeeper.ledger_ids()

    run_quietly(scenario)


@pytest.mark.parametrize("forgets", [False, True])
def test_a_run_that_is_called_off_before_it_began_leaves_nothing(forgets: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        story = CompactionStory(world)
        await story.publish(("a", "1"))
        topic = await story.topic()
        await compact(topic)
        part = topic.parts.find(TopicCompaction)
        assert part is not None
        if forgets:
            await part.forget()
            assert (await story.compact()).status == "SUCCESS"
        else:
            task = part._task
            await part.close()
            # Who closes the topic next has nothing of it beside them.
            assert task is not None
            assert task.done()
        assert topic.services.compactions.asked == set()

    run_quietly(scenario)


def test_a_topic_that_is_compacted_is_not_removed_while_nobody_reads_it() -> None:
    # Its readers come and go; a compaction of more than a minute was removed under way with its topic.
    async def scenario(world: BrokerWorld) -> None:
        story = await compacted(world, ("a", "1"), ("a", "2"))
        await story.trim()
        client, story._client = story._client, None
        assert client is not None
        client.lose()
        await seconds(300)
        assert await story.read() == story.expected()
        part = await served(story)
        await part.forget()
        await seconds(300)
        assert not world.broker.topics

    run_quietly(scenario, ledger_config=SMALL_LEDGERS, delete_inactive_topics=True)

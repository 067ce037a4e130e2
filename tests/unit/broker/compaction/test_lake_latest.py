"""Readers of compacted messages are served from the lake where a topic was never compacted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from geminga.managed_ledger.rules.offload import record_of
from geminga.model.position import Position
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.compression import LZ4
from support.stories.compaction_story import READER
from support.stories.lake_latest_story import FOREVER, LAKE_LEDGERS, LakeLatestStory
from support.worlds.broker_world import BrokerWorld, Type
from support.worlds.lake_world import MemoryLakeStore
from support.worlds.policy_levels import run_quietly, seconds


def tell(scenario: Callable[[LakeLatestStory, MemoryLakeStore], Awaitable[None]], **settings: object) -> None:
    """With a broker that has a lake and reads from it."""
    store = MemoryLakeStore()

    async def run(world: BrokerWorld) -> None:
        await scenario(LakeLatestStory(world), store)

    run_quietly(
        run, ledger_config=LAKE_LEDGERS, lake_store=store, **{"reads_compacted_from_lake": True, **FOREVER, **settings}
    )


async def all_kinds(story: LakeLatestStory) -> None:
    """Every way in which messages of keys lie in a log."""
    await story.publish(("a", "1"), ("b", "1"), ("c", "1"), (None, "x"))
    await story.publish(("a", "2"), ("d", "1"), ("b", ""), (None, "y"), ("e", "1"), batched=True, compression=LZ4)
    await story.publish(("d", "2"), ("f", "1"), batched=True)
    await story.publish(("g", "1"), ("c", ""), ("h", "1"))


def test_a_reader_gets_the_newest_of_each_key_from_the_lake_and_then_the_log() -> None:
    async def scenario(story: LakeLatestStory, store: MemoryLakeStore) -> None:
        await all_kinds(story)
        await story.offload()
        await story.publish(("a", "3"), ("f", ""), ("a", "4"))
        store.calls.clear()
        got = await story.read()
        assert got == await story.expect()
        assert [(one.key, one.value) for one in got] == [
            ("a", "2"),
            ("e", "1"),
            ("d", "2"),
            ("f", "1"),
            ("g", "1"),
            ("h", "1"),
            ("a", "3"),
            ("f", ""),
            ("a", "4"),
        ]
        assert not any(name == "write" for name in store.calls)
        # Who did not ask for it has the log.
        assert len(await story.read(read_compacted=False)) == len(story.sent)
        assert (await story.latest()).looks == 1

    tell(scenario)


def test_without_the_setting_everything_is_read_from_the_log() -> None:
    async def scenario(story: LakeLatestStory, _: MemoryLakeStore) -> None:
        await all_kinds(story)
        await story.offload()
        assert len(await story.read()) == len(story.sent)

    tell(scenario, reads_compacted_from_lake=False)


@pytest.mark.parametrize("index", range(0, 14, 3))
def test_a_reader_begins_where_it_asked_to(index: int) -> None:
    async def scenario(story: LakeLatestStory, _: MemoryLakeStore) -> None:
        await all_kinds(story)
        await story.offload()
        await story.publish(("b", "9"))
        await story.read()
        at = story.sent[index].position
        first = next(number for number, one in enumerate(story.sent) if one.position == at)
        wanted = await story.expect(start=first)
        got = await story.read(start_message_id=pb.MessageIdData(ledgerId=at.ledger_id, entryId=at.entry_id))
        assert got == wanted

    tell(scenario)


def test_a_ledger_between_that_is_not_in_the_lake_ends_the_horizon() -> None:
    async def scenario(story: LakeLatestStory, _: MemoryLakeStore) -> None:
        await story.publish(*((f"k{number % 3}", f"{number}") for number in range(20)))
        await story.offload(lag_ms=-1)
        infos = (await story.topic()).ledger.ledgers.infos
        infos[2].offload_context = b""
        assert await story.read() == await story.expect()
        assert story.compacted == 8

    tell(scenario)


def test_the_keys_are_looked_through_again_when_a_fourth_came_behind() -> None:
    async def scenario(story: LakeLatestStory, _: MemoryLakeStore) -> None:
        await story.publish(*((f"k{number % 5}", f"{number}") for number in range(40)))
        await story.offload()
        await story.read()
        latest = await story.latest()
        for looks, count in ((1, 40), (1, 40), (2, 52)):
            await story.publish(*((f"k{number % 5}", f"{number}") for number in range(4)))
            await story.offload()
            assert await story.read() == await story.expect()
            assert (latest.looks, story.compacted) == (looks, count)

    tell(scenario)


def test_who_reads_already_learns_of_what_is_deleted_meanwhile() -> None:
    async def scenario(story: LakeLatestStory, _: MemoryLakeStore) -> None:
        await story.publish(("a", "1"), ("b", "1"), ("c", "1"), ("d", "1"))
        await story.offload()
        client = await story.world.client()
        await client.subscribe(subscription="slow", **READER, permits=1)
        first = (await client.expect(Type.MESSAGE)).message.message_id
        assert Position(first.ledgerId, first.entryId) == story.sent[0].position
        await story.publish(("a", ""), ("b", "2"), ("x", "1"), ("y", "1"))
        await story.offload()
        # Others get what is the newest by now, the slow one goes on.
        assert [one.key for one in await story.read()] == ["c", "d", "b", "x", "y"]
        assert (await story.latest()).looks == 2
        found = []
        client.flow(100)
        for _ in range(7):
            at = (await client.expect(Type.MESSAGE)).message.message_id
            found.append(Position(at.ledgerId, at.entryId))
        assert found == [one.position for one in story.sent[1:]]

    tell(scenario)


def test_who_came_to_the_log_learns_of_what_is_deleted_there() -> None:
    async def scenario(story: LakeLatestStory, _: MemoryLakeStore) -> None:
        await story.publish(("a", "1"), ("b", "1"), ("c", "1"), ("d", "1"))
        await story.offload()
        client = await story.world.client()
        await client.subscribe(subscription="slow", **READER, permits=5)
        await story.publish(("x", "1"), ("a", ""), ("b", "2"), ("y", "1"))
        for _ in range(5):
            await client.expect(Type.MESSAGE)
        await story.offload()
        assert len(await story.read()) == 5
        client.flow(100)
        for wanted in story.sent[5:]:
            at = (await client.expect(Type.MESSAGE)).message.message_id
            assert Position(at.ledgerId, at.entryId) == wanted.position

    tell(scenario)


def test_what_was_compacted_comes_before_the_lake() -> None:
    async def scenario(story: LakeLatestStory, _: MemoryLakeStore) -> None:
        await story.publish(*((f"k{number % 3}", f"{number}") for number in range(8)))
        await story.offload()
        assert len(await story.read()) == 3
        await story.publish(("k0", "last"), ("k1", ""))
        await story.compact()
        assert await story.read() == story.expected()
        assert (await story.topic()).compacted is await story.part()
        assert await story.trim() == 0
        assert await story.read() == story.expected()

    tell(scenario)


def test_a_missing_file_is_an_error_that_names_it_and_never_the_log() -> None:
    async def scenario(story: LakeLatestStory, store: MemoryLakeStore) -> None:
        await story.publish(*((f"k{number % 3}", f"{number}") for number in range(12)))
        await story.offload(lag_ms=-1)  # the bookies keep theirs
        assert len(await story.read()) == 3
        path = next(path for path in store.files if path.endswith(".parquet"))
        data = store.files.pop(path)
        for _ in range(2):
            assert "lake" in await story.refusal()
            latest = await story.latest()
            assert f"{path} is not there" in str(latest.stats()["lastError"])
            # Not with the frames of the look, nor of whom it refused: they would have this part of the topic.
            assert latest._error is not None
            assert latest._error.__traceback__ is None
            await story.restart()
        # Whoever reads the log has the bookies' copy.
        assert len(await story.read(read_compacted=False)) == 12
        store.files[path] = data[: len(data) // 2]
        assert "lake" in await story.refusal()
        assert f"{path} is damaged" in str((await story.latest()).stats()["lastError"])
        store.files[path] = data
        assert await story.read() == await story.expect()

    tell(scenario)


def test_a_file_that_goes_while_it_is_read_stops_the_reader_until_it_is_back() -> None:
    async def scenario(story: LakeLatestStory, store: MemoryLakeStore) -> None:
        await story.publish(*((f"k{number}", f"{number}") for number in range(12)))
        await story.offload()
        client = await story.world.client()
        await client.subscribe(subscription="slow", **READER, permits=1)
        await client.expect(Type.MESSAGE)
        path = max(path for path in store.files if path.endswith(".parquet"))
        data = store.files.pop(path)
        client.flow(100)
        for _ in range(7):
            await client.expect(Type.MESSAGE)
        await seconds(10)
        assert not [command for command, _ in client.received if command.type == Type.MESSAGE]
        subscription = (await story.topic()).subscriptions["slow"]
        assert path in f"{subscription.dispatch.read_error}"
        store.files[path] = data
        for _ in range(4):
            await client.expect(Type.MESSAGE)

    tell(scenario)


def test_what_is_trimmed_is_gone_and_the_rest_is_read_on() -> None:
    async def scenario(story: LakeLatestStory, _: MemoryLakeStore) -> None:
        await story.publish(*((f"k{number}", f"{number}") for number in range(12)))
        await story.offload()
        assert len(await story.read()) == 12
        log = (await story.topic()).ledger
        await story.shorten()
        assert log.ledgers.first_position == story.sent[4].position
        assert await story.read() == await story.expect(start=4)
        assert (await story.latest()).looks == 1

    tell(scenario)


def test_ledgers_that_are_brought_back_are_read_as_the_log() -> None:
    async def scenario(story: LakeLatestStory, store: MemoryLakeStore) -> None:
        await story.publish(*((f"k{number % 2}", f"{number}") for number in range(8)))
        await story.offload()
        assert len(await story.read()) == 2
        client = await story.world.client()
        await client.subscribe(subscription="slow", **READER, permits=1)
        await client.expect(Type.MESSAGE)
        await (await story.offloading()).restore()
        assert not store.ledgers
        assert all(record_of(info) is None for info in (await story.topic()).ledger.ledgers.infos)
        client.flow(100)
        await client.expect(Type.MESSAGE)
        assert len(await story.read()) == 8

    tell(scenario)


def test_the_last_message_is_the_last_one_that_is_kept() -> None:
    async def scenario(story: LakeLatestStory, _: MemoryLakeStore) -> None:
        await story.publish(("a", "1"), ("b", "1"))
        await story.publish(("c", "1"), ("a", ""), batched=True)
        await story.publish(("b", ""))
        await story.offload()
        client = await story.world.client()
        await client.subscribe(subscription="r", **READER)
        client.send(
            pb.BaseCommand(
                type=Type.GET_LAST_MESSAGE_ID,
                getLastMessageId=pb.CommandGetLastMessageId(consumer_id=1, request_id=7),
            )
        )
        found = (await client.expect(Type.GET_LAST_MESSAGE_ID_RESPONSE)).getLastMessageIdResponse.last_message_id
        assert (found.ledgerId, found.entryId, found.batch_index) == (*story.sent[2].position, 0)

    tell(scenario)


def test_messages_that_delete_are_kept_while_they_are_young() -> None:
    async def scenario(story: LakeLatestStory, _: MemoryLakeStore) -> None:
        await story.publish(("a", "1"), ("b", "1"), ("a", ""))
        await seconds(200)
        await story.publish(("b", ""), ("c", "1"), ("c", ""), batched=True)
        await story.offload()
        assert [(one.key, one.value) for one in await story.read()] == [("b", ""), ("c", "")]
        assert await story.read() == await story.expect()

    tell(scenario, compaction_tombstones_s=100)


def test_keys_that_do_not_fit_into_memory_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(story: LakeLatestStory, _: MemoryLakeStore) -> None:
        await story.publish(*((f"{number % 5:0300000d}", f"{number}") for number in range(12)))
        await story.offload()
        assert await story.read() == await story.expect()
        assert story.compacted == 12

    tell(scenario, compaction_keys_mb=1)

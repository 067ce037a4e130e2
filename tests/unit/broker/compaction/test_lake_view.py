"""A view of a lake's newest messages: how it is read, group by group, and what ends it. See ``test_lake_latest``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from unittest.mock import patch

from geminga.broker.compaction import lake_view
from geminga.broker.compaction.lake_view import LakeView
from geminga.lake import key_rows, parquet
from geminga.model.position import EARLIEST, Position
from geminga.wire.pulsar.compacted import decode_compacted
from support.stories.lake_latest_story import FOREVER, LAKE_LEDGERS, LakeLatestStory
from support.worlds.broker_world import BrokerWorld
from support.worlds.lake_world import MemoryLakeStore
from support.worlds.policy_levels import run_quietly


def with_view(scenario: Callable[[LakeLatestStory, LakeView], Awaitable[None]]) -> None:
    """Of twelve messages in three ledgers, row groups of two: the even ones of each ledger but the last are old."""

    async def run(world: BrokerWorld) -> None:
        story = LakeLatestStory(world)
        await story.publish(
            *((f"k{0 if number < 8 and not number % 2 else number}", f"{number}") for number in range(12))
        )
        with patch.object(parquet, "GROUP_ROWS_MAX", 2):
            await story.offload()
        await story.read()
        view = (await story.latest()).view
        assert view is not None
        await scenario(story, view)

    run_quietly(
        run,
        ledger_config=LAKE_LEDGERS,
        lake_store=MemoryLakeStore(),
        **{"reads_compacted_from_lake": True, **FOREVER},
    )


def test_reads_keep_their_limits_and_end_at_a_row_group() -> None:
    async def scenario(story: LakeLatestStory, view: LakeView) -> None:
        places = [one.position for one in story.sent]
        assert view.counts == (12, 9)
        assert view.horizon == places[-1]

        async def read(first: Position, entries_max: int = 100, bytes_max: int = 1 << 20) -> list[Position]:
            return [entry.position for entry in await view._read(first, entries_max, bytes_max)]

        assert await read(places[0]) == [places[1]]
        assert await read(places[2]) == [places[3]]
        assert await read(places[8]) == places[8:10]
        assert await read(places[8], entries_max=1) == [places[8]]
        assert await read(places[8], bytes_max=1) == [places[8]]
        assert await read(places[9]) == [places[9]]
        assert await read(Position(places[-1].ledger_id, 99)) == []
        last = await view.last()
        assert last is not None
        assert last.position == places[-1]

    with_view(scenario)


def test_what_was_read_of_a_file_stays_in_memory() -> None:
    async def scenario(story: LakeLatestStory, view: LakeView) -> None:
        with patch.object(key_rows, "read_entries", side_effect=AssertionError("read again")):
            assert len(await story.read()) == 9

    with_view(scenario)


def test_a_ledger_that_lies_elsewhere_ends_the_view() -> None:
    async def scenario(story: LakeLatestStory, view: LakeView) -> None:
        assert view.is_current
        infos = (await story.topic()).ledger.ledgers.infos
        infos[1].offload_context = b""
        assert not view.is_current
        assert view.horizon == EARLIEST

    with_view(scenario)


def test_what_is_taken_of_a_row_group_costs_what_it_is_and_not_the_whole_group() -> None:
    """A dispatcher takes some of a group at a time, on the loop: of one of 65,536 messages hundreds of times."""
    messages, at_once = 400, 10

    async def run(world: BrokerWorld) -> None:
        story = LakeLatestStory(world)
        await story.publish(*((f"k{number}", f"{number}") for number in range(messages)))
        await story.offload()
        await story.read()
        view = (await story.latest()).view
        assert view is not None
        first, found = story.sent[0].position, []
        with patch.object(lake_view, "decode_compacted", wraps=decode_compacted) as decoded:
            while entries := await view._read(first, at_once, 1 << 20):
                found += [entry.position for entry in entries]
                first = Position(found[-1].ledger_id, found[-1].entry_id + 1)
            assert (await view.last()) is not None
        assert found == [one.position for one in story.sent]
        assert decoded.call_count < 3 * messages

    run_quietly(
        run,
        ledger_config=replace(LAKE_LEDGERS, max_entries_per_ledger=messages),
        lake_store=MemoryLakeStore(),
        **{"reads_compacted_from_lake": True, **FOREVER},
    )

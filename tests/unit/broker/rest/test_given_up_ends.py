"""A topic that is not loaded, since nobody can tell where a ledger of it ends: what is told, and giving that end up."""

from __future__ import annotations

import json

import pytest

from geminga.model.errors import StorageError
from geminga.model.position import EARLIEST, LATEST, Position
from support.worlds.hole_world import BOOKIE_LEDGERS, Ground, HoleBroker, run_lives
from support.worlds.policy_levels import seconds


async def publish(world: HoleBroker, count: int) -> None:
    client = await world.publisher()
    for sequence_id in range(count):
        client.send_message(sequence_id, b"%d" % sequence_id)
        await client.receipt()


async def ledger_ids(world: HoleBroker) -> list[int]:
    return [info.ledger_id for info in (await world.topic()).ledger.ledgers.infos]


def test_a_topic_whose_end_can_not_be_told_is_loaded_once_that_is_given_up(caplog) -> None:
    ground, taken = Ground(), []

    async def first(world: HoleBroker) -> None:
        topic = await world.topic()
        await topic.create_subscription("sub", EARLIEST)
        await publish(world, 12)
        taken.append((await ledger_ids(world))[-1])
        cursor = topic.subscriptions["sub"].cursor
        done: list[StorageError | None] = []
        for entry_id in (0, 1):
            cursor.acknowledge_cumulative(Position((await ledger_ids(world))[0], entry_id), done=done.append)
            await seconds(1)
        assert done == [None, None]
        taken.append(cursor.store.ledger_id)
        # It has read what will be lost; another one that alone.
        await topic.create_subscription("ahead", LATEST)
        await topic.create_subscription("odd", EARLIEST)
        topic.subscriptions["odd"].cursor.acknowledge([Position(taken[0], 2)], done=done.append)
        await seconds(1)

    async def second(world: HoleBroker) -> None:
        # Of the log three entries were acknowledged, of the cursor two states.
        for ledger_id, entry_id in [(taken[0], 2), (taken[1], 1)]:
            ground.bookies["bookie-1"].corrupt(ledger_id, entry_id)
        for ledger_id in taken:
            with pytest.raises(StorageError):
                await world.topic()
            assert f"ledger {ledger_id} ends can not be told" in caplog.text
            assert "geminga lake skip-hole --end" in caplog.text
            assert (await world.ask("GET", "/holes")).status == 500
            answer = await world.ask("PUT", "/holes/skip", {"ledgerId": 4711, "end": True})
            assert (answer.status, "has such a ledger" in answer.reason) == (404, True)
            body = {"ledgerId": ledger_id, "end": True}
            would_lose = await world.ask("PUT", "/holes/skip", {**body, "dry": True})
            with pytest.raises(StorageError):
                await world.topic()
            answer = await world.ask("PUT", "/holes/skip", body)
            assert answer.status == would_lose.status == 200
            assert answer.body == would_lose.body
            lost = json.loads(answer.body)
            assert (lost["ledgerId"], lost["lostEntries"], lost["isLost"]) == (ledger_id, 1, True)
            assert "CRC32C" in lost["error"]
        topic = await world.topic()
        assert topic.ledger.ledgers.last_position == Position(taken[0], 1)
        assert topic.subscriptions["sub"].cursor.mark_delete_position.entry_id == 0
        answer = await world.ask("PUT", "/holes/skip", {"ledgerId": taken[0], "end": True})
        assert (answer.status, "is loaded" in answer.reason) == (412, True)
        subscriptions = topic.subscriptions
        assert [subscriptions[name].cursor.backlog_count for name in ("sub", "ahead", "odd")] == [10, 0, 11]
        await publish(world, 1)
        assert [subscriptions[name].cursor.backlog_count for name in ("sub", "ahead", "odd")] == [11, 1, 12]

    run_lives(first, second, ground=ground, ledger_config=BOOKIE_LEDGERS)

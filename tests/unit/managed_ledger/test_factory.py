"""The factory: names, sharing, deletion, garbage, its timers."""

from __future__ import annotations

import asyncio

import pytest

from geminga.managed_ledger.factory import ROLLOVER_CHECK_SECONDS
from geminga.model.errors import DiskFullError, LedgerClosedError, StorageError, UnavailableError
from geminga.runtime import next_turn, wait_ms
from support.worlds.ledger_world import NAME, acknowledge, append, read_all, read_entries


def test_open_at_the_same_time_shares_one(in_world):
    async def scenario(w):
        first, second = await asyncio.gather(w.factory.open(NAME), w.factory.open(NAME))
        assert first is second
        assert w.factory.get(NAME) is first

    in_world(scenario)


def test_open_that_fails_fails_for_all_who_wait_and_works_later(in_world):
    async def scenario(w):
        await w.filled(3)
        w.new_process()
        w.bookie.fence_error = DiskFullError("full")
        results = await asyncio.gather(*(w.factory.open(NAME) for _ in range(2)), return_exceptions=True)
        assert all(isinstance(result, StorageError) for result in results)
        w.bookie.fence_error = None
        assert (await w.open()).ledgers.entry_count == 3

    in_world(scenario)


def test_list_and_exists_tell_names(in_world):
    async def scenario(w):
        for name in ("t/n/persistent/b", "t/n/persistent/a", "t/m/persistent/c"):
            await w.factory.open(name)
        assert await w.factory.encoded_names("t/n/persistent") == ["a", "b"]
        assert await w.factory.encoded_names("t/x/persistent") == []
        assert await w.factory.exists("t/m/persistent/c")
        assert not await w.factory.exists("t/m/persistent/d")

    in_world(scenario)


def test_one_whose_closing_was_cut_off_is_opened_anew(in_world):
    async def scenario(w):
        ml, cursor = await w.subscribed()
        positions = await w.fill(ml, 5)
        await acknowledge(cursor, positions[:3])
        closing = asyncio.ensure_future(ml.close())
        await next_turn()
        closing.cancel()
        await asyncio.wait([closing])
        assert closing.cancelled()
        assert ml.tenure.is_closed
        again = await w.factory.open(NAME)
        assert [result.error for result in await append(again, [b"x"])] == [None]
        assert again.cursors["s"].mark_delete_position == positions[2]
        assert (await read_all(again.cursors["s"]))[-1] == b"x"

    in_world(scenario)


@pytest.mark.parametrize("is_open", [True, False])
def test_delete_leaves_nothing(in_world, is_open):
    async def scenario(w):
        ml, cursor = await w.subscribed()
        positions = await w.fill(ml, 25)
        await acknowledge(cursor, positions[3:4])
        if not is_open:
            w.new_process()
        await w.factory.delete(NAME)
        await w.factory.delete(NAME)
        assert not await w.factory.exists(NAME)
        assert await w.store.children("/ledgers/00/0000") == []
        if is_open:
            (result,) = await append(ml, [b"x"])
            assert isinstance(result.error, LedgerClosedError)
        assert (await w.open()).ledgers.entry_count == 0

    in_world(scenario)


def test_close_is_final(in_world):
    async def scenario(w):
        await w.open()
        await w.factory.close()
        with pytest.raises(UnavailableError):
            await w.factory.open(NAME)

    in_world(scenario)


def test_idle_factory_has_no_timer(in_world):
    async def scenario(w):
        ml, cursor = await w.subscribed()
        await read_entries(cursor)
        positions = await w.fill(ml, 3)
        cursor.acknowledge(positions)
        await w.world.sleep(10)
        assert (w.factory.flushes.is_idle, w.factory._cache_timer) == (True, None)
        await ml.close()
        await w.world.sleep(120)
        assert w.factory._rollover_timer is None

    in_world(scenario)


class Rolling:
    """A managed ledger that is asked whether it is full."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.asked = 0

    def roll_if_full(self) -> None:
        self.asked += 1
        if self.error is not None:
            raise self.error


def test_one_whose_age_breaks_the_look_does_not_keep_the_others_from_theirs(in_world):
    async def scenario(w):
        heard: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(str(context["exception"])))
        broken, others = Rolling(RuntimeError("nobody thought of it")), [Rolling(), Rolling()]
        for ml in (others[0], broken, others[1]):
            w.factory.watch_rollover(ml)
        await wait_ms(3.5 * 1000 * ROLLOVER_CHECK_SECONDS)
        assert [ml.asked for ml in (*others, broken)] == [3, 3, 3]
        assert heard == ["nobody thought of it"] * 3

    in_world(scenario)

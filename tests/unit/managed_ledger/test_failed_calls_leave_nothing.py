"""What a failed call held is gone with its error: no cycle of traceback, frame and future waits for the collector."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable

from geminga.lake.group_cache import GroupCache
from geminga.lake.service import StopSignal
from geminga.model.errors import DiskIOError, GemingaError, StorageError
from geminga.runtime import answer_of, next_turn
from support.house.uncollected import fails, uncollected
from support.worlds.lake_world import POLICY

CALLS = 5


async def failing(call: Callable[[], Awaitable[object]]) -> list[int]:
    """How many frames each error had passed."""
    depths = []
    for _ in range(CALLS):
        try:
            await call()
        except GemingaError as error:
            depths.append(depth(error))
    assert len(depths) == CALLS
    return depths


async def together(call: Callable[[], Awaitable[object]]) -> None:
    assert await asyncio.gather(*(fails(call) for _ in range(CALLS))) == [True] * CALLS


def depth(error: BaseException) -> int:
    found, entry = 0, error.__traceback__
    while entry is not None:
        found, entry = found + 1, entry.tb_next
    return found


def test_failed_reads_leave_nothing(in_world) -> None:
    async def scenario(w) -> None:
        ml, positions = await w.filled(45)
        del w.bookie._ledgers[positions[10].ledger_id]
        ml.tail.drop()
        await together(lambda: ml.reader.read([positions[10]]))
        with uncollected() as found:
            await failing(lambda: ml.reader.read([positions[10]]))
            await together(lambda: ml.reader.read([positions[10]]))
            await next_turn()
        assert found == []

    in_world(scenario)


def test_failed_reads_of_a_file_in_the_lake_leave_nothing(in_lake_world) -> None:
    async def scenario(w) -> None:
        ml, _ = await w.offloaded(15, POLICY._replace(deletion_lag_ms=0))
        ledger = await ml.reader.open_to_read(ml.ledgers.infos[0])
        w.lake_store.fail["read"] = OSError(errno.EIO, "no")
        await together(lambda: ledger.read_entries(0, 9))
        with uncollected() as found:
            await failing(lambda: ledger.read_entries(0, 9))
            await together(lambda: ledger.read_entries(0, 9))
            await failing(lambda: ml.reader.open_to_read(ml.ledgers.infos[0]))
            await next_turn()
        assert found == []

    in_lake_world(scenario)


def test_error_of_a_ledger_that_is_withheld_does_not_grow_by_its_readers(in_world) -> None:
    async def scenario(w) -> None:
        ml, positions = await w.filled(45)
        ml.tail.drop()
        ml.stored.withheld[positions[10].ledger_id] = StorageError("what is in it is not known")
        assert len(set(await failing(lambda: ml.reader.read([positions[10]])))) == 1

    in_world(scenario)


def test_what_remembers_a_failed_read_does_not_keep_its_frames(in_world) -> None:
    async def scenario(w) -> None:
        ml, positions = await w.filled(45)
        del w.bookie._ledgers[positions[10].ledger_id]
        ml.tail.drop()
        await failing(lambda: ml.reader.read([positions[10]]))
        assert [depth(error) for error in ml.stored.failures.values()] == [0]

    in_world(scenario)


def test_error_of_a_closed_log_does_not_grow_by_those_it_refuses(in_world) -> None:
    async def scenario(w) -> None:
        ml, _ = await w.filled(3)
        await ml.close()
        append = lambda: answer_of(lambda done: ml.append([b"x"], lambda result: done(result.error)))  # noqa: E731
        assert len(set(await failing(append))) == 1
        with uncollected() as found:
            await failing(append)
            await together(append)
            await next_turn()
        assert found == []

    in_world(scenario)


def test_failed_opening_leaves_nothing(in_world) -> None:
    async def scenario(w) -> None:
        await w.fill(await w.open(), 3)
        w.new_process()
        w.bookie.fence_error = DiskIOError("eio")
        await together(w.open)
        with uncollected() as found:
            await together(w.open)
            await next_turn()
        assert found == []

    in_world(scenario)


def test_group_that_can_not_be_read_leaves_nothing() -> None:
    async def main() -> None:
        cache = GroupCache(10)

        async def read() -> list[bytes]:
            await next_turn()
            raise StorageError("the lake is away")

        with uncollected() as found:
            await together(lambda: cache.load("u", 0, read))
            await failing(lambda: cache.load("u", 0, read))
            await next_turn()
        assert found == []

    asyncio.run(main())


def test_wait_that_is_stopped_leaves_nothing_and_may_be_answered_late() -> None:
    async def main() -> None:
        late: list[Callable[[], None]] = []

        async def stopped() -> None:
            stop = StopSignal()
            asyncio.get_running_loop().call_soon(stop.set)
            await stop.wait(late.append)

        with uncollected() as found:
            await failing(stopped)
            for done in late:
                done()
            late.clear()
            await next_turn()
        assert found == []

    asyncio.run(main())

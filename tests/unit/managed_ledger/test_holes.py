"""Ledgers that can not be read, over a bookie that lost them: found, and given up."""

from __future__ import annotations

import pytest

from geminga.managed_ledger.holes import find_holes, skip_hole
from geminga.model.errors import DiskIOError, NotFoundError, PreconditionFailedError
from geminga.model.position import EARLIEST, Position
from support.worlds.ledger_world import acknowledge, acknowledge_cumulative, read_all


def lose(w, ledger_id: int) -> None:
    del w.bookie._ledgers[ledger_id]


def test_a_hole_is_found_by_its_ends_and_by_reads_that_failed(in_world):
    async def scenario(w):
        ml, positions = await w.filled(45)
        first, second, third, _, last = dict.fromkeys(each.ledger_id for each in positions)
        services = w.factory._services
        assert await find_holes(ml, services) == []
        lose(w, second)
        del w.bookie._ledgers[third].entries[4]
        (hole,) = await find_holes(ml, services)
        assert (hole.ledger_id, hole.entries, hole.is_lost, hole.readable) == (second, 10, True, 0)
        # Of the other its ends are there; who read it, or asks for it, finds it.
        (hole,) = await find_holes(ml, services, [third])
        assert (hole.ledger_id, hole.is_lost, hole.readable) == (third, True, 9)
        cursor = await ml.open_cursor("c", initial=Position(third, 0))
        with pytest.raises(Exception, match="no entry"):
            await read_all(cursor)
        assert list(ml.stored.failures) == [third]
        assert [each.ledger_id for each in await find_holes(ml, services)] == [second, third]
        with pytest.raises(NotFoundError):
            await find_holes(ml, services, [first - 1])
        assert last == ml.ledgers.last.ledger_id
        with pytest.raises(PreconditionFailedError, match="is open"):
            await skip_hole(ml, services, last)

    in_world(scenario)


def test_cursors_go_on_behind_a_hole_wherever_they_stand_and_after_a_kill(in_world):
    async def scenario(w):
        ml, positions = await w.filled(35)
        second = positions[10].ledger_id
        before = await ml.open_cursor("before", initial=EARLIEST)
        await acknowledge_cumulative(before, positions[9])
        within = await ml.open_cursor("within", initial=EARLIEST)
        await acknowledge_cumulative(within, positions[14])
        scattered = await ml.open_cursor("scattered", initial=EARLIEST)
        await acknowledge(scattered, [positions[3], positions[12], positions[25]])
        behind = await ml.open_cursor("behind", initial=EARLIEST)
        await acknowledge_cumulative(behind, positions[21])
        await w.let_background_persist()
        lose(w, second)
        hole = await skip_hole(ml, w.factory._services, second)
        assert (hole.ledger_id, hole.entries, hole.size_bytes) == (second, 10, 30)

        def check(ml) -> None:
            backlog = {name: cursor.backlog_count for name, cursor in ml.cursors.items()}
            assert backlog == {"before": 15, "within": 15, "scattered": 23, "behind": 13}
            for cursor in ml.cursors.values():
                cursor.state.check_invariants()

        check(ml)
        ml = await w.reopen()
        check(ml)
        assert second not in [info.ledger_id for info in ml.ledgers.infos]
        rest = [f"m{i}".encode() for i in range(20, 35)]
        assert await read_all(ml.cursors["within"]) == rest
        assert await read_all(ml.cursors["before"]) == rest
        await acknowledge(ml.cursors["before"], [positions[20]])
        assert ml.cursors["before"].mark_delete_position == positions[20]
        await acknowledge_cumulative(ml.cursors["scattered"], positions[34])
        for name in ("before", "within", "behind"):
            await acknowledge_cumulative(ml.cursors[name], positions[34])
        ml.trimmer.set_retention(retention_ms=0, retention_bytes=0)
        await ml.trimmer.trim()
        assert ml.ledgers.entry_count == 0

    in_world(scenario)


def test_nothing_changes_where_it_refuses(in_world):
    async def scenario(w):
        ml, positions = await w.filled(25)
        services, first = w.factory._services, positions[0].ledger_id
        version = ml.stored.version
        with pytest.raises(PreconditionFailedError, match="can be read, all of it"):
            await skip_hole(ml, services, first, is_forced=True, is_whole=True)
        w.bookie.read_error = DiskIOError("Input/output error")
        with pytest.raises(PreconditionFailedError, match="out of reach"):
            await skip_hole(ml, services, first, is_whole=True)
        w.bookie.read_error = None
        del w.bookie._ledgers[first].entries[9]
        with pytest.raises(PreconditionFailedError, match="Some of the ledger's entries"):
            await skip_hole(ml, services, first, is_forced=True)
        assert (ml.stored.version, len(ml.ledgers)) == (version, 3)
        assert (await skip_hole(ml, services, first, is_whole=True)).readable == 9

    in_world(scenario)

"""A ledger that lies in the lake is read as one on bookies is."""

from __future__ import annotations

import pytest

from geminga import sim
from geminga.lake import parquet
from geminga.managed_ledger.offload import manifests
from geminga.managed_ledger.shared.lake_ledger import LakeLedger
from geminga.model.errors import NoSuchEntryError
from geminga.model.position import EARLIEST
from support.worlds.lake_world import POLICY, LakeWorld
from support.worlds.ledger_world import read_entries

ENTRIES = [f"m{number}".encode() for number in range(10)]


def in_lake(scenario, monkeypatch, rows: int = 3):
    """``scenario(w, ml, ledger)`` with a ledger of ten entries in the lake, in row groups of a few."""
    monkeypatch.setattr(parquet, "GROUP_ROWS_MAX", rows)

    async def run(world):
        w = LakeWorld(world)
        ml, _ = await w.offloaded(15, POLICY._replace(deletion_lag_ms=0))
        ledger = await ml.reader.open_to_read(ml.ledgers.infos[0])
        assert isinstance(ledger, LakeLedger)
        await scenario(w, ml, ledger)

    sim.run(run)


def test_every_range_is_read_over_row_groups(monkeypatch):
    async def scenario(w, ml, ledger):
        assert (ledger.last_add_confirmed, ledger.length_bytes) == (9, 20)
        assert ledger.metadata.created_ms is not None
        for first in range(10):
            for last in range(first, 10):
                assert list(await ledger.read_entries(first, last)) == ENTRIES[first : last + 1]
        await ledger.close()

    in_lake(scenario, monkeypatch)


@pytest.mark.parametrize("bytes_max", [0, 1, 2, 5, 7, 100])
def test_a_limit_of_bytes_gives_the_first_entries_and_one_at_least(monkeypatch, bytes_max):
    async def scenario(w, ml, ledger):
        for _ in range(2):  # from the file, then from memory
            results = []
            ledger.read(1, 9, results.append, bytes_max=bytes_max)
            await w.world.sleep(0.1)
            (found,) = results
            assert list(found) == ENTRIES[1 : 1 + len(found)]
            assert len(found) == 1 or sum(map(len, found)) <= bytes_max
            assert found

    in_lake(scenario, monkeypatch)


def test_what_is_not_there_is_said(monkeypatch):
    async def scenario(w, ml, ledger):
        for first, last in ((-1, 0), (0, 10), (5, 4)):
            with pytest.raises(NoSuchEntryError):
                await ledger.read_entries(first, last)

    in_lake(scenario, monkeypatch)


def test_a_cursor_reads_on_from_the_lake_to_the_bookies(monkeypatch):
    async def scenario(w, ml, ledger):
        cursor = ml.new_non_durable_cursor("c", EARLIEST)
        found = []
        while entries := await read_entries(cursor, max_entries=4):
            found += [entry.data for entry in entries]
        assert found == [f"m{number}".encode() for number in range(15)]
        assert await manifests.roots(ml, w.factory._services)

    in_lake(scenario, monkeypatch)

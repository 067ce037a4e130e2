"""An owner hears that another broker claimed its ledger list, also where it writes nothing itself."""

from __future__ import annotations

import pytest

from geminga.managed_ledger import factory
from geminga.managed_ledger.log.list_watch import FIRST_LOOK_S, LOOK_S, ListWatch
from geminga.managed_ledger.log.stored_list import StoredList
from geminga.managed_ledger.shared.metadata_io import ledger_path
from geminga.metadata.memory import MemoryMetadataStore
from geminga.model.errors import LedgerFencedError, MetadataUnavailableError
from support.worlds.ledger_world import NAME, append

COVERED = (ListWatch,)


async def opened(w):
    """By a broker of its own."""
    w.new_process(is_shared=True)
    return await w.open()


def test_an_owner_that_writes_nothing_hears_of_the_next_one(in_world):
    async def scenario(w):
        ml = await opened(w)
        fenced = []
        ml.tenure.when_fenced = lambda: fenced.append(True)
        await w.world.sleep(1)
        assert not ml.tenure.is_fenced
        other = await opened(w)
        await w.world.sleep(0.1)
        assert ml.tenure.is_fenced
        assert fenced == [True]
        (refused,) = await append(ml, [b"late"])
        assert isinstance(refused.error, LedgerFencedError)
        await append(other, [b"%d" % number for number in range(35)])
        await w.world.sleep(1)
        assert not other.tenure.is_fenced
        await ml.close()
        await w.world.sleep(1)
        assert not other.tenure.is_fenced

    in_world(scenario)


def test_what_was_claimed_before_the_watch_was_there_is_found_out(in_world):
    async def scenario(w):
        w.faults.watch_lost_percent = 100
        ml = await opened(w)
        await opened(w)
        await w.world.sleep(0.1)
        assert not ml.tenure.is_fenced
        ml.watch_list()
        await w.world.sleep(FIRST_LOOK_S + 0.1)
        assert ml.tenure.is_fenced

    in_world(scenario)


@pytest.mark.parametrize("is_refused", [False, True])
def test_more_lists_than_are_watched_are_looked_at_from_time_to_time(in_world, monkeypatch, is_refused):
    def refuse(*_: object) -> None:
        raise MetadataUnavailableError("50000 metadata nodes are watched already")

    async def scenario(w):
        if is_refused:
            monkeypatch.setattr(MemoryMetadataStore, "watch_node", refuse)
        else:
            monkeypatch.setattr(factory, "LIST_WATCHES_MAX", 0)
        ml = await opened(w)
        await append(ml, [b"0"])
        await w.world.sleep(3 * LOOK_S)
        assert not ml.tenure.is_fenced
        other = await opened(w)
        await w.world.sleep(LOOK_S + 1)
        assert ml.tenure.is_fenced
        await other.close()
        looks = []
        monkeypatch.setattr(StoredList, "check", lambda stored: looks.append(stored.name))
        await w.world.sleep(3 * LOOK_S)
        assert looks == []

    in_world(scenario)


def test_the_list_is_looked_at_once_behind_a_ledger_that_is_made_at_once_and_once_where_none_is(in_world, monkeypatch):
    async def scenario(w):
        looks = []
        check = StoredList.check
        monkeypatch.setattr(StoredList, "check", lambda stored: looks.append(stored.name) or check(stored))
        ml = await opened(w)
        await append(ml, [b"0"])
        await w.world.sleep(2 * FIRST_LOOK_S)
        assert looks == [NAME]
        await ml.close()
        looks.clear()
        ml = await opened(w)
        await w.world.sleep(2 * FIRST_LOOK_S)
        assert looks == [NAME]
        await ml.close()
        looks.clear()
        await (await opened(w)).close()
        await w.world.sleep(2 * FIRST_LOOK_S)
        assert looks == []

    in_world(scenario)


def test_a_list_that_was_deleted_behind_its_back_is_not_its_own(in_world):
    async def scenario(w):
        ml = await opened(w)
        await append(ml, [b"0"])
        await w.store.delete(ledger_path(NAME))
        await w.world.sleep(0.1)
        assert ml.tenure.is_fenced

    in_world(scenario)


@pytest.mark.parametrize("outage_ms", [0, 5000])
def test_changes_of_its_own_and_a_lost_session_fence_nobody(in_world, outage_ms):
    async def scenario(w):
        ml = await opened(w)
        for _ in range(5):
            await append(ml, [b"%d" % number for number in range(25)])
            await ml.stored.set_properties({"name": "value"})
        w.store.expire_session(outage_ms)
        await w.world.sleep(10)
        await append(ml, [b"%d" % number for number in range(25)])
        await w.world.sleep(1)
        assert not ml.tenure.is_fenced

    in_world(scenario)

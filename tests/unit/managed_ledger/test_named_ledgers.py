"""What all lists of managed ledgers and cursors name, and that a damaged one is never taken for an empty one."""

from __future__ import annotations

import pytest

from geminga.managed_ledger.named_ledgers import all_named_ledgers, named_ledgers
from geminga.managed_ledger.shared.metadata_io import cursor_path, ledger_path
from geminga.model.errors import CorruptionError
from geminga.model.position import EARLIEST
from support.worlds.ledger_world import NAME, acknowledge


def test_ledgers_of_every_topic_and_cursor_are_named(in_world):
    async def scenario(w):
        ml, cursor = await w.subscribed()
        positions = await w.fill(ml, 25)
        await acknowledge(cursor, positions[1:2])
        other = await w.open("tenant/namespace/persistent/other")
        await w.fill(other, 1)
        # A name of old, with a cluster in it.
        old = await w.open("tenant/cluster/namespace/persistent/old")
        await w.fill(old, 1)
        live = set(await w.bookkeeper.ledger_ids())
        assert await all_named_ledgers(w.store) - {-1} == live
        assert len(await named_ledgers(w.store, NAME) - {-1}) == len(live) - 2 == 4

    in_world(scenario)


@pytest.mark.parametrize("path", [ledger_path(NAME), cursor_path(NAME, "s")])
def test_a_damaged_list_is_not_one_that_names_nothing(in_world, path):
    async def scenario(w):
        ml = await w.open()
        await ml.open_cursor("s", initial=EARLIEST)
        await w.fill(ml, 1)
        await w.store.put(path, b"\xff damaged", expected_version=None)
        with pytest.raises(CorruptionError):
            await all_named_ledgers(w.store)

    in_world(scenario)

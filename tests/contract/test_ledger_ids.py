"""Ledger ids on every metadata store: never one twice, whoever takes them and however it ended."""

from __future__ import annotations

import asyncio

import pytest

from geminga.bookkeeper.ledger_ids import ID_GENERATOR_PATH, LedgerIds, keep_ids_above, next_ledger_id
from support.worlds.metadata_stores import Harness, MemoryCase, SqliteCase, ZooKeeperCase


@pytest.fixture(params=["memory", "sqlite", "zookeeper"])
def case(request, tmp_path):
    if request.param == "zookeeper":
        return ZooKeeperCase(request.getfixturevalue("zookeeper"), request.node.name)
    return SqliteCase(tmp_path) if request.param == "sqlite" else MemoryCase(simulated=False)


def test_ids_are_different_and_ascend_over_processes(case):
    async def main(h: Harness):
        ids = [LedgerIds(h.store), LedgerIds(h.store)]
        taken = list(await asyncio.gather(*(ids[i % 2].next_id() for i in range(20))))
        assert sorted(taken) == list(range(20))
        assert await next_ledger_id(h.store) == 20
        store = await h.restart()
        assert await LedgerIds(store).next_id() == 20

    case.run(main)


def test_ids_begin_above_old_ones_at_once_or_after_a_jump(case):
    async def main(h: Harness):
        await h.store.put(ID_GENERATOR_PATH, b"700", expected_version=None)
        assert await LedgerIds(h.store).next_id() == 700
        assert await keep_ids_above(h.store, 1000) == 701
        assert await LedgerIds(h.store).next_id() == 1001
        assert await keep_ids_above(h.store, 2_000_000_000) == 1002
        store = await h.restart()
        assert await next_ledger_id(store) == 1 << 32
        assert [await LedgerIds(store).next_id() for _ in range(2)] == [1 << 32, (1 << 32) + 1]
        node = await store.get(ID_GENERATOR_PATH)
        assert node is not None
        assert node.value == b""

    case.run(main)

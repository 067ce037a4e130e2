"""Ledger ids on every metadata store: never one twice, whoever takes them and however it ended."""

from __future__ import annotations

import asyncio

import pytest

from geminga.bookkeeper.ledger_ids import ID_GENERATOR_PATH, LedgerIds, keep_ids_above, next_ledger_id
from geminga.metadata.measured import MeasuredMetadataStore
from geminga.metadata.ports import SEQUENCES_MAX
from geminga.model.exposition import Page
from support.worlds.metadata_stores import Harness, store_case


@pytest.fixture(params=["memory", "sqlite", "zookeeper"])
def case(request, tmp_path):
    return store_case(request, tmp_path)


def test_ids_are_different_and_ascend_over_processes(case):
    async def main(h: Harness):
        ids = [LedgerIds(h.store), LedgerIds(h.store)]
        taken = list(await asyncio.gather(*(ids[i % 2].next_id() for i in range(20))))
        assert sorted(taken) == list(range(20))
        assert await next_ledger_id(h.store) == 20
        store = await h.restart()
        assert await LedgerIds(store).next_id() == 20

    case.run(main)


def test_ids_of_many_ledgers_at_once_cost_few_requests(case):
    async def main(h: Harness):
        store = MeasuredMetadataStore(h.store, h.runtime.clock)
        ids = LedgerIds(store)
        assert await ids.next_id() == 0
        wanted = 2 * SEQUENCES_MAX + 10
        taken = await asyncio.gather(*(ids.next_id() for _ in range(wanted)))
        assert taken == list(range(1, wanted + 1)), "in the order asked"
        # One, and three groups: nothing is taken that nobody asked for.
        page = Page()
        for labels, source in store.sources():
            page.add_source(source, labels)
        assert '_count{name="metadata-store",type="put",status="success"} 4\n' in page.text()
        assert await next_ledger_id(h.store) == wanted + 1

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

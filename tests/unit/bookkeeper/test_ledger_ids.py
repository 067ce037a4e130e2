"""Ids of ledgers: the counters of BookKeeper's generators, and what brings them above an old id."""

from __future__ import annotations

import asyncio

import pytest

from geminga.bookkeeper import MetadataLiveLedgers
from geminga.bookkeeper.ledger_ids import (
    COUNTER_LIMIT,
    ID_GENERATOR_PATH,
    IDS_SPENT_MAX,
    LONG_ID_GENERATOR_PATH,
    LedgerIds,
    keep_ids_above,
)
from geminga.metadata import MemoryMetadataStore, MetadataFaults
from geminga.model.errors import CorruptionError, MetadataError, SessionExpiredError
from geminga.runtime import delay
from support.worlds.ledgers import Cluster, create, run_cluster, turn


def set_counter(store: MemoryMetadataStore, path: str, counter: int) -> None:
    """As if so many children of a node had been made."""
    store.server.tree._nodes[path].next_sequence = counter


def test_ids_follow_each_other_over_clients_and_are_never_used_again():
    async def main(cluster: Cluster):
        first = cluster.client()
        ids = [(await create(first)).ledger_id for _ in range(3)]
        for ledger_id in ids:
            await first.delete_ledger(ledger_id)
        ids += [(await create(cluster.client())).ledger_id for _ in range(2)]
        assert ids == [0, 1, 2, 3, 4]
        await turn(10)
        store = cluster.stores[0]
        # What told its number is gone, and there is no number in the node.
        assert await store.children(ID_GENERATOR_PATH) == []
        node = await store.get(ID_GENERATOR_PATH)
        assert node is not None
        assert node.value == b""

    run_cluster(main)


def test_id_above_that_of_another_managed_ledger_is_given_though_the_store_counts_below():
    async def main(cluster: Cluster):
        client = cluster.client()
        assert (await create(client)).ledger_id == 0
        assert (await create(client, newer_than=41)).ledger_id == 42
        assert (await create(client, newer_than=42)).ledger_id == 43

    run_cluster(main)


def test_ids_go_on_with_more_bits_where_an_int_of_java_ends():
    async def main(cluster: Cluster):
        ids, store = LedgerIds(cluster.store()), cluster.stores[0]
        assert await ids.next_id() == 0
        set_counter(store, ID_GENERATOR_PATH, COUNTER_LIMIT - 1)
        assert await ids.next_id() == COUNTER_LIMIT - 1
        assert [await ids.next_id() for _ in range(2)] == [1 << 32, (1 << 32) + 1]
        # Another client sees that, too, and one that had looked before is told by what it needs.
        assert await LedgerIds(store).next_id() == (1 << 32) + 2
        set_counter(store, f"{LONG_ID_GENERATOR_PATH}/HOB-0000000001", COUNTER_LIMIT)
        assert await ids.next_id() == 2 << 32
        await turn(10)
        assert await store.children(LONG_ID_GENERATOR_PATH) == ["HOB-0000000001", "HOB-0000000002"]

    run_cluster(main)


def test_client_that_looked_before_follows_the_others_to_long_ids():
    async def main(cluster: Cluster):
        store = cluster.store()
        old, new = LedgerIds(store), LedgerIds(store)
        await old.next_id()
        await store.put(f"{LONG_ID_GENERATOR_PATH}/HOB-0000000003", b"", expected_version=None)
        high = await new.next_id()
        assert high == 3 << 32
        assert await old.next_id(newer_than=high) == high + 1

    run_cluster(main)


def test_long_generator_without_any_high_bits_begins_with_1():
    async def main(cluster: Cluster):
        store = cluster.store()
        await store.put(LONG_ID_GENERATOR_PATH, b"", expected_version=None)
        await store.put(f"{LONG_ID_GENERATOR_PATH}/other", b"", expected_version=None)
        assert await LedgerIds(store).next_id() == 1 << 32

    run_cluster(main)


@pytest.mark.parametrize("free", [1, 700, IDS_SPENT_MAX])
def test_the_number_of_older_directories_is_taken_over(free: int):
    async def main(cluster: Cluster):
        store = cluster.store()
        await store.put(ID_GENERATOR_PATH, b"%d" % free, expected_version=None)
        live = MetadataLiveLedgers(store)
        # Also before anybody took one.
        assert await live.next_ledger_id() == free
        assert await LedgerIds(store).next_id() == free
        node = await store.get(ID_GENERATOR_PATH)
        assert node is not None
        assert node.value == b""
        assert await live.next_ledger_id() == free + 1
        assert await LedgerIds(store).next_id() == free + 1

    run_cluster(main)


def test_a_number_too_great_to_be_used_up_is_taken_over_by_high_bits():
    async def main(cluster: Cluster):
        store = cluster.store()
        await store.put(ID_GENERATOR_PATH, b"%d" % (IDS_SPENT_MAX + 1), expected_version=None)
        assert await LedgerIds(store).next_id() == 1 << 32
        assert await MetadataLiveLedgers(store).next_ledger_id() == (1 << 32) + 1

    run_cluster(main)


@pytest.mark.parametrize("value", [b"-7", b"x", b"7.5"])
def test_damaged_number_is_refused(value: bytes):
    async def main(cluster: Cluster):
        store = cluster.store()
        await store.put(ID_GENERATOR_PATH, value, expected_version=None)
        with pytest.raises(CorruptionError, match="idgen"):
            await LedgerIds(store).next_id()

    run_cluster(main)


def test_ids_give_up_when_every_attempt_is_unknown():
    async def main(cluster: Cluster):
        store = cluster.store(MetadataFaults(unknown_before_percent=100))
        with pytest.raises(MetadataError):
            await LedgerIds(store).next_id()

    run_cluster(main)


def test_the_next_id_is_above_all_that_were_given_out_and_asking_takes_none():
    async def main(cluster: Cluster):
        client = cluster.client()
        live = MetadataLiveLedgers(cluster.stores[0])
        assert await live.next_ledger_id() == 0
        ids = [(await create(client)).ledger_id for _ in range(3)]
        assert [await live.next_ledger_id() for _ in range(3)] == [3, 3, 3]
        assert (await create(client)).ledger_id == max(ids) + 1

    run_cluster(main)


def test_ids_are_kept_above_those_that_a_bookie_has():
    async def main(cluster: Cluster):
        client = cluster.client()
        store = cluster.stores[0]
        assert await keep_ids_above(store, 500) == 0
        assert await keep_ids_above(store, 500) is None
        assert await keep_ids_above(store, 20) is None
        assert (await create(client)).ledger_id == 501

    run_cluster(main)


@pytest.mark.parametrize(
    ("greatest", "following"),
    [
        (COUNTER_LIMIT - 2, 1 << 32),
        (COUNTER_LIMIT - 1, 1 << 32),
        (COUNTER_LIMIT, 1 << 32),
        ((1 << 32) - 1, 1 << 32),
        (1 << 32, 2 << 32),
        ((7 << 32) + 12, 8 << 32),
        (((1 << 31) - 1 << 32) - 1, (1 << 31) - 1 << 32),
    ],
)
def test_ids_are_brought_above_any_id(greatest: int, following: int):
    async def main(cluster: Cluster):
        store = cluster.store()
        assert await keep_ids_above(store, greatest) == 0
        assert await LedgerIds(store).next_id() == following

    run_cluster(main)


def test_long_ids_are_used_up_one_by_one_where_few_are_missing():
    async def main(cluster: Cluster):
        store = cluster.store()
        await keep_ids_above(store, (1 << 32) - 1)
        assert await keep_ids_above(store, (1 << 32) + 40) == 1 << 32
        assert await LedgerIds(store).next_id() == (1 << 32) + 41

    run_cluster(main)


def test_there_is_no_id_above_the_greatest():
    async def main(cluster: Cluster):
        with pytest.raises(MetadataError, match="no ledger ids above"):
            await keep_ids_above(cluster.store(), (1 << 63) - 1)

    run_cluster(main)


def test_ids_are_raised_through_faults():
    async def main(cluster: Cluster):
        store = cluster.store(MetadataFaults(unknown_before_percent=20, unknown_after_percent=20, delay_ms_max=3))
        await keep_ids_above(store, 300)
        assert await LedgerIds(store).next_id() > 300

    run_cluster(main)


def test_ids_asked_for_together_where_an_int_of_java_ends_are_each_given_once():
    async def main(cluster: Cluster):
        ids, store = LedgerIds(cluster.store()), cluster.stores[0]
        assert await ids.next_id() == 0
        set_counter(store, ID_GENERATOR_PATH, COUNTER_LIMIT - 2)
        taken = await asyncio.gather(*(ids.next_id() for _ in range(6)))
        # The number of a generator is not taken for that of the one which follows it meanwhile.
        assert sorted(taken) == [COUNTER_LIMIT - 2, COUNTER_LIMIT - 1, *range(1 << 32, (1 << 32) + 4)]

    run_cluster(main)


def test_who_gives_up_waiting_costs_an_id_and_nobody_else_anything():
    async def main(cluster: Cluster):
        ids = LedgerIds(cluster.store())
        first, second, third = (asyncio.ensure_future(ids.next_id()) for _ in range(3))
        await turn(2)
        second.cancel()
        assert await first < await third
        assert await ids.next_id() > third.result()

    run_cluster(main)


def test_lost_requests_for_ids_are_made_again_and_no_id_comes_twice():
    async def main(cluster: Cluster):
        faults = MetadataFaults(unknown_before_percent=20, unknown_after_percent=20, delay_ms_max=3)
        clients = [LedgerIds(cluster.store(faults)) for _ in range(3)]
        taken = await asyncio.gather(*(clients[i % 3].next_id() for i in range(90)))
        assert len(set(taken)) == 90

    run_cluster(main)


def test_everybody_who_waits_is_told_that_the_store_is_away():
    async def main(cluster: Cluster):
        ids, store = LedgerIds(cluster.store()), cluster.stores[0]
        assert await ids.next_id() == 0
        store.expire_session(outage_ms=50)
        told = await asyncio.gather(*(ids.next_id() for _ in range(5)), return_exceptions=True)
        assert {type(each) for each in told} == {SessionExpiredError}
        await delay(60)
        assert await ids.next_id() == 1

    run_cluster(main)


def test_asking_that_is_ended_leaves_nobody_waiting():
    async def main(cluster: Cluster):
        ids = LedgerIds(cluster.store(MetadataFaults(delay_ms_max=50)))
        assert await ids.next_id() == 0
        waiting = [asyncio.ensure_future(ids.next_id()) for _ in range(3)]
        while not (asking := [task for task in asyncio.all_tasks() if task.get_name() == "ledger-ids"]):
            await turn(1)
        waiting.append(asyncio.ensure_future(ids.next_id()))
        await turn(2)
        asking[0].cancel()
        told = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(each) for each in told} == {MetadataError}
        assert await ids.next_id() >= 0

    run_cluster(main)


def test_an_id_is_of_the_generator_that_was_asked_though_others_have_gone_on_to_the_next():
    async def main(cluster: Cluster):
        ids = LedgerIds(cluster.store(MetadataFaults(delay_ms_max=5)))
        assert await ids.next_id() == 0
        asked = asyncio.ensure_future(ids.next_id())
        await turn(3)
        # As somebody does whose id was beyond what a generator has.
        ids._high = 3
        assert await asked == 1

    run_cluster(main)

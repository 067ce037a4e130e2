"""Appending, reading and closing a ledger: order, quorums, LAC, ensemble changes, fencing, death."""

from __future__ import annotations

import asyncio

import pytest

from geminga.bookkeeper import LocalBookiePool, MemoryBookie
from geminga.bookkeeper.ledger_handle import ENSEMBLE_CHANGES_MAX
from geminga.metadata import WriteFault
from geminga.model.errors import (
    CorruptionError,
    DiskFullError,
    DiskIOError,
    InvariantError,
    LedgerClosedError,
    LedgerFencedError,
    NoSuchEntryError,
    NotEnoughBookiesError,
    StorageError,
)
from geminga.wire.bookkeeper.digest import read_header
from geminga.wire.bookkeeper.ledger_metadata import LedgerState
from geminga.wire.bookkeeper.ledger_path import ledger_path
from support.worlds.ledgers import Appends, Cluster, error_classes, payloads, run_cluster, turn

QUORUMS = [(1, 1, 1), (2, 2, 1), (3, 3, 2), (3, 2, 2), (3, 2, 1), (3, 3, 3)]


async def create(client, quorums=(1, 1, 1), **more):
    size, write, ack = quorums
    return await client.create_ledger(ensemble_size=size, write_quorum=write, ack_quorum=ack, **more)


# ---- append and read


@pytest.mark.parametrize("quorums", QUORUMS)
def test_appended_entries_are_completed_in_order_and_read_back(quorums):
    async def main(cluster: Cluster):
        handle = await create(cluster.client(), quorums)
        appends = Appends(handle)
        assert handle.last_add_confirmed == -1
        assert [appends.append(*payloads(0, 3)), appends.append(*payloads(3, 1)), appends.append(*payloads(4, 6))] == [
            0,
            3,
            4,
        ]
        assert handle.last_add_pushed == 9
        assert await appends.has(3) == [(0, 3, None), (3, 1, None), (4, 6, None)]
        assert handle.last_add_confirmed == 9
        assert await handle.read_entries(0, 9) == payloads(0, 10)
        assert await handle.read_entries(4, 4) == payloads(4, 1)
        assert handle.length_bytes == sum(map(len, payloads(0, 10)))

    run_cluster(main)


@pytest.mark.parametrize("quorums", QUORUMS)
def test_each_entry_lies_on_its_write_set_only(quorums):
    async def main(cluster: Cluster):
        handle = await create(cluster.client(), quorums)
        await Appends(handle).append_and_wait(*payloads(0, 12))
        ensemble = handle.metadata.last_fragment.ensemble
        await turn()
        for entry_id in range(12):
            holders = {name for name, b in cluster.bookies.items() if b.entry(handle.ledger_id, entry_id) is not None}
            assert holders == {ensemble[(entry_id + i) % quorums[0]] for i in range(quorums[1])}

    run_cluster(main)


@pytest.mark.parametrize("quorums", [(1, 1, 1), (3, 3, 2)])
def test_nothing_past_the_last_add_confirmed_is_readable(quorums):
    async def main(cluster: Cluster):
        handle = await create(cluster.client(), quorums)
        appends = Appends(handle)
        await appends.append_and_wait(*payloads(0, 2))
        for bookie in cluster.bookies.values():
            bookie.holds_replies = True
        appends.append(*payloads(2, 1))
        for first, last in ((2, 2), (0, 2), (-1, 0), (1, 0)):
            with pytest.raises(NoSuchEntryError):
                await handle.read_entries(first, last)
        for bookie in cluster.bookies.values():
            bookie.release()
        await appends.has(2)
        assert await handle.read_entries(2, 2) == payloads(2, 1)

    run_cluster(main)


def test_header_carries_the_last_add_confirmed_and_the_length():
    async def main(cluster: Cluster):
        handle = await create(cluster.client())
        appends = Appends(handle)
        await appends.append_and_wait(b"12345", b"678")
        await appends.append_and_wait(b"9")
        [bookie] = [b for b in cluster.bookies.values() if b.ledger_ids()]
        headers = [read_header(bookie.entry(handle.ledger_id, entry_id)) for entry_id in range(3)]
        assert [tuple(header)[1:] for header in headers] == [(0, -1, 5), (1, -1, 8), (2, 1, 9)]

    run_cluster(main)


def test_completion_waits_for_the_ack_quorum():
    async def main(cluster: Cluster):
        handle = await create(cluster.client(), (3, 3, 2))
        appends = Appends(handle)
        slow = [cluster.bookies[name] for name in handle.metadata.last_fragment.ensemble[:2]]
        for bookie in slow:
            bookie.holds_replies = True
        appends.append(b"x")
        await turn(2)
        assert appends.done == []
        slow[0].release()
        assert appends.done == [(0, 1, None)]
        slow[1].release()
        assert appends.done == [(0, 1, None)]

    run_cluster(main)


def test_bookies_that_answer_within_the_call_are_fine():
    async def main(cluster: Cluster):
        for bookie in cluster.bookies.values():
            bookie._replies_at_once = True
        for quorums in QUORUMS:
            handle = await create(cluster.client(), quorums)
            appends = Appends(handle)
            appends.append(*payloads(0, 4))
            assert appends.done == [(0, 4, None)]

    run_cluster(main)


def test_done_that_appends_again_keeps_the_order():
    async def main(cluster: Cluster):
        handle = await create(cluster.client())
        order = []
        finished = asyncio.get_running_loop().create_future()

        def done(first, count, error):
            order.append(first)
            if len(order) < 50:
                handle.append([b"x"], done)
            elif not finished.done():
                finished.set_result(None)

        handle.append([b"x"], done)
        handle.append([b"x"], done)
        await finished
        assert order == sorted(order)

    run_cluster(main)


def test_append_without_entries_is_a_bug_of_the_caller():
    async def main(cluster: Cluster):
        handle = await create(cluster.client())
        with pytest.raises(InvariantError):
            Appends(handle).append()

    run_cluster(main)


# ---- damaged and failing replicas


def test_damaged_copy_is_not_served_and_the_next_replica_is_read():
    async def main(cluster: Cluster):
        handle = await create(cluster.client(), (3, 3, 2))
        await Appends(handle).append_and_wait(*payloads(0, 4))
        await turn()
        for name, entry_id in zip(sorted(cluster.bookies), range(3), strict=True):
            cluster.bookies[name].corrupt(handle.ledger_id, entry_id)
        cluster.bookies["b0"].read_error = DiskIOError("unreadable")
        assert await handle.read_entries(0, 3) == payloads(0, 4)
        cluster.bookies["b0"].corrupt(handle.ledger_id, 1)
        cluster.bookies["b2"].corrupt(handle.ledger_id, 1)
        with pytest.raises(CorruptionError):
            await handle.read_entries(0, 3)

    run_cluster(main)


def test_striped_reads_ask_the_other_replica():
    async def main(cluster: Cluster):
        handle = await create(cluster.client(), (3, 2, 2))
        await Appends(handle).append_and_wait(*payloads(0, 9))
        cluster.bookies["b1"].read_error = DiskIOError("unreadable")
        assert await handle.read_entries(0, 8) == payloads(0, 9)
        cluster.bookies["b2"].read_error = DiskIOError("unreadable")
        with pytest.raises(DiskIOError):
            await handle.read_entries(0, 8)

    run_cluster(main)


def test_damage_on_the_only_bookie_is_an_error():
    async def main(cluster: Cluster):
        handle = await create(cluster.client())
        await Appends(handle).append_and_wait(*payloads(0, 2))
        cluster.bookies["b0"].corrupt(handle.ledger_id, 1)
        with pytest.raises(CorruptionError, match="entry 1"):
            await handle.read_entries(0, 1)
        assert await handle.read_entries(0, 0) == payloads(0, 1)

    run_cluster(main, bookies=1)


# ---- failing adds


def test_error_without_a_spare_bookie_fails_everything_pending_in_order_for_good():
    async def main(cluster: Cluster):
        handle = await create(cluster.client())
        appends = Appends(handle)
        await appends.append_and_wait(*payloads(0, 2))
        bookie = cluster.bookies["b0"]
        bookie.add_error = DiskFullError("full")
        appends.append(b"a")
        appends.append(b"b", b"c")
        assert error_classes(await appends.has(3)) == [None, DiskFullError, DiskFullError]
        assert [first for first, _, _ in appends.done] == [0, 2, 3]
        bookie.add_error = None
        assert isinstance(await appends.append_and_wait(b"d"), DiskFullError)
        assert not handle.is_writable
        assert isinstance(handle.error, DiskFullError)
        assert (handle.last_add_confirmed, handle.last_add_pushed, handle.length_bytes) == (1, 1, 18)
        assert await handle.read_entries(0, 1) == payloads(0, 2)

    run_cluster(main, bookies=1)


def test_dead_handle_closes_the_ledger_at_what_was_confirmed():
    async def main(cluster: Cluster):
        client = cluster.client()
        handle = await create(client)
        appends = Appends(handle)
        await appends.append_and_wait(*payloads(0, 2))
        cluster.bookies["b0"].add_error = DiskIOError("broken")
        cluster.bookies["b0"].stores_before_error = True
        await appends.append_and_wait(b"perhaps")
        cluster.bookies["b0"].add_error = None
        await handle.close()
        reader = await client.open_ledger(handle.ledger_id)
        assert (reader.last_add_confirmed, reader.length_bytes, reader.is_closed) == (1, 18, True)

    run_cluster(main, bookies=1)


@pytest.mark.parametrize("quorums", [(1, 1, 1), (2, 2, 2), (3, 3, 2), (3, 2, 2)])
def test_failed_bookie_is_replaced_and_nothing_is_lost(quorums):
    async def main(cluster: Cluster):
        client = cluster.client()
        handle = await create(client, quorums)
        appends = Appends(handle)
        await appends.append_and_wait(*payloads(0, 4))
        gone = handle.metadata.last_fragment.ensemble[0]
        cluster.bookies[gone].fail(DiskIOError("broken"))
        cluster.pool.unavailable.add(gone)
        appends.append(*payloads(4, 3))
        appends.append(*payloads(7, 2))
        assert error_classes(await appends.has(3)) == [None, None, None]
        fragments = handle.metadata.fragments
        assert [fragment.first_entry_id for fragment in fragments] == [0, 4]
        assert gone not in fragments[1].ensemble
        assert handle.metadata.state is LedgerState.OPEN
        cluster.bookies[gone].fail(None)
        assert await handle.read_entries(0, 8) == payloads(0, 9)
        await handle.close()
        reader = await client.open_ledger(handle.ledger_id)
        assert reader.metadata.fragments == fragments
        assert await reader.read_entries(0, 8) == payloads(0, 9)

    run_cluster(main, bookies=4)


@pytest.mark.parametrize("quorums", [(3, 3, 2), (3, 3, 3), (3, 2, 2)])
def test_second_failure_during_the_change_is_replaced_too(quorums):
    async def main(cluster: Cluster):
        handle = await create(cluster.client(), quorums)
        appends = Appends(handle)
        first, second, _ = handle.metadata.last_fragment.ensemble
        for name in (first, second):
            cluster.bookies[name].fail(DiskIOError("broken"))
            cluster.pool.unavailable.add(name)
        appends.append(*payloads(0, 2))
        assert error_classes(await appends.has(1)) == [None]
        ensemble = handle.metadata.last_fragment.ensemble
        assert not {first, second} & set(ensemble)
        assert len(handle.metadata.fragments) == 1
        assert await handle.read_entries(0, 1) == payloads(0, 2)

    run_cluster(main, bookies=5)


def test_entries_do_not_complete_while_their_fragment_is_being_decided():
    async def main(cluster: Cluster):
        client = cluster.client()
        handle = await create(client, (3, 3, 2))
        gone = handle.metadata.last_fragment.ensemble[0]
        cluster.bookies[gone].fail(DiskIOError("broken"))
        cluster.pool.unavailable.add(gone)
        faults = cluster.stores[0].faults
        faults.delay_ms_max = 100
        appends = Appends(handle)
        confirmed_at_change = []
        cluster.stores[0].watch_node(
            ledger_path(handle.ledger_id), lambda _: confirmed_at_change.append(handle.last_add_confirmed)
        )
        appends.append(*payloads(0, 2))
        await appends.has(1)
        assert confirmed_at_change == [-1]

    run_cluster(main, bookies=4)


def test_ensemble_change_of_a_ledger_that_another_recovers_is_refused():
    async def main(cluster: Cluster):
        handle = await create(cluster.client(), (2, 2, 2))
        appends = Appends(handle)
        await appends.append_and_wait(b"x")
        ensemble = handle.metadata.last_fragment.ensemble
        # The recoverer's fence has reached the metadata only: the writer's next failure must find out.
        other = cluster.client()
        await other._ledgers.update(handle.ledger_id, lambda m: m.with_state(LedgerState.IN_RECOVERY))
        cluster.bookies[ensemble[0]].add_error = DiskIOError("broken")
        assert isinstance(await appends.append_and_wait(b"y"), LedgerFencedError)
        with pytest.raises(LedgerFencedError):
            await handle.close()

    run_cluster(main, bookies=4)


def test_replaced_bookie_that_answers_late_means_nothing():
    async def main(cluster: Cluster):
        handle = await create(cluster.client(), (2, 2, 2))
        appends = Appends(handle)
        late_name, failing_name = handle.metadata.last_fragment.ensemble
        late, failing = cluster.bookies[late_name], cluster.bookies[failing_name]
        late.holds_replies = True
        failing.add_error = DiskIOError("broken")
        cluster.pool.unavailable.add(failing_name)
        appends.append(b"x")
        await turn(20)
        assert failing_name not in handle.metadata.last_fragment.ensemble
        assert appends.done == []
        late.release()
        assert await appends.has(1) == [(0, 1, None)]

    run_cluster(main, bookies=3)


@pytest.mark.parametrize("quorums", [(1, 1, 1), (3, 3, 2), (3, 3, 3)])
def test_late_answer_of_a_replaced_bookie_does_not_count_for_its_successor(quorums):
    """An entry that only the bookie that was replaced has stored is not confirmed by its late answer."""

    async def main(cluster: Cluster):
        handle = await create(cluster.client(), quorums)
        appends = Appends(handle)
        old = handle.metadata.last_fragment.ensemble
        replaced, *others = (cluster.bookies[name] for name in old)
        spare = [bookie for name, bookie in cluster.bookies.items() if name not in old]
        # With the answer that comes late there would be an ack quorum, without it there is none.
        for bookie in (replaced, *others[quorums[2] - 1 :], *spare):
            bookie.holds_replies = True
        appends.append(b"x")
        replaced.holds_replies = False
        replaced.add_error = DiskIOError("broken")
        cluster.pool.unavailable.add(old[0])
        appends.append(b"y")
        await turn(20)
        newcomer, *_ = handle.metadata.last_fragment.ensemble
        assert newcomer != old[0]
        replaced.release()
        await turn(20)
        assert appends.done == []
        for bookie in cluster.bookies.values():
            bookie.release()
        assert error_classes(await appends.has(2)) == [None, None]
        assert await handle.read_entries(0, 1) == [b"x", b"y"]

    run_cluster(main, bookies=4)


def test_what_reached_its_quorum_during_the_change_completes_without_the_newcomer():
    async def main(cluster: Cluster):
        handle = await create(cluster.client(), (3, 3, 2))
        appends = Appends(handle)
        ensemble = handle.metadata.last_fragment.ensemble
        cluster.bookies[ensemble[0]].add_error = DiskIOError("broken")
        cluster.pool.unavailable.add(ensemble[0])
        [newcomer] = [bookie for name, bookie in cluster.bookies.items() if name not in ensemble]
        newcomer.holds_replies = True
        appends.append(b"x")
        assert await appends.has(1) == [(0, 1, None)]

    run_cluster(main, bookies=4)


@pytest.mark.parametrize(("changes", "error"), [(ENSEMBLE_CHANGES_MAX, None), (ENSEMBLE_CHANGES_MAX + 1, DiskIOError)])
def test_so_many_ensemble_changes_in_a_row_are_made_and_no_more(changes, error):
    async def main(cluster: Cluster):
        failures = iter(range(changes))
        cluster.pool = LocalBookiePool({name: TiredBookie(failures) for name in cluster.bookies})
        handle = await create(cluster.client())
        assert error_classes([(0, 1, await Appends(handle).append_and_wait(b"x"))]) == [error]

    run_cluster(main, bookies=2)


class TiredBookie(MemoryBookie):
    """Fails an add for each of ``failures``, which it shares with others."""

    def __init__(self, failures):
        super().__init__()
        self._failures = failures

    def add_entries(self, *arguments, **named):
        self.add_error = DiskIOError("broken") if next(self._failures, None) is not None else None
        super().add_entries(*arguments, **named)


# ---- fencing and closing


def test_close_ends_when_what_it_waits_for_fails():
    async def main(cluster: Cluster):
        handle = await create(cluster.client())
        appends = Appends(handle)
        bookie = cluster.bookies["b0"]
        bookie.holds_replies = True
        bookie.add_error = DiskIOError("broken")
        appends.append(b"x")
        closing = asyncio.ensure_future(handle.close())
        await turn()
        bookie.release()
        await closing
        assert error_classes(appends.done) == [DiskIOError]
        assert (handle.is_closed, handle.metadata.last_entry_id) == (True, -1)

    run_cluster(main, bookies=1)


def test_fenced_writer_loses_everything_pending():
    async def main(cluster: Cluster):
        client = cluster.client()
        handle = await create(client, (3, 3, 2))
        appends = Appends(handle)
        await appends.append_and_wait(*payloads(0, 3))
        reader = await cluster.client().open_ledger(handle.ledger_id)
        assert reader.last_add_confirmed == 2
        appends.append(b"a")
        appends.append(b"b")
        assert error_classes(await appends.has(3)) == [None, LedgerFencedError, LedgerFencedError]

    run_cluster(main)


def test_writer_that_closes_after_a_recovery_that_agrees_is_fine():
    async def main(cluster: Cluster):
        handle = await create(cluster.client())
        await Appends(handle).append_and_wait(*payloads(0, 3))
        await cluster.client().open_ledger(handle.ledger_id)
        await handle.close()
        assert handle.is_closed

    run_cluster(main)


def test_close_waits_for_what_is_pending():
    async def main(cluster: Cluster):
        client = cluster.client()
        handle = await create(client)
        appends = Appends(handle)
        bookie = cluster.bookies[handle.metadata.last_fragment.ensemble[0]]
        bookie.holds_replies = True
        appends.append(*payloads(0, 2))
        closing = asyncio.ensure_future(handle.close())
        await turn()
        assert isinstance(await appends_error(handle), LedgerClosedError)
        assert not closing.done()
        bookie.release()
        await closing
        assert appends.done == [(0, 2, None)]
        assert (handle.metadata.last_entry_id, handle.metadata.length_bytes) == (1, 18)
        await handle.close()
        assert await handle.read_entries(0, 1) == payloads(0, 2)

    run_cluster(main)


async def appends_error(handle):
    return await Appends(handle).append_and_wait(b"too late")


def test_empty_ledger_closes_at_minus_one():
    async def main(cluster: Cluster):
        client = cluster.client()
        handle = await create(client)
        await handle.close()
        reader = await client.open_ledger(handle.ledger_id)
        assert (reader.last_add_confirmed, reader.length_bytes) == (-1, 0)

    run_cluster(main)


def test_reader_can_not_append():
    async def main(cluster: Cluster):
        client = cluster.client()
        handle = await create(client)
        await handle.close()
        reader = await client.open_ledger(handle.ledger_id)
        assert isinstance(await appends_error(reader), LedgerClosedError)

    run_cluster(main)


@pytest.mark.parametrize("fault", [WriteFault.UNKNOWN_BEFORE, WriteFault.UNKNOWN_AFTER])
def test_close_with_an_unknown_outcome_is_settled(fault):
    async def main(cluster: Cluster):
        client = cluster.client()
        handle = await create(client)
        await Appends(handle).append_and_wait(b"x")
        cluster.stores[0].faults.next_writes.append(fault)
        await handle.close()
        assert handle.metadata.last_entry_id == 0

    run_cluster(main)


def test_endless_failures_of_new_bookies_end():
    async def main(cluster: Cluster):
        handle = await create(cluster.client())
        for bookie in cluster.bookies.values():
            bookie.add_error = DiskIOError("broken")
        error = await Appends(handle).append_and_wait(b"x")
        assert isinstance(error, StorageError)
        assert not isinstance(error, NotEnoughBookiesError)

    run_cluster(main, bookies=2)


@pytest.mark.parametrize("quorums", [(1, 1, 1), (2, 2, 2)])
def test_batch_is_confirmed_when_every_entry_of_it_is_answered(quorums):
    async def main(cluster: Cluster):
        size, write, ack = quorums
        client = cluster.client()
        handle = await client.create_ledger(ensemble_size=size, write_quorum=write, ack_quorum=ack)
        appends = Appends(handle)
        bookies = [cluster.bookies[name] for name in handle.metadata.last_fragment.ensemble]
        for bookie in bookies:
            bookie.answers_in_groups_of = 2
            bookie.holds_replies = True
        appends.append(*payloads(0, 5))
        for _ in range(2):  # of three groups
            for bookie in bookies:
                bookie._held.pop(0)()
            assert (appends.done, handle.last_add_confirmed) == ([], -1)
        for bookie in bookies:
            bookie.release()
        assert (appends.done, handle.last_add_confirmed) == ([(0, 5, None)], 4)

    run_cluster(main, bookies=2)


def squat(cluster: Cluster, ledger_ids: range, bookies: int) -> None:
    """A stranger's entry under each id."""
    for bookie_id in sorted(cluster.bookies)[:bookies]:
        for ledger_id in ledger_ids:
            cluster.bookies[bookie_id].add_entries(
                ledger_id, [0], [b"x"], master_key=b"stranger", recovery=False, done=lambda ids, error: None
            )


def test_ids_that_bookies_have_as_anothers_are_jumped_over_in_a_few_ledgers() -> None:
    async def main(cluster: Cluster):
        client = cluster.client()
        squat(cluster, range(1000), 3)
        await turn(3)
        tried = []
        for _ in range(20):
            handle = await create(client, (3, 3, 2))
            tried.append(handle.ledger_id)
            if await Appends(handle).append_and_wait(b"x") is None:
                break
        assert tried[-1] >= 1000
        assert len(tried) <= 12

    run_cluster(main)


def test_bookie_that_has_the_id_as_anothers_is_replaced() -> None:
    async def main(cluster: Cluster):
        client = cluster.client()
        squat(cluster, range(100), 1)
        await turn(3)
        for _ in range(5):
            handle = await create(client, (3, 3, 3))
            assert await Appends(handle).append_and_wait(b"x") is None
            assert min(cluster.bookies) not in handle.metadata.fragments[-1].ensemble
        # No id was jumped over.
        assert handle.ledger_id == 4

    run_cluster(main, bookies=4)

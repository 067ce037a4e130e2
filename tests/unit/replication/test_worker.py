"""The replication worker on ledgers in every state, with everything that may come between."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from geminga.bookkeeper.ledger_store import LedgerStore
from geminga.metadata.core.faults import WriteFault
from geminga.model.errors import LedgerFencedError, StorageError
from geminga.replication import crash_points
from geminga.replication.worker import DRAWS_PER_TURN, HELD_MS_MIN, RepairOutcome
from geminga.runtime import next_turn
from geminga.wire.bookkeeper.digest import master_key
from geminga.wire.bookkeeper.ledger_metadata import LedgerFragment, LedgerState
from geminga.wire.bookkeeper.ledger_path import ledger_path
from geminga.wire.bookkeeper.under_replication import UnderReplicatedLedger, encode_mark, mark_path
from support.worlds.ledgers import Appends, payloads
from support.worlds.replication_world import QUICK, ReplicationWorld, run_replication


@pytest.mark.parametrize("quorums", [(1, 1, 1), (3, 2, 2), (3, 3, 2), (4, 2, 1)])
@pytest.mark.parametrize("entries", [0, 1, 25])
def test_a_closed_ledger_is_on_its_write_quorum_again(quorums, entries):
    async def main(world: ReplicationWorld) -> None:
        handle = await world.write(entries, quorums)
        ledger_id = handle.ledger_id
        before = await world.metadata(ledger_id)
        lost = before.fragments[0].ensemble[0]
        if quorums[1] == 1:
            # Its only copies: the bookie is not registered, and answers all the same.
            world.bookies[lost].is_writable = False
            world.registry._bookies.pop(lost)
        else:
            world.lose(lost)
        await world.marks.mark(ledger_id, [lost], None)
        assert await world.step() is RepairOutcome.RESTORED
        assert await world.step() is None
        assert await world.marks.ledger_ids() == []
        after = await world.metadata(ledger_id)
        assert lost not in after.fragments[0].ensemble
        assert after.with_fragments(before.fragments) == before
        await world.check_copies(ledger_id)
        [newcomer] = set(after.fragments[0].ensemble) - set(before.fragments[0].ensemble)
        assert world.bookies[newcomer].is_fenced(ledger_id)

    run_replication(main)


def test_a_deleted_ledger_ends_its_mark():
    async def main(world: ReplicationWorld) -> None:
        handle = await world.write(3)
        await world.bookkeeper.delete_ledger(handle.ledger_id)
        await world.marks.mark(handle.ledger_id, ["b0"], None)
        assert await world.step() is RepairOutcome.RESTORED
        assert await world.marks.ledger_ids() == []

    run_replication(main)


def test_finished_fragments_of_an_open_ledger_move_under_the_writers_hands():
    async def main(world: ReplicationWorld) -> None:
        handle = await world.write(5, (2, 2, 2), close=False)
        first, second = handle.metadata.fragments[0].ensemble
        world.lose(first)
        # The writer replaces it for what comes.
        await world.append(handle, 5)
        assert len(handle.metadata.fragments) == 2
        await world.marks.mark(handle.ledger_id, [first], None)
        assert await world.step() is RepairOutcome.RESTORED
        moved = (await world.metadata(handle.ledger_id)).fragments
        assert first not in moved[0].ensemble
        assert moved[1] == handle.metadata.fragments[1]
        # Nobody is fenced; the writer's next change keeps what it finds.
        world.lose(second)
        await world.append(handle, 5)
        changed = (await world.metadata(handle.ledger_id)).fragments
        assert changed[0] == moved[0]
        assert second not in changed[-1].ensemble
        await handle.close()
        await world.marks.mark(handle.ledger_id, [second], None)
        assert await world.step() is RepairOutcome.RESTORED
        await world.check_copies(handle.ledger_id)
        reader = await world.bookkeeper.open_ledger(handle.ledger_id)
        assert list(await reader.read_entries(0, 14)) == payloads(0, 15)

    run_replication(main)


def test_the_last_fragment_of_an_open_ledger_is_its_writers_for_a_while():
    async def main(world: ReplicationWorld) -> None:
        handle = await world.write(5, (3, 3, 2), close=False)
        ledger_id = handle.ledger_id
        lost = handle.metadata.fragments[0].ensemble[0]
        world.lose(lost)
        await world.marks.mark(ledger_id, [lost], None)
        recovery = world.autorecovery("one")
        await recovery.start()
        await world.world.sleep(0.5)
        assert (await world.metadata(ledger_id)).state is LedgerState.OPEN
        assert await world.marks.locked() == {ledger_id}
        await world.world.sleep(10)
        metadata = await world.metadata(ledger_id)
        assert metadata.is_closed
        assert metadata.last_entry_id == 4
        await world.check_copies(ledger_id)
        assert await world.marks.ledger_ids() == []
        # The writer learns that it is the writer no more.
        error = await Appends(handle).append_and_wait(b"late")
        assert isinstance(error, LedgerFencedError)
        await recovery.close()

    run_replication(main)


def test_a_writer_that_replaced_the_bookie_in_time_goes_on():
    async def main(world: ReplicationWorld) -> None:
        handle = await world.write(5, (3, 3, 2), close=False)
        lost = handle.metadata.fragments[0].ensemble[0]
        world.lose(lost)
        await world.marks.mark(handle.ledger_id, [lost], None)
        recovery = world.autorecovery("one")
        await recovery.start()
        await world.world.sleep(0.5)
        await world.append(handle, 5)
        await world.world.sleep(20)
        assert (await world.metadata(handle.ledger_id)).state is LedgerState.OPEN
        assert await world.marks.ledger_ids() == []
        await world.append(handle, 5)
        await handle.close()
        await world.check_copies(handle.ledger_id)
        await recovery.close()

    run_replication(main)


def test_a_bookie_that_is_there_gets_what_it_lacks():
    async def main(world: ReplicationWorld) -> None:
        handle = await world.write(20, (3, 2, 2))
        ledger_id = handle.ledger_id
        before = await world.metadata(ledger_id)
        name = before.fragments[0].ensemble[1]
        for entry_id in world.bookies[name].entry_ids(ledger_id)[3:9]:
            world.bookies[name].forget_entry(ledger_id, entry_id)
        await world.marks.mark(ledger_id, [name, "unheard of"], None)
        assert await world.step() is RepairOutcome.RESTORED
        assert await world.metadata(ledger_id) == before
        await world.check_copies(ledger_id)
        # One that takes nothing is replaced.
        world.bookies[name].forget_ledger(ledger_id)
        world.bookies[name].is_writable = False
        await world.marks.mark(ledger_id, [name], None)
        assert await world.step() is RepairOutcome.RESTORED
        assert name not in (await world.metadata(ledger_id)).fragments[0].ensemble
        await world.check_copies(ledger_id)

    run_replication(main)


@pytest.mark.parametrize("forgotten", [slice(0, 30), slice(2, 28), slice(1, 30, 2)])
def test_a_bookie_that_lacks_more_than_a_batch_gets_all_of_it(forgotten):
    """Batches of three: ten of them, or nine with gaps before and behind, or single entries."""

    async def main(world: ReplicationWorld) -> None:
        handle = await world.write(30, (3, 3, 2))
        ledger_id = handle.ledger_id
        name = (await world.metadata(ledger_id)).fragments[0].ensemble[1]
        before = world.bookies[name].entry_ids(ledger_id)
        for entry_id in before[forgotten]:
            world.bookies[name].forget_entry(ledger_id, entry_id)
        await world.marks.mark(ledger_id, [name], None)
        assert await world.step() is RepairOutcome.RESTORED
        assert world.bookies[name].entry_ids(ledger_id) == before
        await world.check_copies(ledger_id)

    run_replication(main, config=replace(QUICK, rereplication_entry_batch_size=3))


def test_without_another_bookie_the_mark_stays_and_is_tried_again_later():
    async def main(world: ReplicationWorld) -> None:
        handle = await world.write(5, (3, 3, 2))
        world.lose("b0")
        recovery = world.autorecovery("one")
        await recovery.start()
        await world.world.sleep(5)
        assert await world.marks.ledger_ids() == [handle.ledger_id]
        assert recovery.counters.failed_attempts > 1
        world.bookies["b0"].come_back()
        await world.world.sleep(60)
        assert await world.marks.ledger_ids() == []
        await world.check_copies(handle.ledger_id)
        await recovery.close()

    run_replication(main, bookies=3)


@pytest.mark.parametrize("close", [True, False])
def test_with_too_few_bookies_for_all_copies_those_that_can_be_had_are_made(close):
    async def main(world: ReplicationWorld) -> None:
        handle = await world.write(5, (3, 3, 2), close=False)
        ledger_id = handle.ledger_id
        first = handle.metadata.fragments[0].ensemble
        world.lose(first[0])
        if not close:
            # Its first fragment is finished, and the bookie that took over is the only other one.
            await world.append(handle, 5)
        else:
            await handle.close()
        world.lose(first[1])
        await world.marks.mark(ledger_id, first[:2], None)
        assert await world.step() is RepairOutcome.FAILED
        left = (await world.metadata(ledger_id)).fragments[0].ensemble
        [spare] = set(world.bookies) - set(first)
        assert set(left) == {first[2], spare, left[0] if left[0] in first else left[1]}
        assert list(world.bookies[spare].entry_ids(ledger_id))[:5] == [0, 1, 2, 3, 4]
        # The rest, once there are bookies.
        assert await world.marks.ledger_ids() == [ledger_id]
        world.bookies[first[0]].come_back()
        world.bookies[first[1]].come_back()
        assert await world.step() is RepairOutcome.RESTORED
        await world.check_copies(ledger_id)

    run_replication(main, bookies=4)


def test_an_entry_that_no_bookie_has_does_not_keep_others_from_their_copies():
    async def main(world: ReplicationWorld) -> None:
        handle = await world.write(10, (5, 2, 2))
        ledger_id = handle.ledger_id
        before = (await world.metadata(ledger_id)).fragments[0].ensemble
        # What lies on the first two is on nobody else; what the fourth has lies on its neighbours, too.
        gone = [before[0], before[1], before[3]]
        world.lose(*gone)
        await world.marks.mark(ledger_id, gone, None)
        assert await world.step() is RepairOutcome.FAILED
        after = (await world.metadata(ledger_id)).fragments[0].ensemble
        assert after[:2] == before[:2]
        assert after[3] not in before
        held = [entry_id for entry_id in range(10) if entry_id % 5 in (2, 3)]
        assert list(world.bookies[after[3]].entry_ids(ledger_id)) == held

    run_replication(main, bookies=8)


def test_a_named_bookie_that_does_not_tell_what_it_has_keeps_no_others_from_their_copies():
    async def main(world: ReplicationWorld) -> None:
        handle = await world.write(9, (3, 3, 2))
        ledger_id = handle.ledger_id
        silent, lost, third = (await world.metadata(ledger_id)).fragments[0].ensemble
        # Registered, and of no use: its disk is damaged, say.
        world.bookies[silent].fail(StorageError("an error of its disk"))
        world.lose(lost)
        await world.marks.mark(ledger_id, [silent, lost], None)
        assert await world.step() is RepairOutcome.FAILED
        after = (await world.metadata(ledger_id)).fragments[0].ensemble
        assert (after[0], after[2]) == (silent, third)
        assert after[1] not in (silent, lost, third)
        # It may lack something: the mark stays until it has told.
        assert await world.marks.ledger_ids() == [ledger_id]
        world.bookies[silent].fail(None)
        world.bookies[silent].forget_entry(ledger_id, 4)
        assert await world.step() is RepairOutcome.RESTORED
        await world.check_copies(ledger_id)

    run_replication(main)


def test_a_named_bookie_that_lacks_what_nobody_has_keeps_no_others_from_their_copies():
    async def main(world: ReplicationWorld) -> None:
        handle = await world.write(9, (3, 2, 2))
        ledger_id = handle.ledger_id
        named, lost, third = (await world.metadata(ledger_id)).fragments[0].ensemble
        # Entry 2 is on the third and the first one.
        for name in (named, third):
            world.bookies[name].forget_entry(ledger_id, 2)
        world.lose(lost)
        await world.marks.mark(ledger_id, [named, lost], None)
        assert await world.step() is RepairOutcome.FAILED
        after = (await world.metadata(ledger_id)).fragments[0].ensemble
        assert (after[0], after[2]) == (named, third)
        assert after[1] not in (named, lost, third)
        assert list(world.bookies[after[1]].entry_ids(ledger_id)) == [0, 1, 3, 4, 6, 7]
        assert await world.marks.ledger_ids() == [ledger_id]

    run_replication(main)


def test_an_ensemble_that_has_a_bookie_twice_is_restored_as_any_other():
    async def main(world: ReplicationWorld) -> None:
        handle = await world.write(9, (3, 2, 2))
        ledger_id = handle.ledger_id
        first, lost, third = (await world.metadata(ledger_id)).fragments[0].ensemble
        twice = LedgerFragment(0, (first, lost, first))
        # Apache's placement made some; the first one has what the third was to have.
        for entry_id in world.bookies[third].entry_ids(ledger_id):
            copy = world.bookies[third].entry(ledger_id, entry_id)
            if world.bookies[first].entry(ledger_id, entry_id) is None:
                world.bookies[first].add_entries(
                    ledger_id,
                    [entry_id],
                    [copy],
                    master_key=master_key(handle.metadata.password),
                    recovery=True,
                    done=lambda entry_ids, error: None,
                )
        await LedgerStore(world.store).update(ledger_id, lambda found: found.with_fragments((twice,)))
        world.lose(lost)
        await world.marks.mark(ledger_id, [lost], None)
        assert await world.step() is RepairOutcome.RESTORED
        after = (await world.metadata(ledger_id)).fragments[0].ensemble
        assert (after[0], after[2]) == (first, first)
        assert after[1] not in (first, lost)
        assert list(await (await world.bookkeeper.open_ledger(ledger_id)).read_entries(0, 8)) == payloads(0, 9)

    run_replication(main)


@pytest.mark.parametrize("close", [True, False])
def test_a_ledger_that_can_not_be_restored_is_tried_with_pauses_whatever_is_configured(close):
    eager = replace(QUICK, open_ledger_rereplication_grace_period_ms=0, lock_release_of_failed_ledger_grace_period_ms=0)

    async def main(world: ReplicationWorld) -> None:
        handle = await world.write(5, (1, 1, 1), close=close)
        world.lose(handle.metadata.fragments[0].ensemble[0])
        recovery = world.autorecovery("one")
        await recovery.start()
        # Never over where time does not pass between two attempts.
        await world.world.sleep(10)
        assert await world.marks.ledger_ids() == [handle.ledger_id]
        assert recovery.counters.failed_attempts <= 10_000 / HELD_MS_MIN + 1
        await recovery.close()

    run_replication(main, config=eager)


def test_nothing_is_restored_while_no_bookie_is_registered():
    async def main(world: ReplicationWorld) -> None:
        handle = await world.write(5)
        before = await world.metadata(handle.ledger_id)
        await world.marks.mark(handle.ledger_id, ["b0"], None)
        world.lose(*world.bookies)
        assert await world.step() is RepairOutcome.FAILED
        assert await world.metadata(handle.ledger_id) == before
        assert await world.marks.ledger_ids() == [handle.ledger_id]

    run_replication(main)


def test_a_mark_that_grew_meanwhile_stays():
    async def main(world: ReplicationWorld) -> None:
        handle = await world.write(5)
        ledger_id = handle.ledger_id
        first, second, _ = (await world.metadata(ledger_id)).fragments[0].ensemble
        world.lose(first)
        await world.marks.mark(ledger_id, [first], None)
        moved = world.worker._move

        async def move_and_lose_another(*args):
            stored = await moved(*args)
            if first not in stored.metadata.fragments[0].ensemble and second in stored.metadata.fragments[0].ensemble:
                await world.marks.mark(ledger_id, [second], None)
            return stored

        world.worker._move = move_and_lose_another
        assert await world.step() is RepairOutcome.RESTORED
        assert await world.marks.ledger_ids() == [ledger_id]

    run_replication(main)


def test_a_mark_that_was_made_anew_at_the_same_version_is_made_once_more():
    async def main(world: ReplicationWorld) -> None:
        handle = await world.write(5)
        ledger_id = handle.ledger_id
        ensemble = (await world.metadata(ledger_id)).fragments[0].ensemble
        await world.marks.mark(ledger_id, [ensemble[0]], None)
        restore = world.worker._restore

        async def restore_and_be_slow(*args):
            outcome = await restore(*args)
            # The lock was lost: another worker ended the mark, a bookie went, an auditor marked anew.
            assert await world.marks.unmark(ledger_id, 0)
            world.lose(ensemble[1])
            await world.marks.mark(ledger_id, [ensemble[1]], None)
            return outcome

        world.worker._restore = restore_and_be_slow
        assert await world.step() is RepairOutcome.RESTORED
        stored = await world.marks.read(ledger_id)
        assert stored is not None
        assert stored.mark.replicas == (ensemble[1],)
        world.worker._restore = restore
        assert await world.step() is RepairOutcome.RESTORED
        await world.check_copies(ledger_id)

    run_replication(main)


def test_metadata_of_a_ledger_whose_lock_was_lost_stay():
    async def main(world: ReplicationWorld) -> None:
        handle = await world.write(5)
        ledger_id = handle.ledger_id
        before = await world.metadata(ledger_id)
        world.lose(before.fragments[0].ensemble[0])
        await world.marks.mark(ledger_id, ["b"], None)
        assert await world.worker._take() == ledger_id
        world.store.expire_session()
        await world.world.sleep(1)
        assert await world.worker._attempt(ledger_id) is RepairOutcome.FAILED
        assert await world.metadata(ledger_id) == before

    run_replication(main)


def test_two_workers_share_the_marks():
    async def main(world: ReplicationWorld) -> None:
        ledger_ids = [(await world.write(5)).ledger_id for _ in range(12)]
        world.lose("b0")
        both = [world.autorecovery(name) for name in ("one", "two")]
        for one in both:
            await one.start()
        await world.world.sleep(60)
        assert await world.marks.ledger_ids() == []
        for ledger_id in ledger_ids:
            await world.check_copies(ledger_id)
        assert all(one.counters.fragments_replicated for one in both)
        assert [one.auditor.is_elected for one in both].count(True) == 1
        for one in both:
            await one.close()
        assert await world.marks.locked() == frozenset()

    run_replication(main)


def test_what_is_switched_off_rests_until_it_is_on_again():
    async def main(world: ReplicationWorld) -> None:
        handle = await world.write(5, (4, 4, 2))
        recovery = world.autorecovery("one")
        await recovery.start()
        await world.marks.set_enabled(False)
        await world.world.sleep(1)
        world.lose("b0", "b1")
        await world.world.sleep(300)
        assert await world.marks.ledger_ids() == []
        world.bookies["b1"].come_back()
        await world.marks.set_enabled(True)
        await world.world.sleep(300)
        assert await world.marks.ledger_ids() == []
        await world.check_copies(handle.ledger_id)
        await recovery.close()

    run_replication(main)


@pytest.mark.parametrize("fault", [WriteFault.UNKNOWN_BEFORE, WriteFault.UNKNOWN_AFTER])
def test_unknown_outcomes_are_settled(fault):
    async def main(world: ReplicationWorld) -> None:
        handle = await world.write(5)
        ensemble = (await world.metadata(handle.ledger_id)).fragments[0].ensemble
        world.lose(ensemble[0])
        await world.marks.mark(handle.ledger_id, [ensemble[0]], None)
        world.store.faults.next_writes.extend([fault] * 3)
        assert await world.step() is RepairOutcome.RESTORED
        await world.check_copies(handle.ledger_id)

    run_replication(main)


def test_a_mark_of_apaches_auditor_is_served():
    async def main(world: ReplicationWorld) -> None:
        handle = await world.write(5)
        lost = (await world.metadata(handle.ledger_id)).fragments[0].ensemble[0]
        world.lose(lost)
        mark = encode_mark(UnderReplicatedLedger((lost,), 1_700_000_000_000))
        await world.store.put(mark_path(handle.ledger_id), mark, expected_version=-1)
        assert await world.step() is RepairOutcome.RESTORED
        await world.check_copies(handle.ledger_id)

    run_replication(main)


def test_errors_of_the_metadata_store_are_waited_for():
    async def main(world: ReplicationWorld) -> None:
        handle = await world.write(5)
        recovery = world.autorecovery("one")
        await recovery.start()
        await world.world.sleep(1)
        lost = (await world.metadata(handle.ledger_id)).fragments[0].ensemble[0]
        recovery.worker._marks._store.expire_session(outage_ms=20_000)
        world.lose(lost)
        await world.world.sleep(120)
        assert await world.marks.ledger_ids() == []
        await world.check_copies(handle.ledger_id)
        await recovery.close()

    run_replication(main)


def test_crash_points_have_their_order():
    assert crash_points.ALL.index(crash_points.COPIED) < crash_points.ALL.index(crash_points.REPLACED)
    assert crash_points.ALL.index(crash_points.REPLACED) < crash_points.ALL.index(crash_points.UNMARKED)
    assert len(set(crash_points.ALL)) == len(crash_points.ALL)


def test_who_had_a_ledger_open_before_reads_on_wherever_it_is_by_now():
    async def main(world: ReplicationWorld) -> None:
        handle = await world.write(30, (3, 2, 2))
        reader = await world.bookkeeper.open_ledger(handle.ledger_id)
        for index in (0, 1):
            lost = (await world.metadata(handle.ledger_id)).fragments[0].ensemble[index]
            world.lose(lost)
            await world.marks.mark(handle.ledger_id, [lost], None)
            assert await world.step() is RepairOutcome.RESTORED
        # Entries of these two have no other copy where the reader looked first.
        assert list(await reader.read_entries(0, 29)) == payloads(0, 30)
        assert list(await handle.read_entries(0, 29)) == payloads(0, 30)
        await world.bookkeeper.delete_ledger(handle.ledger_id)
        world.lose(*world.bookies)
        with pytest.raises(StorageError, match="is down"):
            await reader.read_entries(0, 29)

    run_replication(main)


def test_many_marks_are_put_into_an_order_with_turns_for_everybody_else():
    async def main(world: ReplicationWorld) -> None:
        count = 3 * DRAWS_PER_TURN
        for ledger_id in range(count):
            await world.store.put(mark_path(ledger_id), encode_mark(UnderReplicatedLedger(())), expected_version=None)
        drawn = 0
        most_in_a_turn = 0

        class Counted:
            """The random numbers of the world, counted."""

            def below(self, bound: int) -> int:
                nonlocal drawn
                drawn += 1
                return world.runtime.rng.below(bound)

            def token(self, size_bytes: int = 8) -> str:
                return world.runtime.rng.token(size_bytes)

        worker = world.new_worker("many", runtime=replace(world.runtime, rng=Counted()))
        taking = asyncio.ensure_future(worker._take())
        before = 0
        while not taking.done():
            await next_turn()
            most_in_a_turn, before = max(most_in_a_turn, drawn - before), drawn
        assert (drawn, most_in_a_turn) == (count, DRAWS_PER_TURN)
        # Each once, in no order of theirs.
        order = [await taking, *reversed(worker._queue)]
        assert sorted(order) == list(range(count))
        assert order not in (list(range(count)), list(reversed(range(count))))

    run_replication(main)


def test_metadata_that_are_damaged_while_a_ledger_is_restored_leave_its_mark_and_the_worker():
    async def main(world: ReplicationWorld) -> None:
        damaged, sound = await world.write(3), await world.write(3)
        path = ledger_path(damaged.ledger_id)
        node = await world.store.get(path)
        assert node is not None
        await world.marks.mark(damaged.ledger_id, ["b9"], None)
        restore = world.worker._restore

        async def restore_and_find_it_damaged(*args):
            outcome = await restore(*args)
            world.worker._restore = restore
            await world.store.put(path, b"damaged", expected_version=None)
            return outcome

        world.worker._restore = restore_and_find_it_damaged
        running = asyncio.ensure_future(world.worker.run())
        await world.world.sleep(1)
        assert not running.done()
        stored = await world.marks.read(damaged.ledger_id)
        assert stored is not None
        assert stored.mark.replicas == ("b9",)
        # Others are served, and it is once it can be read again.
        await world.marks.mark(sound.ledger_id, ["b9"], None)
        await world.world.sleep(20)
        assert await world.marks.ledger_ids() == [damaged.ledger_id]
        await world.store.put(path, node.value, expected_version=None)
        await world.world.sleep(20)
        assert await world.marks.ledger_ids() == []
        running.cancel()
        await asyncio.wait([running])

    run_replication(main)

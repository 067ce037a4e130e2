"""Copies of entries: sound ones only, from whoever has them, durable before anybody hears of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from geminga.model.errors import NoSuchLedgerError, StorageError, UnknownEntryError
from geminga.replication import copier
from geminga.replication.copier import CopiedLedger
from geminga.replication.core.fragments import SettledFragment, settled_fragments
from geminga.runtime import spawn
from support.worlds.replication_world import QUICK, ReplicationWorld, run_replication


async def written(
    world: ReplicationWorld, entries: int = 10, quorums: tuple[int, int, int] = (3, 3, 2)
) -> tuple[CopiedLedger, SettledFragment, list[str]]:
    """A ledger, its fragment, and the bookies that have nothing of it."""
    handle = await world.write(entries, quorums)
    metadata = await world.metadata(handle.ledger_id)
    [fragment] = settled_fragments(metadata)
    spare = [name for name in world.bookies if name not in fragment.ensemble]
    return CopiedLedger.of(handle.ledger_id, metadata), fragment, spare


def test_copies_are_the_same_bytes():
    async def main(world: ReplicationWorld) -> None:
        ledger, fragment, [spare, other] = await written(world)
        await world.copier.copy(ledger, fragment, {spare: range(10), other: (3, 7)}, fragment.ensemble)
        bookies = world.bookies
        assert bookies[spare].entry_ids(ledger.ledger_id) == list(range(10))
        assert bookies[other].entry_ids(ledger.ledger_id) == [3, 7]
        source = bookies[fragment.ensemble[0]]
        for entry_id in range(10):
            whole = source.entry(ledger.ledger_id, entry_id)
            assert bookies[spare].entry(ledger.ledger_id, entry_id) == whole
        assert world.counters.entries_copied == 10

    run_replication(main)


def test_a_damaged_copy_is_never_spread():
    async def main(world: ReplicationWorld) -> None:
        ledger, fragment, [spare, _] = await written(world)
        bookies = world.bookies
        first, second, third = (fragment.ensemble[index] for index in ledger.distribution.write_set(4))
        bookies[first].corrupt(ledger.ledger_id, 4)
        bookies[second].corrupt(ledger.ledger_id, 4)
        await world.copier.copy(ledger, fragment, {spare: range(10)}, fragment.ensemble)
        sound = bookies[third].entry(ledger.ledger_id, 4)
        assert bookies[spare].entry(ledger.ledger_id, 4) == sound
        assert world.counters.damaged_copies == 2
        bookies[third].corrupt(ledger.ledger_id, 5)
        for name in (first, second):
            bookies[name].forget_entry(ledger.ledger_id, 5)
        with pytest.raises(UnknownEntryError, match="can not be copied now"):
            await world.copier.copy(ledger, fragment, {spare: range(10)}, fragment.ensemble)
        assert world.counters.unreadable_entries == 1

    run_replication(main)


def test_a_bookie_that_is_not_registered_is_asked_last_and_asked():
    async def main(world: ReplicationWorld) -> None:
        ledger, fragment, [spare, _] = await written(world)
        lost, *live = fragment.ensemble
        await world.copier.copy(ledger, fragment, {spare: range(10)}, live)
        assert world.bookies[lost].read_calls == 0
        for name in live:
            world.bookies[name].forget_ledger(ledger.ledger_id)
        world.bookies[spare].forget_ledger(ledger.ledger_id)
        await world.copier.copy(ledger, fragment, {spare: range(10)}, live)
        assert world.bookies[spare].entry_ids(ledger.ledger_id) == list(range(10))

    run_replication(main)


def test_one_copy_that_fails_fails_the_call():
    async def main(world: ReplicationWorld) -> None:
        ledger, fragment, [spare, other] = await written(world)
        world.bookies[other].add_error = NoSuchLedgerError("deleted here")
        # Not as an absence: the ledger is there.
        with pytest.raises(StorageError, match="a copy failed") as caught:
            await world.copier.copy(ledger, fragment, {spare: range(10), other: range(10)}, fragment.ensemble)
        assert not isinstance(caught.value, NoSuchLedgerError)
        world.bookies[other].fence_error = NoSuchLedgerError("deleted here")
        with pytest.raises(StorageError, match="could not be fenced") as caught:
            await world.copier.fence(ledger, [other])
        assert not isinstance(caught.value, NoSuchLedgerError)

    run_replication(main)


def test_what_is_answered_too_late_does_not_count():
    async def main(world: ReplicationWorld) -> None:
        ledger, fragment, [spare, _] = await written(world)
        world.bookies[spare].holds_replies = True
        errors: list[StorageError] = []

        async def copy() -> None:
            try:
                await world.copier.copy(ledger, fragment, {spare: range(10)}, fragment.ensemble)
            except StorageError as error:
                errors.append(error)

        copying = spawn(copy(), name="copying")
        await world.world.sleep(copier.ANSWER_S / 2)
        assert not copying.done()
        await world.world.sleep(copier.ANSWER_S)
        assert "not durable" in str(errors)
        world.bookies[spare].release()
        # One that only reads is passed over after that time.
        world.bookies[fragment.ensemble[0]].holds_replies = True
        await world.copier.copy(ledger, fragment, {spare: range(10)}, fragment.ensemble)
        with pytest.raises(StorageError, match="did not answer"):
            await world.copier.listed(ledger.ledger_id, fragment.ensemble[0])
        with pytest.raises(StorageError, match=f"could not be fenced: it did not answer in {copier.ANSWER_S:g} s"):
            await world.copier.fence(ledger, [fragment.ensemble[0]])

    run_replication(main)


def test_striped_entries_are_read_where_they_are():
    async def main(world: ReplicationWorld) -> None:
        ledger, fragment, _ = await written(world, 20, (5, 2, 2))
        share = ledger.distribution.share(1, fragment.entry_ids)
        target = fragment.ensemble[1]
        world.bookies[target].forget_ledger(ledger.ledger_id)
        await world.copier.copy(ledger, fragment, {target: share}, fragment.ensemble)
        assert world.bookies[target].entry_ids(ledger.ledger_id) == list(share)

    run_replication(main)


def test_large_entries_are_copied_a_few_at_a_time(monkeypatch):
    monkeypatch.setattr(copier, "READ_BYTES_MAX", 10)

    async def main(world: ReplicationWorld) -> None:
        ledger, fragment, [spare, _] = await written(world, 30)
        await world.copier.copy(ledger, fragment, {spare: range(30)}, fragment.ensemble)
        assert world.bookies[spare].entry_ids(ledger.ledger_id) == list(range(30))
        assert world.bookies[spare].add_calls >= 10

    run_replication(main)


def test_the_rate_is_kept():
    async def main(world: ReplicationWorld) -> None:
        ledger, fragment, [spare, _] = await written(world, 50)
        began = world.world.now
        for start in range(0, 50, 10):
            await world.copier.copy(ledger, fragment, {spare: range(start, start + 10)}, fragment.ensemble)
        took_s = world.world.now - began
        assert world.counters.bytes_copied / took_s <= 1000

    run_replication(main, config=replace(QUICK, replication_rate_by_bytes=1000))


@pytest.mark.parametrize("after_s", [None, 0, 5])
def test_who_does_not_answer_is_waited_for_once_and_asked_last_from_then_on(after_s):
    """None: it says nothing. 5: who asks it gives up, and says so."""

    async def main(world: ReplicationWorld) -> None:
        ledger, fragment, [spare, _] = await written(world, 90)
        silent = world.bookies[fragment.ensemble[0]]
        clock = world.runtime.clock
        before = clock.monotonic()
        for first in range(0, 90, 10):
            silent.holds_replies, silent.read_error = after_s != 0, StorageError("no answer")
            share = {spare: range(first, first + 10)}
            copying = spawn(world.copier.copy(ledger, fragment, share, fragment.ensemble), name="copy")
            while after_s and not copying.done():
                await world.world.sleep(after_s)
                silent.release()
            await copying
        waited_s = clock.monotonic() - before
        # It is looked every 5 s whether they are there: once more the first time alone.
        assert waited_s <= {None: copier.ANSWER_S, 0: 0, 5: 9 * 5 + 5}[after_s]
        assert world.bookies[spare].entry_ids(ledger.ledger_id) == list(range(90))
        assert world.copier._silent.keys() == (set() if after_s == 0 else {fragment.ensemble[0]})
        # Nobody else has it: then it is asked all the same.
        silent.release()
        silent.read_error = None
        for name in fragment.ensemble[1:]:
            world.bookies[name].forget_entry(ledger.ledger_id, 0)
        await world.copier.copy(ledger, fragment, {spare: [0]}, fragment.ensemble)

    run_replication(main)

"""The auditor: marks what lost a bookie, or lacks entries, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from geminga.metadata import MetadataFaults
from geminga.model.errors import StorageError
from geminga.replication.autorecovery import AutoRecovery
from geminga.replication.config import ReplicationConfig
from geminga.replication.counters import ReplicationCounters
from geminga.replication.registry import LocalBookieRegistry
from geminga.wire.bookkeeper.ledger_path import ledger_path
from geminga.wire.bookkeeper.under_replication import LOST_BOOKIE_RECOVERY_DELAY_PATH
from support.worlds.replication_world import QUICK, ReplicationWorld, run_replication

#: Nobody looks by himself for as long as the tests take.
ASKED_ONLY = replace(QUICK, lost_bookie_recovery_delay_s=4000, auditor_periodic_bookie_check_interval_s=0)


class DeafRegistry(LocalBookieRegistry):
    """Tells nobody of changes."""

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        return lambda: None


async def marked(world: ReplicationWorld) -> dict[int, tuple[str, ...]]:
    found = {}
    for ledger_id in await world.marks.ledger_ids():
        stored = await world.marks.read(ledger_id)
        assert stored is not None
        found[ledger_id] = stored.mark.replicas
    return found


async def one_lost(world: ReplicationWorld) -> tuple[int, AutoRecovery]:
    """A ledger, a bookie of which went 20 s ago, and who is to notice that."""
    ledger_id = (await world.write(5, (5, 3, 2))).ledger_id
    recovery = world.autorecovery("one")
    await recovery.start()
    await world.world.sleep(60)
    world.lose("b1")
    await world.world.sleep(20)
    return ledger_id, recovery


def test_ledgers_of_lost_bookies_are_marked():
    async def main(world: ReplicationWorld) -> None:
        ledger_ids = [(await world.write(2, close=n % 2 == 0)).ledger_id for n in range(10)]
        assert await world.auditor.audit()
        assert await marked(world) == {}
        world.lose("b1")
        world.bookies["b2"].is_writable = False
        # What nobody can read is left alone, and does not end the look.
        await world.store.put(ledger_path(ledger_ids[0]), b"damaged", expected_version=None)
        assert await world.auditor.audit()
        expected = {}
        for ledger_id in ledger_ids[1:]:
            if "b1" in (await world.metadata(ledger_id)).fragments[0].ensemble:
                expected[ledger_id] = ("b1",)
        assert expected
        assert await marked(world) == expected
        assert world.counters.ledgers_marked == len(expected)

    run_replication(main)


def test_nothing_is_marked_while_no_bookie_is_registered():
    async def main(world: ReplicationWorld) -> None:
        await world.write(2)
        world.lose(*world.bookies)
        assert not await world.auditor.audit()
        assert await marked(world) == {}

    run_replication(main)


def test_entries_that_a_bookie_lacks_are_found_and_what_is_not_known_is_not_missing():
    async def main(world: ReplicationWorld) -> None:
        _, lacking, _, opened = [await world.write(10, (5, 3, 2), close=n < 3) for n in range(4)]
        name = (await world.metadata(lacking.ledger_id)).fragments[0].ensemble[2]
        world.bookies[name].forget_entry(lacking.ledger_id, world.bookies[name].entry_ids(lacking.ledger_id)[-1])
        # The end of an open ledger is its writer's.
        world.bookies[name].forget_ledger(opened.ledger_id)
        await world.auditor.check_all()
        assert await marked(world) == {lacking.ledger_id: (name,)}
        assert await world.marks.checked_all_ms() is not None
        world.bookies[name].read_error = StorageError("busy")
        before = world.counters.unknown_answers
        await world.auditor.check_all()
        assert world.counters.unknown_answers == before + 3
        assert set(await marked(world)) == {lacking.ledger_id}

    run_replication(main)


def test_entries_that_are_missing_from_one_fragment_alone_are_named_with_who_is_gone():
    async def main(world: ReplicationWorld) -> None:
        handle = await world.write(6, (4, 3, 2), close=False)
        first = handle.metadata.fragments[0].ensemble
        world.lose(first[0])
        await world.append(handle, 6)
        await handle.close()
        metadata = await world.metadata(handle.ledger_id)
        assert len(metadata.fragments) == 2
        # It is in both fragments, and has all that it should of the first.
        [lacking, gone] = [name for name in first[1:] if name in metadata.fragments[1].ensemble][:2]
        world.bookies[lacking].forget_entry(handle.ledger_id, world.bookies[lacking].entry_ids(handle.ledger_id)[-1])
        world.lose(gone)
        await world.auditor.check_all()
        marks = await marked(world)
        assert set(marks[handle.ledger_id]) == {lacking, gone, first[0]}

    run_replication(main)


def test_a_delay_that_is_changed_while_a_bookie_is_waited_for_holds_from_now_on():
    async def main(world: ReplicationWorld) -> None:
        ledger_id, recovery = await one_lost(world)
        await world.marks.set_recovery_delay(50)
        await world.world.sleep(40)
        assert recovery.counters.ledgers_marked == 0
        await world.world.sleep(40)
        assert ledger_id in await world.marks.ledger_ids()
        await recovery.close()

    run_replication(main, config=ASKED_ONLY)


def test_one_that_is_back_in_time_brings_no_marks():
    async def main(world: ReplicationWorld) -> None:
        ledger_id, recovery = await one_lost(world)
        world.bookies["b1"].come_back()
        await world.world.sleep(100)
        assert recovery.counters.ledgers_marked == 0
        # The cluster's value counts, from now on.
        await world.marks.set_recovery_delay(5)
        world.lose("b1")
        await world.world.sleep(10)
        assert recovery.counters.ledgers_marked == 1
        assert ledger_id in await world.marks.ledger_ids()
        await recovery.close()

    run_replication(main, config=replace(QUICK, lost_bookie_recovery_delay_s=40))


@pytest.mark.parametrize("value", [b"4000", b"0"])
def test_the_same_delay_written_again_or_none_brings_a_look_at_once(value: bytes):
    async def main(world: ReplicationWorld) -> None:
        ledger_id = (await world.write(5, (5, 3, 2))).ledger_id
        recovery = world.autorecovery("one")
        await recovery.start()
        await world.world.sleep(4100)
        world.lose("b1")
        await world.world.sleep(100)
        audits = recovery.counters.audits
        await world.store.put(LOST_BOOKIE_RECOVERY_DELAY_PATH, b"3000", expected_version=None)
        await world.world.sleep(10)
        assert recovery.counters.audits == audits
        await world.store.put(LOST_BOOKIE_RECOVERY_DELAY_PATH, b"4000", expected_version=None)
        await world.world.sleep(10)
        assert recovery.counters.audits == audits
        await world.store.put(LOST_BOOKIE_RECOVERY_DELAY_PATH, value, expected_version=None)
        await world.world.sleep(10)
        assert recovery.counters.audits == audits + 1
        assert ledger_id in await world.marks.ledger_ids()
        await recovery.close()

    run_replication(main, config=ASKED_ONLY)


def test_the_periodic_looks_come_though_every_watch_is_lost():
    async def main(world: ReplicationWorld) -> None:
        handle = await world.write(5, (3, 3, 2))
        world.registry = DeafRegistry(world.bookies)
        recovery = world.autorecovery("one", world.session(MetadataFaults(watch_lost_percent=100)))
        await recovery.start()
        await world.world.sleep(10)
        world.lose((await world.metadata(handle.ledger_id)).fragments[0].ensemble[0])
        await world.world.sleep(200)
        assert await world.marks.ledger_ids() == []
        await world.check_copies(handle.ledger_id)
        # What a bookie really has is looked at once in a while.
        name = (await world.metadata(handle.ledger_id)).fragments[0].ensemble[1]
        world.bookies[name].forget_entry(handle.ledger_id, 3)
        await world.world.sleep(2000)
        assert recovery.counters.full_checks >= 1
        await world.check_copies(handle.ledger_id)
        await recovery.close()

    run_replication(main, config=replace(QUICK, auditor_periodic_check_interval_s=1000))


def test_defaults_are_bookkeepers():
    config = ReplicationConfig()
    assert config.auditor_periodic_bookie_check_interval_s == 86_400
    assert config.auditor_periodic_check_interval_s == 604_800
    assert config.lost_bookie_recovery_delay_s == 0
    assert config.open_ledger_rereplication_grace_period_ms == 30_000
    assert config.rereplication_entry_batch_size == 10
    assert ReplicationCounters().audits == 0


def test_a_bookie_that_never_heard_of_a_ledger_lacks_all_of_it():
    async def main(world: ReplicationWorld) -> None:
        handle = await world.write(10, (5, 3, 2))
        world.bookies["b3"].forget_ledger(handle.ledger_id)
        await world.auditor.check_all()
        assert await marked(world) == {handle.ledger_id: ("b3",)}

    run_replication(main)


@pytest.mark.parametrize("is_watched", [True, False])
def test_a_bookie_that_goes_while_everything_is_checked_is_noticed_meanwhile(is_watched: bool):
    async def main(world: ReplicationWorld) -> None:
        ids = [(await world.write(1, (5, 5, 3))).ledger_id for _ in range(16)]
        await world.marks.set_checked_all(0)
        if not is_watched:
            world.registry = DeafRegistry(world.bookies)
        recovery = world.autorecovery("one")
        await recovery.start()

        async def pass_slowly(seconds: int) -> None:
            """Each ledger takes so long as one of its bookies does to say what it has."""
            for _ in range(seconds // 20):
                world.bookies["b1"].holds_replies = True
                await world.world.sleep(20)
                world.bookies["b1"].release()

        await pass_slowly(40)
        assert recovery.counters.full_checks == 0
        world.lose("b2")
        await pass_slowly(200)
        assert recovery.counters.full_checks == 0
        assert await world.marks.ledger_ids() == ids
        await recovery.close()

    quiet = replace(QUICK, auditor_periodic_bookie_check_interval_s=0, auditor_periodic_check_interval_s=100_000)
    run_replication(main, config=quiet)


def test_a_bookie_that_answers_nothing_does_not_make_a_check_of_everything_endless():
    async def main(world: ReplicationWorld) -> None:
        ids = [(await world.write(1, (5, 5, 3))).ledger_id for _ in range(60)]
        world.bookies["b1"].holds_replies = True
        world.bookies["b3"].forget_entry(ids[-1], 0)
        before = world.runtime.clock.monotonic()
        await world.auditor.check_all()
        assert world.runtime.clock.monotonic() - before < 100
        assert await marked(world) == {ids[-1]: ("b3",)}
        assert world.counters.unknown_answers == len(ids)
        # The next check asks it again.
        world.bookies["b1"].release()
        world.bookies["b1"].holds_replies = False
        world.bookies["b1"].forget_entry(ids[0], 0)
        await world.auditor.check_all()
        assert await marked(world) == {ids[0]: ("b1",), ids[-1]: ("b3",)}

    run_replication(main)

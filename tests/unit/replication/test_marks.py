"""Marks, locks and switches in the metadata store, also when outcomes are unknown and sessions end."""

from __future__ import annotations

import pytest

from geminga.metadata.core.faults import WriteFault
from geminga.model.errors import CorruptionError
from geminga.replication.marks import UnderReplicatedLedgers
from geminga.wire.bookkeeper.under_replication import (
    LOST_BOOKIE_RECOVERY_DELAY_PATH,
    MARKS_PATH,
    REREPLICATION_LAYOUT_PATH,
    lock_path,
    mark_path,
)
from support.worlds.replication_world import ReplicationWorld, run_replication

FAR = (1 << 62) + 5


def test_a_mark_grows_and_goes_by_its_version():
    async def main(world: ReplicationWorld) -> None:
        marks = world.marks
        await marks.mark(7, ["a"], 5)
        stored = await marks.read(7)
        assert stored is not None
        assert (stored.mark.replicas, stored.mark.marked_ms, stored.version) == (("a",), 5, 0)
        await marks.mark(7, ["a"], 6)
        assert await marks.read(7) == stored
        await marks.mark(7, ["b", "a"], 9)
        assert not await marks.unmark(7, stored.version)
        renewed = await marks.read(7)
        assert renewed is not None
        assert (renewed.mark.replicas, renewed.mark.marked_ms) == (("a", "b"), 9)
        assert await marks.unmark(7, renewed.version)
        assert await marks.read(7) is None
        # Nothing stays above it.
        assert await world.store.children(MARKS_PATH) == []
        assert await marks.unmark(7, 0)

    run_replication(main)


def test_marked_ledgers_are_listed_and_others_stay_when_one_goes():
    async def main(world: ReplicationWorld) -> None:
        for ledger_id in (3, 0, FAR, 66_051):
            await world.marks.mark(ledger_id, ["a"], None)
        # Of others, or of nobody.
        await world.store.put(f"{MARKS_PATH}/0000/0000/0000/0000/urL0000000009", b"", expected_version=None)
        await world.store.put(f"{MARKS_PATH}/strange/node", b"", expected_version=None)
        assert await world.marks.ledger_ids() == [0, 3, 66_051, FAR]
        assert await world.marks.unmark(3, 0)
        assert await world.marks.ledger_ids() == [0, 66_051, FAR]

    run_replication(main)


def test_a_damaged_mark_names_nobody_and_is_written_anew():
    async def main(world: ReplicationWorld) -> None:
        await world.store.put(mark_path(4), b"\xff", expected_version=None)
        stored = await world.marks.read(4)
        assert stored is not None
        assert stored.mark.replicas == ()
        await world.marks.mark(4, ["a"], None)
        stored = await world.marks.read(4)
        assert stored is not None
        assert stored.mark.replicas == ("a",)

    run_replication(main)


@pytest.mark.parametrize("fault", [WriteFault.UNKNOWN_BEFORE, WriteFault.UNKNOWN_AFTER])
def test_a_lock_is_one_sessions_whatever_the_outcome(fault):
    async def main(world: ReplicationWorld) -> None:
        world.store.faults.next_writes.append(fault)
        assert await world.marks.lock(4, "me")
        assert await world.marks.holds(4)
        other = UnderReplicatedLedgers(world.session())
        assert not await other.lock(4, "other")
        assert not await other.holds(4)
        assert await other.locked() == {4}
        await other.unlock(4)
        assert await world.marks.holds(4)
        world.store.expire_session()
        await world.world.sleep(1)
        assert await other.lock(4, "other")
        assert not await world.marks.holds(4)
        await world.marks.unlock(4)
        assert await other.holds(4)
        await other.unlock(4)
        assert not await world.store.exists(lock_path(4))

    run_replication(main)


def test_the_layout_is_made_and_another_one_refused():
    async def main(world: ReplicationWorld) -> None:
        await world.marks.check_layout()
        await world.marks.check_layout()
        await world.store.put(REREPLICATION_LAYOUT_PATH, b'type: "FLAT"\nversion: 1\n', expected_version=None)
        with pytest.raises(CorruptionError, match="layout 'FLAT' 1"):
            await world.marks.check_layout()

    run_replication(main)


def test_switches():
    async def main(world: ReplicationWorld) -> None:
        marks = world.marks
        assert await marks.is_enabled()
        await marks.set_enabled(False)
        await marks.set_enabled(False)
        assert not await marks.is_enabled()
        await marks.set_enabled(True)
        await marks.set_enabled(True)
        assert await marks.is_enabled()
        # The first one's configuration counts, then the cluster's value.
        assert await marks.recovery_delay(30) == (30, 0)
        assert await marks.recovery_delay(60) == (30, 0)
        await marks.set_recovery_delay(5)
        assert await marks.recovery_delay(60) == (5, 1)
        await world.store.put(LOST_BOOKIE_RECOVERY_DELAY_PATH, b"soon", expected_version=None)
        assert await marks.recovery_delay(60) == (60, 2)
        assert await marks.checked_all_ms() is None
        await marks.set_checked_all(77)
        assert await marks.checked_all_ms() == 77

    run_replication(main)

"""Locks of ledgers that a replication worker could not give back, or made without knowing: nobody else takes them."""

from __future__ import annotations

from geminga.metadata import MemoryMetadataStore, cas
from geminga.metadata.core.faults import WriteFault
from geminga.metadata.ports import Node
from geminga.model.errors import MetadataUnavailableError
from geminga.runtime import next_turn
from geminga.wire.bookkeeper.under_replication import LOCKS_PATH
from support.worlds.replication_world import ReplicationWorld, run_replication


def test_lock_that_could_not_be_given_back_is_given_back_later_and_the_ledger_restored_again():
    async def main(world: ReplicationWorld) -> None:
        handle = await world.write(5)
        recovery = world.autorecovery("one")
        store = recovery.worker._marks._store
        await recovery.start()
        await world.world.sleep(1)
        [first, second, *_] = (await world.metadata(handle.ledger_id)).fragments[0].ensemble
        world.lose(first)
        removals = [WriteFault.UNKNOWN_BEFORE] * cas.CAS_ATTEMPTS_MAX
        while await world.marks.ledger_ids() or not recovery.counters.ledgers_replicated:
            await next_turn()
        # The session goes on, and with it the lock.
        store.faults.next_writes.extend(removals)
        await world.world.sleep(1)
        assert await world.marks.locked() == {handle.ledger_id}
        world.lose(second)
        await world.world.sleep(60)
        await world.check_copies(handle.ledger_id)
        assert await world.marks.ledger_ids() == []
        assert await world.marks.locked() == frozenset()
        await recovery.close()

    run_replication(main)


class AwayAfterLock(MemoryMetadataStore):
    """The answer to a lock is lost, and then the store is away; the session lives on."""

    lost = False

    async def get(self, path: str) -> Node | None:
        if path.startswith(LOCKS_PATH) and not self.lost:
            self.lost = True
            raise MetadataUnavailableError("away")
        return await super().get(path)


def test_lock_that_was_made_without_an_answer_keeps_nobody_from_the_ledger():
    async def main(world: ReplicationWorld) -> None:
        handle = await world.write(5)
        store = AwayAfterLock(world.runtime, world.server)
        recovery = world.autorecovery("one", store)
        await recovery.start()
        await world.world.sleep(1)
        lost = (await world.metadata(handle.ledger_id)).fragments[0].ensemble[0]
        world.lose(lost)
        await world.marks.mark(handle.ledger_id, [lost], None)
        store.faults.next_writes.append(WriteFault.UNKNOWN_AFTER)
        recovery.worker.look()
        await world.world.sleep(60)
        assert store.lost
        await world.check_copies(handle.ledger_id)
        assert await world.marks.ledger_ids() == []
        await recovery.close()

    run_replication(main)

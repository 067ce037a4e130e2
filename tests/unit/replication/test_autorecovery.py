"""Auditor and worker together: begun, ended, and begun elsewhere."""

from __future__ import annotations

import json

import pytest

from geminga.model.errors import CorruptionError
from geminga.replication import autorecovery
from geminga.wire.bookkeeper.isolation import IsolationGroups, encode_isolation
from geminga.wire.bookkeeper.ledger_metadata import META_PLACEMENT
from geminga.wire.bookkeeper.under_replication import ELECTION_PATH, REREPLICATION_LAYOUT_PATH
from support.worlds.replication_world import ReplicationWorld, run_replication


def test_what_is_laid_out_for_others_is_refused():
    async def main(world: ReplicationWorld) -> None:
        await world.store.put(REREPLICATION_LAYOUT_PATH, b'type: "FLAT"\nversion: 1\n', expected_version=None)
        recovery = world.autorecovery("one")
        assert isinstance(recovery, autorecovery.AutoRecovery)
        with pytest.raises(CorruptionError, match="FLAT"):
            await recovery.start()
        await recovery.close()

    run_replication(main)


def test_copies_of_a_ledger_with_groups_go_to_their_bookies():
    async def main(world: ReplicationWorld) -> None:
        groups = {"mine": {"b0": {}, "b1": {}, "b2": {}}, "other": {f"b{n}": {} for n in range(3, 8)}}
        await world.store.put("/bookies", json.dumps(groups).encode(), expected_version=None)
        custom = {META_PLACEMENT: encode_isolation(IsolationGroups(("mine",)))}
        ledgers = [
            await world.bookkeeper.create_ledger(ensemble_size=2, write_quorum=2, ack_quorum=2, custom_metadata=custom)
            for _ in range(6)
        ]
        for handle in ledgers:
            await world.append(handle, 3)
            await handle.close()
        recovery = world.autorecovery("one")
        await recovery.start()
        await world.world.sleep(1)
        world.lose("b0")
        await world.world.sleep(60)
        for handle in ledgers:
            await world.check_copies(handle.ledger_id)
            assert {*(await world.metadata(handle.ledger_id)).last_fragment.ensemble} == {"b1", "b2"}
        await recovery.close()

    run_replication(main, bookies=8)


def test_one_that_is_closed_in_the_middle_leaves_nothing_behind():
    async def main(world: ReplicationWorld) -> None:
        ledger_ids = [(await world.write(40, (3, 3, 2), close=n % 2 == 0)).ledger_id for n in range(4)]
        recovery = world.autorecovery("one")
        await recovery.start()
        await world.world.sleep(1)
        for bookie in list(world.bookies.values())[1:]:
            bookie.holds_replies = True
        world.lose("b0")
        await world.world.sleep(0.2)
        assert await world.marks.locked()
        await recovery.close()
        assert await world.marks.locked() == frozenset()
        assert await world.store.children(ELECTION_PATH) == []
        for bookie in world.bookies.values():
            bookie.release()
        other = world.autorecovery("other")
        await other.start()
        await world.world.sleep(60)
        assert await world.marks.ledger_ids() == []
        for ledger_id in ledger_ids:
            await world.check_copies(ledger_id)
        await other.close()

    run_replication(main)


def test_close_waits_for_no_metadata_store_that_is_away():
    async def main(world: ReplicationWorld) -> None:
        await world.write(5, (3, 3, 2), close=False)
        store = world.session()
        recovery = world.autorecovery("one", store)
        await recovery.start()
        await world.world.sleep(1)
        world.lose("b0")
        await world.world.sleep(0.5)
        assert await world.marks.locked()
        store.faults.delay_ms_max = 10_000_000
        began_s = world.world.now
        await recovery.close()
        assert world.world.now - began_s <= autorecovery.CLOSE_S

    run_replication(main)


def test_a_store_that_is_long_away_is_told_once_a_minute(caplog: pytest.LogCaptureFixture):
    async def main(world: ReplicationWorld) -> None:
        store = world.session()
        recovery = world.autorecovery("one", store)
        await recovery.start()
        await world.world.sleep(1)
        store.expire_session(outage_ms=300_000)
        await world.world.sleep(290)
        for who in ("replication goes on", "the auditor goes on"):
            assert 3 <= len([line for line in caplog.messages if who in line]) <= 5
        await world.world.sleep(20)
        await recovery.close()

    run_replication(main)

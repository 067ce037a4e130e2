"""The picture: bookie 2 of 5 dies; all fragments it held are on Qw bookies again, from many to many; the topic goes on.

A managed ledger is published to and read all the while, and never waits for the repair.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from geminga import sim
from geminga.bookkeeper import BookKeeper, LocalBookiePool, MemoryBookie
from geminga.bookkeeper.core.distribution import Distribution
from geminga.managed_ledger import ManagedLedgerFactory
from geminga.metadata import MemoryMetadataStore
from geminga.model.errors import StorageError
from geminga.model.position import EARLIEST
from geminga.replication.autorecovery import AutoRecovery
from geminga.replication.config import ReplicationConfig
from geminga.replication.core.fragments import bookies_of, settled_fragments
from geminga.replication.registry import LocalBookieRegistry
from geminga.sim import SimNode, SimWorld
from support.worlds.ledger_world import SMALL, append, read_all

NAME = "public/default/persistent/topic"
LOST = "bookie-2"
#: Slow enough that the topic is seen to go on meanwhile.
CONFIG = ReplicationConfig(replication_rate_by_bytes=2000)


@pytest.mark.parametrize("quorums", [(3, 2, 2), (3, 3, 2)])
@pytest.mark.parametrize("seed", range(2))
def test_bookie_2_of_5_dies_and_all_it_had_is_copied_from_many_to_many(seed, quorums):
    async def story(world: SimWorld) -> None:
        await world.node("broker").run(lambda node: live(world, node, quorums))

    sim.run(story, seed=seed)


async def live(world: SimWorld, node: SimNode, quorums: tuple[int, int, int]) -> None:
    bookies = {f"bookie-{n}": MemoryBookie() for n in range(1, 6)}
    pool = LocalBookiePool(bookies)
    store = MemoryMetadataStore(node.runtime)
    client = BookKeeper(node.runtime, store, pool)
    size, write, ack = quorums
    config = replace(SMALL, ensemble_size=size, write_quorum=write, ack_quorum=ack)
    factory = ManagedLedgerFactory(node.runtime, store, client, config)
    ledger = await factory.open(NAME)
    ledger.trimmer.set_retention(retention_ms=-1, retention_bytes=-1)
    recovery = AutoRecovery(node.runtime, store, pool, client, LocalBookieRegistry(bookies), CONFIG, name="one")
    await recovery.start()
    sent: list[bytes] = []

    async def publish(count: int) -> None:
        entries = [f"m{len(sent) + n}".encode() for n in range(count)]
        results = await append(ledger, entries)
        assert all(result.error is None for result in results)
        sent.extend(entries)

    for _ in range(60):
        await publish(10)
    held = [one for one in await client.ledger_ids() if LOST in bookies_of((await client.read_ledger(one)).metadata)]
    assert len(held) > 15
    bookies[LOST].go_down(StorageError("dead"))
    meanwhile = 0
    while any([LOST in bookies_of((await client.read_ledger(one)).metadata) for one in held]):
        began = world.now
        await publish(5)
        if meanwhile % 8 == 0:
            cursor = await ledger.open_cursor(f"reader-{meanwhile}", initial=EARLIEST)
            assert await read_all(cursor) == sent
        assert world.now - began < 1
        meanwhile += 1
        await world.sleep(0.2)
        assert meanwhile < 2000
    assert meanwhile > 10, "the repair was over before anybody could see it"
    took: Counter[str] = Counter()
    for ledger_id in await client.ledger_ids():
        metadata = (await client.read_ledger(ledger_id)).metadata
        distribution = Distribution(size, write, ack)
        for fragment in settled_fragments(metadata):
            assert LOST not in fragment.ensemble
            for entry_id in fragment.entry_ids:
                copies = [
                    bookies[fragment.ensemble[i]].entry(ledger_id, entry_id) for i in distribution.write_set(entry_id)
                ]
                assert len({*copies}) == 1
                assert copies[0] is not None
        if ledger_id in held:
            took.update(bookies_of(metadata))
    # From all who are left, to all who are left.
    assert set(took) == {"bookie-1", "bookie-3", "bookie-4", "bookie-5"}
    assert recovery.counters.fragments_replicated >= len(held) - 2
    await recovery.close()
    await factory.close()

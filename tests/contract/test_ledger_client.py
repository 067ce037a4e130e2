"""What a ledger client promises on five bookies of any kind, one of which may be down, stalled or full.

The pools are those of a process with its bookies inside, and of one that reaches them over a network.
"""

from __future__ import annotations

import asyncio

import pytest

from geminga.bookkeeper import LedgerHandle
from geminga.bookkeeper.core.distribution import Distribution
from geminga.model.errors import (
    NoSuchEntryError,
    StorageError,
    UnknownEntryError,
)
from geminga.sim import SimNode
from geminga.wire.bookkeeper.digest import digest_for
from support.clusters.bookie_ensemble import Ensemble, completed, run_ensemble
from support.worlds.bookies import Calls
from support.worlds.ledgers import Appends, payloads

#: E, Qw, Qa. One bookie away leaves each of them its ack quorum, and its readers every entry.
QUORUMS = [(5, 3, 2), (5, 5, 3), (5, 4, 2), (3, 3, 2)]


@pytest.fixture(params=["memory", "far", "remote"])
def kind(request):
    return request.param


@pytest.fixture(params=QUORUMS, ids=lambda quorums: "/".join(map(str, quorums)))
def quorums(request):
    return request.param


async def create(ensemble: Ensemble, node: SimNode, quorums: tuple[int, int, int]) -> LedgerHandle:
    size, write, ack = quorums
    client = ensemble.client(node)
    return await client.create_ledger(ensemble_size=size, write_quorum=write, ack_quorum=ack)


async def append(ensemble: Ensemble, appends: Appends, first: int, count: int) -> StorageError | None:
    """A batch of payloads that say which they are; its outcome, which must come within seconds."""
    appends.append(*payloads(first, count))
    waiting = asyncio.ensure_future(appends.has(len(appends.done) + 1))
    return (await completed(waiting, ensemble.world))[-1][2]


async def read_all(ensemble: Ensemble, handle: LedgerHandle) -> list[bytes]:
    reading = asyncio.ensure_future(handle.read_entries(0, handle.last_add_confirmed))
    return list(await completed(reading, ensemble.world))


def test_entries_lie_on_their_write_sets_and_nowhere_else(kind, quorums):
    async def main(ensemble: Ensemble, node: SimNode):
        handle = await create(ensemble, node, quorums)
        appends = Appends(handle)
        for first, count in ((0, 1), (1, 2), (3, 17), (20, 1), (21, 9)):
            assert await append(ensemble, appends, first, count) is None
        await ensemble.world.sleep(1)
        distribution = Distribution(*quorums)
        for index, name in enumerate(handle.metadata.last_fragment.ensemble):
            listed = await Calls(ensemble.pool.get(name)).listed(handle.ledger_id)
            assert not isinstance(listed, StorageError)
            held = [entry_id for entry_id in range(30) if (index - entry_id) % quorums[0] < quorums[1]]
            assert [entry_id for run in listed for entry_id in run] == held
            assert held == [entry_id for entry_id in range(30) if index in distribution.write_set(entry_id)]
        assert await read_all(ensemble, handle) == payloads(0, 30)
        assert list(await handle.read_entries(13, 13)) == payloads(13, 1)

    run_ensemble(main, kind=kind)


@pytest.mark.parametrize("trouble", ["down", "stalled", "full"])
def test_one_bookie_in_trouble_costs_nobody_an_entry(kind, quorums, trouble):
    async def main(ensemble: Ensemble, node: SimNode):
        handle = await create(ensemble, node, quorums)
        appends = Appends(handle)
        assert await append(ensemble, appends, 0, 11) is None
        name = handle.metadata.last_fragment.ensemble[1]
        if trouble == "down":
            ensemble.take_down(name)
        elif trouble == "stalled":
            ensemble.stall(name)
        else:
            await ensemble.fill_up(name)
        for first in range(11, 51, 4):
            assert await append(ensemble, appends, first, 4) is None
        assert [first for first, _, _ in appends.done] == [0, *range(11, 51, 4)]
        assert handle.last_add_confirmed == 50
        if trouble != "stalled":  # a read of a bookie that never answers waits for it
            assert await read_all(ensemble, handle) == payloads(0, 51)
        await completed(asyncio.ensure_future(handle.close()), ensemble.world)
        await ensemble.bring_back(name)
        reader = await ensemble.client(node).open_ledger(handle.ledger_id)
        assert (reader.last_add_confirmed, reader.length_bytes) == (50, sum(map(len, payloads(0, 51))))
        assert await read_all(ensemble, reader) == payloads(0, 51)

    run_ensemble(main, kind=kind)


def test_bookie_that_comes_back_takes_part_again(kind):
    async def main(ensemble: Ensemble, node: SimNode):
        handle = await create(ensemble, node, (5, 3, 2))
        appends = Appends(handle)
        first, second = handle.metadata.last_fragment.ensemble[:2]
        ensemble.take_down(first)
        assert await append(ensemble, appends, 0, 10) is None
        await ensemble.bring_back(first)
        assert await append(ensemble, appends, 10, 10) is None
        await ensemble.world.sleep(1)
        # Its neighbour goes: what was written since needs the one that came back.
        ensemble.take_down(second)
        assert await append(ensemble, appends, 20, 10) is None
        await ensemble.world.sleep(1)
        listed = await Calls(ensemble.pool.get(first)).listed(handle.ledger_id)
        assert not isinstance(listed, StorageError)
        assert [i for run in listed for i in run] == [i for i in range(10, 30) if -i % 5 < 3]
        assert await read_all(ensemble, handle) == payloads(0, 30)

    run_ensemble(main, kind=kind)


def test_ack_quorum_that_can_not_be_met_ends_the_ledger_where_it_was_confirmed(kind):
    async def main(ensemble: Ensemble, node: SimNode):
        handle = await create(ensemble, node, (5, 3, 2))
        appends = Appends(handle)
        assert await append(ensemble, appends, 0, 6) is None
        members = handle.metadata.last_fragment.ensemble
        ensemble.take_down(members[0])
        ensemble.take_down(members[1])
        # Entry 6 lies on 1, 2, 3: it has its quorum. Entry 9 on 4, 0, 1: it has not, and what follows fails with it.
        error = None
        for first in range(6, 12):
            error = error or await append(ensemble, appends, first, 1)
        assert isinstance(error, StorageError)
        assert not isinstance(error, NoSuchEntryError)
        outcomes = [outcome is None for _, _, outcome in appends.done]
        confirmed = handle.last_add_confirmed
        assert outcomes == sorted(outcomes, reverse=True), "something was confirmed behind a failure"
        assert 5 <= confirmed < 10
        assert not handle.is_writable
        await completed(asyncio.ensure_future(handle.close()), ensemble.world)
        for name in members[:2]:
            await ensemble.bring_back(name)
        reader = await ensemble.client(node).open_ledger(handle.ledger_id)
        assert reader.last_add_confirmed == confirmed
        assert await read_all(ensemble, reader) == payloads(0, confirmed + 1)

    run_ensemble(main, kind=kind)


@pytest.mark.parametrize("away", range(5))
def test_abandoned_ledger_is_recovered_with_any_one_bookie_away(kind, quorums, away):
    async def main(ensemble: Ensemble, node: SimNode):
        handle = await create(ensemble, node, quorums)
        appends = Appends(handle)
        for first in range(0, 40, 8):
            assert await append(ensemble, appends, first, 8) is None
        name = ensemble.names[away]
        ensemble.take_down(name)
        opening = asyncio.ensure_future(ensemble.client(node).open_ledger(handle.ledger_id))
        reader = await completed(opening, ensemble.world)
        assert reader.is_closed
        assert reader.last_add_confirmed == 39
        assert await read_all(ensemble, reader) == payloads(0, 40)
        # The old writer, wherever it is, gets nothing acknowledged any more.
        late = await append(ensemble, appends, 40, 3)
        assert isinstance(late, StorageError)
        await handle.close()  # at the same end, so there is nothing to quarrel about
        await ensemble.bring_back(name)
        again = await ensemble.client(node).open_ledger(handle.ledger_id)
        assert (again.last_add_confirmed, again.length_bytes) == (39, reader.length_bytes)
        assert await read_all(ensemble, again) == payloads(0, 40)

    run_ensemble(main, kind=kind)


def test_end_that_too_few_bookies_can_tell_is_unknown_and_is_found_later(kind):
    async def main(ensemble: Ensemble, node: SimNode):
        handle = await create(ensemble, node, (5, 3, 2))
        assert await append(ensemble, Appends(handle), 0, 12) is None
        gone = handle.metadata.last_fragment.ensemble[:2]
        for name in gone:
            ensemble.take_down(name)
        with pytest.raises(UnknownEntryError):
            await ensemble.client(node).open_ledger(handle.ledger_id)
        for name in gone:
            await ensemble.bring_back(name)
        reader = await ensemble.client(node).open_ledger(handle.ledger_id)
        assert reader.last_add_confirmed == 11

    run_ensemble(main, kind=kind)


def test_reader_that_does_not_recover_sees_what_was_confirmed_and_what_was_announced(kind):
    async def main(ensemble: Ensemble, node: SimNode):
        handle = await create(ensemble, node, (5, 3, 2))
        appends = Appends(handle)
        assert await append(ensemble, appends, 0, 6) is None
        assert await append(ensemble, appends, 6, 6) is None

        async def seen() -> int:
            return (await ensemble.client(node).open_ledger(handle.ledger_id, recover=False)).last_add_confirmed

        # The entries of the last batch carry the LAC of when they were sent.
        assert await seen() == 5
        digest = digest_for(handle.metadata.digest_type, handle.metadata.password)
        members = handle.metadata.last_fragment.ensemble
        for name in members:
            packet = digest.encode_lac(handle.ledger_id, 9)
            assert (
                await Calls(ensemble.pool.get(name)).announce(handle.ledger_id, packet, key=handle._master_key) is None
            )
        assert await seen() == 9
        # One that does not match its digest proves nothing.
        damaged = digest.encode_lac(handle.ledger_id, 11)[:-1] + b"x"
        for name in members:
            await Calls(ensemble.pool.get(name)).announce(handle.ledger_id, damaged, key=handle._master_key)
        assert await seen() == 5
        assert await append(ensemble, appends, 12, 1) is None
        assert await seen() == 11

    run_ensemble(main, kind=kind)

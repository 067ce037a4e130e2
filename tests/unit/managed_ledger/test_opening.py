"""What a new process finds after a kill."""

from __future__ import annotations

from geminga.model.errors import (
    DiskFullError,
    LedgerFencedError,
)
from support.ledger_world import NAME, append
from support.orphans import collect_now


def test_reopen_after_a_kill_finds_every_confirmed_entry(in_world):
    async def scenario(w):
        ml = await w.open()
        positions = await w.fill(ml, 17)
        again = await w.reopen()
        assert again.last_confirmed_position == positions[-1]
        assert [entry.position for entry in await again.read(positions)] == positions
        # The old process is fenced: it can not append any more.
        (result,) = await append(ml, [b"late"])
        assert isinstance(result.error, LedgerFencedError)
        assert ml.is_fenced
        (result,) = await append(ml, [b"later"])
        assert isinstance(result.error, LedgerFencedError)
        assert (await w.fill(again, 1))[0] > positions[-1]

    in_world(scenario)


def test_reopen_after_a_close_needs_no_recovery(in_world):
    async def scenario(w):
        ml = await w.open()
        positions = await w.fill(ml, 3)
        await w.factory.close()
        w.bookie.fence_error = DiskFullError("no fencing")
        again = await w.reopen()
        assert again.last_confirmed_position == positions[-1]
        assert again.size_bytes == 6

    in_world(scenario)


def test_reopen_drops_an_empty_last_ledger_and_deletes_it_later(in_world):
    async def scenario(w):
        ml = await w.open()
        await w.fill(ml, 10)
        w.bookie.add_error = DiskFullError("full")
        await append(ml, [b"never"])
        w.bookie.add_error = None
        again = await w.reopen()
        assert [info.entries for info in again.ledgers.infos] == [10]
        await w.fill(again, 1)
        assert len(await w.factory.named_ledgers(NAME)) == 2
        assert not await collect_now(w.runtime, w.store, w.bookkeeper)

    in_world(scenario)

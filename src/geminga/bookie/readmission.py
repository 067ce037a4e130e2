"""A deleted ledger is taken again: empty, fenced, and only while the metadata store lists it (formats/checkpoint.md).

One checkpoint does it: it names the id among the deleted no more, runs without a row of what the ledger had, and a run
in which it is fenced. Before it nothing changed, behind it everything has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from pyroaring import BitMap64

from geminga.bookie import crash_points as points
from geminga.bookie.core.index import IndexRun
from geminga.bookie.core.journal_format import encode_fence, encode_ledger
from geminga.bookie.core.ledger_states import LedgerStateRow
from geminga.bookie.journal import Journal
from geminga.bookie.ledger_storage import LedgerStorage
from geminga.bookie.ports import LiveLedgers
from geminga.model.bookie_port import IDS_END
from geminga.model.errors import StorageError
from geminga.runtime import again, crash_point, next_turn


class Readmission:
    """One at a time, and never beside garbage collection."""

    def __init__(
        self,
        storage: LedgerStorage,
        journal: Journal,
        ledgers: LiveLedgers,
        refusal: Callable[[int, bytes], StorageError | None],
        flush: Callable[[], Awaitable[None]],
    ) -> None:
        """``refusal``: why a ledger can not be taken now. ``flush``: a checkpoint behind all of it."""
        self._storage = storage
        self._journal = journal
        self._ledgers = ledgers
        self._refusal = refusal
        self._flush = flush

    async def carry_out(self, ledger_id: int, master_key: bytes) -> bool:
        """False: it is not deleted, nothing was done. Raises StorageError, OSError."""
        states = self._storage.states
        if not 0 <= ledger_id < IDS_END or ledger_id not in states.deleted:
            return False
        refused = self._refusal(ledger_id, master_key)
        if refused is not None:
            raise again(refused)
        live = await self._ledgers.live_ledger_ids()
        if live is None:
            raise StorageError(f"ledger {ledger_id} is not taken again: which ledgers exist can not be told now")
        if ledger_id not in live:
            raise StorageError(
                f"ledger {ledger_id} is not taken again: it was deleted, and the metadata do not list it"
            )
        await self._leave_journal_behind(ledger_id, master_key)
        await _readmit(self._storage, ledger_id, master_key)
        return True

    async def _leave_journal_behind(self, ledger_id: int, master_key: bytes) -> None:
        """What it had before must not come back from the journal: the mark passes whatever was added so far."""
        durable: asyncio.Future[StorageError | None] = asyncio.get_running_loop().create_future()
        records = (encode_ledger(ledger_id, master_key), encode_fence(ledger_id))
        self._journal.add(records[0], (), len(records[0]), (), lambda _, error: None)
        # Passed over by a replay as long as the ledger is deleted, and true behind that.
        self._journal.add(records[1], (), len(records[1]), (), lambda _, error: durable.set_result(error))
        error = await durable
        if error is not None:
            raise again(error)
        await self._flush()


async def _readmit(storage: LedgerStorage, ledger_id: int, master_key: bytes) -> None:
    """See the module. Everything that was added before it was deleted is behind the mark. Raises OSError."""
    async with storage.lock:
        runs: list[IndexRun] = []
        made: list[IndexRun] = []
        replaced: list[IndexRun] = []
        deleted = BitMap64(storage.states.deleted)
        deleted.discard(ledger_id)
        try:
            for run in storage.index.runs:
                if ledger_id not in run.ledger_ids and ledger_id not in run.state_ids:
                    runs.append(run)
                    continue
                await next_turn()
                kept = _without(run, ledger_id)
                await storage.write_run(kept)
                runs.append(kept)
                made.append(kept)
                replaced.append(run)
            fenced = IndexRun()
            fenced.state_ids.append(ledger_id)
            await storage.write_run(fenced, [LedgerStateRow(ledger_id, master_key, is_fenced=True)])
            made.append(fenced)
            crash_point(points.READMIT_RUNS_WRITTEN)
            await storage.write_checkpoint([*runs, fenced], deleted=deleted)
        except OSError as error:
            await storage.unlink_unnamed(made, error)
            raise
        storage.states.deleted.discard(ledger_id)
        storage.states.know(ledger_id, master_key)
        storage.states.fence(ledger_id)
        crash_point(points.READMIT_CHECKPOINT_WRITTEN)
        await storage.unlink_runs(replaced)


def _without(run: IndexRun, gone: int) -> IndexRun:
    kept = IndexRun()
    for i, ledger_id in enumerate(run.ledger_ids):
        if ledger_id != gone:
            kept.add_slice(ledger_id, run, run.starts[i], run.starts[i + 1])
    kept.state_ids.extend(ledger_id for ledger_id in run.state_ids if ledger_id != gone)
    return kept

"""The replication worker: takes marks one after another and restores what their ledgers lack.

Life of a repair: lock -> mark read -> ledger read -> targets chosen and, for a closed ledger, fenced -> entries
copied, durable -> metadata by compare-and-set -> looked at once more -> mark deleted by its version -> looked at again,
in case another mark went with it -> lock released. It may end anywhere: what was copied is the same bytes, metadata
name a bookie only after it has everything, and the mark stays until nothing is missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from enum import Enum
from functools import partial
from typing import Final

from geminga.bookkeeper import BookiePool, BookKeeper
from geminga.bookkeeper.ledger_store import LedgerNode, LedgerStore
from geminga.metadata.ports import MetadataStore
from geminga.model.errors import BadVersionError, CorruptionError, MetadataError, NoSuchLedgerError, StorageError
from geminga.replication import crash_points
from geminga.replication.config import ReplicationConfig
from geminga.replication.copier import CopiedLedger, Copier, NotTakenError
from geminga.replication.core.copying import missing_entries, shares_of, whole_batches
from geminga.replication.core.fragments import (
    LostReplicas,
    as_it_is_now,
    bookies_of,
    each_alone,
    is_tail_lost,
    lost_bookies,
    lost_replicas,
    settled_fragments,
)
from geminga.replication.core.pacing import FailedLedgers
from geminga.replication.core.replacing import choose_targets, replace_bookies
from geminga.replication.counters import ReplicationCounters
from geminga.replication.marks import StoredMark, UnderReplicatedLedgers
from geminga.replication.registry import BookieRegistry, LiveBookies
from geminga.runtime import Runtime, SparseWarnings, crash_point, get_logger, next_turn, set_within
from geminga.wire.bookkeeper.ledger_metadata import LedgerMetadata

#: Marks are looked for at least so often: watches may be lost, and are not on all of them.
LOOK_S: Final = 10.0
#: A ledger that is left alone is so for so long at least, whatever is configured: nobody tries without a pause.
HELD_MS_MIN: Final = 100
#: Marks that are drawn at once; others have their turn between, however many there are.
DRAWS_PER_TURN: Final = 1000
#: Attempts at a ledger that fail until a bookie that does not take, or say, what it lacks of it is replaced there.
REFUSALS_MAX: Final = 3

_log = get_logger(__name__)


class RepairOutcome(Enum):
    """How an attempt at a ledger ended."""

    #: It lacks nothing, or is gone.
    RESTORED = "restored"
    #: Only what its writer may still replace itself is lost.
    OPEN = "open"
    FAILED = "failed"


class ReplicationWorker:
    """See the module. One ledger at a time; :meth:`run` until it is called off."""

    def __init__(
        self,
        runtime: Runtime,
        metadata: MetadataStore,
        bookies: BookiePool,
        bookkeeper: BookKeeper,
        registry: BookieRegistry,
        copier: Copier,
        config: ReplicationConfig,
        *,
        name: str,
        counters: ReplicationCounters,
    ) -> None:
        """``name``: of the process, for people who read locks."""
        self._clock = runtime.clock
        self._warnings = SparseWarnings(_log, runtime.clock.monotonic)
        self._rng = runtime.rng
        self._marks = UnderReplicatedLedgers(metadata)
        self._ledgers = LedgerStore(metadata)
        self._bookies = bookies
        self._bookkeeper = bookkeeper
        self._registry = registry
        self._config = config
        self._name = name
        self._counters = counters
        self._copier = copier
        self._failed = FailedLedgers(config.lock_release_of_failed_ledger_grace_period_ms)
        #: Marked ledgers of the last look, in the order in which they are tried.
        self._queue: list[int] = []
        #: Ledgers whose lock is kept without working on them: until when, and whether they are open.
        self._held: dict[int, tuple[float, bool]] = {}
        #: Ledgers whose mark may have ended here, and which are to be looked at once more: one, unless metadata fail.
        self._unmarked: dict[int, StoredMark] = {}
        self._due = asyncio.Event()

    # ---- the loop

    async def run(self) -> None:
        """Restore what is marked, for ever; called off by cancelling, which releases the locks."""
        unsubscribes = [*self._marks.watch(lambda _: self.look()), self._registry.watch(self.look)]
        try:
            while True:
                wait_s = await self._step()
                if wait_s > 0:
                    await set_within(self._due, wait_s)
                    self._due.clear()
        finally:
            for unsubscribe in unsubscribes:
                unsubscribe()

    def look(self) -> None:
        """There may be work."""
        self._due.set()

    async def release(self) -> None:
        """Give all locks back; after :meth:`run`."""
        for ledger_id in sorted(self._held):
            await self._unlock(ledger_id)
        self._held.clear()

    async def _step(self) -> float:
        """Do one thing; seconds until there is more, 0: at once."""
        try:
            if not await self._marks.is_enabled():
                return LOOK_S
            await self._end_held()
            for unmarked in tuple(self._unmarked):
                await self._look_again(unmarked)
            ledger_id = await self._take()
            if ledger_id is None:
                return self._until_held(LOOK_S)
            await self._work_on(ledger_id)
            return 0
        except MetadataError as error:
            self._warnings.warn(f"replication goes on in {self._config.rw_rereplicate_backoff_ms} ms: {error}")
            return self._config.rw_rereplicate_backoff_ms / 1000

    async def _take(self) -> int | None:
        """A marked ledger that this worker has locked now; None: there is none to be had."""
        if not self._queue:
            taken = await self._marks.locked()
            ids = [ledger_id for ledger_id in await self._marks.ledger_ids() if ledger_id not in taken]
            # Workers begin at different ends, so that they seldom meet.
            await self._draw(ids)
            self._queue = ids
        while self._queue:
            ledger_id = self._queue.pop()
            try:
                if ledger_id not in self._held and await self._marks.lock(ledger_id, self._name):
                    crash_point(crash_points.LOCKED)
                    return ledger_id
            except MetadataError:
                # It may be ours all the same.
                self._hold(ledger_id, self._config.rw_rereplicate_backoff_ms, is_open=False)
                raise
        return None

    async def _draw(self, ids: list[int]) -> None:
        """Put ``ids`` into a random order."""
        for drawn in range(len(ids)):
            if drawn and drawn % DRAWS_PER_TURN == 0:
                await next_turn()
            other = drawn + self._rng.below(len(ids) - drawn)
            ids[drawn], ids[other] = ids[other], ids[drawn]

    # ---- locks that are kept

    def _until_held(self, wait_s: float) -> float:
        now = self._clock.monotonic()
        return min([wait_s, *(max(0.001, until - now) for until, _ in self._held.values())])

    async def _end_held(self) -> None:
        now = self._clock.monotonic()
        for ledger_id in [ledger_id for ledger_id, (until, _) in self._held.items() if until <= now]:
            _, is_open = self._held[ledger_id]
            if is_open:
                await self._recover_if_lost(ledger_id)
            await self._unlock(ledger_id)

    def _hold(self, ledger_id: int, for_ms: int, *, is_open: bool) -> None:
        self._held[ledger_id] = self._clock.monotonic() + max(for_ms, HELD_MS_MIN) / 1000, is_open

    async def _unlock(self, ledger_id: int) -> None:
        """Or later: a session may live for years, and while the lock is there nobody restores the ledger."""
        try:
            await self._marks.unlock(ledger_id)
        except MetadataError as error:
            _log.warning("the lock of ledger %d stays for now: %s", ledger_id, error)
            self._hold(ledger_id, self._config.rw_rereplicate_backoff_ms, is_open=False)
            return
        self._held.pop(ledger_id, None)
        crash_point(crash_points.UNLOCKED)

    async def _recover_if_lost(self, ledger_id: int) -> None:
        """The writer had its time: if its last fragment names a lost bookie still, the ledger is recovered."""
        try:
            stored = await self._ledgers.read(ledger_id)
            registered = await self._registry.registered()
            if not registered.all or not is_tail_lost(stored.metadata, registered.all):
                return
            _log.warning("ledger %d: its last fragment has lost a bookie: it is recovered", ledger_id)
            await self._bookkeeper.open_ledger(ledger_id, recover=True)
            self._counters.ledgers_recovered += 1
            crash_point(crash_points.RECOVERED)
        except NoSuchLedgerError:
            return
        except StorageError as error:
            _log.warning("ledger %d could not be recovered now: %s", ledger_id, error)

    # ---- one ledger

    async def _work_on(self, ledger_id: int) -> None:
        """The lock is ours; it is released unless it is to be kept for a while."""
        try:
            outcome = await self._attempt(ledger_id)
        except asyncio.CancelledError:
            self._hold(ledger_id, 0, is_open=False)
            raise
        except MetadataError:
            await self._unlock(ledger_id)
            raise
        if outcome is RepairOutcome.OPEN:
            self._hold(ledger_id, self._config.open_ledger_rereplication_grace_period_ms, is_open=True)
        elif outcome is RepairOutcome.FAILED:
            self._counters.failed_attempts += 1
            self._hold(ledger_id, self._failed.failed(ledger_id), is_open=False)
        else:
            self._failed.restored(ledger_id)
            await self._unlock(ledger_id)

    async def _attempt(self, ledger_id: int) -> RepairOutcome:
        mark = await self._marks.read(ledger_id)
        if mark is None:
            return RepairOutcome.RESTORED
        try:
            outcome = await self._restore(ledger_id, mark)
        except NoSuchLedgerError:
            _log.info("ledger %d was deleted: nothing to restore", ledger_id)
            outcome = RepairOutcome.RESTORED
        except MetadataError:
            raise
        except StorageError as error:
            _log.warning("ledger %d can not be restored now: %s", ledger_id, error)
            return RepairOutcome.FAILED
        return await self._end_mark(ledger_id, mark) if outcome is RepairOutcome.RESTORED else outcome

    async def _end_mark(self, ledger_id: int, mark: StoredMark) -> RepairOutcome:
        """FAILED: what the ledger lacks can not be told any more, and it is marked still."""
        # Before it goes: whether it did may not be told, nor can it be looked at again then.
        self._unmarked[ledger_id] = mark
        if not await self._marks.unmark(ledger_id, mark.version):
            _log.info("ledger %d was marked anew meanwhile", ledger_id)
            del self._unmarked[ledger_id]
            return RepairOutcome.RESTORED
        crash_point(crash_points.UNMARKED)
        self._counters.ledgers_replicated += 1
        return await self._look_again(ledger_id)

    async def _look_again(self, ledger_id: int) -> RepairOutcome:
        """Another mark at the same version may have gone: whoever made it saw the loss before. Raises MetadataError; it
        is done again then."""
        outcome = await self._marked_if_lost(ledger_id, self._unmarked[ledger_id])
        del self._unmarked[ledger_id]
        return outcome

    async def _marked_if_lost(self, ledger_id: int, mark: StoredMark) -> RepairOutcome:
        try:
            stored = await self._ledgers.read(ledger_id)
        except NoSuchLedgerError:
            return RepairOutcome.RESTORED
        except CorruptionError as error:
            _log.warning("ledger %d was damaged while it was restored, and is marked anew: %s", ledger_id, error)
            await self._marks.mark(ledger_id, mark.mark.replicas, self._mark_ms())
            return RepairOutcome.FAILED
        registered = await self._registry.registered()
        lost = lost_bookies(stored.metadata, registered.all) if registered.all else ()
        if lost:
            await self._marks.mark(ledger_id, lost, self._mark_ms())
        return RepairOutcome.RESTORED

    def _mark_ms(self) -> int | None:
        return self._clock.wall_ms() if self._config.store_mark_time else None

    async def _restore(self, ledger_id: int, mark: StoredMark) -> RepairOutcome:
        stored = await self._ledgers.read(ledger_id)
        registered = await self._registry.registered()
        if not registered.all:
            _log.warning("no bookie is registered: nothing is restored")
            return RepairOutcome.FAILED
        usable, is_complete = await self._complete_named(ledger_id, stored.metadata, mark, registered)
        for lost in lost_replicas(stored.metadata, usable):
            stored, is_moved = await self._try_move(ledger_id, stored, lost, registered, usable)
            if is_moved or len(lost.indexes) == 1:
                continue
            # Too few bookies for all, or an entry that nobody has: a copy more is better than none.
            for one in each_alone(lost):
                alone = as_it_is_now(one, stored.metadata)
                if alone is not None:
                    stored, _ = await self._try_move(ledger_id, stored, alone, registered, usable)
        stored = await self._ledgers.read(ledger_id)
        registered = await self._registry.registered()
        if not is_complete or not registered.all or lost_replicas(stored.metadata, usable & registered.all):
            return RepairOutcome.FAILED
        return RepairOutcome.OPEN if is_tail_lost(stored.metadata, registered.all) else RepairOutcome.RESTORED

    async def _try_move(
        self,
        ledger_id: int,
        stored: LedgerNode,
        lost: LostReplicas,
        registered: LiveBookies,
        usable: frozenset[str],
    ) -> tuple[LedgerNode, bool]:
        """The ledger as it is then, and whether these replicas are elsewhere. Other fragments may fare better."""
        try:
            return await self._move(ledger_id, stored, lost, registered, usable), True
        except BadVersionError as error:
            _log.info("ledger %d: %s", ledger_id, error)
            return await self._ledgers.read(ledger_id), False
        except (MetadataError, NoSuchLedgerError):
            raise
        except StorageError as error:
            _log.warning("ledger %d, from entry %d: %s", ledger_id, lost.fragment.first_entry_id, error)
            return stored, False

    async def _move(
        self,
        ledger_id: int,
        stored: LedgerNode,
        lost: LostReplicas,
        registered: LiveBookies,
        usable: frozenset[str],
    ) -> LedgerNode:
        """Copy what a fragment lacks to other bookies and put them into the metadata."""
        fragment = lost.fragment
        available = set(self._bookies.available())
        writable = [name for name in registered.writable if name in available]
        placement = await self._bookkeeper.placement(stored.metadata.custom_metadata)
        targets = choose_targets(
            lost,
            writable,
            write_quorum=stored.metadata.write_quorum,
            placement=placement,
            below=self._rng.below,
        )
        ledger = CopiedLedger.of(ledger_id, stored.metadata)
        try:
            if stored.metadata.is_closed:
                await self._copier.fence(ledger, targets.values())
            for batch in self._batches(fragment.entry_ids):
                shares = shares_of(ledger.distribution, batch, targets)
                if shares:
                    await self._copier.copy(ledger, fragment, shares, usable)
        except NotTakenError as error:
            # Each ledger that is to have it would wait as long.
            placement.note_failed(iter(error.bookie_ids))
            raise
        crash_point(crash_points.COPIED)
        if not await self._marks.holds(ledger_id):
            # Bookies collect what no ensemble names, unless the ledger is locked.
            raise StorageError(f"the lock of ledger {ledger_id} was lost")
        change = partial(replace_bookies, copied=fragment, targets=targets)
        moved = await self._ledgers.update(ledger_id, change, known=stored)
        crash_point(crash_points.REPLACED)
        self._counters.fragments_replicated += 1
        _log.info(
            "ledger %d: entries from %d on, of %s, are on %s now",
            ledger_id,
            fragment.first_entry_id,
            ", ".join(fragment.ensemble[index] for index in lost.indexes),
            ", ".join(targets.values()),
        )
        return moved

    async def _complete_named(
        self, ledger_id: int, metadata: LedgerMetadata, mark: StoredMark, registered: LiveBookies
    ) -> tuple[frozenset[str], bool]:
        """Give bookies that the mark names and that are there what they lack.

        Whose copies may be relied on then, and whether all got it: one that does not keeps no other from its own.
        """
        usable, is_complete = registered.all, True
        named = [name for name in mark.mark.replicas if name in registered.all and name in bookies_of(metadata)]
        for bookie_id in named:
            try:
                if not await self._complete(ledger_id, metadata, bookie_id, registered, usable):
                    usable -= {bookie_id}
            except StorageError as error:
                _log.warning("ledger %d: what bookie %s lacks can not be given now: %s", ledger_id, bookie_id, error)
                if isinstance(error, NotTakenError) and self._failed.failures(ledger_id) >= REFUSALS_MAX:
                    # Not for a moment of its own: one that takes its place has all of it.
                    usable -= {bookie_id}
                else:
                    is_complete = False
        return usable, is_complete

    async def _complete(
        self,
        ledger_id: int,
        metadata: LedgerMetadata,
        bookie_id: str,
        registered: LiveBookies,
        usable: frozenset[str],
    ) -> bool:
        """False: it lacks entries, and takes none. Raises StorageError."""
        try:
            listed = await self._copier.listed(ledger_id, bookie_id)
        except NoSuchLedgerError:
            listed = []
        except StorageError as error:
            raise NotTakenError(f"it does not say what it has: {error}", [bookie_id]) from error
        for fragment in settled_fragments(metadata):
            if bookie_id not in fragment.ensemble:
                continue
            ledger = CopiedLedger.of(ledger_id, metadata)
            index = fragment.ensemble.index(bookie_id)
            missing = missing_entries(ledger.distribution.share(index, fragment.entry_ids), listed)
            if missing and bookie_id not in registered.writable:
                return False
            size = self._config.rereplication_entry_batch_size
            for start in range(0, len(missing), size):
                await self._copier.copy(ledger, fragment, {bookie_id: missing[start : start + size]}, usable)
        return True

    def _batches(self, entry_ids: range) -> Iterator[range]:
        return whole_batches(entry_ids, self._config.rereplication_entry_batch_size)

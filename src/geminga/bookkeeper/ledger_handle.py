"""A ledger, open for appending or for reading.

Promises: entries are completed in entry order, each after its ack quorum has it on stable storage; nothing past
the last add confirmed is readable. A bookie that fails is replaced while there is another; where there is none, the
ledger goes on as long as every entry still reaches its ack quorum. Once one can not, or the ledger is fenced, the
handle is dead: everything pending fails in order, nothing can be appended, and :meth:`LedgerHandle.close` still fixes
the ledger's end at what was confirmed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from geminga.bookkeeper import crash_points
from geminga.bookkeeper.core.add_entry import AddQueue, AppendDone, PendingAdd
from geminga.bookkeeper.core.distribution import Distribution
from geminga.bookkeeper.core.ensemble_change import EnsembleChange, change_ensemble, rebase_change
from geminga.bookkeeper.core.read_attempts import StickyReplica
from geminga.bookkeeper.environment import LedgerEnvironment
from geminga.bookkeeper.ledger_store import LedgerNode
from geminga.bookkeeper.read_op import PayloadsDone, ReadOp, read_single
from geminga.model.bookie_port import Bookie
from geminga.model.errors import (
    InvariantError,
    LedgerClosedError,
    LedgerFencedError,
    NoSuchEntryError,
    NotEnoughBookiesError,
    StorageError,
    WrongMasterKeyError,
    invariant,
)
from geminga.runtime import again, answer_of, crash_point, get_logger, spawn
from geminga.wire.bookkeeper.digest import EntryDigest, digest_for, master_key
from geminga.wire.bookkeeper.ledger_metadata import LedgerFragment, LedgerMetadata, LedgerState

#: Ensemble changes without an entry confirmed in between, before the handle gives up.
ENSEMBLE_CHANGES_MAX: Final = 64

_log = get_logger(__name__)


class LedgerHandle:
    """See the module. Made by ``BookKeeper.create_ledger`` and ``open_ledger``."""

    __slots__ = (
        "_bookie",
        "_changes",
        "_confirmed_length_bytes",
        "_digest",
        "_distribution",
        "_drained",
        "_ensemble",
        "_env",
        "_error",
        "_failed_bookies",
        "_is_closing",
        "_is_recovery",
        "_is_writable",
        "_lame",
        "_master_key",
        "_queue",
        "_sticky",
        "_stored",
        "is_closed",
        "last_add_confirmed",
        "last_add_pushed",
        "ledger_id",
        "length_bytes",
    )

    def __init__(
        self,
        env: LedgerEnvironment,
        ledger_id: int,
        stored: LedgerNode,
        *,
        is_writable: bool,
        is_recovery: bool = False,
        last_add_confirmed: int = -1,
        length_bytes: int = 0,
    ) -> None:
        """``is_recovery``: its bookies have the ledger fenced, and take what is written back."""
        metadata = stored.metadata
        self._env = env
        self._stored = stored
        self._distribution = Distribution.of(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
        self._digest: EntryDigest = digest_for(metadata.digest_type, metadata.password)
        self._master_key = master_key(metadata.password)
        self._is_writable = is_writable
        self._is_recovery = is_recovery
        self.ledger_id = ledger_id
        #: Newest entry that may be read; -1 if there is none.
        self.last_add_confirmed = last_add_confirmed
        #: Newest entry that was appended, confirmed or not.
        self.last_add_pushed = last_add_confirmed
        #: Payload bytes of the ledger, appended ones included.
        self.length_bytes = length_bytes
        #: Whether the ledger's end is fixed for ever.
        self.is_closed = metadata.is_closed
        self._confirmed_length_bytes = length_bytes
        #: Who takes new entries now.
        self._ensemble = metadata.fragments[-1].ensemble
        #: The only bookie of an ensemble of one, looked up by the first append.
        self._bookie: Bookie | None = None
        #: Pending adds; made by the first append.
        self._queue: AddQueue | None = None
        #: Why the handle is dead.
        self._error: StorageError | None = None
        self._is_closing = False
        self._drained: asyncio.Future[None] | None = None
        #: Bookies of the last ensemble that failed an add and are to be replaced.
        self._failed_bookies: dict[str, StorageError] | None = None
        #: Members that failed adds and could not be replaced: each is told of once.
        self._lame: frozenset[str] = frozenset()
        self._changes = 0
        #: Which replica reads begin with; made by the first read of several bookies.
        self._sticky: StickyReplica | None = None

    # ---- state

    @property
    def metadata(self) -> LedgerMetadata:
        """The ledger's metadata as this handle knows it."""
        return self._stored.metadata

    @property
    def is_writable(self) -> bool:
        """Whether an append has a chance."""
        return self._is_writable and self._error is None and not self._is_closing

    @property
    def error(self) -> StorageError | None:
        """Why the handle is dead, None while it lives."""
        return self._error

    # ---- append

    def append(self, entries: Sequence[bytes], done: AppendDone) -> int:
        """Queue consecutive payloads; returns the id of the first.

        ``done(first_entry_id, count, error)`` is called once, in entry order; on a dead or closed handle on the
        loop's next turn. Never within this call unless the bookie answers within it.
        """
        first = self.last_add_pushed + 1
        count = len(entries)
        if not self._is_writable or self._error is not None or self._is_closing:
            error = again(self._error) if self._error is not None else self._closed_error()
            asyncio.get_running_loop().call_soon(done, first, count, error)
            return first
        if not count:
            raise InvariantError(f"ledger {self.ledger_id}: an append without entries")
        queue = self._queue
        if queue is None:
            queue = self._queue = AddQueue(self._distribution)
        ledger_id, length = self.ledger_id, self.length_bytes
        whole = self._digest.encode(ledger_id, first, self.last_add_confirmed, length, entries)
        self.last_add_pushed = first + count - 1
        self.length_bytes = length = length + (len(entries[0]) if count == 1 else sum(map(len, entries)))
        pending = queue.push(first, whole, length, done)
        ensemble = self._ensemble
        if len(ensemble) > 1:
            for index, bookie_id in enumerate(ensemble):
                self._send(pending, index, bookie_id)
            return first
        bookie = self._bookie
        if bookie is None:
            bookie = self._bookie = self._env.bookies.get(ensemble[0])
        bookie.add_entries(
            ledger_id,
            (first,) if count == 1 else range(first, first + count),  # a tuple of one costs a tenth of such a range
            whole,
            master_key=self._master_key,
            recovery=self._is_recovery,
            done=partial(self._on_single_added, pending, ensemble[0]),
        )
        return first

    def _on_single_added(
        self, pending: PendingAdd, bookie_id: str, entry_ids: Sequence[int], error: StorageError | None
    ) -> None:
        """The only bookie of the ensemble answered: its word is the ack quorum."""
        if error is not None or self._ensemble[0] != bookie_id or len(entry_ids) != pending.count:
            self._on_added(pending, 0, bookie_id, entry_ids, error)
        elif self._error is None:
            pending.acks = 1
            pending.unacknowledged = 0
            self._complete()

    def _send(self, pending: PendingAdd, index: int, bookie_id: str) -> None:
        """Send what bookie ``index`` holds of a batch."""
        first = pending.first_entry_id
        entry_ids = self._distribution.share(index, range(first, first + pending.count))
        if entry_ids:
            entries = pending.entries
            self._env.bookies.get(bookie_id).add_entries(
                self.ledger_id,
                entry_ids,
                entries if len(entry_ids) == pending.count else [entries[entry_id - first] for entry_id in entry_ids],
                master_key=self._master_key,
                recovery=self._is_recovery,
                done=partial(self._on_added, pending, index, bookie_id),
            )

    def _on_added(
        self, pending: PendingAdd, index: int, bookie_id: str, entry_ids: Sequence[int], error: StorageError | None
    ) -> None:
        """A bookie answered; late answers of bookies that were replaced or of a dead handle mean nothing."""
        queue = self._queue
        if queue is None or self._error is not None or self._ensemble[index] != bookie_id:
            return
        if error is not None:
            queue.fail(pending, index)
            self._on_add_failed(pending, bookie_id, error)
            return
        queue.acknowledge(pending, index, entry_ids)
        self._complete()

    def _complete(self) -> None:
        """Complete from the head of the queue what has its ack quorum."""
        queue = self._queue
        if queue is None:
            return
        while (completed := queue.pop_completed()) is not None:
            first, count = completed.first_entry_id, completed.count
            self.last_add_confirmed = first + count - 1
            self._confirmed_length_bytes = completed.length_bytes
            self._changes = 0
            completed.done(first, count, None)
        if self._drained is not None and not queue and not self._drained.done():
            self._drained.set_result(None)

    # ---- failures

    def _on_add_failed(self, pending: PendingAdd, bookie_id: str, error: StorageError) -> None:
        if isinstance(error, LedgerFencedError):
            self._die(error)
            return
        if self._failed_bookies is not None:
            self._failed_bookies.setdefault(bookie_id, error)
            return
        queue = self._queue
        if queue is None:
            return
        self._failed_bookies = {bookie_id: error}
        change = self._plan_change(queue.can_reach(pending))
        if change is None:
            return
        _log.warning("ledger %d: bookie %s failed an add: %s", self.ledger_id, bookie_id, error)
        queue.is_changing_ensemble = True
        spawn(self._change_ensemble(change), name=f"ensemble change of ledger {self.ledger_id}")

    def _plan_change(self, can_go_on: bool) -> EnsembleChange | None:
        """Who replaces the failed bookies; None if nobody can.

        Then the ledger goes on without them if it ``can_go_on``, until the next failure asks again; else it is dead.
        """
        failed = self._failed_bookies or {}
        self._changes += 1
        try:
            if self._changes > ENSEMBLE_CHANGES_MAX:
                raise NotEnoughBookiesError(f"{ENSEMBLE_CHANGES_MAX} ensemble changes in a row")
            return change_ensemble(
                self.metadata.fragments,
                first_entry_id=self.last_add_confirmed + 1,
                failed=failed,
                available=self._env.bookies.available(),
                write_quorum=self._distribution.write_quorum,
                placement=self._env.placement.current(self.metadata.custom_metadata),
                below=self._env.below,
            )
        except NotEnoughBookiesError as error:
            if can_go_on:
                self._go_on_without(failed)
                return None
            _log.warning("ledger %d: no bookie to replace %s: %s", self.ledger_id, ", ".join(failed), error)
            if self.last_add_confirmed < 0 and any(isinstance(why, WrongMasterKeyError) for why in failed.values()):
                self._env.id_was_refused(self.ledger_id)
            self._die(next(iter(failed.values()), error))
            return None

    def _go_on_without(self, failed: Mapping[str, StorageError]) -> None:
        """Adds are still sent to them: one that comes back takes part again."""
        self._changes = 0
        self._failed_bookies = None
        for bookie_id, error in failed.items():
            if bookie_id not in self._lame:
                self._lame = self._lame | {bookie_id}
                _log.warning(
                    "ledger %d goes on with its ack quorum, without bookie %s, which nobody can replace now: %s",
                    self.ledger_id,
                    bookie_id,
                    error,
                )

    async def _change_ensemble(self, change: EnsembleChange | None) -> None:
        """Replace failed bookies until none is left; the writer's right to do so is checked by the CAS."""
        while change is not None and not self._is_dead():
            known, fragments = self.metadata.fragments, change.fragments

            def apply(found: LedgerMetadata) -> LedgerMetadata:
                if found.state is not LedgerState.OPEN:
                    raise LedgerFencedError(f"ledger {self.ledger_id} is {found.state.name}: another writer has it")
                rebased = rebase_change(known, fragments, found.fragments)  # noqa: B023 -- called within this round only
                if rebased is None:
                    raise LedgerFencedError(f"ledger {self.ledger_id} is on other bookies: another writer has it")
                return found.with_fragments(rebased)

            try:
                crash_point(crash_points.CHANGE_PLANNED)
                self._stored = await self._env.ledgers.update(self.ledger_id, apply, known=self._stored)
                crash_point(crash_points.CHANGE_WRITTEN)
            except StorageError as error:
                self._die(error)
                return
            if self._is_dead():
                return
            _log.info("ledger %d: now on %s from entry %d", self.ledger_id, fragments[-1].ensemble, fragments[-1][0])
            change = self._resend(change)

    def _resend(self, change: EnsembleChange) -> EnsembleChange | None:
        """The new ensemble is in the metadata: send the pending adds to the newcomers; the next change, if needed."""
        ensemble = self._ensemble = change.fragments[-1].ensemble
        self._bookie = None
        self._failed_bookies = {name: e for name, e in (self._failed_bookies or {}).items() if name in ensemble}
        queue = self._queue
        invariant(queue is not None, f"ledger {self.ledger_id}: ensemble change without a pending add")
        assert queue is not None
        for pending in queue.replaced(change.replaced):
            for index in change.replaced:
                self._send(pending, index, ensemble[index])
        if self._is_dead():
            return None
        if self._failed_bookies:
            change_again = self._plan_change(not queue.hopeless())
            if change_again is not None or self._is_dead():
                return change_again
        self._failed_bookies = None
        queue.is_changing_ensemble = False
        self._complete()
        return None

    def _is_dead(self) -> bool:
        """Asked after each call that may end it: a comparison of the attribute would be held to be true until then."""
        return self._error is not None

    def _die(self, error: StorageError) -> None:
        """Fail everything pending, in order, and all appends to come."""
        if self._error is not None:
            return
        self._error = again(error)
        self.last_add_pushed = self.last_add_confirmed
        self.length_bytes = self._confirmed_length_bytes
        queue = self._queue
        if queue is not None:
            for pending in queue.pop_all():
                pending.done(pending.first_entry_id, pending.count, error)
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def _closed_error(self) -> StorageError:
        return LedgerClosedError(f"ledger {self.ledger_id} is not open for appending")

    # ---- read

    def read(
        self, first_entry_id: int, last_entry_id: int, done: PayloadsDone, *, bytes_max: int | None = None
    ) -> None:
        """Payloads of consecutive entries, ends included; ``done`` once, possibly within the call.

        With ``bytes_max``: perhaps only the first of them, with about so many bytes, but always one.
        NoSuchEntryError past the last add confirmed. Damaged copies are not served: the next replica is asked.
        """
        if not 0 <= first_entry_id <= last_entry_id <= self.last_add_confirmed:
            done(
                NoSuchEntryError(
                    f"ledger {self.ledger_id}: entries {first_entry_id} to {last_entry_id}, "
                    f"last add confirmed is {self.last_add_confirmed}"
                )
            )
            return
        entry_ids = range(first_entry_id, last_entry_id + 1)
        if bytes_max is not None:
            bytes_max += self._digest.overhead_bytes * len(entry_ids)
        fragments = self._stored.metadata.fragments
        self._read(entry_ids, bytes_max, fragments, partial(self._on_read, entry_ids, bytes_max, fragments, done))

    def _read(
        self, entry_ids: range, bytes_max: int | None, fragments: Sequence[LedgerFragment], done: PayloadsDone
    ) -> None:
        env = self._env
        if len(fragments) == 1 and self._distribution.ensemble_size == 1:
            bookie_id = fragments[0].ensemble[0]
            read_single(env.bookies, bookie_id, self._digest, self.ledger_id, entry_ids, done, bytes_max)
            return
        distribution = self._distribution
        if self._sticky is None and distribution.is_uniform and env.replicas.is_sticky:
            self._sticky = StickyReplica(distribution, self.ledger_id)
        ReadOp(
            env.replicas,
            self._digest,
            distribution,
            fragments,
            self.ledger_id,
            entry_ids,
            done,
            bytes_max,
            self._sticky,
        ).start()

    def _on_read(
        self,
        entry_ids: range,
        bytes_max: int | None,
        fragments: Sequence[LedgerFragment],
        done: PayloadsDone,
        result: Sequence[bytes] | StorageError,
    ) -> None:
        if isinstance(result, StorageError):
            again = self._read_moved(entry_ids, bytes_max, fragments, done, result)
            spawn(again, name=f"read of ledger {self.ledger_id}, which may have moved")
        else:
            done(result)

    async def _read_moved(
        self,
        entry_ids: range,
        bytes_max: int | None,
        fragments: Sequence[LedgerFragment],
        done: PayloadsDone,
        error: StorageError,
    ) -> None:
        """Copies may have been made elsewhere since the handle was opened: once more, if the metadata say so."""
        try:
            stored = await self._env.ledgers.read(self.ledger_id)
        except StorageError:
            done(error)
            return
        if stored.metadata.fragments == fragments:
            done(error)
            return
        if not self._is_writable:
            self._stored = stored
        self._read(entry_ids, bytes_max, stored.metadata.fragments, done)

    def confirm(self, last_entry_id: int) -> None:
        """The ledger's writer, who is another process, says that everything up to ``last_entry_id`` is confirmed."""
        invariant(not self._is_writable, f"ledger {self.ledger_id}: its writer confirms its own entries")
        if not self.is_closed:
            self.last_add_confirmed = max(self.last_add_confirmed, last_entry_id)

    async def read_entries(self, first_entry_id: int, last_entry_id: int) -> Sequence[bytes]:
        """Like :meth:`read`, raising the error."""
        return await answer_of(partial(self.read, first_entry_id, last_entry_id))

    # ---- close

    async def close(self) -> None:
        """Wait for the pending adds, then fix the ledger's end. Reading goes on. Closing twice is fine.

        Raises LedgerFencedError if another writer took the ledger over: its end is not ours to say.
        """
        if not self._is_writable or self.is_closed:
            return
        self._is_closing = True
        if self._queue:
            if self._drained is None:
                self._drained = asyncio.get_running_loop().create_future()
            # Who is cut off must not take it from who closes as well, or again.
            await asyncio.shield(self._drained)
        crash_point(crash_points.CLOSE_DRAINED)
        last_entry_id, length_bytes = self.last_add_confirmed, self._confirmed_length_bytes

        def apply(found: LedgerMetadata) -> LedgerMetadata:
            if found.state is LedgerState.OPEN:
                return found.closed(last_entry_id=last_entry_id, length_bytes=length_bytes)
            if found.is_closed and (found.last_entry_id, found.length_bytes) == (last_entry_id, length_bytes):
                return found
            raise LedgerFencedError(f"ledger {self.ledger_id} is {found.state.name}: another writer has it")

        self._stored = await self._env.ledgers.update(self.ledger_id, apply, known=self._stored)
        crash_point(crash_points.CLOSED)
        self.is_closed = True

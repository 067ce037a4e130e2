"""Carries out ledger recovery (``core.recovery``) against real bookies and the metadata store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from geminga.bookkeeper import crash_points
from geminga.bookkeeper.core.add_entry import AddQueue
from geminga.bookkeeper.core.distribution import Distribution
from geminga.bookkeeper.core.reads import ReadVerdict, RecoveryRead, worst_error
from geminga.bookkeeper.core.recovery import (
    CloseLedger,
    FenceAndReadLac,
    LacQuorum,
    ReadForward,
    RecoveryCommand,
    RecoveryReply,
    ToldEnd,
    WriteBack,
    WriteBackResult,
    recover_ledger,
)
from geminga.bookkeeper.environment import LedgerEnvironment
from geminga.bookkeeper.ledger_store import LedgerNode
from geminga.bookkeeper.read_op import fragment_of
from geminga.model.bookie_port import FenceDone, LacResult
from geminga.model.errors import (
    BadVersionError,
    CorruptionError,
    GemingaError,
    StorageError,
    UnknownEntryError,
    invariant,
)
from geminga.runtime import answer_of, crash_point, get_logger
from geminga.wire.bookkeeper.digest import digest_for, master_key, read_header
from geminga.wire.bookkeeper.ledger_metadata import META_PLACEMENT, LedgerFragment, LedgerMetadata

#: Recoveries from the start, because the metadata changed under one, before giving up.
RECOVERY_ATTEMPTS_MAX: Final = 8

_log = get_logger(__name__)
T = TypeVar("T")


async def recover_stored_ledger(
    env: LedgerEnvironment, ledger_id: int, stored: LedgerNode, batch_size: int
) -> LedgerNode:
    """Fence, find the end, close. Raises UnknownEntryError (try again later), CorruptionError, MetadataError."""
    error: BadVersionError | None = None
    try:
        for _ in range(RECOVERY_ATTEMPTS_MAX):
            if stored.metadata.is_closed:
                return stored
            try:
                return await _Session(env, ledger_id, stored).recover(batch_size)
            except BadVersionError as lost:
                error = lost
                stored = await env.ledgers.read(ledger_id)
        raise error if error is not None else BadVersionError(f"ledger {ledger_id}: no attempt was allowed")
    finally:
        del error  # see runtime's value_of


async def fence_ledger(env: LedgerEnvironment, ledger_id: int, stored: LedgerNode) -> None:
    """Fence the bookies of the last ensemble, as far as they can be.

    Returns when nothing can be acknowledged any more, whatever those do that have not answered; else when all have.
    """
    metadata = stored.metadata
    key, ensemble = master_key(metadata.password), metadata.last_fragment.ensemble
    distribution = Distribution.of(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
    fenced: set[int] = set()
    left = len(ensemble)
    is_done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_answer(index: int, error: StorageError | None) -> None:
        nonlocal left
        left -= 1
        if error is None:
            fenced.add(index)
        else:
            _log.warning("ledger %d: bookie %s was not fenced: %s", ledger_id, ensemble[index], error)
        if not left or distribution.is_covered(fenced):
            _resolve(is_done, None)

    for index, bookie_id in enumerate(ensemble):
        env.bookies.get(bookie_id).fence(ledger_id, master_key=key, done=partial(on_answer, index))
    await is_done


async def readmit_on_bookies(
    env: LedgerEnvironment, ledger_id: int, metadata: LedgerMetadata, bookie_ids: Sequence[str]
) -> None:
    """Have bookies take a ledger again that they deleted. Raises the error of one that is to have entries of it.

    The others are asked, and not waited for.
    """
    key = master_key(metadata.password)
    needed = {*metadata.last_fragment.ensemble}

    def ask_all(done: FenceDone) -> None:
        def on_answer(bookie_id: str, error: StorageError | None) -> None:
            is_needed = bookie_id in needed
            needed.discard(bookie_id)
            if error is not None and not is_needed:
                _log.warning("ledger %d: bookie %s does not take it again now: %s", ledger_id, bookie_id, error)
            elif error is not None or not needed:
                done(error)

        for bookie_id in bookie_ids:
            env.bookies.get(bookie_id).readmit(ledger_id, master_key=key, done=partial(on_answer, bookie_id))

    await answer_of(ask_all)


async def read_last_add_confirmed(env: LedgerEnvironment, ledger_id: int, metadata: LedgerMetadata) -> tuple[int, int]:
    """(LAC, payload bytes up to it) of a ledger that is being written, without disturbing its writer.

    Raises UnknownEntryError.
    """
    session = _Session(env, ledger_id, LedgerNode(metadata, 0))
    lac = await session.read_lac(metadata.last_fragment.ensemble, fence=False)
    lac = max(lac, metadata.last_fragment.first_entry_id - 1)
    if lac < 0:
        return -1, 0
    entries = await session.read_forward(metadata.fragments, lac, 1, lac, fence=False)
    if not entries:
        raise UnknownEntryError(f"ledger {ledger_id}: confirmed entry {lac} can not be read now")
    return lac, read_header(entries[0]).length_bytes


async def read_stored_end(env: LedgerEnvironment, ledger_id: int, batch_size: int) -> tuple[LedgerNode, int]:
    """Metadata and newest entry of a ledger that may be being written, without disturbing its writer.

    Everything that was acknowledged before the call is at that entry or before it; entries that were under way may be,
    as after recovery. Raises NoSuchLedgerError, UnknownEntryError, CorruptionError.
    """
    stored = await env.ledgers.read(ledger_id)
    for _ in range(RECOVERY_ATTEMPTS_MAX):
        if stored.metadata.is_closed:
            return stored, stored.metadata.last_entry_id
        last = await _stored_end(env, ledger_id, stored, batch_size)
        # The writer may have gone on with other bookies meanwhile: entries that only they have were not asked for.
        found = await env.ledgers.read(ledger_id)
        if found.metadata.fragments == stored.metadata.fragments:
            return stored, last
        stored = found
    raise UnknownEntryError(f"ledger {ledger_id} changed its bookies {RECOVERY_ATTEMPTS_MAX} times while it was read")


async def _stored_end(env: LedgerEnvironment, ledger_id: int, stored: LedgerNode, batch_size: int) -> int:
    session = _Session(env, ledger_id, stored)
    fragments = stored.metadata.fragments
    lac = max(await session.read_lac(fragments[-1].ensemble, fence=False), fragments[-1].first_entry_id - 1)
    # One of those that answered has each entry that was acknowledged: beyond the newest of theirs there is none.
    newest, last = session.newest_entry_id, max(lac, -1)
    while last < newest:
        count = min(batch_size, newest - last)
        entries = await session.read_forward(fragments, last + 1, count, lac, fence=False)
        last += len(entries)
        if len(entries) < count:
            break
    return last


class _Session:
    """One attempt at one ledger: which bookies it has fenced, and the metadata it goes by."""

    __slots__ = (
        "_digest",
        "_distribution",
        "_env",
        "_fenced",
        "_known",
        "_last_entries",
        "_ledger_id",
        "_master_key",
        "_stored",
        "newest_entry_id",
    )

    def __init__(self, env: LedgerEnvironment, ledger_id: int, stored: LedgerNode) -> None:
        metadata = stored.metadata
        self._env = env
        self._ledger_id = ledger_id
        self._stored = stored
        #: What the end is found by; the ledger is closed if it has these still.
        self._known = metadata
        self._distribution = Distribution.of(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
        self._digest = digest_for(metadata.digest_type, metadata.password)
        self._master_key = master_key(metadata.password)
        self._fenced: set[str] = set()
        #: What bookies called their last entry when they were fenced, checked: they need not be asked for it again.
        self._last_entries: dict[tuple[str, int], bytes] = {}
        #: The greatest that a bookie told of when it was asked for the LAC.
        self.newest_entry_id = -1

    async def recover(self, batch_size: int) -> LedgerNode:
        """Drive the procedure to its end."""
        custom = self._stored.metadata.custom_metadata
        # Of a ledger that may not be on any bookie it has to be known which, before one takes another's place.
        places = self._env.placement
        placement = await places.known(custom) if META_PLACEMENT in custom else places.current(custom)
        procedure = recover_ledger(
            self._stored.metadata, batch_size=batch_size, placement=placement, below=self._env.below
        )
        try:
            command = next(procedure)
            while True:
                command = procedure.send(await self._carry_out(command))
        except StopIteration:
            pass
        except CorruptionError as error:
            raise CorruptionError(f"ledger {self._ledger_id}: {error}") from error
        _log.debug("ledger %d recovered: last entry %d", self._ledger_id, self._stored.metadata.last_entry_id)
        return self._stored

    async def _carry_out(self, command: RecoveryCommand) -> RecoveryReply:
        match command:
            case FenceAndReadLac(ensemble):
                lac = await self.read_lac(ensemble, fence=True)
                crash_point(crash_points.RECOVERY_FENCED)
                return ToldEnd(lac, self.newest_entry_id)
            case ReadForward(fragments, first_entry_id, count, acknowledged):
                entries = await self.read_forward(fragments, first_entry_id, count, acknowledged, fence=True)
                crash_point(crash_points.RECOVERY_READ)
                return entries
            case WriteBack(fragments, first_entry_id, entries):
                result = await self._write_back(fragments, first_entry_id, entries)
                crash_point(crash_points.RECOVERY_WRITTEN_BACK)
                return result
            case CloseLedger():
                self._stored = await self._env.ledgers.update(
                    self._ledger_id, partial(self._close, command), known=self._stored
                )
                crash_point(crash_points.RECOVERY_CLOSED)
                return self._stored.metadata

    def _close(self, command: CloseLedger, found: LedgerMetadata) -> LedgerMetadata:
        if found.is_closed:
            return found
        if found != self._known:
            raise BadVersionError(f"ledger {self._ledger_id} changed while it was recovered")
        return found.with_fragments(command.fragments).closed(
            last_entry_id=command.last_entry_id, length_bytes=command.length_bytes
        )

    # ---- fencing and the LAC

    async def read_lac(self, ensemble: Sequence[str], *, fence: bool) -> int:
        """The largest LAC, once enough bookies answered; raises UnknownEntryError."""
        quorum = LacQuorum(self._distribution)

        def ask_all(done: Callable[[int | GemingaError], None]) -> None:
            def on_lac(index: int, result: LacResult | StorageError) -> None:
                lac = result if isinstance(result, StorageError) else self._lac_of(result)
                if fence and not isinstance(result, StorageError):
                    self._fenced.add(ensemble[index])
                    if result.last_entry is not None and not isinstance(lac, StorageError):
                        self._last_entries[ensemble[index], result.last_entry_id] = result.last_entry
                verdict = quorum.answer(index, lac)
                if verdict is not None:
                    done(self._of_ledger(verdict) if isinstance(verdict, StorageError) else verdict)

            for index, bookie_id in enumerate(ensemble):
                bookie, heard = self._env.bookies.get(bookie_id), partial(on_lac, index)
                if fence:
                    bookie.fence_and_read_lac(self._ledger_id, master_key=self._master_key, done=heard)
                else:
                    bookie.read_lac(self._ledger_id, done=heard)

        return await answer_of(ask_all)

    def _of_ledger(self, error: StorageError) -> StorageError:
        """Why it can not be told, and of which ledger."""
        return UnknownEntryError(f"ledger {self._ledger_id}: {error}")

    def _lac_of(self, result: LacResult) -> int | StorageError:
        """What a bookie's answer proves to be confirmed."""
        self.newest_entry_id = max(self.newest_entry_id, result.last_entry_id)
        announced = self._announced(result)
        if result.last_entry is None:
            return announced
        payload = self._digest.payload(self._ledger_id, result.last_entry_id, result.last_entry)
        if isinstance(payload, StorageError):
            return payload
        return max(read_header(result.last_entry).last_add_confirmed, announced)

    def _announced(self, result: LacResult) -> int:
        """The LAC that the writer announced by itself; -1 if it did not. One that is damaged proves nothing."""
        if result.explicit_lac is None:
            return -1
        lac = self._digest.announced_lac(self._ledger_id, result.explicit_lac)
        if isinstance(lac, CorruptionError):
            _log.warning("%s: passed over", lac)
            return -1
        return lac

    def _fence_then(self, bookie_id: str, go_on: Callable[[], None], fail: Callable[[StorageError], None]) -> None:
        """Fence the bookie unless done before, then ``go_on``; ``fail`` if it can not be fenced."""
        if bookie_id in self._fenced:
            go_on()
            return

        def on_fenced(error: StorageError | None) -> None:
            if error is not None:
                fail(error)
                return
            self._fenced.add(bookie_id)
            go_on()

        self._env.bookies.get(bookie_id).fence(self._ledger_id, master_key=self._master_key, done=on_fenced)

    # ---- reading forward

    async def read_forward(
        self, fragments: Sequence[LedgerFragment], first_entry_id: int, count: int, acknowledged: int, *, fence: bool
    ) -> tuple[bytes, ...]:
        """Entries up to the first that is certainly absent; raises UnknownEntryError if one can not be told.

        Those up to ``acknowledged`` were, so that each bookie is waited for.
        """
        reads = [
            RecoveryRead(self._distribution, entry_id, is_acknowledged=entry_id <= acknowledged)
            for entry_id in range(first_entry_id, first_entry_id + count)
        ]
        by_bookie: dict[str, list[tuple[RecoveryRead, int]]] = {}
        for read in reads:
            ensemble = fragment_of(fragments, read.entry_id).ensemble
            write_set = self._distribution.write_set(read.entry_id)
            if fence and self._is_told(read, ensemble, write_set):
                continue
            for index in write_set:
                by_bookie.setdefault(ensemble[index], []).append((read, index))

        def ask_all(done: Callable[[tuple[bytes, ...] | GemingaError], None]) -> None:
            def on_read(asked: list[tuple[RecoveryRead, int]], results: Sequence[bytes | StorageError]) -> None:
                for (read, index), result in zip(asked, results, strict=True):
                    read.answer(index, self._checked(read.entry_id, result))
                decide()

            def decide() -> None:
                found = _found_prefix(reads)
                if found is not None:
                    done(self._of_ledger(found) if isinstance(found, StorageError) else found)

            if not by_bookie:
                decide()
            for bookie_id, asked in by_bookie.items():
                take = partial(on_read, asked)
                entry_ids = [read.entry_id for read, _ in asked]
                ask = partial(self._env.bookies.get(bookie_id).read_entries, self._ledger_id, entry_ids, take)
                if fence:
                    self._fence_then(bookie_id, ask, partial(_fail_all, take, len(asked)))
                else:
                    ask()

        return await answer_of(ask_all)

    def _is_told(self, read: RecoveryRead, ensemble: Sequence[str], write_set: Sequence[int]) -> bool:
        """Whether a bookie gave the entry when it was fenced: a copy is all that recovery needs."""
        for index in write_set:
            entry = self._last_entries.get((ensemble[index], read.entry_id))
            if entry is not None:
                read.answer(index, entry)
                return True
        return False

    def _checked(self, entry_id: int, result: bytes | StorageError) -> bytes | StorageError:
        if isinstance(result, StorageError):
            return result
        payload = self._digest.payload(self._ledger_id, entry_id, result)
        return payload if isinstance(payload, StorageError) else result

    # ---- writing back

    async def _write_back(
        self, fragments: Sequence[LedgerFragment], first_entry_id: int, entries: Sequence[bytes]
    ) -> WriteBackResult:
        """Send to every bookie of the write sets; ends with the ack quorum or when all have answered."""
        queue = AddQueue(self._distribution)
        failed: dict[str, StorageError] = {}
        outcome: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        pending = queue.push(first_entry_id, entries, 0, lambda first, count, error: None)
        ensemble = fragments[-1].ensemble
        invariant(
            first_entry_id >= fragments[-1].first_entry_id, f"write back of entry {first_entry_id} to {fragments}"
        )
        whole = range(first_entry_id, first_entry_id + len(entries))
        shares = [self._distribution.share(index, whole) for index in range(len(ensemble))]
        unanswered = sum(map(len, shares))

        def on_added(index: int, entry_ids: Sequence[int], error: StorageError | None) -> None:
            nonlocal unanswered
            unanswered -= len(entry_ids)
            if error is None:
                queue.acknowledge(pending, index, entry_ids)
            else:
                failed[ensemble[index]] = error
            if not pending.unacknowledged or not unanswered:
                _resolve(outcome, not pending.unacknowledged)

        for index, share in enumerate(shares):
            if share:
                self._env.bookies.get(ensemble[index]).add_entries(
                    self._ledger_id,
                    share,
                    [entries[entry_id - first_entry_id] for entry_id in share],
                    master_key=self._master_key,
                    recovery=True,
                    done=partial(on_added, index),
                )
        is_enough = await outcome
        return WriteBackResult(is_enough, dict(failed), tuple(self._env.bookies.available()))


def _found_prefix(reads: Sequence[RecoveryRead]) -> tuple[bytes, ...] | StorageError | None:
    """The entries before the first absent one, the error of one that can not be told, or None while it is open."""
    found: list[bytes] = []
    for read in reads:
        match read.verdict:
            case ReadVerdict.FOUND:
                invariant(read.entry is not None, f"entry {read.entry_id} found without its bytes")
                found.append(read.entry or b"")
            case ReadVerdict.ABSENT:
                break
            case ReadVerdict.UNDECIDED:
                return None
            case ReadVerdict.UNKNOWN:
                return UnknownEntryError(
                    f"entry {read.entry_id}: neither found nor certainly absent: {worst_error(read.errors)}"
                )
    return tuple(found)


def _fail_all(done: Callable[[Sequence[StorageError]], None], count: int, error: StorageError) -> None:
    done([error] * count)


def _resolve(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)

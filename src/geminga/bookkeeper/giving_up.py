"""A ledger whose end can not be told is closed behind the newest entry that can be read: by command alone.

Recovery never guesses, so a ledger of which the newest entries are damaged or gone can not be opened, nor can the log
that it is the last one of. What lies behind the newest entry that somebody still has is given up here, as an operator
says. A ledger that can be recovered is, and then nothing is given up. Entries before the end that can not be read stay
what they are: readers of a closed ledger are told of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from geminga.bookkeeper.core.distribution import Distribution
from geminga.bookkeeper.core.reads import is_certain_absence
from geminga.bookkeeper.environment import LedgerEnvironment
from geminga.bookkeeper.ledger_store import LedgerNode
from geminga.bookkeeper.read_op import fragment_of
from geminga.bookkeeper.recovery import recover_stored_ledger
from geminga.model.bookie_port import EntryData, FenceDone, ListDone, ReadDone
from geminga.model.errors import (
    BadVersionError,
    CorruptionError,
    MetadataError,
    PreconditionFailedError,
    StorageError,
)
from geminga.runtime import again, answer_of, get_logger
from geminga.wire.bookkeeper.digest import digest_for, master_key, read_header
from geminga.wire.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState

#: Where a bookie does not say what it has, so many windows in a row without an entry end the search for newer ones.
EMPTY_WINDOWS_MAX: Final = 10

_log = get_logger(__name__)


class GivenUpEnd(NamedTuple):
    """Where a ledger ends now."""

    #: Its newest entry, -1: it is empty.
    last_entry_id: int
    #: The newest that a bookie says it has: those behind the end are lost.
    newest_entry_id: int
    #: Payload bytes up to its end.
    length_bytes: int
    #: Why it could not be recovered.
    error: str
    #: What does not answer, or can not be read now: it might come back. Without any all is damaged or gone for certain.
    doubts: tuple[str, ...]


async def give_up_end(
    env: LedgerEnvironment, ledger_id: int, batch_size: int, *, is_forced: bool, is_dry: bool
) -> GivenUpEnd:
    """Close it. ``is_forced``: also if what is given up is only out of reach; ``is_dry``: only tell what would be lost.

    Raises PreconditionFailedError where nothing is to be given up, or only by force, NoSuchLedgerError, StorageError:
    then it is not closed.
    """
    stored = await env.ledgers.read(ledger_id)
    if stored.metadata.is_closed:
        raise PreconditionFailedError("The ledger is closed: where it ends is known")
    try:
        await recover_stored_ledger(env, ledger_id, stored, batch_size)
    except MetadataError:
        raise
    except StorageError as error:
        why = str(error)
    else:
        raise PreconditionFailedError("The ledger could be recovered, all of it: nothing was given up")
    # Its writer is to put no other bookie in, and not to close it: what it has then could not be told any more.
    stored = await env.ledgers.update(ledger_id, _mark)
    if stored.metadata.is_closed:
        raise PreconditionFailedError("The ledger was closed meanwhile: where it ends is known")
    end = _Remains(env, ledger_id, stored.metadata)
    await end.fence()
    await end.find(batch_size)
    found = GivenUpEnd(end.last_entry_id, end.newest_entry_id, end.length_bytes, why, tuple(end.doubts))
    if is_dry:
        return found
    if end.doubts and not is_forced:
        _log.warning("ledger %d is not given up: %s", ledger_id, "; ".join(end.doubts))
        raise PreconditionFailedError(
            "What the ledger had is out of reach, which may pass: if it is lost for good, force it"
        )
    await end.write_back()
    await env.ledgers.update(ledger_id, partial(_close, stored, found), known=stored)
    _log.error(
        "ledger %d: its end was given up by command: it ends at entry %d, bookies have some up to %d: %s",
        ledger_id,
        found.last_entry_id,
        found.newest_entry_id,
        why,
    )
    return found


def _mark(found: LedgerMetadata) -> LedgerMetadata:
    return found.with_state(LedgerState.IN_RECOVERY) if found.state is LedgerState.OPEN else found


def _close(stored: LedgerNode, end: GivenUpEnd, found: LedgerMetadata) -> LedgerMetadata:
    closed = stored.metadata.closed(last_entry_id=end.last_entry_id, length_bytes=end.length_bytes)
    if found == closed:
        return found
    if found.is_closed:
        raise PreconditionFailedError("The ledger was closed meanwhile: where it ends is known")
    if found != stored.metadata:
        raise BadVersionError("the ledger changed while its end was looked for")
    return closed


class _Remains:
    """What bookies have of one ledger that is in recovery."""

    __slots__ = (
        "_digest",
        "_distribution",
        "_env",
        "_fragments",
        "_is_listed",
        "_ledger_id",
        "_master_key",
        "_newest",
        "doubts",
        "last_entry_id",
        "length_bytes",
        "newest_entry_id",
    )

    def __init__(self, env: LedgerEnvironment, ledger_id: int, metadata: LedgerMetadata) -> None:
        self._env = env
        self._ledger_id = ledger_id
        self._fragments = metadata.fragments
        self._distribution = Distribution.of(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
        self._digest = digest_for(metadata.digest_type, metadata.password)
        self._master_key = master_key(metadata.password)
        #: Entries that could be read, whole, of the window in which the newest one is.
        self._newest: dict[int, bytes] = {}
        #: Every bookie said which entries it has.
        self._is_listed = True
        #: Why something may come back.
        self.doubts: list[str] = []
        #: The last fragment is there since all before it was acknowledged.
        self.last_entry_id = self.newest_entry_id = self._fragments[-1].first_entry_id - 1
        self.length_bytes = 0

    async def fence(self) -> None:
        """Have the last bookies take nothing more, and say which entries they have."""
        for bookie_id in self._fragments[-1].ensemble:
            try:
                await answer_of(partial(self._fence, bookie_id))
            except StorageError as error:
                self._doubt(bookie_id, error)
            # Also of one that could not say that it is fenced, as where its last entry is damaged.
            try:
                runs = await answer_of(partial(self._list, bookie_id))
            except StorageError as error:
                self._is_listed &= not self._doubt(bookie_id, error)
            else:
                self.newest_entry_id = max([self.newest_entry_id, *(run.stop - 1 for run in runs)])

    def _doubt(self, bookie_id: str, error: StorageError) -> bool:
        """Note that it may have something all the same; False: it is certain that it has nothing."""
        if is_certain_absence(error):
            return False
        self.doubts.append(f"bookie {bookie_id}: {error}")
        return True

    def _fence(self, bookie_id: str, done: FenceDone) -> None:
        self._env.bookies.get(bookie_id).fence(self._ledger_id, master_key=self._master_key, done=done)

    def _list(self, bookie_id: str, done: ListDone) -> None:
        self._env.bookies.get(bookie_id).list_entries(self._ledger_id, done=done)

    async def find(self, batch_size: int) -> None:
        """From the newest entry on backwards to the first that can be read."""
        if not self._is_listed:
            await self._look_further(batch_size)
        stop = self.newest_entry_id + 1
        while stop and not self._newest:
            window = range(max(0, stop - batch_size), stop)
            self._newest = await self._read(window)
            stop = window.start
        if self._newest:
            newest = max(self._newest)
            self.last_entry_id = max(self.last_entry_id, newest)
            self.length_bytes = read_header(self._newest[newest]).length_bytes

    async def _look_further(self, batch_size: int) -> None:
        """Who does not say what it has, as one that lost a part of its journal, may have newer ones all the same."""
        told, self.doubts = self.doubts, []
        start, empty = self.newest_entry_id + 1, 0
        while empty < EMPTY_WINDOWS_MAX:
            found = await self._read(range(start, start + batch_size))
            self.newest_entry_id = max([self.newest_entry_id, *found])
            start, empty = start + batch_size, 0 if found else empty + 1
        # That there is nothing behind the newest is what was asked.
        self.doubts = told

    async def _read(self, entry_ids: range) -> dict[int, bytes]:
        """Those that somebody has, checked. What keeps others from it that may pass is noted."""
        found: dict[int, bytes] = {}
        by_bookie: dict[str, list[int]] = {}
        for entry_id in entry_ids:
            ensemble = fragment_of(self._fragments, entry_id).ensemble
            for index in self._distribution.write_set(entry_id):
                by_bookie.setdefault(ensemble[index], []).append(entry_id)
        passing: dict[int, str] = {}
        for bookie_id, asked in by_bookie.items():
            for entry_id, result in zip(asked, await self._ask(bookie_id, asked), strict=True):
                checked = self._checked(entry_id, result)
                if not isinstance(checked, StorageError):
                    found.setdefault(entry_id, checked)
                elif not (is_certain_absence(checked) or isinstance(checked, CorruptionError)):
                    passing.setdefault(entry_id, f"bookie {bookie_id}: {checked}")
        # Only what lies behind the end is given up.
        end = max([*found, self._fragments[-1].first_entry_id - 1])
        lost = [entry_id for entry_id in passing if entry_id > end]
        if lost:
            self.doubts.append(passing[max(lost)])
        return found

    async def _ask(self, bookie_id: str, entry_ids: Sequence[int]) -> Sequence[EntryData | StorageError]:
        def ask(done: ReadDone) -> None:
            self._env.bookies.get(bookie_id).read_entries(self._ledger_id, entry_ids, done)

        return await answer_of(ask)

    def _checked(self, entry_id: int, result: EntryData | StorageError) -> bytes | StorageError:
        if isinstance(result, StorageError):
            return result
        payload = self._digest.payload(self._ledger_id, entry_id, result)
        return again(payload) if isinstance(payload, StorageError) else bytes(result)

    async def write_back(self) -> None:
        """The last entries may be on fewer bookies than were to have them: what of them can be read goes to all.

        A bookie that does not take them is told of: auto-recovery gives them to another.
        """
        first = stop = self.last_entry_id + 1
        if self.last_entry_id not in self._newest:
            return
        confirmed = read_header(self._newest[self.last_entry_id]).last_add_confirmed
        least = max(confirmed + 1, self._fragments[-1].first_entry_id)
        while first > least and first - 1 in self._newest:
            first -= 1
        for index, bookie_id in enumerate(self._fragments[-1].ensemble):
            share = self._distribution.share(index, range(first, stop))
            if not share:
                continue
            try:
                await answer_of(partial(self._add, bookie_id, share))
            except StorageError as error:
                _log.warning("ledger %d: bookie %s does not take its end: %s", self._ledger_id, bookie_id, error)

    def _add(self, bookie_id: str, entry_ids: Sequence[int], done: FenceDone) -> None:
        left = set(entry_ids)

        def added(ids: Sequence[int], error: StorageError | None) -> None:
            left.difference_update(ids)
            if error is not None or not left:
                done(error)

        self._env.bookies.get(bookie_id).add_entries(
            self._ledger_id,
            entry_ids,
            [self._newest[entry_id] for entry_id in entry_ids],
            master_key=self._master_key,
            recovery=True,
            done=added,
        )

"""Ledger recovery: stop the old writer, find the end, copy it to its write quorum, close. Pure, generator style.

The rules, with the defects of other implementations that they answer (BookKeeper protocol, "Closing ledgers"):

- The LAC is asked of bookies that are fenced first, until no write set has an ack quorum among the silent ones.
- Reads forward go to fenced bookies only, also to one that came back late (B1, BK #2614).
- The end is never below the first entry of the last fragment minus one: that fragment's existence proves
  that everything before it was acknowledged (B2, BK #2615).
- "No such entry" needs (Qw - Qa) + 1 certain answers; an I/O error or limbo is not one (B4, BK #2908).
- The entry at the LAC was acknowledged: if no bookie has it the ledger is damaged, not shorter.
- Entries found past the LAC are written back, byte for byte, before the ledger is closed over them.
- The close is a compare-and-set on the metadata that all of this went by: of several recoverers one wins, the others
  take its result, and where the writer got another bookie in meanwhile it begins anew, with that one fenced. So it
  need not be forbidden to him beforehand: no state of the metadata says that a ledger is recovered.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from geminga.bookkeeper.core.distribution import Distribution
from geminga.bookkeeper.core.ensemble_change import EnsembleChange, change_ensemble
from geminga.bookkeeper.core.reads import is_certain_absence, worst_error
from geminga.model.errors import CorruptionError, NotEnoughBookiesError, StorageError, UnknownEntryError, invariant
from geminga.wire.bookkeeper.digest import read_header
from geminga.wire.bookkeeper.ledger_metadata import LedgerFragment, LedgerMetadata

if TYPE_CHECKING:
    from geminga.bookkeeper.core.placement import Below, Placement

#: Ensemble changes while writing back one batch, before recovery gives up.
WRITE_BACK_ATTEMPTS_MAX: Final = 16
#: Entries that are read first, at most: the one at the LAC, the one behind it, which of a writer that was idle is the
#: last, and one that is not there. Then twice as many each time: what is absent is asked for entry by entry, of each
#: bookie, so that behind the newest entry that any told of one is asked for, and no more.
READ_FIRST: Final = 3


class FenceAndReadLac(NamedTuple):
    """Fence the bookies of the ensemble and ask each for its LAC. Reply: :class:`ToldEnd`, once covered."""

    ensemble: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ToldEnd:
    """What fenced bookies told of a ledger's end."""

    #: The largest.
    lac: int
    #: The newest entry that any of them called its last; -1: none has one. There may be newer ones all the same.
    newest_entry_id: int


@dataclass(frozen=True, slots=True)
class ReadForward:
    """Read consecutive entries of fenced bookies. Reply: them, up to the first that is certainly absent."""

    fragments: tuple[LedgerFragment, ...]
    first_entry_id: int
    count: int
    #: Up to here all were acknowledged: of these none is absent before every bookie has said so.
    last_acknowledged: int = -1


class WriteBack(NamedTuple):
    """Store entries with the recovery flag. Reply: :class:`WriteBackResult`."""

    fragments: tuple[LedgerFragment, ...]
    first_entry_id: int
    entries: tuple[bytes, ...]


class CloseLedger(NamedTuple):
    """Close by CAS on the metadata given, unless closed already. Reply: those after it, whoever wrote them."""

    fragments: tuple[LedgerFragment, ...]
    last_entry_id: int
    length_bytes: int


@dataclass(frozen=True, slots=True)
class WriteBackResult:
    """What became of a :class:`WriteBack`."""

    #: Every entry has its ack quorum.
    is_enough: bool
    #: Bookies that failed, and why.
    failed: Mapping[str, StorageError]
    #: Bookies that could take their place.
    available: tuple[str, ...]


RecoveryCommand: TypeAlias = FenceAndReadLac | ReadForward | WriteBack | CloseLedger
RecoveryReply: TypeAlias = LedgerMetadata | ToldEnd | tuple[bytes, ...] | WriteBackResult
Recovery: TypeAlias = Generator[RecoveryCommand, RecoveryReply, LedgerMetadata]


class LacQuorum:
    """The answers of an ensemble to the question for the LAC."""

    __slots__ = ("_distribution", "_errors", "_lacs", "_silent")

    def __init__(self, distribution: Distribution) -> None:
        self._distribution = distribution
        self._silent = set(range(distribution.ensemble_size))
        self._lacs: dict[int, int] = {}
        self._errors: list[StorageError] = []

    def answer(self, index: int, result: int | StorageError) -> int | StorageError | None:
        """Bookie ``index`` told its LAC or failed. The ensemble's LAC once it is covered, None while it is open.

        A bookie that is certain never to have heard of the ledger counts as -1. An error once it is hopeless.
        """
        invariant(index in self._silent, f"an answer too many from bookie {index}")
        self._silent.discard(index)
        if isinstance(result, StorageError) and not is_certain_absence(result):
            self._errors.append(result)
        else:
            self._lacs[index] = -1 if isinstance(result, StorageError) else result
            if self._distribution.is_covered(self._lacs.keys()):
                return max(self._lacs.values())
        if self._silent:
            return None
        error = worst_error(self._errors)
        return UnknownEntryError(f"the end of the ledger can not be told: {error}")


def recover_ledger(metadata: LedgerMetadata, *, batch_size: int, placement: Placement, below: Below) -> Recovery:
    """Drive with ``send(reply)``; the generator returns the closed ledger's metadata or raises StorageError."""
    fragments = metadata.fragments
    told = yield FenceAndReadLac(fragments[-1].ensemble)
    assert isinstance(told, ToldEnd)
    lac = max(told.lac, fragments[-1].first_entry_id - 1)
    # The old writer's fragments say where to read; what is written back may move to other bookies.
    written = fragments
    next_entry_id = max(lac, 0)
    last_entry_id, length_bytes = lac, 0
    count = min(max(lac, told.newest_entry_id) + 2 - next_entry_id, READ_FIRST, batch_size)
    while True:
        entries = yield ReadForward(fragments, next_entry_id, count, lac)
        assert isinstance(entries, tuple)
        if not entries and next_entry_id <= lac:
            raise CorruptionError(f"entry {next_entry_id} was acknowledged and is on no bookie of {fragments}")
        length_bytes = _check_entries(entries, next_entry_id, length_bytes)
        unconfirmed = entries[lac + 1 - next_entry_id :] if next_entry_id <= lac else entries
        if unconfirmed:
            first = next_entry_id + len(entries) - len(unconfirmed)
            replace = partial(change_ensemble, write_quorum=metadata.write_quorum, placement=placement, below=below)
            written = yield from _write_back(written, first, unconfirmed, replace)
        next_entry_id += len(entries)
        last_entry_id = max(lac, next_entry_id - 1)
        if len(entries) < count:
            break
        count = min(2 * count, batch_size)
    invariant(last_entry_id >= lac, f"recovery would cut at {last_entry_id}, below the LAC {lac}")
    closed = yield CloseLedger(written, last_entry_id, length_bytes)
    assert isinstance(closed, LedgerMetadata)
    invariant(closed.is_closed, f"recovery ended with a ledger in state {closed.state.name}")
    return closed


def _check_entries(entries: Sequence[bytes], first_entry_id: int, length_bytes: int) -> int:
    """The ledger's length at the last of ``entries``; they must follow each other and never shrink."""
    for entry_id, entry in enumerate(entries, first_entry_id):
        header = read_header(entry)
        invariant(header.entry_id == entry_id, f"read entry {header.entry_id} in place of {entry_id}")
        if header.length_bytes < length_bytes:
            raise CorruptionError(f"entry {entry_id}: ledger length {header.length_bytes} after {length_bytes}")
        length_bytes = header.length_bytes
    return length_bytes


def _write_back(
    fragments: tuple[LedgerFragment, ...],
    first_entry_id: int,
    entries: tuple[bytes, ...],
    replace: Callable[..., EnsembleChange],
) -> Generator[RecoveryCommand, RecoveryReply, tuple[LedgerFragment, ...]]:
    """Write a batch back, replacing bookies that fail while there are others; the fragments it went to."""
    for _ in range(WRITE_BACK_ATTEMPTS_MAX):
        result = yield WriteBack(fragments, first_entry_id, entries)
        assert isinstance(result, WriteBackResult)
        if not result.failed and result.is_enough:
            return fragments
        try:
            fragments = replace(
                fragments,
                first_entry_id=first_entry_id,
                failed=result.failed.keys(),
                available=result.available,
            ).fragments
        except NotEnoughBookiesError:
            if result.is_enough:
                # As durable as any acknowledged entry; the missing copies are for re-replication.
                return fragments
            raise
    raise NotEnoughBookiesError(
        f"entries from {first_entry_id} could not be written back in {WRITE_BACK_ATTEMPTS_MAX} ensembles"
    )

"""Reading consecutive entries of a ledger: one call for each bookie, digests checked, the next replica on an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from geminga.bookkeeper.core.distribution import Distribution
from geminga.bookkeeper.core.reads import worst_error
from geminga.model.bookie_port import BookiePool
from geminga.model.errors import CorruptionError, StorageError
from geminga.runtime import get_logger
from geminga.wire.bookkeeper.digest import EntryDigest
from geminga.wire.bookkeeper.ledger_metadata import LedgerFragment

#: Payloads in order, or the error of the first entry that no replica could give. Called once. With a limit of bytes
#: perhaps only the first payloads, at least one.
PayloadsDone = Callable[[Sequence[bytes] | StorageError], None]

_log = get_logger(__name__)


def fragment_of(fragments: Sequence[LedgerFragment], entry_id: int) -> LedgerFragment:
    """The fragment that holds the entry."""
    for fragment in reversed(fragments):
        if fragment.first_entry_id <= entry_id:
            return fragment
    raise StorageError(f"entry {entry_id} lies before the first fragment of {fragments}")


def read_single(
    pool: BookiePool,
    bookie_id: str,
    digest: EntryDigest,
    ledger_id: int,
    entry_ids: range,
    done: PayloadsDone,
    bytes_max: int | None = None,
) -> None:
    """The read of a ledger with one bookie: one call, no choice."""

    def on_read(results: Sequence[bytes | StorageError]) -> None:
        payloads: list[bytes] = []
        for entry_id, result in zip(entry_ids, results, strict=bytes_max is None):
            payload = result if isinstance(result, StorageError) else digest.payload(ledger_id, entry_id, result)
            if isinstance(payload, StorageError):
                if isinstance(payload, CorruptionError):
                    _log.error("bookie %s: %s", bookie_id, payload)
                done(payload)
                return
            payloads.append(payload)
        done(payloads)

    pool.get(bookie_id).read_entries(ledger_id, entry_ids, on_read, bytes_max=bytes_max)


class ReadOp:
    """One read of consecutive entries over several bookies and fragments."""

    __slots__ = (
        "_asked",
        "_attempts",
        "_bytes_max",
        "_digest",
        "_distribution",
        "_done",
        "_end",
        "_errors",
        "_first_entry_id",
        "_fragments",
        "_ledger_id",
        "_missing",
        "_payloads",
        "_pool",
    )

    def __init__(
        self,
        pool: BookiePool,
        digest: EntryDigest,
        distribution: Distribution,
        fragments: Sequence[LedgerFragment],
        ledger_id: int,
        entry_ids: range,
        done: PayloadsDone,
        bytes_max: int | None = None,
    ) -> None:
        self._pool = pool
        self._bytes_max = bytes_max
        #: Entries from here on were left out for the limit.
        self._end = entry_ids.stop
        self._digest = digest
        self._distribution = distribution
        self._fragments = fragments
        self._ledger_id = ledger_id
        self._first_entry_id = entry_ids.start
        self._payloads: list[bytes] = [b""] * len(entry_ids)
        self._done = done
        #: Entries that no bookie has given yet, and the errors of those that were asked.
        self._missing = list(entry_ids)
        self._errors: dict[int, list[StorageError]] = {}
        self._attempts = 0
        self._asked = 0

    def start(self) -> None:
        """Ask the first replica of each entry."""
        self._ask()

    def _ask(self) -> None:
        by_bookie: dict[str, list[int]] = {}
        for entry_id in self._missing:
            by_bookie.setdefault(self._replica(entry_id), []).append(entry_id)
        self._missing = []
        self._asked = len(by_bookie)
        # Each bookie's share, so that all together keep to the limit.
        share = None if self._bytes_max is None else self._bytes_max // len(by_bookie)
        for bookie_id, entry_ids in by_bookie.items():
            on_read = partial(self._on_read, bookie_id, entry_ids)
            self._pool.get(bookie_id).read_entries(self._ledger_id, entry_ids, on_read, bytes_max=share)

    def _replica(self, entry_id: int) -> str:
        """The bookie to ask in this attempt: for uniform ledgers the same one for all entries, so that it can batch."""
        ensemble = fragment_of(self._fragments, entry_id).ensemble
        start = self._ledger_id if self._distribution.is_uniform else entry_id
        return ensemble[self._distribution.write_set(start)[self._attempts]]

    def _on_read(self, bookie_id: str, entry_ids: list[int], results: Sequence[bytes | StorageError]) -> None:
        if len(results) < len(entry_ids):
            self._end = min(self._end, entry_ids[len(results)])
        for entry_id, result in zip(entry_ids, results, strict=self._bytes_max is None):
            payload = (
                result if isinstance(result, StorageError) else self._digest.payload(self._ledger_id, entry_id, result)
            )
            if isinstance(payload, StorageError):
                if isinstance(payload, CorruptionError):
                    _log.error("bookie %s: %s", bookie_id, payload)
                self._errors.setdefault(entry_id, []).append(payload)
                self._missing.append(entry_id)
            else:
                self._payloads[entry_id - self._first_entry_id] = payload
        self._asked -= 1
        if not self._asked:
            self._finish()

    def _finish(self) -> None:
        # What lies behind an entry that was left out is of no use.
        self._missing = [entry_id for entry_id in self._missing if entry_id < self._end]
        if not self._missing:
            del self._payloads[self._end - self._first_entry_id :]
            self._done(self._payloads)
            return
        self._attempts += 1
        self._missing.sort()
        if self._attempts < self._distribution.write_quorum:
            self._ask()
            return
        self._done(worst_error(self._errors[self._missing[0]]))

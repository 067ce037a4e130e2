"""Reading consecutive entries of a ledger: one call for each bookie, digests checked, the next replica on an error.

A replica that has not answered after a while is not waited for: the next one is asked beside it (a *speculative read*),
and the first sound copy is taken. What comes late is passed over. Who was late is asked last for a while by all reads
of the client: else each of them would wait as long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from geminga.bookkeeper.core.read_attempts import BookieRead, ReadAttempts, StickyReplica, read_order
from geminga.bookkeeper.replicas import UNANSWERED_S
from geminga.model.errors import CorruptionError, StorageError
from geminga.runtime import get_logger

if TYPE_CHECKING:
    from geminga.bookkeeper.core.distribution import Distribution
    from geminga.bookkeeper.replicas import Replicas
    from geminga.model.bookie_port import BookiePool, EntryData
    from geminga.wire.bookkeeper.digest import EntryDigest
    from geminga.wire.bookkeeper.ledger_metadata import LedgerFragment

#: Speculative calls of one client without an answer; no more are made beyond it, so that bookies that are all slow do
#: not get their load again with every replica.
SPECULATIVE_CALLS_MAX: Final = 64

#: Payloads in order, or the error of the first entry that no replica could give. Called once. With a limit of bytes
#: perhaps only the first payloads, at least one.
PayloadsDone = Callable[[Sequence[bytes] | StorageError], None]

_log = get_logger(__name__)


def fragment_of(fragments: Sequence[LedgerFragment], entry_id: int) -> LedgerFragment:
    """The fragment that holds the entry. Raises StorageError."""
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

    def on_read(results: Sequence[EntryData | StorageError]) -> None:
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
        "_attempts",
        "_bytes_max",
        "_digest",
        "_distribution",
        "_done",
        "_first_entry_id",
        "_fragments",
        "_is_done",
        "_ledger_id",
        "_orders",
        "_replicas",
        "_sticky",
        "_timer",
        "_whole",
    )

    def __init__(
        self,
        replicas: Replicas,
        digest: EntryDigest,
        distribution: Distribution,
        fragments: Sequence[LedgerFragment],
        ledger_id: int,
        entry_ids: range,
        done: PayloadsDone,
        bytes_max: int | None = None,
        sticky: StickyReplica | None = None,
    ) -> None:
        """``sticky``: of a ledger of which every bookie has every entry."""
        self._replicas = replicas
        self._digest = digest
        self._distribution = distribution
        self._fragments = fragments
        self._ledger_id = ledger_id
        self._first_entry_id = entry_ids.start
        self._done = done
        self._bytes_max = bytes_max
        self._sticky = sticky
        #: By fragment and write set; and the only one there is.
        self._orders: dict[tuple[int, int], tuple[str, ...]] = {}
        self._whole: tuple[str, ...] | None = None
        self._attempts = ReadAttempts(entry_ids, self._order)
        self._timer: asyncio.TimerHandle | None = None
        self._is_done = False

    def start(self) -> None:
        """Ask the first replica of each entry."""
        self._go_on(self._attempts.begin())

    def _order(self, entry_id: int) -> Sequence[str]:
        if self._whole is not None:
            return self._whole
        fragment = fragment_of(self._fragments, entry_id)
        distribution, sticky = self._distribution, self._sticky
        if not distribution.is_uniform:
            kind, start = entry_id % distribution.ensemble_size, 0
        elif sticky is not None:
            # One for all entries, so that it can batch.
            kind, start = 0, sticky.index
        else:
            kind, start = 0, self._first_entry_id
        key = fragment.first_entry_id, kind
        order = self._orders.get(key)
        if order is None:
            write_set = distribution.write_set(kind)
            order = read_order(fragment.ensemble, write_set, start, self._replicas.rank)
            self._orders[key] = order
            if distribution.is_uniform and len(self._fragments) == 1:
                self._whole = order
        return order

    def _go_on(self, asks: Sequence[BookieRead], *, is_speculative: bool = False) -> None:
        """Make the calls, and be done if that is all."""
        # Each call's share, so that all together keep to the limit.
        share = None if self._bytes_max is None or not asks else self._bytes_max // len(asks)
        began_s = self._replicas.now() if asks else 0.0
        for ask in asks:
            if self._is_done:
                return
            if is_speculative:
                self._replicas.speculative_calls += 1
            on_read = partial(self._on_read, ask, is_speculative, began_s)
            self._replicas.pool.get(ask.bookie_id).read_entries(
                self._ledger_id, ask.entry_ids, on_read, bytes_max=share
            )
        if self._is_done:
            return
        outcome = self._attempts.outcome
        if outcome is not None:
            self._is_done = True
            if self._timer is not None:
                self._timer.cancel()
            self._done(outcome)
        elif self._timer is None and self._replicas.speculative_s > 0 and self._attempts.late_bookie is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._replicas.speculative_s, self._time_passed)

    def _time_passed(self) -> None:
        """Nobody answered: ask the next replicas as well, unless too many calls are out already."""
        self._timer = None
        late = self._attempts.late_bookie
        if late is not None:
            self._replicas.was_late(late)
        if late is None or self._replicas.speculative_calls >= SPECULATIVE_CALLS_MAX:
            self._go_on(())
            return
        self._move_on(late)
        self._go_on(self._attempts.answer_is_late(), is_speculative=True)

    def _on_read(
        self, ask: BookieRead, is_speculative: bool, began_s: float, results: Sequence[EntryData | StorageError]
    ) -> None:
        if is_speculative:
            self._replicas.speculative_calls -= 1
        if isinstance(results[0], StorageError) and self._replicas.now() - began_s >= UNANSWERED_S:
            self._replicas.was_late(ask.bookie_id)
        if self._is_done:
            return
        checked: list[bytes | StorageError] = []
        for entry_id, result in zip(ask.entry_ids, results, strict=self._bytes_max is None):
            payload = (
                result if isinstance(result, StorageError) else self._digest.payload(self._ledger_id, entry_id, result)
            )
            if isinstance(payload, CorruptionError):
                _log.error("bookie %s: %s", ask.bookie_id, payload)
            checked.append(payload)
        if any(isinstance(payload, StorageError) for payload in checked):
            self._move_on(ask.bookie_id)
        self._go_on(self._attempts.answer(ask, checked))

    def _move_on(self, bookie_id: str) -> None:
        """The ledger's next reads begin with another one."""
        if self._sticky is not None:
            for fragment in self._fragments:
                if fragment.ensemble[self._sticky.index] == bookie_id:
                    self._sticky.failed(self._sticky.index)
                    return

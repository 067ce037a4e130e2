"""Which entries a bookie must get, who has them, and when all copies are durable. Pure.

A bookie that takes an index of an ensemble takes exactly the entries of that index: with E > Qw not all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from geminga.bookkeeper.core.distribution import Distribution
from geminga.model.errors import StorageError, invariant
from geminga.replication.core.fragments import SettledFragment
from geminga.wire.bookkeeper.ledger_metadata import LedgerMetadata


def shares_of(distribution: Distribution, entry_ids: range, targets: Mapping[int, str]) -> dict[str, Sequence[int]]:
    """By bookie, those of ``entry_ids`` that it must get to stand at its index; who gets none is left out."""
    shares = {bookie_id: distribution.share(index, entry_ids) for index, bookie_id in sorted(targets.items())}
    return {bookie_id: share for bookie_id, share in shares.items() if share}


def sources_of(
    distribution: Distribution,
    fragment: SettledFragment,
    entry_id: int,
    targets: Collection[int],
    live: Collection[str],
) -> tuple[str, ...]:
    """Who may have the entry, in the order to ask: its write set, those that are ``live`` first.

    Indexes that are being restored come last: a bookie that lost its registration may be there all the same, and what
    it has may be nowhere else.
    """
    indexes = distribution.write_set(entry_id)
    ranked = sorted(indexes, key=lambda index: (fragment.ensemble[index] not in live, index in targets))
    return tuple(fragment.ensemble[index] for index in ranked)


def expected_of(metadata: LedgerMetadata, fragments: Iterable[SettledFragment], bookie_id: str) -> list[Sequence[int]]:
    """Entries that a bookie should have of these fragments, one run for each fragment."""
    distribution = Distribution.of(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
    return [
        distribution.share(fragment.ensemble.index(bookie_id), fragment.entry_ids)
        for fragment in fragments
        if bookie_id in fragment.ensemble
    ]


def missing_entries(expected: Sequence[int], listed: Sequence[range]) -> list[int]:
    """Those of ``expected``, ascending, that are in none of ``listed``, ascending and disjoint."""
    missing = []
    runs = iter(listed)
    run = next(runs, None)
    for entry_id in expected:
        while run is not None and run.stop <= entry_id:
            run = next(runs, None)
        if run is None or entry_id < run.start:
            missing.append(entry_id)
    return missing


class DurableCopies:
    """Answers to the adds of one batch: done when each bookie has said of each of its entries that it is durable."""

    __slots__ = ("_failed", "_outstanding", "error")

    def __init__(self, shares: Mapping[str, Iterable[int]]) -> None:
        self._outstanding = {bookie_id: set(share) for bookie_id, share in shares.items()}
        #: The first failure; nothing of the batch may be relied on then.
        self.error: StorageError | None = None
        self._failed: list[str] = []

    def answer(self, bookie_id: str, entry_ids: Iterable[int], error: StorageError | None) -> None:
        """A bookie answered for some of its entries; what it was not asked for, or said before, counts nothing."""
        outstanding = self._outstanding.get(bookie_id)
        if outstanding is None:
            return
        if error is None:
            outstanding.difference_update(entry_ids)
        elif self.error is None and not outstanding.isdisjoint(entry_ids):
            self.error = error
            self._failed.append(bookie_id)

    @property
    def failed(self) -> list[str]:
        """Who failed, or else who has not answered."""
        return self._failed or [bookie_id for bookie_id, left in self._outstanding.items() if left]

    @property
    def is_done(self) -> bool:
        """Whether every copy is durable, or one failed."""
        return self.error is not None or not any(self._outstanding.values())


def whole_batches(entry_ids: range, batch_size: int) -> Iterator[range]:
    """``entry_ids`` in order, ``batch_size`` at a time."""
    invariant(batch_size > 0, f"batches of {batch_size} entries")
    return (entry_ids[start : start + batch_size] for start in range(0, len(entry_ids), batch_size))

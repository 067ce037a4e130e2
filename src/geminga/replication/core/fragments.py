"""Which fragments of a ledger lack replicas, and which of those may be restored. Pure.

A fragment is *settled* if nobody writes to it any more: all fragments of a closed ledger, and all but the last of one
that is open or in recovery (an ensemble changes at the first entry that is not confirmed, so what lies before a later
fragment was acknowledged). The last fragment of an open ledger is its writer's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import NamedTuple

from geminga.wire.bookkeeper.ledger_metadata import LedgerFragment, LedgerMetadata


class SettledFragment(NamedTuple):
    """Entries that will never change, and who has them."""

    #: All entries, ends included; empty: the ledger ended before it.
    entry_ids: range
    ensemble: tuple[str, ...]

    @property
    def first_entry_id(self) -> int:
        """By which the metadata name it."""
        return self.entry_ids.start


class LostReplicas(NamedTuple):
    """A settled fragment and the indexes of its ensemble whose bookies are lost, ascending."""

    fragment: SettledFragment
    indexes: tuple[int, ...]


def settled_fragments(metadata: LedgerMetadata) -> Iterator[SettledFragment]:
    """In order."""
    fragments = metadata.fragments
    for fragment, after in pairwise(fragments):
        end = after.first_entry_id
        if metadata.is_closed:
            end = min(end, metadata.last_entry_id + 1)
        yield _settled(fragment, end)
    if metadata.is_closed:
        yield _settled(fragments[-1], metadata.last_entry_id + 1)


def lost_replicas(metadata: LedgerMetadata, registered: Collection[str]) -> list[LostReplicas]:
    """Settled fragments that name bookies which are not ``registered``."""
    found = []
    for fragment in settled_fragments(metadata):
        indexes = tuple(index for index, name in enumerate(fragment.ensemble) if name not in registered)
        if indexes:
            found.append(LostReplicas(fragment, indexes))
    return found


def each_alone(lost: LostReplicas) -> Iterator[LostReplicas]:
    """Its indexes one by one: what one can not get need not keep the others from theirs."""
    return (LostReplicas(lost.fragment, (index,)) for index in lost.indexes)


def as_it_is_now(lost: LostReplicas, metadata: LedgerMetadata) -> LostReplicas | None:
    """With the ensemble of ``metadata``; None if others have those places there, or the fragment is another one."""
    wanted = lost.fragment
    for fragment in settled_fragments(metadata):
        is_same = (fragment.entry_ids.start, fragment.entry_ids.stop) == (wanted.entry_ids.start, wanted.entry_ids.stop)
        if is_same and all(fragment.ensemble[index] == wanted.ensemble[index] for index in lost.indexes):
            return LostReplicas(fragment, lost.indexes)
    return None


def is_tail_lost(metadata: LedgerMetadata, registered: Collection[str]) -> bool:
    """Whether the ledger is not closed and its last fragment names a bookie that is not ``registered``."""
    return not metadata.is_closed and any(name not in registered for name in metadata.last_fragment.ensemble)


def lost_bookies(metadata: LedgerMetadata, registered: Collection[str]) -> tuple[str, ...]:
    """Ids of all bookies that the ledger names and that are not ``registered``, sorted."""
    return tuple(sorted(bookies_of(metadata) - set(registered)))


def bookies_of(metadata: LedgerMetadata) -> set[str]:
    """Ids of all bookies that the ledger names."""
    return {name for fragment in metadata.fragments for name in fragment.ensemble}


def _settled(fragment: LedgerFragment, end: int) -> SettledFragment:
    return SettledFragment(range(fragment.first_entry_id, max(fragment.first_entry_id, end)), fragment.ensemble)

"""Replacing failed bookies of a ledger that is being written: who replaces whom, and the new fragments. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from geminga.model.errors import invariant
from geminga.wire.bookkeeper.ledger_metadata import LedgerFragment

if TYPE_CHECKING:
    from geminga.bookkeeper.core.placement import Below, Placement


class EnsembleChange(NamedTuple):
    """The fragments after the change, and which indexes of the last ensemble got a new bookie."""

    fragments: tuple[LedgerFragment, ...]
    replaced: tuple[int, ...]


def rebase_change(
    known: Sequence[LedgerFragment], planned: Sequence[LedgerFragment], found: Sequence[LedgerFragment]
) -> tuple[LedgerFragment, ...] | None:
    """What a writer that planned a change on ``known`` may write over ``found``; None: somebody else writes the ledger.

    Fragments before the last one are finished: their bookies may be others by now, who were given copies, and stay.
    The last one is the writer's alone: it is as it was known, or as it was planned (the change was written already).
    """

    def finished(fragments: Sequence[LedgerFragment]) -> list[int]:
        return [fragment.first_entry_id for fragment in fragments[:-1]]

    if found[-1] == planned[-1] and finished(found) == finished(planned):
        return tuple(found)
    if found[-1] != known[-1] or finished(found) != finished(known):
        return None
    return (*found[: len(planned) - 1], planned[-1])


def change_ensemble(
    fragments: Sequence[LedgerFragment],
    *,
    first_entry_id: int,
    failed: Collection[str],
    available: Sequence[str],
    write_quorum: int,
    placement: Placement,
    below: Below,
) -> EnsembleChange:
    """Replace ``failed`` bookies of the last ensemble for all entries from ``first_entry_id`` on.

    ``first_entry_id`` is that of the first entry not confirmed yet: everything before stays where it is. A last
    fragment that begins there holds nothing confirmed and is replaced. Raises NotEnoughBookiesError.
    """
    last = fragments[-1]
    invariant(
        first_entry_id >= last.first_entry_id,
        f"ensemble change at entry {first_entry_id}, before the last fragment of {fragments}",
    )
    replaced = tuple(index for index, bookie_id in enumerate(last.ensemble) if bookie_id in failed)
    if not replaced:
        return EnsembleChange(tuple(fragments), ())
    ensemble = placement.replacements(
        available, last.ensemble, replaced, write_quorum=write_quorum, below=below, excluded=failed
    )
    kept = fragments[:-1] if last.first_entry_id == first_entry_id else fragments
    return EnsembleChange((*kept, LedgerFragment(first_entry_id, ensemble)), replaced)

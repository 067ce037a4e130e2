"""What a ledger's metadata become when copies are in place: one bookie for another in a settled fragment. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from geminga.bookkeeper.core.placement import Below, Placement
from geminga.model.errors import BadVersionError
from geminga.replication.core.fragments import LostReplicas, SettledFragment, settled_fragments
from geminga.wire.bookkeeper.ledger_metadata import LedgerFragment, LedgerMetadata


def choose_targets(
    lost: LostReplicas, writable: Sequence[str], *, write_quorum: int, placement: Placement, below: Below
) -> dict[int, str]:
    """By index of the ensemble, who takes the place of who is lost; raises NotEnoughBookiesError.

    Chosen anew for each fragment, by who got the fewest lately: the copies of a bookie spread over all the others, from
    many to many. No bookie of the ensemble, also no lost one.
    """
    ensemble = placement.replacements(
        writable, lost.fragment.ensemble, lost.indexes, write_quorum=write_quorum, below=below
    )
    return {index: ensemble[index] for index in lost.indexes}


def replace_bookies(found: LedgerMetadata, copied: SettledFragment, targets: Mapping[int, str]) -> LedgerMetadata:
    """``found`` with ``targets`` in the fragment whose entries were ``copied``; the same if they are there already.

    Raises BadVersionError if the fragment is not what was copied any more: somebody else was at it.
    """
    first, end = copied.entry_ids.start, copied.entry_ids.stop
    now = [one for one in settled_fragments(found) if (one.entry_ids.start, one.entry_ids.stop) == (first, end)]
    if not now:
        raise BadVersionError(f"the fragment from entry {copied.first_entry_id} is another one now, or gone")
    ensemble = list(now[0].ensemble)
    for index, bookie_id in sorted(targets.items()):
        if ensemble[index] == bookie_id:
            continue
        if ensemble[index] != copied.ensemble[index] or bookie_id in ensemble:
            raise BadVersionError(f"the fragment from entry {copied.first_entry_id} is on {now[0].ensemble} now")
        ensemble[index] = bookie_id
    changed = LedgerFragment(copied.first_entry_id, tuple(ensemble))
    return found.with_fragments(
        [changed if one.first_entry_id == copied.first_entry_id else one for one in found.fragments]
    )

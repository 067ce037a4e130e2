"""Which bookies a new or repaired ensemble takes. Pure; randomness is passed in.

Rack and region rules join with the replicated storage; until then every writable bookie is as good as another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from geminga.model.errors import NotEnoughBookiesError, invariant

#: Draws an int from [0, n).
Below: TypeAlias = Callable[[int], int]


def choose_ensemble(available: Sequence[str], size: int, below: Below) -> tuple[str, ...]:
    """``size`` different bookies in random order; ``below(n)`` draws from [0, n). Raises NotEnoughBookiesError."""
    return _choose(available, size, frozenset(), below)


def choose_replacements(
    available: Sequence[str], ensemble: Collection[str], count: int, below: Below
) -> tuple[str, ...]:
    """``count`` different bookies outside of ``ensemble`` (which holds the failed ones too)."""
    return _choose(available, count, ensemble, below)


def _choose(available: Sequence[str], count: int, excluded: Collection[str], below: Below) -> tuple[str, ...]:
    candidates = [bookie_id for bookie_id in available if bookie_id not in excluded]
    if len(candidates) < count:
        raise NotEnoughBookiesError(f"need {count} writable bookies, have {len(candidates)} ({', '.join(candidates)})")
    chosen = [candidates.pop(below(len(candidates))) for _ in range(count)]
    invariant(len(set(chosen)) == count, f"chose a bookie twice: {chosen}")
    return tuple(chosen)

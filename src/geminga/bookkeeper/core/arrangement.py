"""Filling the slots of an ensemble so that every write set spans racks and regions. Pure.

A write set is Qw slots in a row, round the corner. A *spread* says how many different domains (racks, regions) each
write set must have. Bookies of one domain stand for each other, so the search is over domains: depth first, the best
bookie of each first, a slot that breaks a write set is left at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

#: Bookies tried for one ensemble, by each of two orders, before it is called impossible: a few ms.
TRIALS_MAX: Final = 2000

#: The bookie in each slot; None: to be filled.
Slots: TypeAlias = Sequence[str | None]


class DomainSpread(NamedTuple):
    """Every write set has bookies of so many domains; with 1 different ones are preferred all the same."""

    #: The domain of each bookie, those in fixed slots included.
    domain_of: Mapping[str, str]
    domains_min: int


def arrange(
    slots: Slots, candidates: Sequence[str], write_quorum: int, spreads: Sequence[DomainSpread], like: Mapping[int, str]
) -> tuple[str, ...] | None:
    """All slots filled, each with another of ``candidates``; None if that can not be (or was not found in time).

    ``candidates``: best first, none of them in a slot, as many as slots to fill at least. ``like``: of a slot the
    bookie that was there, whose domain is preferred. Domains that the write sets of a slot have least come next.
    """
    if all(spread.domains_min <= 1 and len({*spread.domain_of.values()}) == 1 for spread in spreads):
        best = iter(candidates)
        return tuple(next(best) if bookie_id is None else bookie_id for bookie_id in slots)
    for by_size in (False, True):
        search = _Search(slots, candidates, write_quorum, spreads, like, by_size=by_size)
        if search.fill():
            return tuple(search.filled)
        if search.trials:
            return None
    return None


class _Search:
    """One search; ``by_size``: domains with most bookies left first, which finds a way where few are left to choose."""

    def __init__(
        self,
        slots: Slots,
        candidates: Sequence[str],
        write_quorum: int,
        spreads: Sequence[DomainSpread],
        like: Mapping[int, str],
        *,
        by_size: bool,
    ) -> None:
        #: Empty text: not filled yet.
        self.filled = [bookie_id or "" for bookie_id in slots]
        self._open = [index for index, bookie_id in enumerate(slots) if bookie_id is None]
        self._spreads = spreads
        self._like = {index: self._domains(bookie_id) for index, bookie_id in like.items()}
        self._by_size = by_size
        self.trials = TRIALS_MAX + len(self._open)
        size = len(slots)
        #: By slot: those that it is in, each as slots.
        self._write_sets_of = {
            index: [
                [(index - back + i) % size for i in range(write_quorum)]
                for back in range(write_quorum if write_quorum < size else 1)
            ]
            for index in self._open
        }
        #: Candidates that stand for each other, best last; with the rank of each.
        self._classes: dict[tuple[str, ...], list[tuple[int, str]]] = {}
        for rank, bookie_id in reversed(list(enumerate(candidates))):
            self._classes.setdefault(self._domains(bookie_id), []).append((rank, bookie_id))

    def fill(self) -> bool:
        """Fill the open slots; whether there is a way."""
        untried: list[Iterator[tuple[str, ...]]] = []
        taken: list[tuple[tuple[str, ...], int]] = []
        while len(taken) < len(self._open):
            index = self._open[len(taken)]
            if len(untried) == len(taken):
                untried.append(iter(self._ordered(index)))
            found = self._take(index, untried[-1])
            if found is not None:
                taken.append(found)
                continue
            untried.pop()
            if not taken or not self.trials:
                return False
            self._put_back(self._open[len(taken) - 1], *taken.pop())
        return True

    def _take(self, index: int, untried: Iterator[tuple[str, ...]]) -> tuple[tuple[str, ...], int] | None:
        """Fill one slot; from which domains, and the rank of whom."""
        for domains in untried:
            if not self.trials:
                return None
            self.trials -= 1
            rank, self.filled[index] = self._classes[domains].pop()
            if all(self._holds(write_set) for write_set in self._write_sets_of[index]):
                return domains, rank
            self._put_back(index, domains, rank)
        return None

    def _put_back(self, index: int, domains: tuple[str, ...], rank: int) -> None:
        self._classes[domains].append((rank, self.filled[index]))
        self.filled[index] = ""

    def _ordered(self, index: int) -> list[tuple[str, ...]]:
        beside = [
            self._domains(self.filled[other])
            for write_set in self._write_sets_of[index]
            for other in write_set
            if other != index and self.filled[other]
        ]

        def preference(domains: tuple[str, ...]) -> tuple[int, ...]:
            left = self._classes[domains]
            size = -len(left) if self._by_size else 0
            common = sum(mine == other for one in beside for mine, other in zip(domains, one, strict=True))
            return size, int(domains != self._like.get(index, domains)), common, left[-1][0]

        return sorted((domains for domains, left in self._classes.items() if left), key=preference)

    def _holds(self, write_set: Sequence[int]) -> bool:
        """Whether a write set has its domains, or can still get them."""
        there = [self.filled[index] for index in write_set if self.filled[index]]
        missing = len(write_set) - len(there)
        for spread in self._spreads:
            different = len({spread.domain_of[bookie_id] for bookie_id in there})
            if different + missing < min(spread.domains_min, len(write_set)):
                return False
        return True

    def _domains(self, bookie_id: str) -> tuple[str, ...]:
        return tuple(spread.domain_of[bookie_id] for spread in self._spreads)

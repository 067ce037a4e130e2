"""Which bookies a new or repaired ensemble takes. Pure; randomness is passed in.

In this order: a bookie that takes no entries, is excluded, or is already there is never taken; isolation groups, if any
are asked for, the ledger's own or else those of all ledgers; racks and regions, as far as they can be had, or else
nothing where they are enforced; then load: each gets ledgers in proportion to its weight, which is what bookies say of
themselves: how much room they have, and how much is written to them, whoever writes it. One that joined begins where
the others are, before those that are equal, and gets its share of what follows, not all of it. One that failed is last
until the others have got some more. What is equal is drawn.

The rules are those of BookKeeper's rack-aware, region-aware and weighted policies and of Pulsar's isolation policy;
where they draw a bookie by chance, in proportion to its room, here the one is taken that is furthest behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from geminga.bookkeeper.core.arrangement import DomainSpread, arrange
from geminga.model.errors import NotEnoughBookiesError, invariant
from geminga.wire.bookkeeper.isolation import ALL_BOOKIES, IsolationGroups

if TYPE_CHECKING:
    from geminga.wire.bookkeeper.bookie_racks import BookieRack

#: Draws an int from [0, n).
Below: TypeAlias = Callable[[int], int]

DEFAULT_RACK: Final = "/default-rack"
DEFAULT_REGION_RACK: Final = "/default-region/default-rack"
#: Ledgers that a bookie can be behind the first of those it is chosen among: how many in a row one gets that was away,
#: or was not of the groups that were asked for.
LEDGERS_BEHIND_MAX: Final = 32
#: Ledgers that each of the others gets before a bookie that failed is tried again.
LEDGERS_PASSED_OVER: Final = 16
#: A bookie's room counts for at most so many times the median (``bookieMaxMultipleForWeightBasedPlacement``).
WEIGHT_MULTIPLE_MAX: Final = 3
#: Where room is not to count, one that has less than this share of the median gets less all the same.
TIGHT_SHARE: Final = 0.25
#: ... but not less than this of what it would get.
TIGHT_WEIGHT_MIN: Final = 0.05
#: One to which nothing is written gets so many times as many ledgers as one with the mean rate, and so few the busiest.
LOAD_MULTIPLE_MAX: Final = 2.0
#: Bytes a second that make no difference.
LOAD_FLOOR_BYTES: Final = 1 << 20
#: Bookies that are remembered beside those that there are.
BOOKIES_GONE_MAX: Final = 64


class PlacementRules(NamedTuple):
    """What is configured; see ``BookKeeperConfig``."""

    is_rack_aware: bool = True
    is_region_aware: bool = False
    #: Racks of each write set, as far as it has so many bookies.
    racks_min: int = 2
    #: No ensemble rather than one that has fewer; bookies without a rack are not used then.
    is_racks_min_enforced: bool = False
    #: Whether room on disk counts.
    is_weighted: bool = False
    #: Only bookies of these groups are used, of the second ones if there are too few; none: all.
    groups: Collection[str] = ()
    secondary_groups: Collection[str] = ()
    #: Without ``groups`` only bookies that are in no group are used, and of the second ones if there are too few.
    is_kept_apart: bool = False


class _Bookies:
    """What is known of them, whatever the rules of a ledger are."""

    __slots__ = ("free_bytes", "passed", "racks", "rates", "settled")

    def __init__(self) -> None:
        self.racks: Mapping[str, BookieRack] = {}
        self.free_bytes: Mapping[str, int] = {}
        #: Bytes a second that are written to each.
        self.rates: Mapping[str, float] = {}
        #: How far each has come, in ledgers of a bookie of mean weight.
        self.passed: dict[str, float] = {}
        #: Who was there at the first ledger, or has got one: not new.
        self.settled: set[str] = set()


class Placement:
    """The rules, what is known of bookies, and what was placed on them lately."""

    __slots__ = ("_bookies", "rules")

    def __init__(self, rules: PlacementRules | None = None, bookies: _Bookies | None = None) -> None:
        self.rules = rules if rules is not None else PlacementRules()
        self._bookies = bookies if bookies is not None else _Bookies()

    def within(self, groups: IsolationGroups | None) -> Placement:
        """The same for a ledger that has groups of its own, whatever those of the rules are; None: it has none."""
        if groups is None:
            return self
        rules = self.rules._replace(groups=groups.primary, secondary_groups=groups.secondary, is_kept_apart=True)
        return Placement(rules, self._bookies)

    def set_racks(self, racks: Mapping[str, BookieRack]) -> None:
        """Where bookies stand, all of them."""
        self._bookies.racks = dict(racks)

    def set_room(self, free_bytes: Mapping[str, int]) -> None:
        """How much room bookies have, as far as is known."""
        self._bookies.free_bytes = dict(free_bytes)

    def set_load(self, rates: Mapping[str, float]) -> None:
        """How many bytes a second are written to bookies, as far as is known."""
        self._bookies.rates = dict(rates)

    def new_ensemble(
        self,
        available: Collection[str],
        *,
        ensemble_size: int,
        write_quorum: int,
        below: Below,
        excluded: Collection[str] = (),
    ) -> tuple[str, ...]:
        """``ensemble_size`` different ones of ``available`` and not of ``excluded``. Raises NotEnoughBookiesError."""
        if not self._bookies.settled:
            self._bookies.settled.update(available)
        candidates, levels = self._candidates(available, excluded, ensemble_size, below)
        chosen = self._arranged([None] * ensemble_size, candidates, write_quorum, {})
        self._count(chosen, levels)
        return chosen

    def replacements(
        self,
        available: Collection[str],
        ensemble: Sequence[str],
        indexes: Collection[int],
        *,
        write_quorum: int,
        below: Below,
        excluded: Collection[str] = (),
    ) -> tuple[str, ...]:
        """The ensemble with other bookies at ``indexes``: those there failed. Raises NotEnoughBookiesError."""
        self.note_failed(ensemble[index] for index in sorted(indexes))
        candidates, levels = self._candidates(available, {*ensemble, *excluded}, len(indexes), below)
        slots = [None if index in indexes else bookie_id for index, bookie_id in enumerate(ensemble)]
        like = {index: ensemble[index] for index in indexes}
        chosen = self._arranged(slots, candidates, write_quorum, like)
        self._count([chosen[index] for index in indexes], levels)
        return chosen

    def note_failed(self, bookie_ids: Iterator[str]) -> None:
        """These failed adds: they come last until the others have caught up."""
        last = max(self._bookies.passed.values(), default=0.0) + LEDGERS_PASSED_OVER
        for bookie_id in bookie_ids:
            self._bookies.settled.add(bookie_id)
            self._bookies.passed[bookie_id] = last

    # ---- who may be taken

    def _candidates(
        self, available: Collection[str], excluded: Collection[str], count: int, below: Below
    ) -> tuple[list[str], Mapping[str, float]]:
        """Who may be taken, best first, and how far each will have come then."""
        free = sorted({*available} - {*excluded})
        allowed = self._of_groups(free, count)
        if self.rules.is_racks_min_enforced and self._is_rack_aware:
            allowed = [bookie_id for bookie_id in allowed if self._rack(bookie_id, default="")]
        if len(allowed) < count:
            raise NotEnoughBookiesError(_shortage(count, free, allowed), self._cause(count, free, allowed))
        levels = self._levels(allowed)
        if len(allowed) > 1:
            # Equal ones in random order; the sort keeps it.
            allowed = [allowed.pop(below(len(allowed))) for _ in range(len(allowed))]
            allowed.sort(key=lambda one: (levels[one], one in self._bookies.settled))
        return allowed, levels

    def _levels(self, bookie_ids: Sequence[str]) -> Mapping[str, float]:
        """How far each has come with the next ledger: who has the larger weight makes the smaller step."""
        known = self._bookies
        passed = {one: known.passed.get(one, 0.0) for one in bookie_ids if one in known.settled}
        least = max(passed.values(), default=0.0) - LEDGERS_BEHIND_MAX
        # One that is new begins with those that are furthest behind.
        start = max(min(passed.values(), default=0.0), least)
        weights = self._weights(bookie_ids)
        mean = sum(weights.values()) / max(1, len(weights))
        return {one: max(passed.get(one, start), least) + mean / weights[one] for one in bookie_ids}

    def _cause(self, count: int, free: Sequence[str], allowed: Sequence[str]) -> str:
        """The same without bookies: numbers, and the rule that leaves some out."""
        cause = f"{count} {'bookies are' if count > 1 else 'bookie is'} needed that can be written to, {len(free)} can"
        if len(free) == len(allowed):
            return cause
        groups = sorted({*self.rules.groups, *self.rules.secondary_groups})
        if len(self._of_groups(free, count)) < count:
            where = f"in the groups {', '.join(groups)}" if groups else "in no group"
        else:
            where = "in a rack that is known"
        return f"{cause}, and {len(allowed)} of them {'is' if len(allowed) == 1 else 'are'} {where}"

    def _of_groups(self, free: Sequence[str], count: int) -> list[str]:
        groups = {*self.rules.groups}
        is_ungrouped_fine = self.rules.is_kept_apart and not groups
        # As in Pulsar: where nobody is in any group, nobody can be kept apart.
        if not self._bookies.racks or ALL_BOOKIES in groups or not (groups or is_ungrouped_fine):
            return list(free)
        for more in ((), self.rules.secondary_groups):
            groups |= {*more}
            fitting = [
                bookie_id
                for bookie_id in free
                if groups & self._groups(bookie_id) or (is_ungrouped_fine and not self._groups(bookie_id))
            ]
            if len(fitting) >= count:
                break
        return fitting

    def _weights(self, bookie_ids: Sequence[str]) -> Mapping[str, float]:
        """What each is to get, in proportion: by its room, and by what is written to it."""
        room, load = self._by_room(bookie_ids), self._by_load(bookie_ids)
        return {one: room[one] * load[one] for one in bookie_ids}

    def _by_room(self, bookie_ids: Sequence[str]) -> Mapping[str, float]:
        """Room of each; of who tells none the median, of who has none the least. Where room is not to count, all have
        the same but those that have next to none."""
        free = self._bookies.free_bytes
        known = sorted(max(0, free[one]) for one in bookie_ids if one in free)
        if not known or not known[-1]:
            return dict.fromkeys(bookie_ids, 1.0)
        median = (known[(len(known) - 1) // 2] + known[len(known) // 2]) / 2
        if not self.rules.is_weighted:
            tight = max(1.0, median * TIGHT_SHARE)
            return {one: min(1.0, max(free.get(one, median) / tight, TIGHT_WEIGHT_MIN)) for one in bookie_ids}
        least = next(room for room in known if room)
        most = max(median, least) * WEIGHT_MULTIPLE_MAX
        return {one: min(max(free.get(one, median), least), most) for one in bookie_ids}

    def _by_load(self, bookie_ids: Sequence[str]) -> Mapping[str, float]:
        """Less for who is written to more than the mean; of who tells nothing the mean."""
        rates = self._bookies.rates
        known = [rates[one] for one in bookie_ids if one in rates]
        mean = sum(known) / max(1, len(known)) + LOAD_FLOOR_BYTES
        found = {one: mean / (rates[one] + LOAD_FLOOR_BYTES) if one in rates else 1.0 for one in bookie_ids}
        return {one: min(max(each, 1 / LOAD_MULTIPLE_MAX), LOAD_MULTIPLE_MAX) for one, each in found.items()}

    # ---- racks and regions

    @property
    def _is_rack_aware(self) -> bool:
        return self.rules.is_rack_aware or self.rules.is_region_aware

    def _groups(self, bookie_id: str) -> frozenset[str]:
        found = self._bookies.racks.get(bookie_id)
        return frozenset() if found is None else found.groups

    def _rack(self, bookie_id: str, *, default: str | None = None) -> str:
        found = self._bookies.racks.get(bookie_id)
        if found is not None and found.rack:
            return found.rack
        if default is not None:
            return default
        return DEFAULT_REGION_RACK if self.rules.is_region_aware else DEFAULT_RACK

    def _arranged(
        self, slots: Sequence[str | None], candidates: Sequence[str], write_quorum: int, like: Mapping[int, str]
    ) -> tuple[str, ...]:
        for spreads in self._spreads(slots, candidates, write_quorum, like):
            chosen = arrange(slots, candidates, write_quorum, spreads, like)
            if chosen is not None:
                # Those that stay are as they are: another make's ensemble may have a bookie twice.
                kept = [bookie_id for bookie_id in slots if bookie_id is not None]
                invariant(len({*chosen}) == len(chosen) - len(kept) + len({*kept}), f"a bookie twice in {chosen}")
                return chosen
        racks = sorted({self._rack(bookie_id) for bookie_id in candidates})
        raise NotEnoughBookiesError(
            f"each write set of {write_quorum} must have bookies of {self.rules.racks_min} racks, which can not be had "
            f"of {', '.join(candidates)} ({', '.join(racks)})",
            f"each entry is to have copies in {self.rules.racks_min} racks, and bookies that can be written to are in "
            f"{', '.join(racks)}",
        )

    def _spreads(
        self, slots: Sequence[str | None], candidates: Sequence[str], write_quorum: int, like: Mapping[int, str]
    ) -> Iterator[Sequence[DomainSpread]]:
        """What to try, the best first; the last asks for nothing, unless racks are enforced."""

        known = [*candidates, *(bookie_id for bookie_id in slots if bookie_id is not None), *like.values()]
        racks = {bookie_id: self._rack(bookie_id) for bookie_id in known}
        if not self._is_rack_aware:
            yield ()
            return
        racks_wanted = min(write_quorum, self.rules.racks_min)
        racks_least = racks_wanted if self.rules.is_racks_min_enforced else 1
        if not self.rules.is_region_aware:
            for racks_min in range(racks_wanted, racks_least - 1, -1):
                yield (DomainSpread(racks, racks_min),)
            return
        regions = {bookie_id: rack.split("/", 2)[1] for bookie_id, rack in racks.items()}
        for regions_min in range(min(write_quorum, len({*regions.values()})), 0, -1):
            for racks_min in range(racks_wanted, racks_least - 1, -1):
                yield DomainSpread(regions, regions_min), DomainSpread(racks, racks_min)

    # ---- what was placed

    def _count(self, bookie_ids: Collection[str], levels: Mapping[str, float]) -> None:
        passed = self._bookies.passed
        for bookie_id in bookie_ids:
            self._bookies.settled.add(bookie_id)
            passed[bookie_id] = levels[bookie_id]
        if len(passed) > 2 * len(levels) + BOOKIES_GONE_MAX:
            self._bookies.passed = {one: passed[one] for one in levels if one in passed}


def _shortage(count: int, free: Sequence[str], allowed: Sequence[str]) -> str:
    story = f"need {count} writable bookies, have {len(allowed)} ({', '.join(allowed)})"
    left_out = [bookie_id for bookie_id in free if bookie_id not in allowed]
    return f"{story}; {', '.join(left_out)} left out by isolation groups or for want of a rack" if left_out else story

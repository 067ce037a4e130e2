"""Placement against enumeration: every ensemble that the rules allow is tried by brute force."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geminga.bookkeeper.core.arrangement import TRIALS_MAX, DomainSpread, arrange
from geminga.bookkeeper.core.placement import (
    LEDGERS_BEHIND_MAX,
    LEDGERS_PASSED_OVER,
    LOAD_FLOOR_BYTES,
    Placement,
    PlacementRules,
)
from geminga.model.errors import NotEnoughBookiesError
from geminga.sim import SimWorld
from geminga.wire.bookkeeper.bookie_racks import BookieRack
from geminga.wire.bookkeeper.isolation import EVERYWHERE, IN_NO_GROUP, IsolationGroups
from support.house.examples import many

NAMES = [f"b{i}" for i in range(7)]
#: Those of who tells none are among them, too: a bookie may be told to be there.
RACKS = ["", "/r1", "/r2", "/x/r1", "/x/r2", "/y/r1", "/default-rack", "/default-region/r1"]
#: Also those where everybody is in one or two.
racks = st.lists(st.sampled_from(RACKS), min_size=1, max_size=4).map(st.sampled_from)

groups = st.frozensets(st.sampled_from("pqs"), max_size=2)
told_places = racks.flatmap(lambda some: st.dictionaries(st.sampled_from(NAMES), st.builds(BookieRack, some, groups)))
rules = st.builds(
    PlacementRules,
    is_rack_aware=st.booleans(),
    is_region_aware=st.booleans(),
    racks_min=st.integers(1, 3),
    is_racks_min_enforced=st.booleans(),
    is_weighted=st.booleans(),
    groups=st.sampled_from([(), ("p",), ("p", "q")]),
    secondary_groups=st.sampled_from([(), ("s",)]),
)
#: Of a ledger itself; None: it has none.
own_groups = st.sampled_from(
    [
        None,
        IsolationGroups(("q",)),
        IsolationGroups(("p", "q"), ("s",)),
        IN_NO_GROUP,
        IsolationGroups((), ("s",)),
        EVERYWHERE,
    ]
)


@st.composite
def quorums(draw, size_max=5):
    size = draw(st.integers(1, size_max))
    return size, draw(st.integers(1, size))


def write_sets(ensemble, write):
    return [{ensemble[(start + i) % len(ensemble)] for i in range(write)} for start in range(len(ensemble))]


class Judge:
    """What the rules say, told in another way than the product does."""

    def __init__(self, rules_, told, own=None):
        self.rules = rules_
        self.own = own
        self.told = told
        self.is_aware = rules_.is_rack_aware or rules_.is_region_aware

    def rack(self, name):
        default = "/default-region/default-rack" if self.rules.is_region_aware else "/default-rack"
        return self.told.get(name, BookieRack()).rack or default

    def region(self, name):
        return self.rack(name).split("/")[1]

    def allowed(self, free, count):
        """Who may be taken at all."""
        found = set(free)
        if self.own is not None:
            if self.told and self.own != EVERYWHERE:
                found = {n for n in free if self.is_of(n, self.own.primary)}
                if len(found) < count:
                    found |= {n for n in free if {*self.own.secondary} & self.told.get(n, BookieRack()).groups}
        elif self.rules.groups and self.told:
            found = {n for n in free if set(self.rules.groups) & self.told.get(n, BookieRack()).groups}
            if len(found) < count:
                both = {*self.rules.groups, *self.rules.secondary_groups}
                found = {n for n in free if both & self.told.get(n, BookieRack()).groups}
        if self.rules.is_racks_min_enforced and self.is_aware:
            found = {n for n in found if n in self.told and self.told[n].rack}
        return found

    def is_of(self, name, groups_):
        found = self.told.get(name, BookieRack()).groups
        return bool(found & {*groups_}) if groups_ else not found

    def racks(self, ensemble, write, slots):
        """Racks of the write set that has fewest, of those that a slot is in."""
        touched = {ensemble[index] for index in slots}
        return min(len({self.rack(n) for n in one}) for one in write_sets(ensemble, write) if one & touched)

    def regions(self, ensemble, write, slots):
        touched = {ensemble[index] for index in slots}
        return min(len({self.region(n) for n in one}) for one in write_sets(ensemble, write) if one & touched)

    def best(self, ensembles, write, slots):
        """Of all that could be: (regions, racks) as far as they count, the best; None: there is none."""
        wanted = min(write, self.rules.racks_min) if self.is_aware else 1
        least = wanted if self.rules.is_racks_min_enforced else 1
        scores = [self.score(one, write, slots) for one in ensembles]
        return max((score for score in scores if score[1] >= least), default=None)

    def score(self, ensemble, write, slots):
        wanted = min(write, self.rules.racks_min) if self.is_aware else 1
        regions = self.regions(ensemble, write, slots) if self.rules.is_region_aware else 1
        return regions, min(wanted, self.racks(ensemble, write, slots))


@settings(max_examples=many(300), deadline=None)
@given(rules, told_places, own_groups, quorums(4), st.data())
def test_new_ensembles_are_the_best_that_the_rules_allow(rules_, told, own, sizes, data):
    size, write = sizes
    available = data.draw(st.lists(st.sampled_from(NAMES[:6]), unique=True))
    excluded = data.draw(st.sets(st.sampled_from(NAMES), max_size=2))
    placement = Placement(rules_)
    placement.set_racks(told)
    placement.set_room(data.draw(st.dictionaries(st.sampled_from(NAMES), st.integers(-1, 100))))
    judge = Judge(rules_, told, own)
    allowed = sorted(judge.allowed([n for n in available if n not in excluded], size))
    best = judge.best(list(permutations(allowed, size)), write, range(size))
    seed = data.draw(st.integers(0, 9))

    def choose(new: Placement) -> tuple[str, ...]:
        below = SimWorld(seed).rng("placement").randrange
        return new.within(own).new_ensemble(
            available, ensemble_size=size, write_quorum=write, below=below, excluded=excluded
        )

    if best is None:
        with pytest.raises(NotEnoughBookiesError):
            choose(placement)
        return
    chosen = choose(placement)
    assert len(set(chosen)) == size
    assert set(chosen) <= set(allowed)
    assert judge.score(chosen, write, range(size)) == best
    twin = Placement(rules_)
    twin.set_racks(told)
    twin.set_room(placement._bookies.free_bytes)
    assert choose(twin) == chosen, "the same draws gave another ensemble"


@pytest.mark.parametrize(
    ("rules_", "beside"),
    [
        (PlacementRules(is_rack_aware=True), "/default-rack"),
        (PlacementRules(is_region_aware=True), "/default-region/r1"),
    ],
)
def test_who_tells_no_rack_is_beside_those_who_are_told_to_be_where_it_is_put(rules_, beside):
    placement = Placement(rules_)
    placement.set_racks({"b1": BookieRack(beside, frozenset()), "b2": BookieRack("/x/r1", frozenset())})
    for seed in range(20):
        below = SimWorld(seed).rng("placement").randrange
        chosen = placement.new_ensemble(NAMES[:3], ensemble_size=2, write_quorum=2, below=below)
        assert "b2" in chosen, seed


@settings(max_examples=many(300), deadline=None)
@given(rules, told_places, own_groups, quorums(4), st.data())
def test_replacements_leave_the_others_where_they_are_and_are_the_best_there_is(rules_, told, own, sizes, data):
    size, write = sizes
    ensemble = tuple(data.draw(st.permutations(NAMES))[:size])
    indexes = data.draw(st.sets(st.integers(0, size - 1), min_size=1))
    available = data.draw(st.lists(st.sampled_from(NAMES), unique=True))
    placement = Placement(rules_)
    placement.set_racks(told)
    judge = Judge(rules_, told, own)
    allowed = judge.allowed([n for n in available if n not in ensemble], len(indexes))
    could = []
    for newcomers in permutations(sorted(allowed), len(indexes)):
        could.append(list(ensemble))
        for index, newcomer in zip(sorted(indexes), newcomers, strict=True):
            could[-1][index] = newcomer
    # Regions of those that are left count as regions that there are.
    best = judge.best(could, write, indexes)
    if best is None:
        with pytest.raises(NotEnoughBookiesError):
            placement.within(own).replacements(available, ensemble, indexes, write_quorum=write, below=lambda n: 0)
        return
    changed = placement.within(own).replacements(
        available, ensemble, indexes, write_quorum=write, below=lambda n: n - 1
    )
    assert list(changed) in could
    assert judge.score(changed, write, indexes) == best


@settings(deadline=None)
@given(quorums(3), st.integers(3, 7), st.integers(1, 60), st.randoms())
def test_ledgers_are_spread_evenly_and_who_joins_comes_first(sizes, bookies, ledgers, rng):
    size, write = sizes
    placement = Placement()
    names = NAMES[: bookies - 1] if bookies > size else NAMES[:bookies]
    counts = dict.fromkeys(names, 0)

    def place(available):
        for name in placement.new_ensemble(available, ensemble_size=size, write_quorum=write, below=rng.randrange):
            counts[name] = counts.get(name, 0) + 1

    for _ in range(ledgers):
        place(names)
        assert max(counts.values()) - min(counts.values()) <= 1
    if len(names) == bookies:
        return
    newcomer = NAMES[bookies - 1]
    level = min(counts.values())
    counts[newcomer] = level
    place([*names, newcomer])
    assert counts[newcomer] == level + 1, "the one that joined was passed over"
    for _ in range(ledgers):
        place([*names, newcomer])
        assert max(counts.values()) - min(counts.values()) <= 1, "it gets its share, and not what the others had"


def test_ledgers_of_a_group_count_for_the_others_too():
    placement = Placement()
    placement.set_racks({name: BookieRack(groups=frozenset("p" if name == "b0" else "")) for name in NAMES[:3]})
    for _ in range(4):
        own = placement.within(IsolationGroups(("p",)))
        assert own.new_ensemble(NAMES[:3], ensemble_size=1, write_quorum=1, below=lambda n: 0) == ("b0",)
    following = [
        placement.new_ensemble(NAMES[:3], ensemble_size=1, write_quorum=1, below=lambda n: 0)[0] for _ in range(8)
    ]
    assert "b0" not in following, "it has got four already"
    assert placement.new_ensemble(["b0"], ensemble_size=1, write_quorum=1, below=lambda n: 0) == ("b0",)


def test_newcomers_come_first_among_those_that_have_nothing():
    for seed in range(20):
        placement = Placement()
        below = SimWorld(seed).rng("placement").randrange
        first = placement.new_ensemble(NAMES[:5], ensemble_size=3, write_quorum=3, below=below)
        then = placement.new_ensemble(NAMES, ensemble_size=3, write_quorum=3, below=below)
        assert {"b5", "b6"} < set(then)
        assert not set(then) & set(first)


def test_two_that_join_do_not_take_every_ledger_that_follows():
    placement = Placement()

    def place(available, size=2):
        return placement.new_ensemble(available, ensemble_size=size, write_quorum=size, below=lambda n: 0)

    for _ in range(10_000):
        place(NAMES[:5])
    assert {*place(NAMES)} == {"b5", "b6"}, "they come first"
    following = [name for _ in range(35) for name in place(NAMES)]
    assert {following.count(name) for name in NAMES} <= {9, 10, 11}, "and then in turn"


def test_one_that_was_away_gets_no_more_in_a_row_than_it_can_be_behind():
    placement = Placement()

    def place(available):
        return placement.new_ensemble(available, ensemble_size=1, write_quorum=1, below=lambda n: 0)

    place(NAMES[:3])
    for _ in range(10_000):
        place(NAMES[1:3])
    row = 0
    while place(NAMES[:3]) == ("b0",):
        row += 1
    assert LEDGERS_BEHIND_MAX - 1 <= row <= LEDGERS_BEHIND_MAX + 1


@pytest.mark.parametrize("rates", [{"b0": 90 << 20, "b1": 30 << 20, "b2": 0}, {"b0": 90 << 20, "b2": 0}])
def test_who_is_written_to_more_gets_fewer_ledgers(rates):
    """Whoever writes it: other brokers, too, whose ledgers nobody here has counted."""
    placement = Placement()
    placement.set_load(rates)
    got = [placement.new_ensemble(NAMES[:3], ensemble_size=1, write_quorum=1, below=lambda n: 0)[0] for _ in range(70)]
    counts = [got.count(name) for name in NAMES[:3]]
    # Half, once, and twice what it would be, as far as that goes.
    assert counts[0] * 1.7 < counts[1] < counts[2] / 1.4 if "b1" in rates else counts[0] < counts[1] < counts[2]
    placement.set_load(dict.fromkeys(NAMES[:3], LOAD_FLOOR_BYTES) | {"b0": 0})
    even = [placement.new_ensemble(NAMES[:3], ensemble_size=1, write_quorum=1, below=lambda n: 0)[0] for _ in range(30)]
    assert max(map(even.count, NAMES[:3])) <= 16, "what is small makes little difference"


def test_who_has_next_to_no_room_gets_few_ledgers_also_where_room_is_not_to_count():
    placement = Placement()
    placement.set_room({"b0": 100, "b1": 60, "b2": 5, "b3": 0})
    got = [placement.new_ensemble(NAMES[:4], ensemble_size=1, write_quorum=1, below=lambda n: 0)[0] for _ in range(200)]
    counts = [got.count(name) for name in NAMES[:4]]
    assert abs(counts[0] - counts[1]) <= 1
    assert 0 < counts[3] < counts[2] < counts[1]


def test_bookie_that_failed_comes_last_until_the_others_have_caught_up():
    placement = Placement()

    def place(available):
        return placement.new_ensemble(available, ensemble_size=1, write_quorum=1, below=lambda n: 0)[0]

    for _ in range(6):
        place(NAMES[:3])
    ensemble = placement.replacements([*NAMES[:3], "new"], ("new",), [0], write_quorum=1, below=lambda n: 0)
    # It joined, it failed its first ledger: it is not tried again with each ledger that follows.
    assert ensemble[0] in NAMES[:3]
    following = [place([*NAMES[:3], "new"]) for _ in range(3 * LEDGERS_PASSED_OVER)]
    assert "new" not in following[: 2 * LEDGERS_PASSED_OVER]
    assert "new" in [*following, *(place([*NAMES[:3], "new"]) for _ in range(4))]


@given(st.lists(st.integers(1, 100), min_size=2, max_size=6), st.integers(0, 99))
def test_room_counts_in_proportion_up_to_three_times_the_median(rooms, seed):
    names = NAMES[: len(rooms)]
    placement = Placement(PlacementRules(is_weighted=True))
    placement.set_room(dict(zip(names, rooms, strict=True)))
    median = (sorted(rooms)[(len(rooms) - 1) // 2] + sorted(rooms)[len(rooms) // 2]) / 2
    weights = {name: min(room, 3 * max(median, min(rooms))) for name, room in zip(names, rooms, strict=True)}
    got = dict.fromkeys(names, 0)
    below = SimWorld(seed).rng("placement").randrange
    ledgers = 64
    for _ in range(ledgers):
        got[placement.new_ensemble(names, ensemble_size=1, write_quorum=1, below=below)[0]] += 1
    for name in names:
        assert abs(got[name] - ledgers * weights[name] / sum(weights.values())) <= len(names)


def test_racks_that_can_not_alternate_do_so_as_far_as_they_can():
    placement = Placement()
    placement.set_racks({name: BookieRack("/a" if name in ("b0", "b1") else "/b") for name in NAMES})
    for _ in range(20):
        ensemble = placement.new_ensemble(NAMES, ensemble_size=3, write_quorum=2, below=lambda n: n - 1)
        assert {"b0", "b1"} & {*ensemble}, "three write sets of two: two of them can span both racks, one can not"


def test_many_bookies_of_two_racks_are_found_a_way_within_the_trials():
    racks = {f"n{i:03}": "/a" if i < 30 else "/b" for i in range(60)}
    spreads = [DomainSpread(racks, 2)]
    found = arrange([None] * 60, sorted(racks), 2, spreads, {})
    assert found is not None
    assert all(racks[found[i]] != racks[found[i - 1]] for i in range(60))
    # One more of a rack than of the other can not alternate.
    racks["n060"] = "/b"
    assert arrange([None] * 61, sorted(racks), 2, spreads, {}) is None
    assert TRIALS_MAX < 10_000
    huge = [f"h{i}" for i in range(5000)]
    assert arrange([None] * 5000, huge, 3, [DomainSpread(dict.fromkeys(huge, "/a"), 1)], {}) == tuple(huge)

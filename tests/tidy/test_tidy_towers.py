"""No class is a tower, and none has more states than it means: functions and booleans are counted along the bases."""

from __future__ import annotations

from support.house.booleans import boolean_counts, boolean_violations
from support.house.source_tree import SourceModule, product_modules
from support.house.towers import tower_heights, tower_violations

SAMPLE = '''
class Part(Protocol):
    def one(self): ...

class Base:
    def one(self):
        return 1
    def two(self):
        return 2

class Tower(Base):
    def two(self):
        """Said again."""
        return await_it()
    async def three(self):
        await self._part.three()
    def four(self):
        return self._part.five()

class Foreign(h11.Tower, asyncio.Protocol):
    def one(self): ...
'''
STATES = """
class Part(Protocol):
    is_named: bool

class Base:
    is_class_wide = False
    is_annotated: bool
    count: int = 0

    def __init__(self, is_given: bool, limit: int) -> None:
        self.is_given = is_given
        self.limit = limit
        self.is_less = limit < 3
        self._is_told: bool = anything()
        self.is_one, self.rest = True, 7

class Child(Base):
    def close(self, is_told: bool) -> None:
        self.is_class_wide = True  # the base's
        self.is_closed = not self.is_given
        self.last = is_told  # of a call, and not of the constructor
        other.is_other = True

class Named(NamedTuple):
    is_fixed: bool

@dataclass(frozen=True, slots=True)
class Fixed:
    is_fixed: bool
"""


def test_classes_stay_below_the_limit_and_the_listed_ones_only_shrink() -> None:
    found = tower_violations(tower_heights(product_modules()))
    assert not found, "\n".join(found)


def test_functions_are_counted_along_the_bases_and_what_only_forwards_twice() -> None:
    heights = tower_heights([SourceModule("geminga.x", SAMPLE)])
    assert heights == {"geminga.x.Base": 2, "geminga.x.Tower": 5, "geminga.x.Foreign": 1}


def test_planted_tower_and_stale_entries_are_caught() -> None:
    heights = {"a.Large": 41, "a.Listed": 50, "a.Shrunk": 44, "a.Small": 12}
    allowed = {"a.Listed": 49, "a.Shrunk": 45, "a.Small": 41, "a.Gone": 60}
    found = tower_violations(heights, allowed)
    assert [line.split()[0] for line in found] == ["a.Large", "a.Listed", "a.Shrunk", "a.Small", "a.Gone"]
    assert "write 44" in found[2]
    assert "strike it" in found[3]
    assert tower_violations({"a.Listed": 49}, {"a.Listed": 49}) == []


def test_state_of_a_class_has_few_booleans_and_the_listed_ones_only_shrink() -> None:
    found = boolean_violations(boolean_counts(product_modules()))
    assert not found, "\n".join(found)


def test_booleans_are_counted_along_the_bases_and_what_can_not_change_is_none() -> None:
    assert boolean_counts([SourceModule("geminga.x", STATES)]) == {"geminga.x.Base": 6, "geminga.x.Child": 7}


def test_planted_booleans_and_stale_entries_are_caught() -> None:
    counts = {"a.Many": 6, "a.Listed": 9, "a.Shrunk": 6, "a.Few": 2}
    found = boolean_violations(counts, {"a.Listed": 8, "a.Shrunk": 7, "a.Few": 6, "a.Gone": 6})
    assert [line.split()[0] for line in found] == ["a.Many", "a.Listed", "a.Shrunk", "a.Few", "a.Gone"]
    assert "write 6" in found[2]
    assert "strike it" in found[3]

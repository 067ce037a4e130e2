"""No class is a tower: functions are counted along the bases."""

from __future__ import annotations

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

class Foreign(h11.Tower):
    def one(self): ...
'''


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

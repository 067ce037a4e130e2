"""Which worker of ``make test`` runs what: a scheduler for pytest-xdist.

The tests of one group run in one process, one after the other: Spark starts once, and a test that looks at a clock
shares the machine with one other test and not with its like. All others go to whoever is free.
"""

from __future__ import annotations

from typing import Final

from xdist.scheduler import LoadScopeScheduling

#: Folders under ``tests``; the first group that fits.
GROUPS: Final = {
    "spark": ("integration/spark/",),
    "clocks": ("contract/", "integration/", "interop/", "unit/plugin/"),
}


def group_of(nodeid: str) -> str:
    """The group of a test, or its own id: it is a group of its own then."""
    name = nodeid.removeprefix("tests/")
    return next((group for group, folders in GROUPS.items() if name.startswith(folders)), nodeid)


class GroupScheduling(LoadScopeScheduling):
    """The largest groups first, the others in the order of the collection."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)

"""Which worker of ``make test`` runs what: a scheduler for pytest-xdist.

The tests of one group run in one process, one after the other: Spark starts once, and a test that looks at a clock
shares the machine with few others and not with its like. Each group waits for processes most of its time, so that there
is one worker more than cores: all other tests go to whoever is free.
"""

from __future__ import annotations

from typing import Final

from xdist.scheduler import LoadScopeScheduling

#: Beginnings of names below ``tests``; the first group that fits.
GROUPS: Final = {
    # Those that share one JVM.
    "spark": tuple(
        f"integration/spark/test_spark_{name}.py"
        for name in (
            "docs",
            "exactly_once_queries",
            "lake",
            "lake_ways",
            "matrix",
            "pipeline",
            "pipelines",
            "read_topic",
            "read_topic",
            "session",
            "sink_queries",
            "source_queries",
        )
    ),
    # The connector as Spark calls it, and a program that starts JVMs of its own.
    "connector": ("integration/spark/",),
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

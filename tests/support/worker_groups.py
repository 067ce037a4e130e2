"""Which worker of ``make test`` runs what: a scheduler for pytest-xdist.

The tests of one group run in one process, one after the other: Spark starts once, and a test that looks at a clock
shares the machine with few others and not with its like. Each group waits for processes most of its time, so that there
is one worker more than cores: all other tests go to whoever is free.
"""

from __future__ import annotations

from typing import Final

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

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
            "session",
            "sink_queries",
            "source_queries",
        )
    ),
    # The connector as Spark calls it, and a program that starts JVMs of its own.
    "connector": ("integration/spark/",),
    # Bookies, ZooKeeper and brokers as processes: kills and restarts wait for most of their time.
    "cluster": tuple(
        f"integration/test_{name}.py"
        for name in (
            "autorecovery_process",
            "bookie_cluster",
            "bookie_process",
            "bookie_processes",
            "cluster_metadata_commands",
            "cluster_processes",
            "demo_with_bookies",
            "growing_out",
            "several_bookies",
            "three_bookies_of_both_kinds",
            "zookeeper",
        )
    ),
    "clocks": ("contract/", "integration/", "interop/", "unit/plugin/"),
}


def group_of(nodeid: str) -> str:
    """The group of a test, or its own id: it is a group of its own then."""
    name = nodeid.removeprefix("tests/")
    return next((group for group, folders in GROUPS.items() if name.startswith(folders)), nodeid)


#: In this order: what takes longest is begun first. The others follow one by one and fill what is left of the workers.
ORDER: Final = ("clocks", "spark", "connector", "cluster")


class GroupScheduling(LoadScopeScheduling):
    """The groups in their order, the others in the order of the collection."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        # Else those with the most tests come first, though a hundred of one are over before one of another.
        if (first := next((group for group in ORDER if group in self.workqueue), None)) is not None:
            self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)

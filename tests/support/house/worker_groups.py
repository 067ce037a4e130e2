"""Which worker of ``make test`` runs what, and in which order: a scheduler for pytest-xdist.

The tests of one file run in one process, one after the other, and share what their module makes; a simulation is a
unit of its own. Some files stay together: Spark starts once, and tests that look at a clock share the machine with few
others and not with their like. What took longest when the ledger was written (``tests/cpu_ledger.json``) is begun
first, so that nothing long is left when the others are done. There are more workers than cores, since tests wait for
processes, timers and disks: every other worker takes what waits most, the others what computes most, so that neither
kind is left for the end.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

#: Beginnings of names below ``tests``; the first group that fits.
GROUPS: Final = {
    # Those that share one JVM.
    "spark": (
        "integration/spark/pipelines/",
        *(
            f"integration/spark/test_spark_{name}.py"
            for name in (
                "docs",
                "exactly_once_queries",
                "lake",
                "lake_ways",
                "matrix",
                "pipeline",
                "read_topic",
                "session",
                "sink_queries",
                "source_queries",
            )
        ),
    ),
    # The product is parsed once.
    "tidy": ("tidy/",),
    # Real time that passed, or processor time, is what they judge.
    "clocks": tuple(
        f"integration/{name}"
        for name in (
            "client/test_client_places.py",
            "hostile/",
            "test_back_pressure.py",
            "test_broker_processes.py",
            "test_cluster_brokers.py",
            "test_mutated_frames.py",
            "test_official_client.py",
            "test_open_ports.py",
            "test_open_transaction_cpu.py",
            "test_stop.py",
            "test_transaction_left_open.py",
        )
    ),
}

#: Whose tests are units one by one.
SINGLE: Final = "simulation/"

#: Kept by ``make test-ledger``: a file's CPU and wall seconds.
LEDGER: Final = Path(__file__).parents[2] / "cpu_ledger.json"


@cache
def ledger() -> dict[str, list[float]]:
    """CPU and wall seconds of each file below ``tests``, when they were measured last."""
    kept: dict[str, list[float]] = json.loads(LEDGER.read_text(encoding="utf-8"))["files"]
    return kept


def group_of(nodeid: str) -> str:
    """The group of a test: one of :data:`GROUPS`, its file, or its own id."""
    name = nodeid.removeprefix("tests/")
    for group, beginnings in GROUPS.items():
        if name.startswith(beginnings):
            return group
    return name if name.startswith(SINGLE) else name.partition("::")[0]


class Share(NamedTuple):
    """What a group takes of a worker's time, and of a core's, in seconds."""

    wall_s: float
    cpu_s: float


def share_of(group: str, tests: int) -> Share:
    """What a group's files took; of a single simulation, of which its file has ``tests``, its part."""
    if group in GROUPS:
        costs = [cost for file, cost in ledger().items() if file.startswith(GROUPS[group])]
        return Share(sum(wall_s for _, wall_s in costs), sum(cpu_s for cpu_s, _ in costs))
    file, _, test = group.partition("::")
    cpu_s, wall_s = ledger().get(file, (0.0, 0.0))
    parts = tests if test else 1
    return Share(wall_s / parts, cpu_s / parts)


class GroupScheduling(LoadScopeScheduling):
    """What takes longest first; what is over is forgotten."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        self._shares: dict[str, Share] = {}

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)

    def schedule(self) -> None:
        """Order the units before the first are given out."""
        groups = {group_of(nodeid) for nodeid in next(iter(self.registered_collections.values()))}
        of_file = Counter(group.partition("::")[0] for group in groups)
        self._shares = {group: share_of(group, of_file[group.partition("::")[0]]) for group in groups}
        super().schedule()

    def _assign_work_unit(self, node: WorkerController) -> None:
        waits = self.nodes.index(node) % 2 == 0

        def weight(group: str) -> float:
            share = self._shares[group]
            return share.wall_s - share.cpu_s if waits else share.cpu_s

        self.workqueue.move_to_end(max(self.workqueue, key=weight), last=False)
        super()._assign_work_unit(node)

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """As the base; units that are over would be counted again with every test."""
        super().mark_test_complete(node, item_index, duration)
        units = self.assigned_work.get(node, {})
        group = group_of(self.registered_collections[node][item_index])
        if group in units and all(units[group].values()):
            del units[group]

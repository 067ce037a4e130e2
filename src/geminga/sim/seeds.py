"""Runs a scenario over many seeds and reports what was reached.

::

    report = run_seeds(power_loss_while_flushing, range(500))
    print(report.table())
    report.check(hits_min=20, labels=["journal.group.before_sync"])
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

from geminga.sim.runner import run_in
from geminga.sim.world import SimWorld

Scenario = Callable[[SimWorld], Coroutine[Any, Any, object]]

#: Failures after which a run of seeds stops: more of the same tell nothing new.
FAILURES_MAX = 5


@dataclass(slots=True)
class Failure:
    """A seed that failed."""

    seed: int
    error: BaseException

    def __str__(self) -> str:
        text = "".join(traceback.format_exception(self.error))
        return f"seed {self.seed}: {self.error!r}\n{text}"


@dataclass(slots=True)
class Report:
    """What a run of seeds did."""

    scenario: str
    #: Seeds run.
    seeds: int = 0
    failures: list[Failure] = field(default_factory=list)
    #: Crash points passed, crashes at them, and ``sometimes`` that fired, by label, over all seeds.
    hits: Counter[str] = field(default_factory=Counter)
    crashes: Counter[str] = field(default_factory=Counter)
    fired: Counter[str] = field(default_factory=Counter)
    #: Node crashes of all kinds.
    crashes_total: int = 0
    virtual_seconds: float = 0.0
    steps: int = 0

    def table(self) -> str:
        """Crash points with their hits and crashes, then the ``sometimes`` labels, as text."""
        lines = [
            f"{self.scenario}: {self.seeds} seeds, {len(self.failures)} failures, {self.crashes_total} crashes, "
            f"{self.virtual_seconds:.0f} virtual s, {self.steps} steps",
            f"{'crash point':<50} {'hits':>10} {'crashes':>10}",
        ]
        lines += [f"{label:<50} {self.hits[label]:>10} {self.crashes[label]:>10}" for label in sorted(self.hits)]
        lines += [f"sometimes {label:<40} {self.fired[label]:>10}" for label in sorted(self.fired)]
        return "\n".join(lines)

    def check(self, *, hits_min: int = 0, labels: Iterable[str] = ()) -> None:
        """Raise AssertionError if a seed failed, or one of ``labels`` (default: all) has under ``hits_min`` hits."""
        if self.failures:
            raise AssertionError(f"{self.scenario}: seeds {[f.seed for f in self.failures]}\n{self.failures[0]}")
        rare = [label for label in (sorted(labels) or sorted(self.hits)) if self.hits[label] < hits_min]
        if rare:
            raise AssertionError(f"crash points hit fewer than {hits_min} times: {rare}\n{self.table()}")


def run_seeds(scenario: Scenario, seeds: Iterable[int], *, failures_max: int = FAILURES_MAX) -> Report:
    """Run ``scenario`` once for each seed, each in a world of its own; stops after ``failures_max`` failures."""
    report = Report(getattr(scenario, "__name__", str(scenario)))
    for seed in seeds:
        world = SimWorld(seed)
        try:
            run_in(world, scenario)
        except Exception as error:  # the boundary of a run: the report carries it
            report.failures.append(Failure(seed, error))
        report.seeds += 1
        report.hits.update(world.points.hits)
        report.crashes.update(world.points.crashes)
        report.fired.update(world.points.fired)
        report.crashes_total += world.crashes
        report.virtual_seconds += world.now
        report.steps += world.loop.steps
        if len(report.failures) >= failures_max:
            break
    return report

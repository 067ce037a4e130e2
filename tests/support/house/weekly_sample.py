"""Cases of which ``make test`` runs a few that change every week, and ``make test-long`` all.

Where many cases say the same of many combinations, a sample of them runs with every change, and another one next week:
in a quarter of a year nearly all have run with somebody's change. The others are marked ``long``. Each has its own id,
so that one that failed runs again by its name in any week: ``pytest "tests/...::test_some[that-case]"``.
``SAMPLE_WEEK=2026-W48`` draws the sample of that week; the end of a run says which week it was. A simulation runs some
of its seeds (:func:`run_week`), whose numbers are printed; ``SAMPLE_SEEDS=17,4711`` runs these instead. Long
simulations share theirs out over three weeks (:func:`run_share`); ``LONG_PARTS=1`` runs them all at once.
:func:`few_and_many` and :func:`few_and_blocks` make both of them cases of one test.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import partial
from random import Random
from typing import Any, Final, Protocol, TypeVar

import pytest

from geminga.sim.seeds import Report, Scenario, run_seeds

T = TypeVar("T")
#: Seeds, with commas between them, that every simulation runs in the place of its sample.
SEEDS_VARIABLE: Final = "SAMPLE_SEEDS"
#: Names the week whose sample is drawn.
WEEK_VARIABLE: Final = "SAMPLE_WEEK"
#: Into how many weeks the seeds of long simulations are shared out.
PARTS_VARIABLE: Final = "LONG_PARTS"
PARTS: Final = 3
#: Of one block of seeds.
BLOCK_TIMEOUT_S: Final = 3600
#: Of what all seeds reach, a part of them is asked for this much less than its share: it is drawn.
LEEWAY: Final = 2


def week(today: date | None = None) -> str:
    """The ISO week that samples are drawn for, such as ``2026-W48``: the variable's, or that of today (UTC)."""
    if named := os.environ.get(WEEK_VARIABLE):
        return named
    year, number, _ = (today or datetime.now(UTC).date()).isocalendar()
    return f"{year}-W{number:02}"


def drawn(name: str, count: int, of: int, *, week: str) -> frozenset[int]:
    """Which ``count`` of the numbers 0 to ``of`` - 1 a week's sample holds; another draw for each name and week."""
    return frozenset(Random(f"{week} {name}").sample(range(of), min(count, of)))


def sampled(
    name: str, cases: Iterable[Any], count: int, *, ids: Sequence[str] | None = None, are_rows: bool = False
) -> list[Any]:
    """``cases`` as parameters, all but this week's ``count`` of them marked ``long``.

    A case is a value (``are_rows``: one for each of several arguments), or a ``pytest.param``, which keeps its id and
    its marks; ``ids`` names those that are values.
    """
    listed = list(cases)
    chosen = drawn(name, count, len(listed), week=week())
    made = []
    for index, case in enumerate(listed):
        param = case
        if not (hasattr(case, "marks") and hasattr(case, "values")):
            param = pytest.param(*case) if are_rows else pytest.param(case)
        marks = [*param.marks] if index in chosen else [*param.marks, pytest.mark.long]
        made.append(pytest.param(*param.values, id=ids[index] if ids else param.id, marks=marks))
    return made


def run_week(
    scenario: Scenario, seeds: range, *, least: int, most: int = 0, hits_min: int = 1, labels: Collection[str] = ()
) -> Report:
    """Run some of a scenario's ``seeds``, others each week.

    At least ``least`` are run, and then on until each of ``labels`` was hit ``hits_min`` times, at most ``most``.
    Raises AssertionError if a seed fails or a label is not reached.
    """
    total = Report(scenario.__name__)
    named = os.environ.get(SEEDS_VARIABLE)
    order = [int(seed) for seed in named.split(",")] if named else _order(scenario.__name__, seeds, max(least, most))
    for number, seed in enumerate(order, 1):
        total.seeds += 1
        print(f"{scenario.__name__}: seed {seed} of {week()}")
        one = run_seeds(scenario, [seed])
        one.check(labels=())
        _add(total, one)
        if not named and number >= least and all(total.hits[label] >= hits_min for label in labels):
            break
    if not named:
        rare = [label for label in labels if total.hits[label] < hits_min]
        assert not rare, f"{total.seeds} seeds reached these fewer than {hits_min} times: {rare}\n{total.table()}"
    return total


def run_share(scenario: Scenario, seeds: Sequence[int], *, hits_min: int = 0, labels: Collection[str] = ()) -> Report:
    """Run this week's part of the seeds of a long simulation, and print what it reached.

    ``hits_min``: how often all seeds together hit each of ``labels`` (none: each that was hit at all). Raises
    AssertionError if a seed fails or a label is not reached.
    """
    report = run_seeds(scenario, of_week(seeds))
    print(report.table())
    report.check(hits_min=share(hits_min) if hits_min else 0, labels=labels)
    return report


def run_each(scenario: Scenario, seeds: range, *, hits_min: int, points: Collection[str]) -> None:
    """Run all ``seeds``. Raises AssertionError if one fails, or a crash point is hit less often or crashes nobody."""
    report = run_seeds(scenario, seeds)
    report.check(hits_min=hits_min, labels=points)
    assert all(report.crashes[point] for point in points), report.table()


def check_noticed(defective: Scenario, seeds: int) -> None:
    """Raises AssertionError unless one of the first seeds fails."""
    assert run_seeds(defective, range(seeds), failures_max=1).failures, f"{seeds} seeds did not notice"


def few_seeds(default: int) -> int:
    """How many seeds a story of crashes runs at least: ``GEMINGA_SEEDS``, or its own number."""
    return int(os.environ.get("GEMINGA_SEEDS", default))


def many_seeds(default: int) -> range:
    """The seeds of a long story of crashes: ``GEMINGA_SEEDS_LONG`` of them, or its own number."""
    return range(10_000, 10_000 + int(os.environ.get("GEMINGA_SEEDS_LONG", default)))


class SeedCheck(Protocol):
    """The seeds that a case of :func:`few_and_many` stands for."""

    def __call__(self, scenario: Scenario, labels: Collection[str] = ()) -> None:
        """Run the scenario with them. Raises AssertionError if one fails or one of ``labels`` is not reached."""


def few_and_many(
    few: range, *, least: int, most: int = 0, many: range, hits_min: int = 0, timeout_s: float
) -> pytest.MarkDecorator:
    """For a test that gets ``check``, to call with a simulation: as a case of few seeds, and as a long one of ``many``.

    Of the ``few``, :func:`run_week` goes on to ``most`` until each label was hit; without a ``most`` none need be.
    Of the ``many``, :func:`run_share` asks that each label is hit ``hits_min`` times.
    """

    def check_many(scenario: Scenario, labels: Collection[str] = ()) -> None:
        run_share(scenario, many, hits_min=hits_min, labels=labels)

    return _cases(partial(_check_few, few, least, most), {"many": check_many}, timeout_s)


def few_and_blocks(
    few: range, *, least: int, most: int, many: range, block: int, hits_min: int
) -> pytest.MarkDecorator:
    """As :func:`few_and_many`, with a long case for each of this week's blocks of ``many``.

    Each block hits each label ``hits_min`` times.
    """

    def check_block(seeds: range, scenario: Scenario, labels: Collection[str] = ()) -> None:
        run_seeds(scenario, seeds).check(hits_min=hits_min, labels=labels)

    blocks = of_week([many[first : first + block] for first in range(0, len(many), block)])
    long = {f"{seeds[0]}-{seeds[-1]}": partial(check_block, seeds) for seeds in blocks}
    return _cases(partial(_check_few, few, least, most), long, BLOCK_TIMEOUT_S)


def _check_few(few: range, least: int, most: int, scenario: Scenario, labels: Collection[str] = ()) -> None:
    run_week(scenario, few, least=least, most=most, labels=labels if most else ())


def _cases(few: SeedCheck, long: Mapping[str, SeedCheck], timeout_s: float) -> pytest.MarkDecorator:
    marks = [pytest.mark.long, pytest.mark.timeout(timeout_s)]
    cases = [pytest.param(check, id=name, marks=marks) for name, check in long.items()]
    return pytest.mark.parametrize("check", [pytest.param(few, id="few"), *cases])


def of_week(seeds: Sequence[T]) -> Sequence[T]:
    """Every third of the ``seeds`` of a long simulation, from another one on each week: three weeks run them all."""
    parts = _parts()
    return seeds[weeks_since_the_first() % parts :: parts]


def share(hits: int) -> int:
    """How often the part of a week must reach what all seeds of a long simulation reach ``hits`` times."""
    parts = _parts()
    return hits if parts == 1 else max(1, hits // (LEEWAY * parts))


def weeks_since_the_first() -> int:
    """Of the calendar, up to that of :func:`week`."""
    year, number = week().split("-W")
    return date.fromisocalendar(int(year), int(number), 1).toordinal() // 7


def _parts() -> int:
    return int(os.environ.get(PARTS_VARIABLE, PARTS))


#: Files of which each long test comes every third week, if ``LONG_PARTS`` says so: by name it runs in any week.
LONG_TURNS: Final = tuple(f"integration/test_dropped_{what}.py" for what in ("connections", "ends", "visits"))


def left_to_other_weeks(file: str, tests: Sequence[str]) -> set[str]:
    """Of the long tests of a file below ``tests``, those that ``make test-long`` runs in another week."""
    parts = int(os.environ.get(PARTS_VARIABLE, 1))
    if file not in LONG_TURNS or parts == 1:
        return set()
    return set(tests) - set(tests[weeks_since_the_first() % parts :: parts])


#: Files whose tests take turns: the part of them that a week's ``make test`` runs. Each is a story of its own over
#: Spark, a cluster of processes, or a broker of its own, and all of them cost more than each change should pay.
TURNS: Final[Mapping[str, float]] = {
    "integration/spark/pipelines/test_spark_pipeline_windows.py": 0.2,
    "integration/spark/pipelines/test_spark_pipelines.py": 0.25,
    "integration/spark/test_spark_exactly_once_queries.py": 0.25,
    "integration/spark/test_spark_pipeline.py": 0.6,
    "integration/spark/test_spark_read_topic.py": 0.4,
    "integration/spark/test_spark_sink_queries.py": 0.5,
    "integration/spark/test_spark_source_queries.py": 0.5,
    "integration/test_backup.py": 0.7,
    "integration/test_bookie_cluster.py": 0.5,
    "integration/test_bookie_process.py": 0.6,
    "integration/test_broker_processes.py": 0.4,
    "integration/test_client_commands.py": 0.6,
    "integration/test_cluster_brokers.py": 0.4,
    "integration/test_cluster_metadata_commands.py": 0.5,
    "integration/test_cluster_processes.py": 0.5,
    "integration/test_growing_out.py": 0.5,
    "integration/test_inspect_commands.py": 0.5,
    "integration/test_kill9.py": 0.5,
    "integration/test_local_cluster.py": 0.4,
    "integration/test_standalone_process.py": 0.6,
    "integration/test_stop.py": 0.6,
    "integration/test_three_bookies_of_both_kinds.py": 0.6,
    "integration/test_zookeeper.py": 0.6,
    "integration/test_zookeeper_tls.py": 0.4,
    "unit/app/testing/test_broker_process.py": 0.6,
    "unit/plugin/test_pytest_plugin.py": 0.6,
}


def whose_turn_it_is_not(file: str, tests: Sequence[str]) -> set[str]:
    """Of the tests of a file below ``tests``, those that another week runs: who waited longest comes next."""
    if file not in TURNS or not tests:
        return set()
    count = math.ceil(TURNS[file] * len(tests))
    order = Random(file).sample(tests, len(tests))
    first = weeks_since_the_first() * count % len(order)
    return set((order[first:] + order[:first])[count:])


def _order(name: str, seeds: range, count: int) -> list[int]:
    return Random(f"{week()} {name}").sample(seeds, min(count, len(seeds)))


def _add(total: Report, one: Report) -> None:
    for counter, more in ((total.hits, one.hits), (total.crashes, one.crashes), (total.fired, one.fired)):
        counter.update(more)
    total.crashes_total += one.crashes_total
    total.virtual_seconds += one.virtual_seconds
    total.steps += one.steps

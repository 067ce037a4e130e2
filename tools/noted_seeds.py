"""Looks for the cheapest seed that catches each planted defect of the simulations, and writes tests/noted_seeds.json.

A seed is good if the defect makes it fail and without the defect it passes; what both runs take is its price. For each
defect the first ``--catches`` good seeds of at most ``--seeds`` are looked at, and the cheapest is noted. For when a
simulation changed: ``PYTHONPATH=tests:. python -m tools.noted_seeds [--scenario cluster_story] [--why beginning]``.

A noted seed that catches nothing any more makes its test try all others, seen only when the week draws that test.
``--check`` runs each noted seed once with its defect, says which are stale, and ends with 1 if any is; ``--stale``
looks for others for these alone.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from importlib import import_module
from typing import Any, Final, NamedTuple

import pytest

from geminga.sim import run_seeds
from geminga.sim.seeds import Scenario
from support.house.noted_seeds import NOTED, noted_seed, noted_seeds
from support.house.planted_defects import planted

#: Test modules with ``DEFECTS``: of one scenario, which has this name in them, or pairs with their scenarios.
MODULES: Final = {
    "test_bookie_crash": "bookie_story",
    "test_bundle_brokers_defects": "bundle_brokers",
    "test_cluster_deletions": "cluster_deletions",
    "test_cluster_operations_defects": "cluster_operations",
    "test_cluster_story_defects": "cluster_story",
    "test_cluster_transactions_defects": "cluster_transactions",
    "test_leaks": "leaks",
    "test_mesh_defects": "mesh",
    "test_mesh_alike": "",
    "test_migration_defects": "migration",
    "test_cursor_crash": "segments_story",
    "test_ledger_takeover_defects": "ledger_takeover",
    "test_storage_story_defects": "",
}


class Defect(NamedTuple):
    """A scenario, what is wrong in the product, and the context in which it is."""

    scenario: Scenario
    why: str
    plant: Callable[[], AbstractContextManager[object]]


def defects() -> Iterator[Defect]:
    """Every scenario with every defect that it is to catch."""
    for name, scenario in MODULES.items():
        module: Any = import_module(f"tests.simulation.{name}")
        for defect in module.DEFECTS:
            caught_by, why = (getattr(module, scenario), defect) if scenario else defect
            yield Defect(caught_by, why, partial(planted, why))
    model: Any = import_module("tests.simulation.test_broker_model")
    for plant in model.PLANTS:
        yield Defect(model.broker_story, plant.__name__, partial(_patched, plant))


@contextmanager
def _patched(plant: Callable[[pytest.MonkeyPatch], None]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        yield


def cpu_s(scenario: Scenario, seed: int) -> tuple[float, bool]:
    """What a run takes, and whether it passes."""
    began = time.process_time()
    failures = run_seeds(scenario, [seed]).failures
    return time.process_time() - began, not failures


def stale(listed: Iterable[Defect]) -> Iterator[Defect]:
    """Those whose noted seed passes in spite of the defect, and those of which none is noted; each takes one run."""
    for defect in listed:
        seed = noted_seed(defect.scenario.__name__, defect.why)
        if seed is not None:
            with defect.plant():
                _, passes = cpu_s(defect.scenario, seed)
            if not passes:
                continue
        yield defect


def cheapest(defect: Defect, seeds: int, catches: int) -> tuple[int, float] | None:
    """A seed and its price; None if none is good."""
    good: list[tuple[float, int]] = []
    known = noted_seed(defect.scenario.__name__, defect.why)
    for seed in dict.fromkeys([*([] if known is None else [known]), *range(seeds)]):
        with defect.plant():
            with_defect, passes = cpu_s(defect.scenario, seed)
        if passes:
            continue
        without, passes = cpu_s(defect.scenario, seed)
        if passes:
            good.append((with_defect + without, seed))
        if len(good) == catches:
            break
    return (min(good)[1], min(good)[0]) if good else None


def _note(scenario: str, why: str, seed: int) -> None:
    """Into the file as it is now: others may look for other scenarios at the same time."""
    noted_seeds.cache_clear()
    kept = {name: dict(seeds) for name, seeds in noted_seeds().items()}
    kept.setdefault(scenario, {})[why] = seed
    NOTED.write_text(json.dumps(kept, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def _check(chosen: Iterable[Defect]) -> None:
    found = 0
    for defect in stale(chosen):
        found += 1
        name = defect.scenario.__name__
        print(f"{name:20} seed {noted_seed(name, defect.why)} is stale: {defect.why}", flush=True)
    if found:
        raise SystemExit(f"{found} stale: python -m tools.noted_seeds --stale")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", default="", help="of one scenario alone")
    parser.add_argument("--why", default="", help="defects whose description begins so")
    parser.add_argument("--seeds", type=int, default=100, help="tried at most (%(default)s)")
    parser.add_argument("--catches", type=int, default=4, help="of which the cheapest is taken (%(default)s)")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--check", action="store_true", help="says which noted seeds are stale, writes nothing")
    only.add_argument("--stale", action="store_true", help="only for defects whose noted seed is stale")
    given = parser.parse_args(arguments)
    chosen: Iterable[Defect] = (
        defect
        for defect in defects()
        if given.scenario in ("", defect.scenario.__name__) and defect.why.startswith(given.why)
    )
    if given.check:
        _check(chosen)
        return
    missing = []
    for defect in stale(chosen) if given.stale else chosen:
        name = defect.scenario.__name__
        found = cheapest(defect, given.seeds, given.catches)
        if found is None:
            missing.append(f"{name}: {defect.why}")
            continue
        print(f"{name:20} seed {found[0]:4}  {found[1]:5.2f} CPU s  {defect.why}", flush=True)
        _note(name, defect.why, found[0])
    if missing:
        raise SystemExit(f"none of {given.seeds} seeds catches:\n" + "\n".join(missing))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # what fails on purpose has much to say
    main()

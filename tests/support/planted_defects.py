"""Changes of one line that ``tools/mutants/packages`` lists, planted in this process for as long as a test wants."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import FunctionType

from tools.mutants.plan import Mutant, load_packages
from tools.mutants.planting import functions_by_code, plant

from geminga.sim import run_seeds
from geminga.sim.seeds import Scenario
from support.noted_seeds import noted_seed
from support.source_tree import ROOT


@cache
def mutants() -> dict[str, Mutant]:
    return {mutant.why: mutant for package in load_packages(ROOT) for mutant in package.mutants}


@contextmanager
def planted(why: str) -> Iterator[None]:
    """``why``: what the list says of it. Its module has to be loaded."""
    mutant = mutants()[why]
    functions = functions_by_code()
    file = str(ROOT / mutant.file)
    before: list[tuple[FunctionType, object]] = [
        (function, function.__code__) for key, held in functions.items() if key[0] == file for function in held
    ]
    module = mutant.file.removeprefix("src/").removesuffix(".py").replace("/", ".")
    plant(module, file, mutant.source, functions)
    try:
        assert any(function.__code__ is not code for function, code in before)
        yield
    finally:
        for function, code in before:
            function.__code__ = code


def check_is_caught(scenario: Scenario, why: str, seeds: int) -> None:
    """One of so many seeds notices the defect, and without it has nothing to say; the noted one is tried first."""
    noted = noted_seed(scenario.__name__, why)
    tried = range(seeds) if noted is None else [noted, *range(seeds)]
    with planted(why):
        failures = run_seeds(scenario, tried, failures_max=1).failures
    assert failures, f"{why}: none of {seeds} seeds of {scenario.__name__} notices"
    print(f"seed {failures[0].seed} of {scenario.__name__}: {why}")
    run_seeds(scenario, [failures[0].seed]).check(labels=())

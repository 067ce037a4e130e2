"""Changes of one line that ``tools/mutants/packages`` lists, planted in this process for as long as a test wants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import FunctionType
from typing import Final

import pytest
from tools.mutants.plan import find_mutant
from tools.mutants.planting import FunctionsByCode, functions_by_code, plant

from geminga.sim import run_seeds
from geminga.sim.seeds import Scenario
from geminga.version import is_compiled
from support.house.noted_seeds import noted_seed
from support.house.source_tree import ROOT

_PRODUCT: Final = str(ROOT / "src")
#: By file, of every file that was loaded when somebody asked.
_functions: dict[str, dict[tuple[str, str, int], Sequence[FunctionType]]] = {}


def functions_of(file: str) -> FunctionsByCode:
    """Of one file of the product, which are looked for once: a process has millions of objects.

    Those made within functions are left out: their code is part of what makes them, and they would keep alive what
    they hold.
    """
    if file not in _functions:
        for key, held in functions_by_code().items():
            if key[0].startswith(_PRODUCT) and (plain := [one for one in held if one.__closure__ is None]):
                _functions.setdefault(key[0], {})[key] = plain
    return _functions.get(file, {})


@contextmanager
def planted(why: str) -> Iterator[None]:
    """``why``: what the list says of it. Skips the test where the product is compiled: functions have no code there."""
    if is_compiled():
        pytest.skip("a defect is planted in what is not compiled")
    mutant = find_mutant(ROOT, why)
    file = str(ROOT / mutant.file)
    module = mutant.file.removeprefix("src/").removesuffix(".py").replace("/", ".")
    # What a broker loads with its first use would be loaded without the defect.
    import_module(module)
    functions = functions_of(file)
    before: list[tuple[FunctionType, object]] = [
        (function, function.__code__) for key, held in functions.items() if key[0] == file for function in held
    ]
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

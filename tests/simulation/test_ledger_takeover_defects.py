"""Takeovers of ledgers with a defect planted: some seed catches each, so the simulation can see what it looks for.

Which one it is changes with every change of what is simulated, so it is looked for; docs/storage-faults.md has those of
its writing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import FunctionType

import pytest
from tools.mutants.plan import Mutant, load_packages
from tools.mutants.planting import functions_by_code, plant

from geminga.sim import run_seeds
from support.ledger_takeover import ledger_takeover
from support.source_tree import ROOT

#: By what ``tools/mutants/packages/bookkeeper.toml`` says of them.
DEFECTS = (
    "acknowledged entries before the last fragment are cut off (BookKeeper #2615)",
    "one bookie that lost an entry shortens the ledger",
    "an I/O error is taken for a certain absence",
    "fenced bookies refuse what recovery writes back",
    "a late answer of a replaced bookie counts towards the quorum",
    "what a replaced bookie acknowledged counts for its successor",
    "entries say of others that they are confirmed before they are",
)
#: One in some thousand takeovers meets it.
RARE = "recovery reads that do not fence: an entry is acknowledged after its absence was certain"
SEEDS = 500
SEEDS_LONG = 12_000


@cache
def mutants() -> dict[str, Mutant]:
    return {mutant.why: mutant for package in load_packages(ROOT) for mutant in package.mutants}


@contextmanager
def planted(why: str) -> Iterator[None]:
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


def first_seed_that_fails(why: str, seeds: int) -> int | None:
    with planted(why):
        failures = run_seeds(ledger_takeover, range(seeds), failures_max=1).failures
    return failures[0].seed if failures else None


@pytest.mark.slow
@pytest.mark.parametrize("why", DEFECTS)
def test_planted_defect_is_caught_by_some_seed(why: str) -> None:
    seed = first_seed_that_fails(why, SEEDS)
    print(f"seed {seed}: {why}")
    assert seed is not None
    run_seeds(ledger_takeover, [seed]).check(labels=())


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_recovery_that_does_not_fence_is_caught_by_some_seed() -> None:
    seed = first_seed_that_fails(RARE, SEEDS_LONG)
    print(f"seed {seed}: {RARE}")
    assert seed is not None
    run_seeds(ledger_takeover, [seed]).check(labels=())

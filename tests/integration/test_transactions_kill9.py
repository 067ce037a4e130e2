"""The example that joins two topics while it and its broker are killed: each pair is there once, and no input is left.

``make kills`` is the same with 200 kills. CRASH_ROUNDS sets the kills of the long test, CRASH_SEED the seed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from rich.console import Console
from tools.join_kills import KILLS, VARIANTS, Result, Variant, run

pytestmark = pytest.mark.integration

SEED = int(os.environ.get("CRASH_SEED", "1"))
KILLS_LONG = int(os.environ.get("CRASH_ROUNDS", str(KILLS)))
#: Everything at once, for those who have little time.
ALL_AT_ONCE = Variant("all", partitions=2, batch=10, is_exclusive=True)


def check(result: Result, kills: int) -> None:
    assert result.failures == []
    assert (result.lost, result.duplicated, result.foreign) == (0, 0, 0)
    assert sum(result.kills.values()) == kills
    assert result.pairs > 0


def test_each_pair_is_there_once_whoever_is_killed(tmp_path: Path) -> None:
    check(run(tmp_path, kills=4, seed=SEED, variants=[ALL_AT_ONCE], console=Console()), 4)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_each_pair_is_there_once_whoever_is_killed_many_times(tmp_path: Path) -> None:
    result = run(tmp_path, kills=KILLS_LONG, seed=SEED, variants=VARIANTS, console=Console())
    check(result, KILLS_LONG)
    # The kills fell into transactions, and work went on between them.
    assert result.kills_in_transactions >= KILLS_LONG // 20
    assert result.before_last_kill >= result.pairs // 2

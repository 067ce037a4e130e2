"""The runner of many seeds: its report, its failures, its limits."""

from __future__ import annotations

import pytest

from geminga import sim
from geminga.runtime import crash_point, sometimes


async def steady(world):
    async def main(node):
        for _ in range(3):
            crash_point("thing.step")
            sometimes("thing.rare", 50)
        crash_point("thing.end")
        await world.sleep(1)

    node = world.node("a")
    if world.seed % 2:
        world.crash_at("thing.end")
    node.run(main)
    await world.sleep(2)


async def failing(world):
    await world.sleep(1)
    if world.seed % 3 == 0:
        raise ValueError(f"seed {world.seed} does not like it")


def test_report_adds_up_what_all_seeds_did():
    report = sim.run_seeds(steady, range(10))
    assert report.seeds == 10
    assert report.hits == {"thing.step": 30, "thing.end": 10}
    assert report.crashes == {"thing.end": 5}
    assert report.crashes_total == 5
    assert 5 < report.fired["thing.rare"] < 25
    assert report.virtual_seconds == 20
    table = report.table()
    assert "steady: 10 seeds, 0 failures, 5 crashes" in table
    assert "thing.end" in table
    report.check(hits_min=10)
    report.check(hits_min=30, labels=["thing.step"])
    with pytest.raises(AssertionError, match=r"fewer than 11 times: \['thing.end'\]"):
        report.check(hits_min=11)
    with pytest.raises(AssertionError, match=r"\['thing.never'\]"):
        report.check(hits_min=1, labels=["thing.never"])


def test_failures_carry_their_seed_and_stop_the_run_at_the_limit(capsys):
    report = sim.run_seeds(failing, range(100), failures_max=2)
    assert [failure.seed for failure in report.failures] == [0, 3]
    assert report.seeds == 4
    with pytest.raises(AssertionError, match=r"seeds \[0, 3\]") as failure:
        report.check()
    assert "seed=0" in str(failure.value)
    assert "seed=3" in capsys.readouterr().err

"""Compactions take the turns of readers that catch up: whoever publishes is served between them."""

from __future__ import annotations

import asyncio
from collections.abc import Generator

import pytest

from geminga.broker.compaction.paced import PacedWork
from geminga.managed_ledger.rules.catch_up_share import QUIET_TURN_S
from geminga.managed_ledger.shared.catch_up_turns import CatchUpTurns
from geminga.model.errors import StorageError
from geminga.runtime import next_turn, spawn
from geminga.runtime.waiting import delay
from geminga.sim import SimWorld, run
from support.house.stepping_clock import WorkClock

STEP_S = 0.000_05


class Others:
    """Everybody else on the loop: how much was worked between two of its turns, seconds."""

    def __init__(self, clock: WorkClock) -> None:
        self.clock = clock
        self.waited_s: list[float] = []
        self.before_s = 0.0
        self.next = asyncio.get_running_loop().call_soon(self.turn)

    def turn(self) -> None:
        self.waited_s.append(self.clock.worked_s - self.before_s)
        self.before_s = self.clock.worked_s
        self.next = asyncio.get_running_loop().call_soon(self.turn)


def steps(clock: WorkClock, count: int) -> Generator[None, None, str]:
    for _ in range(count):
        clock.worked_s += STEP_S
        yield
    return "done"


def test_others_have_their_turn_after_a_millisecond() -> None:
    async def scenario(_world: SimWorld) -> None:
        clock = WorkClock()
        turns = CatchUpTurns(clock, 0.5)
        others = Others(clock)
        assert await PacedWork(turns, clock, None).do(steps(clock, 1000)) == "done"
        others.next.cancel()
        turns.close()
        assert len(others.waited_s) >= 1000 * STEP_S / QUIET_TURN_S
        assert max(others.waited_s) <= QUIET_TURN_S + STEP_S

    run(scenario)


def test_while_somebody_publishes_it_has_its_share_of_the_time() -> None:
    async def scenario(_world: SimWorld) -> None:
        clock = WorkClock()
        turns = CatchUpTurns(clock, 0.25)
        waited_s: list[float] = []

        async def publish() -> None:
            while True:
                before_s = clock.worked_s
                turns.published()
                await delay(1)
                waited_s.append(clock.worked_s - before_s)

        publishing = spawn(publish(), name="publish")
        await next_turn()
        began_s = clock.monotonic()
        assert await PacedWork(turns, clock, None).do(steps(clock, 1000)) == "done"
        passed_s = clock.monotonic() - began_s
        publishing.cancel()
        turns.close()
        assert 3.5 < passed_s / (1000 * STEP_S) < 4.5
        assert max(waited_s[1:]) < QUIET_TURN_S

    run(scenario)


def test_who_is_called_off_while_it_waits_for_a_turn_waits_no_more() -> None:
    async def scenario(_world: SimWorld) -> None:
        clock = WorkClock()
        turns = CatchUpTurns(clock, 0.5)
        turns.published()
        work = spawn(PacedWork(turns, clock, None).do(steps(clock, 1000)), name="work")
        while not turns.waiting_count:
            await next_turn()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert turns.waiting_count == 0
        turns.close()

    run(scenario)


def test_an_error_is_for_who_waits_and_a_defect_ends_the_work() -> None:
    def failing(clock: WorkClock, error: Exception) -> Generator[None, None, None]:
        yield from steps(clock, 30)
        raise error

    async def scenario(_world: SimWorld) -> None:
        clock = WorkClock()
        turns = CatchUpTurns(clock, 0.5)
        work = PacedWork(turns, clock, None)
        with pytest.raises(StorageError, match="disk"):
            await work.do(failing(clock, StorageError("disk")))
        turns.published()
        task = spawn(work.do(failing(clock, ZeroDivisionError())), name="work")
        while not turns.waiting_count:
            await next_turn()
        with pytest.raises(ZeroDivisionError):
            work.go(1.0)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert turns.waiting_count == 0
        turns.close()

    run(scenario)

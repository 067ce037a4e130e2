"""PINGs from time to time, and who is gone by them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from geminga import sim
from geminga.broker.connection.core.read_gate import PauseReason, ReadGate
from geminga.broker.connection.keep_alive import KeepAlive
from support.worlds.policy_levels import seconds

INTERVAL_S = 30.0


def run(scenario) -> None:
    async def main(world: sim.SimWorld) -> None:
        gate, heard = ReadGate(lambda reasons: None), []
        alive = KeepAlive(SimpleNamespace(keep_alive_interval_s=INTERVAL_S), gate, asyncio.get_running_loop())
        alive.start(10.0, lambda: heard.append("ping"), heard.append)
        await scenario(alive, gate, heard)
        alive.stop()

    sim.run(main, seed=1)


def test_first_ping_leaves_in_its_time_and_who_answers_none_is_gone_an_interval_later() -> None:
    async def scenario(alive: KeepAlive, gate: ReadGate, heard: list[str]) -> None:
        await seconds(9.9)
        assert heard == []
        await seconds(0.2)
        assert (heard, alive.is_awaited) == (["ping"], True)
        await seconds(INTERVAL_S)
        assert heard == ["ping", "no answer to a keep-alive PING"]
        await seconds(10 * INTERVAL_S)
        assert len(heard) == 2

    run(scenario)


def test_who_is_heard_of_is_asked_again_every_interval() -> None:
    async def scenario(alive: KeepAlive, gate: ReadGate, heard: list[str]) -> None:
        for count in range(1, 5):
            await seconds(INTERVAL_S)
            assert heard == ["ping"] * count
            alive.is_awaited = False

    run(scenario)


def test_who_is_not_listened_to_is_not_gone() -> None:
    async def scenario(alive: KeepAlive, gate: ReadGate, heard: list[str]) -> None:
        gate.hold(PauseReason.PUBLISH_RATE)
        await seconds(3 * INTERVAL_S)
        assert heard == ["ping"] * 3
        gate.free(PauseReason.PUBLISH_RATE)
        await seconds(INTERVAL_S)
        assert heard[-1] == "no answer to a keep-alive PING"

    run(scenario)


def test_nothing_is_asked_of_a_connection_that_is_closed() -> None:
    async def scenario(alive: KeepAlive, gate: ReadGate, heard: list[str]) -> None:
        alive.stop()
        await seconds(3 * INTERVAL_S)
        assert heard == []

    run(scenario)

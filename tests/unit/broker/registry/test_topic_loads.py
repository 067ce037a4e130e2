"""Topics that wait for their turn to be loaded: used ones first, and none that nobody waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest

from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.core import load_queue
from geminga.broker.failures import Failures
from geminga.broker.registry import topic_loads
from geminga.broker.registry.topic_loads import Load, TopicLoads
from geminga.broker.topic.base import Topic
from geminga.model.errors import GemingaError, TooManyRequestsError, TopicNotFoundError, UnavailableError
from geminga.model.topic_name import TopicName
from geminga.runtime import wait_ms
from geminga.sim import SimWorld
from geminga.sim import run as run_world
from support.worlds.broker_world import BrokerWorld, run_with_broker
from support.worlds.ownership import OwnershipTable

AT_ONCE = 4
#: What a load came to.
Asked: TypeAlias = asyncio.Future[GemingaError]
TIMEOUT_S = 60


class Loads:
    """Loads that end when the test says so."""

    def __init__(self, world: SimWorld) -> None:
        node = world.node("broker")
        self.begun: list[str] = []
        self.ends: dict[str, asyncio.Future[Topic]] = {}
        config = BrokerConfig(concurrent_topic_loads_max=8, topic_load_timeout_s=TIMEOUT_S)
        self.loads = TopicLoads(self._run, node.runtime.clock, Failures(node.runtime.clock), config)

    async def _run(self, load: Load) -> Topic:
        name = load.name.local_name
        self.begun.append(name)
        self.ends[name] = asyncio.get_running_loop().create_future()
        return await self.ends[name]

    def ask(self, name: str, *, is_for_client: bool = True, namespace: str = "public/default") -> Asked:
        load = Load(TopicName.parse(f"persistent://{namespace}/{name}"), create=True, is_for_deletion=False)
        self.loads.ask(load, is_for_client=is_for_client)
        return self.join(load, is_for_client=is_for_client)

    def join(self, load: Load, *, is_for_client: bool = True) -> Asked:
        return asyncio.ensure_future(self._outcome(load, is_for_client))

    async def _outcome(self, load: Load, is_for_client: bool) -> GemingaError:
        with pytest.raises(GemingaError) as caught:
            await self.loads.result(load, is_for_client=is_for_client)
        return caught.value

    async def end(self, name: str) -> None:
        self.ends.pop(name).set_exception(TopicNotFoundError(name))
        await wait_ms(1)


def run(scenario: Callable[[Loads], Awaitable[None]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_loads, "AT_ONCE_MAX", AT_ONCE)

    async def main(world: SimWorld) -> None:
        await scenario(Loads(world))

    run_world(main, seed=1)


async def busy(loads: Loads) -> list[Asked]:
    """As many as run at once."""
    asked = [loads.ask(f"busy-{number}") for number in range(AT_ONCE)]
    await wait_ms(1)
    assert len(loads.begun) == AT_ONCE
    return asked


def test_topics_of_clients_are_loaded_before_those_that_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(loads: Loads) -> None:
        asked = [*await busy(loads), loads.ask("looked-at", is_for_client=False), loads.ask("used")]
        await wait_ms(1)
        told = loads.loads.metrics()
        assert (told["pulsar_broker_topic_load_pending_requests"], told["geminga_topic_loads_waiting"]) == (AT_ONCE, 2)
        assert told["topic_load_failed_total"] == 0
        await loads.end("busy-0")
        await loads.end("busy-1")
        assert loads.begun[AT_ONCE:] == ["used", "looked-at"]
        for name in list(loads.ends):
            await loads.end(name)
        assert {type(await one) for one in asked} == {TopicNotFoundError}
        told = loads.loads.metrics()
        assert told["pulsar_broker_topic_load_pending_requests"] == told["geminga_topic_loads_waiting"] == 0
        assert told["topic_load_failed_total"] == len(asked)

    run(scenario, monkeypatch)


def test_client_that_comes_later_brings_a_topic_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(loads: Loads) -> None:
        await busy(loads)
        looked_at = [loads.ask(f"looked-at-{number}", is_for_client=False) for number in range(2)]
        load = loads.loads.find("persistent://public/default/looked-at-1")
        assert load is not None
        client = loads.join(load)
        await wait_ms(1)
        await loads.end("busy-0")
        assert loads.begun[-1] == "looked-at-1"
        await loads.end("looked-at-1")
        assert isinstance(await client, TopicNotFoundError)
        assert isinstance(await looked_at[1], TopicNotFoundError)

    run(scenario, monkeypatch)


def test_topic_that_waits_too_long_is_told_and_never_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(loads: Loads) -> None:
        running = await busy(loads)
        # What is stuck makes room for as many as may run in all.
        waiting = [loads.ask(f"waits-{number}") for number in range(AT_ONCE + 1)]
        await wait_ms(TIMEOUT_S * 1000 - 1)
        assert loads.begun[AT_ONCE:] == [f"waits-{number}" for number in range(AT_ONCE)]
        assert not any(one.done() for one in running)
        await wait_ms(2)
        for one in (*running, *waiting):
            assert isinstance(await one, UnavailableError)
        assert f"waits-{AT_ONCE}" not in loads.begun
        assert loads.loads.find(f"persistent://public/default/waits-{AT_ONCE}") is None
        assert loads.loads.find("persistent://public/default/busy-0") is not None, "it goes on, and may end yet"

    run(scenario, monkeypatch)


def test_topic_whose_askers_went_away_gives_its_turn_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(loads: Loads) -> None:
        await busy(loads)
        gone, stays = loads.ask("gone"), loads.ask("stays")
        await wait_ms(1)
        gone.cancel()
        await wait_ms(1)
        await loads.end("busy-0")
        assert loads.begun[-1] == "stays"
        await loads.end("busy-1")
        assert "gone" not in loads.begun
        await loads.end("stays")
        assert isinstance(await stays, TopicNotFoundError)

    run(scenario, monkeypatch)


def test_system_topic_waits_for_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loads that run may wait for it."""

    async def scenario(loads: Loads) -> None:
        await busy(loads)
        loads.ask("__change_events")
        await wait_ms(1)
        assert loads.begun[-1] == "__change_events"

    run(scenario, monkeypatch)


def test_where_as_many_wait_as_may_the_namespace_with_most_gives_one_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_queue.LoadQueue.__init__, "__kwdefaults__", {"waiting_max": 3})

    async def scenario(loads: Loads) -> None:
        await busy(loads)
        large = [loads.ask(f"large-{number}") for number in range(3)]
        with pytest.raises(TooManyRequestsError):
            loads.ask("large-3")
        single = loads.ask("single", namespace="public/other")
        assert isinstance(await large[2], TooManyRequestsError)
        await loads.end("busy-0")
        await loads.end("busy-1")
        assert loads.begun[AT_ONCE:] == ["large-0", "single"]
        await loads.end("single")
        assert isinstance(await single, TopicNotFoundError)

    run(scenario, monkeypatch)


def test_broker_that_closes_or_loses_topics_ends_those_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_loads, "AT_ONCE_MAX", AT_ONCE)
    table = OwnershipTable(["a", "b"])
    names = [TopicName.parse(f"persistent://public/default/topic-{number}") for number in range(3 * AT_ONCE)]

    async def scenario(world: BrokerWorld) -> None:
        world.metadata.faults.delay_ms_max = 20
        asked = [asyncio.ensure_future(world.broker.registry.get(name, create=True)) for name in names]
        waiting = "geminga_topic_loads_waiting"
        while world.broker.registry.loads.metrics()[waiting] < len(names) // 3:
            await wait_ms(1)
        giving = asyncio.ensure_future(table.give(names, "b"))
        await wait_ms(1)
        assert world.broker.registry.loads.metrics()[waiting] == 0, "they are told at once, whatever is under way"
        await giving
        results = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(one, GemingaError) for one in results)
        assert not world.broker.topics
        assert world.broker.registry.loads.metrics()[waiting] == 0
        world.metadata.faults.delay_ms_max = 0
        await table.give(names, "a")
        await asyncio.gather(*(world.broker.registry.get(name, create=True) for name in names))
        assert len(world.broker.topics) == len(names), "all are loaded, in their turns"

    run_with_broker(scenario, ownership=table.brokers["a"])

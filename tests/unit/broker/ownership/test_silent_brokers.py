"""Brokers that were killed while metadata names them: who waits for the end of their sessions, and who does not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from geminga import sim
from geminga.broker.core.coercion import encode_document
from geminga.broker.ownership import silent_brokers
from geminga.broker.ownership.core.broker_data import registration
from geminga.broker.ownership.core.owner_data import OwnerData, OwnerListener
from geminga.broker.ownership.endpoints import Endpoint
from geminga.broker.ownership.live_brokers import LiveBrokers
from geminga.broker.ownership.registration import BrokerRegistration
from geminga.broker.ownership.silent_brokers import FIRST_LOOKS_MAX, LOOK_S, WAIT_S_MAX, SilentBrokers
from geminga.metadata import MemoryMetadata, MemoryMetadataStore
from geminga.runtime import spawn, wait_ms

SESSION_MS = 6000
PORT = 6650


class Ground:
    """Broker ``b`` is registered, and listens on a node of its own; ``a`` looks at it."""

    def __init__(self, world: sim.SimWorld) -> None:
        self.world = world
        self.b = world.node("b")
        runtime = world.node("a").runtime
        server = MemoryMetadata()
        self.store = MemoryMetadataStore(runtime, server)
        self.store_of_b = MemoryMetadataStore(runtime, server)
        self.clock = runtime.clock
        self.brokers = LiveBrokers(self.store)
        self.silent = SilentBrokers(runtime, self.brokers)
        self.endpoint = Endpoint("internal", f"pulsar://{self.b.name}:{PORT}", "", "http://b:8080")
        self.registration = BrokerRegistration(self.store_of_b, SESSION_MS, "b:8080")
        self.is_listening = False

    async def listen(self) -> None:
        self.world.network.refuse(self.b, refuse=False)
        if not self.is_listening:
            self.is_listening = True
            await self.b.runtime.network.listen(asyncio.Protocol, "0.0.0.0", PORT)

    def listen_no_more(self) -> None:
        self.world.network.refuse(self.b)

    async def register(self) -> None:
        owner = OwnerData(OwnerListener(self.endpoint.broker_url, "", self.endpoint.web_url), {})
        await self.registration.begin(encode_document(registration("b:8080", owner, version="1", started_ms=1)))

    async def look(self) -> None:
        await self.brokers.start()
        self.silent.start()
        await wait_ms(100)

    async def is_silent(self) -> bool:
        await wait_ms(LOOK_S * 1000)
        return await self.silent.is_silent(self.endpoint)

    async def waited_s(self) -> float:
        wait = self.silent.wait(self.endpoint)
        assert wait is not None
        since = self.clock.monotonic()
        await wait
        return self.clock.monotonic() - since

    async def end(self) -> None:
        await self.silent.close()
        await self.brokers.close()


def run(main: Callable[[Ground], Awaitable[None]], seed: int = 3) -> None:
    async def scenario(world: sim.SimWorld) -> None:
        world.node("b")

        async def whole(_: object) -> None:
            ground = Ground(world)
            await main(ground)
            await ground.end()

        await world.node("a").run(whole)

    sim.run(scenario, seed=seed)


def test_who_asks_for_a_killed_broker_waits_until_it_leaves_the_list() -> None:
    async def main(ground: Ground) -> None:
        await ground.listen()
        await ground.register()
        await ground.look()
        assert not await ground.is_silent()
        assert ground.silent.wait(ground.endpoint) is None
        ground.listen_no_more()
        assert await ground.is_silent()
        waiting = [spawn(ground.waited_s(), name=f"{number}") for number in range(300)]
        await wait_ms(3000)
        assert not any(task.done() for task in waiting)
        await ground.registration.end()
        await asyncio.wait(waiting)
        assert all(3 <= task.result() < 3.2 for task in waiting)
        assert not await ground.is_silent()

    run(main)


def test_nobody_waits_for_longer_than_a_client_does_nor_when_it_answers_again() -> None:
    async def main(ground: Ground) -> None:
        await ground.listen()
        await ground.register()
        await ground.look()
        ground.listen_no_more()
        assert await ground.is_silent()
        assert WAIT_S_MAX <= await ground.waited_s() < WAIT_S_MAX + 0.1
        waiting = spawn(ground.waited_s(), name="waiting")
        await wait_ms(2000)
        await ground.listen()
        assert await waiting < 2 + LOOK_S + 1
        assert not await ground.is_silent()

    run(main)


def test_where_brokers_never_reached_each_other_nobody_waits() -> None:
    async def main(ground: Ground) -> None:
        await ground.register()
        await ground.look()
        for _ in range(FIRST_LOOKS_MAX + 2):
            assert not await ground.is_silent()
        assert ground.silent.wait(ground.endpoint) is None
        # It was slow to start: from now on its end is noticed.
        await ground.listen()
        assert not await ground.is_silent()
        await wait_ms(100)
        ground.listen_no_more()
        assert await ground.is_silent()

    run(main)


def test_more_than_can_wait_are_answered_at_once(monkeypatch) -> None:
    monkeypatch.setattr(silent_brokers, "WAITING_MAX", 2)

    async def main(ground: Ground) -> None:
        await ground.listen()
        await ground.register()
        await ground.look()
        ground.listen_no_more()
        assert await ground.is_silent()
        waiting = [spawn(ground.waited_s(), name=f"{number}") for number in range(2)]
        await wait_ms(10)
        assert ground.silent.wait(ground.endpoint) is None
        await ground.silent.close()
        await asyncio.wait(waiting)

    run(main)

"""The stage of stories about our client: a real broker, a proxy before it that turns hostile, a node for clients."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Self, TypeVar

import geminga.client as gc
from geminga import sim
from support.worlds.client_world import CLIENT, URL, BrokerOnNode, HostileProxy, insist

T = TypeVar("T")


class ClientScenario:
    """See the module. The network is sound until :meth:`faults`."""

    def __init__(self, world: sim.SimWorld, **broker) -> None:
        """``broker``: its settings."""
        self.world = world
        self.broker_node, self.proxy_node, self.client_node = (
            world.node(name) for name in ("broker", "proxy", "client")
        )
        self.broker = BrokerOnNode(self.broker_node, **broker)
        self.proxy = HostileProxy(world, self.proxy_node)
        self.proxy.is_hostile = False

    async def start(self) -> Self:
        """Broker and proxy listen."""
        await self.broker_node.run(lambda _: self.broker.start())
        await self.proxy_node.run(lambda _: self.proxy.start())
        return self

    def connect(self, **options) -> gc.Client:
        """A client on its node, to be used there; ``options`` beside the usual ones."""
        return gc.connect(URL, runtime=self.client_node.runtime, **{**CLIENT, **options})

    async def restart_or_abandon(self, rng: random.Random) -> None:
        """The broker stops and comes back, or another one takes over."""
        is_clean = rng.random() < 0.5
        self.world.points.hits["broker.restart" if is_clean else "broker.taken over"] += 1
        await (self.broker.restart() if is_clean else self.broker.abandon())

    def faults(self, rng: random.Random, until_s: float, restart: Callable[[], Awaitable[None]] | None = None):
        """Connections get faults, the broker is restarted and perhaps slow; healed at ``until_s`` of virtual time.

        Done when all of it is over. ``restart``: instead of a clean one.
        """
        world = self.world
        self.proxy.is_hostile = True

        async def restart_cleanly() -> None:
            world.points.hits["broker.restart"] += 1
            await self.broker.restart()

        async def heal(_: sim.SimNode) -> None:
            for _ in range(rng.randrange(3)):
                await world.sleep(rng.uniform(0, until_s / 3))
                await (restart or restart_cleanly)()
            await world.sleep(max(until_s - world.now, 0))
            self.proxy.is_hostile = False

        async def slow_down(_: sim.SimNode) -> None:
            if rng.random() < 0.4:
                await world.sleep(rng.uniform(0, until_s / 2))
                await self.broker.be_slow(world, rng.uniform(0.5, 8))

        return asyncio.gather(self.broker_node.run(heal), self.proxy_node.run(slow_down))

    async def insist(self, attempt: Callable[[], Awaitable[T]]) -> T:
        return await insist(self.world, attempt)

    async def check_nothing_left(self, settle_s: float = 5) -> None:
        """After that time neither tasks nor connections of the client's node are there."""
        await self.world.sleep(settle_s)
        left = [task.get_name() for task, boot in self.world.loop.pending_tasks() if boot is self.client_node.boot]
        assert left == [], f"tasks left behind: {left}"
        assert self.world.network.connections(self.client_node) == []

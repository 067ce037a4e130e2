"""The simulated world: one seed, one loop, nodes, a network, and the means to hurt them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from geminga.runtime import set_fatal_handler, set_strict
from geminga.sim.boot import CURRENT_BOOT, Boot
from geminga.sim.loop import SimLoop
from geminga.sim.network import SimNetwork
from geminga.sim.node import SimNode
from geminga.sim.points import SimPoints
from geminga.sim.rng import Stream, stream
from geminga.sim.trace import Trace

T = TypeVar("T")


class SimWorld:
    """Given to a scenario by :func:`geminga.sim.run`."""

    def __init__(self, seed: int, *, permute_ready_tasks: bool = False) -> None:
        #: Everything random in this run follows from it.
        self.seed = seed
        #: The event loop; virtual time.
        self.loop = SimLoop(shuffle=stream(seed, "shuffle") if permute_ready_tasks else None)
        #: What happened, hashed.
        self.trace = Trace()
        #: Nodes by name.
        self.nodes: dict[str, SimNode] = {}
        #: The links between them.
        self.network = SimNetwork(self.loop, stream(seed, "network"), self.trace, self.nodes)
        #: Node crashes so far.
        self.crashes = 0
        #: Crash points and ``sometimes``.
        self.points = SimPoints(stream(seed, "points"), self._crash_at_point)
        set_fatal_handler(self._task_failed, self.loop)
        # What a broker would close a topic for, and go on, is a defect here.
        set_strict(self.loop, True)

    @property
    def now(self) -> float:
        """Virtual seconds since the start."""
        return self.loop.time()

    def rng(self, *names: object) -> Stream:
        """A random stream of its own for a scenario's choices."""
        return stream(self.seed, "scenario", *names)

    async def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        future: asyncio.Future[None] = self.loop.create_future()
        timer = self.loop.call_later(seconds, _wake, future)
        try:
            await future
        finally:
            timer.cancel()

    def node(self, name: str) -> SimNode:
        """The node ``name``; made and booted on first use."""
        node = self.nodes.get(name)
        if node is None:
            node = self.nodes[name] = SimNode(self, name, f"10.0.0.{len(self.nodes) + 1}")
        return node

    def crash(
        self, node: SimNode, *, power_loss: bool = True, reset_peers: bool = True, reason: str = "crashed"
    ) -> None:
        """Stop ``node`` at once: no ``finally`` runs, timers and tasks are gone, its disk is frozen.

        ``power_loss``: unsynced data is lost in seeded part; False: the process was killed, the page cache
        survives. ``reset_peers``: peers' connections break; False: they hear nothing (half-open).
        Fine if the node is down already.
        """
        boot = node.boot
        if boot is None:
            return
        self.trace.add(self.now, node.name, "crash", reason)
        self.crashes += 1
        node.power_off(boot, reason, power_loss=power_loss)
        self.network.node_down(node, boot, reset_peers=reset_peers)

    def restart(self, node: SimNode, main: Callable[[SimNode], Coroutine[Any, Any, T]]) -> asyncio.Future[T]:
        """Crash ``node`` if it runs, boot it from its disk, and run ``main(node)`` there (see ``SimNode.run``)."""
        self.crash(node, reason="restarted")
        node.start()
        return node.run(main)

    def pause(self, node: SimNode, seconds: float | None = None) -> None:
        """Freeze ``node`` (a long stall): its handles are held, time and the others go on."""
        boot = node.boot
        if boot is None:
            return
        boot.paused = True
        self.trace.add(self.now, node.name, "pause")
        if seconds is not None:
            self.loop.call_later(seconds, self._resume_boot, boot)

    def resume(self, node: SimNode) -> None:
        """Let a paused node go on."""
        if node.boot is not None:
            self._resume_boot(node.boot)

    def crash_at(self, label: str, nth: int = 1, *, node: SimNode | None = None) -> None:
        """Power off the node whose code is the ``nth`` from now to reach crash point ``label``."""
        self.points.arm(label, nth, node.name if node else None)

    def crash_at_disk_step(self, node: SimNode, nth: int) -> None:
        """Power ``node`` off just before its ``nth`` mutating disk step from now takes effect (1: the next)."""
        target = node.disk.steps + nth

        def on_step(label: str) -> None:
            if node.disk.steps == target:
                node.disk.on_step = None
                self.crash(node, reason=f"disk step {nth}: {label}")

        node.disk.on_step = on_step

    def _resume_boot(self, boot: Boot) -> None:
        if boot.alive and boot.paused:
            boot.paused = False
            self.trace.add(self.now, boot.node.name, "resume")
            self.loop.release(boot)

    def _crash_at_point(self, boot: Boot, reason: str) -> None:
        self.crash(self.nodes[boot.node.name], reason=reason)

    def _task_failed(self, part: str, error: BaseException) -> None:
        boot = CURRENT_BOOT.get()
        if boot is None:
            self.loop.fail(error)
        else:
            boot.node.report_fatal(boot, part, error)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)

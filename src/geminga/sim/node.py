"""A simulated host: a disk and a clock that outlive crashes, and one boot at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from typing import Any, Protocol, TypeVar

from geminga.runtime import Runtime
from geminga.sim.boot import CURRENT_BOOT, Boot
from geminga.sim.clock import SimClock
from geminga.sim.disk import SimDisk
from geminga.sim.errors import NodeCrashedError, SimError
from geminga.sim.loop import SimLoop
from geminga.sim.network import SimNetwork
from geminga.sim.rng import SimRng, stream
from geminga.sim.threads import SimThreads
from geminga.sim.trace import Trace

T = TypeVar("T")


class World(Protocol):
    """What a node uses of the world it is in."""

    @property
    def seed(self) -> int:
        """Everything random follows from it."""
        ...

    @property
    def loop(self) -> SimLoop:
        """Virtual time."""
        ...

    @property
    def trace(self) -> Trace:
        """What happened."""
        ...

    @property
    def network(self) -> SimNetwork:
        """The links to other nodes."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        ...


class SimNode:
    """See the module's docstring. Made by ``SimWorld.node``, running from the start."""

    def __init__(self, world: World, name: str, address: str) -> None:
        self.world = world
        self.name = name
        #: Its address on the simulated network.
        self.address = address
        #: The device: faults, planted defects, images. The port is ``runtime.disk``.
        self.disk = SimDisk(stream(world.seed, name, "disk"))
        self.disk.trace = lambda label: world.trace.add(world.loop.time(), name, label)
        #: The clock: jumps and drift.
        self.clock = SimClock(world.loop.time)
        #: Whether ``runtime.threads`` runs functions inline instead of refusing.
        self.inline_threads = False
        #: Called when a component gives up; None: that fails the run.
        self.on_fatal: Callable[[str, BaseException], None] | None = None
        #: The present life; None while crashed.
        self.boot: Boot | None = None
        self._boots = 0
        self._runtime: Runtime | None = None
        self._down_waiters: list[asyncio.Future[str]] = []
        self.start()

    @property
    def runtime(self) -> Runtime:
        """The ports of the present life; raises NodeCrashedError while crashed."""
        if self._runtime is None:
            raise NodeCrashedError(f"node {self.name} is down")
        return self._runtime

    @property
    def is_up(self) -> bool:
        """Whether it is running (or paused)."""
        return self.boot is not None

    def start(self) -> None:
        """Boot: new ports over the same disk and clock. Fine if running already."""
        if self.boot is not None:
            return
        self._boots += 1
        context = copy_context()
        boot = Boot(self, self._boots, context)
        context.run(CURRENT_BOOT.set, boot)
        self.boot = boot
        self._runtime = Runtime(
            clock=self.clock,
            rng=SimRng(stream(self.world.seed, self.name, "rng", self._boots)),
            disk=self.disk.mount(boot),
            network=self.world.network.for_node(self, boot),
            threads=SimThreads(inline=self.inline_threads),
            on_fatal=lambda part, error: self.report_fatal(boot, part, error),
        )
        self.world.trace.add(self.world.loop.time(), self.name, "boot", self._boots)
        self.world.network.node_up(self)

    def run(self, main: Callable[[SimNode], Coroutine[Any, Any, T]], *, name: str | None = None) -> asyncio.Future[T]:
        """Run ``main(node)`` as a task of this node, from outside or inside.

        The future, which belongs to the caller, gets its result or exception, or NodeCrashedError if the node
        crashes first. An exception that nobody fetches fails the run.
        """
        boot = self.boot
        if boot is None:
            raise NodeCrashedError(f"node {self.name} is down")
        loop = self.world.loop
        future: asyncio.Future[T] = loop.create_future()
        boot.waiters[future] = None
        caller = copy_context()
        task_name = name or f"{self.name}:{getattr(main, '__qualname__', 'main')}"
        task = boot.context.run(_create_task, loop, main, self, task_name, boot.context)
        task.add_done_callback(lambda done: _pass_on(done, future, boot), context=caller)
        return future

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        """Call ``callback`` in this node's context in a later step; dropped if the node is down or crashes."""
        if self.boot is not None:
            self.world.loop.call_soon(callback, *args, context=self.boot.context.copy())

    async def crashed(self) -> str:
        """Wait until the node is down; returns why."""
        if self.boot is None:
            return "down"
        future: asyncio.Future[str] = self.world.loop.create_future()
        self._down_waiters.append(future)
        return await future

    def power_off(self, boot: Boot, reason: str, *, power_loss: bool) -> None:
        """End ``boot``: called by the world only."""
        if self.boot is not boot or not boot.alive:
            raise SimError(f"node {self.name} is not running that boot")
        boot.alive = False
        self.boot, self._runtime = None, None
        if power_loss:
            self.disk.lose_power()
        else:
            self.disk.lose_process()
        self.world.loop.lose(boot)
        for future in boot.waiters:
            if not future.done():
                future.set_exception(NodeCrashedError(f"node {self.name}: {reason}"))
                future.exception()  # fetched: a scenario need not await it
        boot.waiters.clear()
        for waiter in self._down_waiters:
            if not waiter.done():
                waiter.set_result(reason)
        self._down_waiters.clear()

    def report_fatal(self, boot: Boot | None, part: str, error: BaseException) -> None:
        """A component gave up: to the test's handler, or the run fails."""
        if boot is not None and not boot.alive:
            return
        self.world.trace.add(self.world.loop.time(), self.name, "fatal", part, type(error).__name__)
        if self.on_fatal is not None:
            self.on_fatal(part, error)
        else:
            error.add_note(f"fatal on node {self.name}, in {part}")
            self.world.loop.fail(error)


def _create_task(
    loop: asyncio.AbstractEventLoop,
    main: Callable[[SimNode], Coroutine[Any, Any, T]],
    node: SimNode,
    name: str,
    context: Context,
) -> asyncio.Task[T]:
    # A copy: two tasks must not share one context object.
    return loop.create_task(main(node), name=name, context=context.copy())


def _pass_on(task: asyncio.Task[T], future: asyncio.Future[T], boot: Boot) -> None:
    boot.waiters.pop(future, None)
    if future.done():
        if not task.cancelled():
            task.exception()
    elif task.cancelled():
        future.cancel()
    elif (error := task.exception()) is not None:
        future.set_exception(error)
    else:
        future.set_result(task.result())

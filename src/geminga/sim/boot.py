"""One life of a node, from start to crash, and the context variable that says whose code is running.

Every handle of the loop carries a context; the boot in it decides whether the handle runs (alive), waits
(paused) or is dropped (crashed). Tasks are registered here to be kept, unfinished, after a crash: closing or
collecting their coroutines would run ``finally`` blocks, which a power loss does not.
"""

from __future__ import annotations

import asyncio
from contextvars import Context, ContextVar
from typing import Any, Final, Protocol


class Host(Protocol):
    """The node that a boot is a life of, as the loop and the network know it."""

    @property
    def name(self) -> str:
        """Unique in its world."""
        ...

    @property
    def address(self) -> str:
        """On the simulated network."""
        ...

    @property
    def is_up(self) -> bool:
        """Whether it is running (or paused)."""
        ...

    def report_fatal(self, boot: Boot | None, part: str, error: BaseException) -> None:
        """A component gave up."""
        ...


class Boot:
    """One life of a node."""

    __slots__ = ("alive", "context", "held", "node", "number", "paused", "waiters")

    def __init__(self, node: Host, number: int, context: Context) -> None:
        self.node = node
        #: 1 for the first life.
        self.number = number
        #: The context in which the node's code runs; has :data:`CURRENT_BOOT` set to this boot.
        self.context = context
        #: False from the moment of the crash on.
        self.alive = True
        self.paused = False
        #: Handles that became ready while paused, in order.
        self.held: list[asyncio.Handle] = []
        #: Futures of the scenario that end with this boot.
        self.waiters: dict[asyncio.Future[Any], None] = {}


#: The boot whose code is running; None for the scenario itself.
CURRENT_BOOT: Final[ContextVar[Boot | None]] = ContextVar("geminga_sim_boot", default=None)

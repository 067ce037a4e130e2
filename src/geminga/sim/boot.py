"""One life of a node, from start to crash, and the context variable that says whose code is running.

Every handle of the loop carries a context; the boot in it decides whether the handle runs (alive), waits
(paused) or is dropped (crashed). Tasks are registered here to be kept, unfinished, after a crash: closing or
collecting their coroutines would run ``finally`` blocks, which a power loss does not.
"""

from __future__ import annotations

import asyncio
from contextvars import Context, ContextVar
from dataclasses import dataclass, field
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


@dataclass(slots=True, eq=False)
class Boot:
    """One life of a node."""

    node: Host
    #: 1 for the first life.
    number: int
    #: The context in which the node's code runs; has :data:`CURRENT_BOOT` set to this boot.
    context: Context
    #: False from the moment of the crash on.
    alive: bool = True
    paused: bool = False
    #: Handles that became ready while paused, in order.
    held: list[asyncio.Handle] = field(default_factory=list)
    #: Futures of the scenario that end with this boot.
    waiters: dict[asyncio.Future[Any], None] = field(default_factory=dict)


#: The boot whose code is running; None for the scenario itself.
CURRENT_BOOT: Final[ContextVar[Boot | None]] = ContextVar("geminga_sim_boot", default=None)

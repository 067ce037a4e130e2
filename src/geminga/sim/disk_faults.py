"""Faults of a simulated disk: which operation, on which path, how often, and what goes wrong."""

from __future__ import annotations

import os
from dataclasses import KW_ONLY, dataclass
from fnmatch import fnmatchcase

from geminga.sim.rng import Stream


@dataclass(slots=True, eq=False)
class Fault:
    """A fault in force until its ``times`` are used up or :meth:`remove` is called.

    ``op`` is one of read, write, sync, open, create, preallocate, truncate, rename, unlink, make_dir, sync_dir,
    stat, list, or ``*``; ``path`` a glob (``*`` matches ``/`` too).
    """

    op: str
    path: str
    _: KW_ONLY
    #: The error to raise; None: none.
    errno: int | None = None
    #: Whether a read returns one wrong bit (the medium keeps the right one).
    flip: bool = False
    #: Added to the operation's time.
    latency_s: float = 0.0
    #: Matching operations still to be let through.
    after: int = 0
    #: Hits still to come; None: without end.
    times: int | None = 1
    #: Chance of each matching operation.
    percent: float = 100
    #: How often it struck.
    hits: int = 0

    def strikes(self, op: str, path: str, rng: Stream) -> bool:
        """Whether it strikes this operation; counts."""
        if self.times == 0 or self.op not in (op, "*") or not fnmatchcase(path, self.path):
            return False
        if self.after > 0:
            self.after -= 1
            return False
        if self.percent < 100 and rng.random() * 100 >= self.percent:
            return False
        if self.times is not None:
            self.times -= 1
        self.hits += 1
        return True

    def remove(self) -> None:
        """Strike no more."""
        self.times = 0


class Struck:
    """What all faults together do to one operation."""

    __slots__ = ("error", "flip", "latency_s")

    def __init__(self, faults: list[Fault], op: str, path: str, rng: Stream) -> None:
        self.error: OSError | None = None
        self.flip = False
        self.latency_s = 0.0
        for fault in faults:
            if fault.strikes(op, path, rng):
                if fault.errno is not None and self.error is None:
                    self.error = OSError(fault.errno, f"injected: {os.strerror(fault.errno)}", path)
                self.flip = self.flip or fault.flip
                self.latency_s += fault.latency_s

"""Processes of entry filters without processes: the same frames, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from geminga.entry_filters import EntryFilter
from geminga.entry_filters.pipe import LOADED, READY, Frames, decode_batch, framed
from geminga.entry_filters.worker import Filters


class SimulatedProcesses:
    """Starts what looks like processes of filters; filters are given as callables."""

    def __init__(self, filters: Mapping[str, EntryFilter]) -> None:
        self.filters = dict(filters)
        #: Filters that never answer, and those that end their process.
        self.stalled: set[str] = set()
        self.deadly: set[str] = set()
        self.children: list[SimulatedProcess] = []
        #: Whether nothing is answered at all.
        self.silent = False
        #: Seconds from a batch to its answer.
        self.delay_s = 0.0
        #: What starting raises; None: it works.
        self.refusal: OSError | None = None

    @property
    def running(self) -> list[SimulatedProcess]:
        return [child for child in self.children if not child.is_ended]

    async def __call__(
        self, command: Sequence[str], received: Callable[[bytes], None], ended: Callable[[str], None]
    ) -> SimulatedProcess:
        if self.refusal is not None:
            raise self.refusal
        child = SimulatedProcess(self, received, ended)
        self.children.append(child)
        return child


class SimulatedProcess:
    """One of them."""

    def __init__(
        self, world: SimulatedProcesses, received: Callable[[bytes], None], ended: Callable[[str], None]
    ) -> None:
        self.pid = 1000 + len(world.children)
        self.batches: list[list[int]] = []
        self.is_ended = False
        self._world = world
        self._received = received
        self._tell_end = ended
        self._frames = Frames(1 << 26)
        self._filters = Filters("")
        self._say(framed(READY))

    def write(self, data: bytes) -> None:
        for body in self._frames.feed(data):
            batch = decode_batch(body)
            self.batches.append([question.entry_id for question in batch.entries])
            if self._world.silent:
                continue
            if self._world.deadly.intersection(batch.filters):
                asyncio.get_running_loop().call_soon(self._end, "was ended by SIGKILL")
            elif self._world.stalled.intersection(batch.filters):
                self._say(framed(LOADED))
            else:
                for name in batch.filters:
                    if name in self._world.filters:
                        self._filters.loaded[name] = self._world.filters[name]
                for answer in self._filters.answer(body):
                    self._say(answer, self._world.delay_s)

    def kill(self) -> None:
        asyncio.get_running_loop().call_soon(self._end, "was ended by SIGKILL")

    def say(self, frame: bytes) -> None:
        """What no such process says."""
        self._say(frame)

    def _say(self, frame: bytes, delay_s: float = 0.0) -> None:
        asyncio.get_running_loop().call_later(delay_s, self._deliver, frame)

    def _deliver(self, frame: bytes) -> None:
        if not self.is_ended:
            self._received(frame)

    def _end(self, story: str) -> None:
        if not self.is_ended:
            self.is_ended = True
            self._tell_end(story)

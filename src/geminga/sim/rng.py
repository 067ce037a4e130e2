"""Seeded randomness: one stream per use, so that more draws in one place change nothing elsewhere."""

from __future__ import annotations

import random  # noqa: TID251 - the one seeded source of the simulation
from typing import TypeAlias

#: A stream of seeded randomness.
Stream: TypeAlias = random.Random


def stream(seed: int, *names: object) -> Stream:
    """The random stream ``names`` of run ``seed``; the same in every process and Python version."""
    return random.Random("/".join(map(str, (seed, *names))))


class SimRng:
    """The ``Rng`` port over a seeded stream."""

    __slots__ = ("_random", "random")

    def __init__(self, source: Stream) -> None:
        self._random = source
        self.random = source.random

    def below(self, bound: int) -> int:
        """An int in [0, bound)."""
        return self._random.randrange(bound)

    def token(self, size_bytes: int = 8) -> str:
        """``2 * size_bytes`` lowercase hex digits."""
        return self._random.randbytes(size_bytes).hex()

"""Randomness behind the ``Rng`` port: seeded by the system, or by the caller for repeatable runs."""

from __future__ import annotations

import random


class SystemRng:
    """A Mersenne Twister seeded from the system (``seed=None``) or from ``seed``. Not for secrets."""

    __slots__ = ("_random", "random")

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)
        self.random = self._random.random

    def below(self, bound: int) -> int:
        """An int in [0, bound); ``bound`` >= 1."""
        return self._random.randrange(bound)

    def token(self, size_bytes: int = 8) -> str:
        """``2 * size_bytes`` lowercase hex digits."""
        return self._random.randbytes(size_bytes).hex()

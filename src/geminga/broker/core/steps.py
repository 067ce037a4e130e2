"""Work that yields between its steps: who drives it decides how many of them belong to one turn of the loop."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def drained(steps: Generator[None, None, T]) -> T:
    """What steps come to that are made one after the other."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found

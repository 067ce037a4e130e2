"""Work in steps."""

from __future__ import annotations

from collections.abc import Generator

from geminga.broker.core.steps import drained


def test_what_steps_come_to_is_what_they_return() -> None:
    made = []

    def steps(count: int) -> Generator[None, None, int]:
        for number in range(count):
            yield
            made.append(number)
        return count

    assert (drained(steps(0)), drained(steps(3)), made) == (0, 3, [0, 1, 2])

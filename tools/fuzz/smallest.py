"""Which inputs of a corpus are worth keeping: the shortest that together reach every step that all of them reach."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import CodeType, FrameType
from typing import TypeAlias

#: From one line of a function to the next.
_Step: TypeAlias = tuple[CodeType, int, int]


def smallest(inputs: Iterable[bytes], run: Callable[[bytes], object], within: str) -> list[bytes]:
    """Those that reach a step between lines of files whose path has ``within`` which no shorter input reached."""
    seen: set[_Step] = set()
    kept = []
    for one in sorted(set(inputs), key=lambda each: (len(each), each)):
        steps = _steps(one, run, within)
        if not steps <= seen:
            seen |= steps
            kept.append(one)
    return kept


def _steps(data: bytes, run: Callable[[bytes], object], within: str) -> set[_Step]:
    found: set[_Step] = set()

    def enter(frame: FrameType, _event: str, _value: object) -> object:
        if within not in frame.f_code.co_filename:
            return None
        code, last = frame.f_code, 0

        def step(here: FrameType, _event: str, _value: object) -> object:
            nonlocal last
            found.add((code, last, here.f_lineno))
            last = here.f_lineno
            return step

        return step

    before = sys.gettrace()
    sys.settrace(enter)  # type: ignore[arg-type]
    try:
        run(data)
    finally:
        sys.settrace(before)
    return found

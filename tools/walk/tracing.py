"""Which functions of the product are called while something is done, and from which room each call comes.

Needs nothing but the product, of whichever commit is imported.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

import geminga

_PRODUCT: Final = f"{Path(geminga.__file__).parent}/"
#: Of the product, but no stop of anybody's: what stands for the operating system here, and what protoc wrote.
_NOT_READ: Final = ("sim/", "wire/_generated/")
#: The room of who is called by the loop, or by code that is not the product's.
OUTSIDE: Final = ""


@dataclass(slots=True)
class Trace:
    """What was called; a coroutine or generator that goes on counts as a call again."""

    #: Calls by file, as a path below ``geminga``.
    calls: Counter[str] = field(default_factory=Counter)
    #: Calls by the rooms that they leave and enter, where these differ; from :data:`OUTSIDE` too.
    changes: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def rooms(self) -> Counter[str]:
        """Calls by room."""
        found: Counter[str] = Counter()
        for file, count in self.calls.items():
            found[room_of(file)] += count
        return found

    @property
    def room_changes(self) -> int:
        """Calls from one room of the product into another."""
        return sum(count for (left, _), count in self.changes.items() if left != OUTSIDE)


def room_of(file: str) -> str:
    """The folder of a file below ``geminga``; its ``core`` counts with it, as in ``tests/support/house/floors.py``."""
    folder = file.rpartition("/")[0]
    return folder.removesuffix("/core") or "geminga"


@contextmanager
def traced(besides: Sequence[CodeType] = ()) -> Iterator[Trace]:
    """Note the calls of the product until this ends, but for what functions ``besides`` call."""
    trace = Trace()
    within = 0
    #: Whether a file counts, by its name; looked up once.
    files: dict[str, str | None] = {}

    def file_of(frame: FrameType) -> str | None:
        name = frame.f_code.co_filename
        if name not in files:
            path = name.removeprefix(_PRODUCT)
            files[name] = None if path == name or path.startswith(_NOT_READ) else path
        return files[name]

    def room_of_caller(frame: FrameType | None) -> str:
        while frame is not None:
            if (file := file_of(frame)) is not None:
                return room_of(file)
            frame = frame.f_back
        return OUTSIDE

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal within
        if frame.f_code in besides:
            within += {"call": 1, "return": -1}.get(event, 0)
        elif event == "call" and not within and (file := file_of(frame)) is not None:
            trace.calls[file] += 1
            left, entered = room_of_caller(frame.f_back), room_of(file)
            if left != entered:
                trace.changes[left, entered] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield trace
    finally:
        sys.setprofile(before)

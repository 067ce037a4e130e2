"""Which files a warm SEND and a warm ACK run through (``tools/walk`` traces them), and which ARCHITECTURE.md walks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tools.walk.walks import ack, send


def files_of_a_send() -> set[str]:
    """From its bytes to its receipt; the producer has sent before."""
    return set(send().calls)


def files_of_an_ack() -> set[str]:
    """From its bytes to the response that it asks for; the consumer has acknowledged before."""
    return set(ack().calls)


class Walk(NamedTuple):
    """What the page says of one path."""

    #: Numbered stops, in bold, in their order, each with the files that are read there.
    stops: list[list[str]]
    #: Files that are called on the way, with a reason why nobody stops there.
    called: list[str]
    #: Stops of another walk that it goes on with: first and last.
    goes_on: range

    @property
    def files(self) -> list[str]:
        """Of its own stops."""
        return [file for stop in self.stops for file in stop]


_STOP_FILE = re.compile(r"\*\*`([\w/]+\.py)`\*\*")
_CALLED_FILE = re.compile(r"`([\w/]+\.py)`\s\(")
_GOES_ON = re.compile(r"stops (\d+) to (\d+) of a SEND")


def walk_of(page: str, title: str) -> Walk:
    """The walk of ARCHITECTURE.md below the bold line that begins with ``title``."""
    start = page.index(f"**{title}:")
    end = re.compile(r"^(?:\*\*[A-Z]|## )", re.MULTILINE).search(page, start + 2)
    text = page[start : end.start() if end is not None else len(page)]
    numbered, _, called = text.partition("Called on the way")
    stops = [_STOP_FILE.findall(item) for item in re.split(r"^\d+\. ", numbered, flags=re.MULTILINE)[1:]]
    goes_on = _GOES_ON.search(numbered)
    return Walk(
        stops,
        _CALLED_FILE.findall(called),
        range(int(goes_on[1]), int(goes_on[2]) + 1) if goes_on is not None else range(0),
    )


def walk_violations(walk: Walk, traced_files: Iterable[str], files_max: int, shared: Iterable[str] = ()) -> list[str]:
    """What is wrong with a walk that runs through ``traced_files``; ``shared`` are the stops that it goes on with."""
    run = set(traced_files)
    own, called, shared = walk.files, walk.called, set(shared)
    found = [f"{file} is walked, and not run through" for file in own if file not in run]
    found += [f"{file} is told as called on the way, and is not run through" for file in called if file not in run]
    found += [f"{file} is run through, and told nowhere" for file in sorted(run - shared - {*own, *called})]
    found += [f"{file} is a stop that is gone on with, and not run through" for file in sorted(shared - run)]
    told = [*own, *called, *shared]
    found += [f"{file} is told more than once" for file in sorted({file for file in told if told.count(file) > 1})]
    found += [f"stop {number} names no file" for number, files in enumerate(walk.stops, 1) if not files]
    if len(run) > files_max:
        found.append(f"{len(run)} files are run through, {files_max} may: {' '.join(sorted(run))}")
    elif len(run) < files_max:
        found.append(f"{len(run)} files are run through; the budget is lowered from {files_max} to it")
    return found


def read_page(root: Path) -> str:
    """ARCHITECTURE.md."""
    return (root / "ARCHITECTURE.md").read_text(encoding="utf-8")

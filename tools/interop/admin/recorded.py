"""What is kept of ``pulsar-admin`` 4.0.8: its commands, their options, and requests that it was seen to send for them.

``commands-5.jsonl``: the same of those that 5.0.1 has beside them. What they ask is read from its classes' calls; of
what is not built there is none.

``commands.jsonl`` has a line for each command: its words, how many places it has, its options (names, whether a value
follows, whether it must be given), and calls: the words behind it, and the requests (method, target, body).
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

PATH: Final = Path(__file__).with_name("commands.jsonl")
_LATER: Final = Path(__file__).with_name("commands-5.jsonl")
#: What 5.0.1 has no more.
GONE_LATER: Final = ("namespaces list-cluster",)


class Recorded(NamedTuple):
    """A command of ``pulsar-admin``."""

    #: ``group name``.
    words: str
    #: Words that must follow it.
    places: int
    #: Names, whether a value follows, whether it must be given.
    options: tuple[tuple[tuple[str, ...], bool, bool], ...]
    #: The words behind it, and the requests: method, target, and the body where there is one.
    calls: list[tuple[list[str], list[list[str]]]]

    @property
    def group(self) -> str:
        """The first word."""
        return self.words.partition(" ")[0]


@cache
def recorded() -> tuple[Recorded, ...]:
    """All, in the order of the tool."""
    return _of(PATH)


@cache
def recorded_later() -> tuple[Recorded, ...]:
    """Those that 5.0.1 has and 4.0.8 has not."""
    return _of(_LATER)


def _of(path: Path) -> tuple[Recorded, ...]:
    return tuple(_read(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines())


def _read(line: dict[str, Any]) -> Recorded:
    options = tuple((tuple(names), takes, must) for names, takes, must in line["options"])
    return Recorded(line["command"], line["places"], options, line["calls"])

"""What is kept of ``pulsar-admin`` 4.0.8: its commands, their options, and requests that it was seen to send for them.

``commands.jsonl`` has a line for each command: its words, how many places it has, its options (names, whether a value
follows, whether it must be given), and calls: the words behind it, and the requests (method, target, body).
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

PATH: Final = Path(__file__).with_name("commands.jsonl")


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
    return tuple(_read(json.loads(line)) for line in PATH.read_text(encoding="utf-8").splitlines())


def _read(line: dict[str, Any]) -> Recorded:
    options = tuple((tuple(names), takes, must) for names, takes, must in line["options"])
    return Recorded(line["command"], line["places"], options, line["calls"])

"""The commands of ``pulsar-admin`` as the tool itself tells them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

#: Groups of what is not built in Geminga, and the one that only writes a page about the others.
LEFT_OUT: Final = frozenset(
    {"functions", "functions-worker", "sinks", "sources", "packages", "documents", "scalable-topics", "segments"}
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """An option, or a word at a place."""

    #: Names of an option, else empty.
    names: tuple[str, ...]
    type: str
    #: Whether a value follows it; a place is its value.
    has_value: bool
    is_required: bool
    description: str

    @property
    def name(self) -> str:
        """The longest, by which values are found; that of a place is its description."""
        return max(self.names, key=len) if self.names else self.description


@dataclass(frozen=True, slots=True)
class Command:
    """``group name`` and what it takes, places first."""

    words: str
    description: str
    parameters: tuple[Parameter, ...]

    @property
    def group(self) -> str:
        """The first word."""
        return self.words.partition(" ")[0]


def parsed(told: str) -> list[Command]:
    """What ``AdminCommands.java`` tells, without what is left out; raises ValueError where it tells something else."""
    found: list[Command] = []
    for words, description, lines in _sections(told.splitlines()):
        parameters = sorted((_parameter(line) for line in lines), key=lambda one: bool(one.names))
        command = Command(words, description, tuple(parameters))
        if command.group not in LEFT_OUT:
            found.append(command)
    return found


def _sections(lines: list[str]) -> Iterator[tuple[str, str, list[str]]]:
    starts = [number for number, line in enumerate(lines) if line and not line.startswith("\t")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        words, _, description = lines[start].partition("\t")
        yield words, description, [line for line in lines[start + 1 : end] if line]


def _parameter(line: str) -> Parameter:
    fields = line.split("\t")
    if len(fields) != 6:
        raise ValueError(f"a parameter has 5 fields: {line!r}")
    _, names, kind, arity, required, description = fields
    is_option = not names[0].isdigit()
    return Parameter(tuple(names.split(",")) if is_option else (), kind, arity != "0", required == "true", description)

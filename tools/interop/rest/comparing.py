"""What differs between two brokers' answers, as lines; which of the differences are meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tools.interop.rest.sending import Answer


@dataclass(frozen=True, slots=True)
class Meant:
    """Differences that are wanted."""

    #: The words by which ``docs/compatibility.md`` begins the row that says so to users.
    row: str
    #: Regular expression that fits the whole of a difference.
    difference: str
    #: Regular expression that fits the beginning of the call's name.
    calls: str = ""

    def covers(self, name: str, difference: str) -> bool:
        """Whether this is one of them."""
        return re.match(self.calls, name) is not None and re.fullmatch(self.difference, difference) is not None


class Compared(NamedTuple):
    """The outcome."""

    calls: int
    #: (name of the call, difference) that nothing covers.
    unexplained: list[tuple[str, str]]
    #: Row -> how many differences it covers.
    meant: dict[Meant, int]

    @property
    def idle(self) -> list[Meant]:
        """Rows that cover nothing any more."""
        return [row for row, count in self.meant.items() if not count]


def compare(apache: Mapping[str, Answer], geminga: Mapping[str, Answer], meant: Iterable[Meant]) -> Compared:
    """Compare answers by their calls' names; both have the same calls."""
    assert apache.keys() == geminga.keys(), sorted(apache.keys() ^ geminga.keys())[:10]
    counts = dict.fromkeys(meant, 0)
    unexplained = []
    for name, expected in apache.items():
        for difference in differences(expected, geminga[name]):
            row = next((row for row in counts if row.covers(name, difference)), None)
            if row is None:
                unexplained.append((name, difference))
            else:
                counts[row] += 1
    return Compared(len(apache), unexplained, counts)


def differences(apache: Answer, geminga: Answer) -> Iterator[str]:
    """Lines, Apache's side before the bar."""
    if (apache.status, apache.reason) != (geminga.status, geminga.reason):
        yield f"answer: {_line(apache)} | {_line(geminga)}"
    if (apache.body is None) != (geminga.body is None):
        if apache.status == geminga.status:
            yield "body: none | some" if apache.body is None else "body: some | none"
        return
    theirs, ours = apache.body or {}, geminga.body or {}
    for path in sorted(theirs.keys() | ours.keys()):
        if path not in ours:
            yield f"only Apache: {path} {theirs[path]}"
        elif path not in theirs:
            yield f"only Geminga: {path} {ours[path]}"
        elif theirs[path] != ours[path] or isinstance(theirs[path], bool) != isinstance(ours[path], bool):
            yield f"value {path}: {theirs[path]} | {ours[path]}"


def _line(answer: Answer) -> str:
    return f"{answer.status} {' '.join(answer.reason.split())}".strip()

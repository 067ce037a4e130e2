"""Which panels have data and move, which rest for a reason, and which show what is not there. Pure."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tools.boards.panels import Panel

REASONS: Final = Path(__file__).with_name("reasons.toml")
#: Names of ours that are complained of.
KNOWN_LINTS: Final = ("geminga_txn_ending_count ",)
#: A panel has one of these.
MOVES: Final = "moves"
RESTS: Final = "rests"
STILL: Final = "still"
ABSENT: Final = "absent"
EMPTY: Final = "empty"


class Reasons(NamedTuple):
    """By pattern of a metric, or of ``board: title``: why it is not there, or why it stands still under this load.

    A panel that names itself rests also without data: it shows what does not happen.
    """

    absent: tuple[tuple[str, str], ...]
    rests: tuple[tuple[str, str], ...]
    absent_panels: tuple[tuple[str, str], ...] = ()
    resting_panels: tuple[tuple[str, str], ...] = ()

    @classmethod
    def read(cls, path: Path = REASONS) -> Reasons:
        """Of the file; ValueError where an entry has no reason."""
        document = tomllib.loads(path.read_text())
        parts = [
            tuple((str(key), str(why)) for key, why in document.get(part, {}).items())
            for part in ("absent", "rests", "absent_panels", "resting_panels")
        ]
        for pattern, why in (entry for part in parts for entry in part):
            if not why.strip():
                raise ValueError(f"{path}: {pattern} has no reason")
            re.compile(pattern)
        return cls(*parts)

    def of(self, panel: Panel, kind: str) -> str:
        """The panel's own, or of its first metric that has one, in ``absent`` or ``rests``; empty: there is none."""
        own = self.of_panel(panel, kind)
        if own:
            return own
        for name in sorted(panel.metrics):
            for pattern, why in self.absent if kind == ABSENT else self.rests:
                if re.fullmatch(pattern, name):
                    return why
        return ""

    def of_panel(self, panel: Panel, kind: str) -> str:
        """Its own reason."""
        entries = self.absent_panels if kind == ABSENT else self.resting_panels
        found = (why for pattern, why in entries if re.fullmatch(pattern, f"{panel.board}: {panel.title}"))
        return next(found, "")


class Judged(NamedTuple):
    """A panel and what was found."""

    panel: Panel
    verdict: str
    why: str = ""


def judged(panel: Panel, series: Sequence[Sequence[float]], reasons: Reasons) -> Judged:
    """``series``: of all its queries over the time of the load."""
    if not series:
        resting = reasons.of_panel(panel, RESTS)
        if resting:
            return Judged(panel, RESTS, resting)
        why = reasons.of(panel, ABSENT)
        return Judged(panel, ABSENT if why else EMPTY, why)
    if any(len(set(values)) > 1 for values in series):
        return Judged(panel, MOVES)
    why = reasons.of(panel, RESTS)
    return Judged(panel, RESTS if why else STILL, why)


def own_lints(told: str) -> list[str]:
    """Of what ``promtool check metrics`` told: errors, and complaints of names that are ours alone."""
    return [
        line
        for line in told.splitlines()
        if line.startswith(("error", "geminga_", "process_")) and not line.startswith(KNOWN_LINTS)
    ]


def share(found: Iterable[Judged]) -> tuple[int, int]:
    """Panels that count, of those whose subject exists."""
    exist = [each for each in found if each.verdict != ABSENT]
    return sum(each.verdict in (MOVES, RESTS) for each in exist), len(exist)

"""What the turns of two servers say: medians, spreads, and who is ahead. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

AHEAD: Final = "ahead"
WITHIN: Final = "within spread"
BEHIND: Final = "BEHIND"
FAILED: Final = "FAILED"
#: Medians that differ by less than this share are the same, however little the turns vary.
SAME_WITHIN: Final = 0.02


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a measurement: its title, its key in the answer, and whether more of it is better."""

    title: str
    key: str
    is_more_better: bool


#: Of every measurement: microseconds of the server's processor time for one message.
CPU: Final = Figure("CPU us", "cpu_us", is_more_better=False)


def verdict(ours: Sequence[float], theirs: Sequence[float], *, is_more_better: bool) -> str:
    """Who is ahead: beyond the spread means that our worst turn is better than their best one, or the reverse.

    Either sequence holds one number a turn and is not empty.
    """
    if abs(statistics.median(ours) - statistics.median(theirs)) <= SAME_WITHIN * statistics.median(theirs):
        return WITHIN
    if not is_more_better:
        ours, theirs = [-value for value in ours], [-value for value in theirs]
    if min(ours) > max(theirs):
        return AHEAD
    return BEHIND if max(ours) < min(theirs) else WITHIN


def times_better(ours: Sequence[float], theirs: Sequence[float], *, is_more_better: bool) -> float:
    """How many times as good our median is: above 1 is better, whichever direction is."""
    mine, other = statistics.median(ours), statistics.median(theirs)
    over, under = (mine, other) if is_more_better else (other, mine)
    return over / under if under else float("inf")


def plain(value: float) -> str:
    """A number with three digits that mean something."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def spread(values: Sequence[float]) -> str:
    """The median, and the turns around it."""
    middle = statistics.median(values)
    if len(values) == 1:
        return plain(middle)
    return f"{plain(middle)} ({plain(min(values))}-{plain(max(values))})"


def lines(
    row: str,
    figures: Sequence[Figure],
    peer: str,
    ours: Sequence[Mapping[str, Any]],
    theirs: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """A row of the table for each figure; CPU time stands beside the first one.

    ``ours`` and ``theirs`` are the answers of the turns, each a mapping from a figure's key to its number.
    """
    out = []
    for figure in figures:
        mine, other = ([answer[figure.key] for answer in side] for side in (ours, theirs))
        line: dict[str, Any] = {
            "row": row,
            "figure": figure.title,
            "peer": peer,
            "Geminga": spread(mine),
            "the peer": spread(other),
            "times": round(times_better(mine, other, is_more_better=figure.is_more_better), 2),
            "verdict": verdict(mine, other, is_more_better=figure.is_more_better),
            "CPU us": "",
            "the peer's": "",
            "times ": "",
            "CPU": "",
            "turns": {"ours": mine, "theirs": other},
        }
        if not out and all(CPU.key in answer for answer in (*ours, *theirs)):
            line |= _cpu([answer[CPU.key] for answer in ours], [answer[CPU.key] for answer in theirs], line["turns"])
        out.append(line)
    return out


def _cpu(mine: list[float], other: list[float], turns: dict[str, Any]) -> dict[str, Any]:
    return {
        "CPU us": spread(mine),
        "the peer's": spread(other),
        "times ": f"{times_better(mine, other, is_more_better=False):.2f}",
        "CPU": verdict(mine, other, is_more_better=False),
        "turns": {**turns, "our CPU us": mine, "their CPU us": other},
    }


def failed_line(row: str, peer: str) -> dict[str, Any]:
    """The row of something that could not be measured on either side."""
    empty = dict.fromkeys(("Geminga", "the peer", "times", "CPU us", "the peer's", "times ", "CPU"), "")
    return {"row": row, "figure": "-", "peer": peer, **empty, "verdict": FAILED, "turns": {}}


def is_red(line: Mapping[str, Any]) -> bool:
    """Whether something in the line wants looking at."""
    return bool({BEHIND, FAILED} & {line.get("verdict"), line.get("CPU")})

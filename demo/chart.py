"""The demo's picture: commits a week, a panel for each repository, as a PNG."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from demo.weekly import WEEK_MS, Sums, WindowKey, is_of_owner

if TYPE_CHECKING:  # loaded by who draws
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS_MAX = 8
#: Edges of the panels, as shares of the width.
_LEFT, _RIGHT = 0.055, 0.985
_INK, _MUTED, _GRID = "#1b1f24", "#6a737d", "#e4e7eb"
_COLORS = {True: "#c8401f", False: "#1f6fb4"}


def draw(weeks: Mapping[WindowKey, Sums], first_owner: str, origin: str, path: Path) -> list[str]:
    """Write the PNG; the repositories shown, those with most commits first.

    A panel's scale is its own, since one repository can have a hundred times the commits of another; time is shared.
    """
    import matplotlib as mpl

    totals: dict[str, int] = {}
    for key, sums in weeks.items():
        totals[key.repo] = totals.get(key.repo, 0) + sums.commits
    shown = choose_repos(totals, first_owner)
    with mpl.rc_context({"font.family": "DejaVu Sans", "font.size": 9, "axes.edgecolor": _GRID, "text.color": _INK}):
        figure = _figure(weeks, shown, totals, first_owner, origin)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150, facecolor="white")
    return shown


def choose_repos(totals: Mapping[str, int], first_owner: str) -> list[str]:
    """Those with most commits; a topic whose repositories are all smaller has two of them all the same."""
    ranked = sorted(totals, key=lambda repo: (-totals[repo], repo))
    shown = ranked[:PANELS_MAX]
    for is_first in (True, False):
        of_topic = [repo for repo in ranked if is_of_owner(repo, first_owner) == is_first]
        if of_topic and not set(of_topic) & set(shown):
            shown[-2:] = of_topic[:2]
    return shown


def _figure(
    weeks: Mapping[WindowKey, Sums], shown: list[str], totals: Mapping[str, int], first_owner: str, origin: str
) -> Figure:
    from matplotlib.figure import Figure

    columns = 2
    rows = -(-len(shown) // columns)
    height = 1.35 * rows + 1.7
    figure = Figure(figsize=(11, height))
    panels = figure.subplots(rows, columns, sharex=True, squeeze=False).ravel()
    for panel, repo in zip(panels, shown, strict=False):
        _panel(panel, weeks, repo, totals[repo], is_of_owner(repo, first_owner))
    for panel in panels[len(shown) :]:
        panel.remove()
    for column in range(columns):
        lowest = [panel for index, panel in enumerate(panels[: len(shown)]) if index % columns == column]
        if lowest:
            lowest[-1].tick_params(labelbottom=True)
    events = sum(totals.values())
    more = f", {len(shown)} of {len(totals)} repositories" if len(totals) > len(shown) else ""
    title = "Commits a week, by event time"
    figure.suptitle(title, x=_LEFT, y=1 - 0.22 / height, ha="left", fontsize=15, weight="bold")
    told = f"{events:,} events in {len(weeks):,} windows{more}: topics A1 and A2, through Spark, into topic B"
    figure.text(_LEFT, 1 - 0.62 / height, told, color=_MUTED, va="center")
    for number, (label, is_first) in enumerate(((f"from A1 ({first_owner})", True), ("from A2 (the others)", False))):
        right = _RIGHT - 0.16 * (1 - number)
        figure.text(right, 1 - 0.3 / height, label, color=_COLORS[is_first], ha="right", weight="bold")
    figure.text(_LEFT, 0.09 / height, f"Data: {origin}", color=_MUTED, fontsize=7.5)
    figure.subplots_adjust(_LEFT, 0.55 / height, _RIGHT, 1 - 1.05 / height, hspace=0.5, wspace=0.12)
    return figure


def _panel(panel: Axes, weeks: Mapping[WindowKey, Sums], repo: str, total: int, is_first: bool) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.ticker import MaxNLocator

    counts = {key.start_ms: sums.commits for key, sums in weeks.items() if key.repo == repo}
    # Weeks without a commit have no window: they are drawn as none, not bridged.
    starts = range(min(counts), max(counts) + WEEK_MS, WEEK_MS)
    times = [dt.datetime.fromtimestamp(start / 1000, dt.UTC) for start in (*starts, starts[-1] + WEEK_MS)]
    values = [counts.get(start, 0) for start in starts]
    panel.stairs(values, times, fill=True, color=_COLORS[is_first], linewidth=0.5, edgecolor=_COLORS[is_first])
    panel.set_title(repo, loc="left", fontsize=10, weight="bold", pad=4)
    busiest = max(values)
    panel.set_title(f"{total:,} commits, at most {busiest:,} a week", loc="right", fontsize=8, color=_MUTED, pad=4)
    panel.set_ylim(0, busiest * 1.08)
    panel.yaxis.set_major_locator(MaxNLocator(nbins=3, integer=True))
    panel.grid(axis="y", color=_GRID, linewidth=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.tick_params(length=0, colors=_MUTED, labelsize=8)
    locator = AutoDateLocator(minticks=4, maxticks=10)
    panel.xaxis.set_major_locator(locator)
    panel.xaxis.set_major_formatter(ConciseDateFormatter(locator))

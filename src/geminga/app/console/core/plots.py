"""Small plots as SVG text: a few minutes of some numbers, with axes and a legend.

Pure: numbers in, text out. No style and no script is in it (the pages' policy forbids both): colours come from the
classes that ``static/console.css`` knows. Each plot is an image with a name (``<title>``) and a sentence that says what
the line shows (``<desc>``), for those who do not see it. A value that is no finite number is left out, and the line is
broken there; a value beyond :data:`GREATEST` is drawn as that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

#: What is greater is drawn as this (and what is less than its negative as that): sums of it stay finite.
GREATEST: Final = 1e18
#: Points of one line that are drawn; of more, the newest.
POINTS_MAX: Final = 1_000

#: What the lines of one plot are called in the sheet; a plot has as many, and further ones are left out.
LINES: Final = ("", " second", " third")
_WIDTH, _HEIGHT = 420, 156
_LEFT, _RIGHT, _TOP, _BOTTOM = 40, 6, 32, 20
#: About what a character of the legend takes.
_CHARACTER = 6.2
_SUFFIXES: Final = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


class Svg(str):
    """SVG that is safe to put on a page as it is: everything in it that came from outside was escaped."""

    __slots__ = ()

    def __html__(self) -> str:
        """What Jinja asks for where it would escape."""
        return str(self)


@dataclass(frozen=True, slots=True)
class Series:
    """One line: what it counts, and its points, oldest first."""

    name: str
    #: (milliseconds of the wall clock, value).
    points: Sequence[tuple[int, float]]


def compact(value: float) -> str:
    """A number in a few characters: ``0.25``, ``12``, ``1.2k``, ``3.4M``; ``-`` for what is no finite number."""
    if not math.isfinite(value):
        return "-"
    size = abs(value)
    if size < 0.005:
        return "0"
    for least, suffix in _SUFFIXES:
        if size >= least * 0.9995:
            return _short(value / least) + suffix
    return _short(value)


def line_plot(
    series: Sequence[Series], *, title: str, unit: str, now_ms: int, span_ms: int, gap_ms: int = 30_000
) -> Svg:
    """One line for each of ``series``, as many as :data:`LINES`, over the last ``span_ms``, with labelled axes.

    ``unit`` is what the values are ("messages/s"). Points more than ``gap_ms`` apart are not joined: nobody looked
    in between.
    """
    span_ms = max(1, span_ms)
    shown = [_within(line, now_ms - span_ms, now_ms) for line, _mark in zip(series, LINES, strict=False)]
    known = [value for points in shown for _at_ms, value in points]
    low, high = _bounds(known)
    parts = [*_legend(f"{title}, {unit}", series), *_axes(low, high, span_ms)]
    for points, mark in zip(shown, LINES, strict=False):
        parts += _drawn_line(points, mark, (low, high), now_ms - span_ms, span_ms, gap_ms)
    said = _sentence(series, shown, unit, span_ms)
    return _image(title, said, parts)


def ago(span_ms: int) -> str:
    """A length of time in a word or two: ``40 s``, ``5 min``, ``2 h``."""
    seconds = max(0, span_ms) / 1000
    for size, word in ((3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{_short(seconds / size)} {word}"
    return f"{_short(seconds)} s"


def _short(value: float) -> str:
    """Three digits at most, without zeros that say nothing."""
    size = abs(value)
    digits = 0 if size >= 99.95 else 1 if size >= 9.995 else 2
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _held(value: float) -> float | None:
    return min(GREATEST, max(-GREATEST, value)) if math.isfinite(value) else None


def _within(line: Series, first_ms: int, last_ms: int) -> list[tuple[int, float]]:
    points = []
    for at_ms, value in line.points[-POINTS_MAX:]:
        held = _held(value)
        if held is not None and first_ms <= at_ms <= last_ms:
            points.append((at_ms, held))
    return points


def _bounds(values: Sequence[float]) -> tuple[float, float]:
    """What the vertical axis begins and ends with: 0 is always on it, and its ends are round numbers."""
    high = _round_up(max([0.0, *values]))
    low = -_round_up(-min([0.0, *values]))
    return low, high if high > low else low + 1.0


def _round_up(value: float) -> float:
    """The next 1, 2, 4 or 6 times a power of ten, whose half is as short; 0 stays 0."""
    if value <= 0:
        return 0.0
    power = 10.0 ** math.floor(math.log10(max(value, 1e-6)))
    for factor in (1, 2, 4, 6, 10):
        if value <= power * factor:
            return power * factor
    return power * 20


def _down(value: float, low: float, high: float, top: float, bottom: float) -> float:
    share = (value - low) / (high - low)
    return bottom - (bottom - top) * min(1.0, max(0.0, share))


def _line(places: Sequence[tuple[float, float]], mark: str) -> str:
    """A line, or a dot where it has one point only."""
    if len(places) == 1:
        ((across, down),) = places
        return f'<circle class="dot{mark}" cx="{across:.1f}" cy="{down:.1f}" r="2"/>'
    text = " ".join(f"{across:.1f},{down:.1f}" for across, down in places)
    return f'<polyline class="line{mark}" points="{text}"/>'


def _drawn_line(
    points: Sequence[tuple[int, float]],
    mark: str,
    bounds: tuple[float, float],
    first_ms: int,
    span_ms: int,
    gap_ms: int,
) -> list[str]:
    low, high = bounds
    bottom = _HEIGHT - _BOTTOM
    runs: list[list[tuple[float, float]]] = []
    before_ms = 0
    for at_ms, value in points:
        across = _LEFT + (_WIDTH - _LEFT - _RIGHT) * (at_ms - first_ms) / span_ms
        if not runs or at_ms - before_ms > gap_ms:
            runs.append([])
        runs[-1].append((across, _down(value, low, high, _TOP, bottom)))
        before_ms = at_ms
    parts = []
    zero = _down(0.0, low, high, _TOP, bottom)
    for run in runs:
        if not mark and len(run) > 1:
            edge = " ".join(f"{across:.1f},{down:.1f}" for across, down in run)
            parts.append(
                f'<polygon class="area" points="{run[0][0]:.1f},{zero:.1f} {edge} {run[-1][0]:.1f},{zero:.1f}"/>'
            )
        parts.append(_line(run, mark))
    return parts


def _legend(heading: str, series: Sequence[Series]) -> Iterator[str]:
    """What is drawn, at the left above it; at the right what each line is, where there are several."""
    yield f'<text class="heading" x="0" y="12">{_written(heading)}</text>'
    if len(series) < 2:
        return
    across = float(_WIDTH - _RIGHT)
    for line, mark in reversed(list(zip(series, LINES, strict=False))):
        across -= _CHARACTER * len(line.name)
        yield f'<text x="{across:.1f}" y="12">{_written(line.name)}</text>'
        yield f'<line class="line{mark}" x1="{across - 16:.1f}" x2="{across - 5:.1f}" y1="8" y2="8"/>'
        across -= 28


def _axes(low: float, high: float, span_ms: int) -> Iterator[str]:
    bottom = _HEIGHT - _BOTTOM
    right = _WIDTH - _RIGHT
    for value in (low, 0.0 if low < 0 else high / 2, high):
        down = _down(value, low, high, _TOP, bottom)
        yield f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{down:.1f}" y2="{down:.1f}"/>'
        yield f'<text x="{_LEFT - 6}" y="{down + 4:.1f}" text-anchor="end">{compact(value)}</text>'
    yield f'<text x="{_LEFT}" y="{_HEIGHT - 4}">{ago(span_ms)} ago</text>'
    yield f'<text x="{right}" y="{_HEIGHT - 4}" text-anchor="end">now</text>'


def _sentence(series: Sequence[Series], shown: Sequence[Sequence[tuple[int, float]]], unit: str, span_ms: int) -> str:
    said = []
    for line, points in zip(series, shown, strict=False):
        values = [value for _at_ms, value in points]
        if values:
            said.append(
                f"{line.name}: now {compact(values[-1])} {unit}, "
                f"between {compact(min(values))} and {compact(max(values))} in the last {ago(span_ms)}."
            )
        else:
            said.append(f"{line.name}: no value yet.")
    return " ".join(said)


def _image(title: str, said: str, parts: Sequence[str]) -> Svg:
    return Svg(
        f'<svg class="plot" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" role="img">'
        f"<title>{_written(title)}</title><desc>{_written(said)}</desc>{''.join(parts)}</svg>"
    )


def _written(text: str) -> str:
    """As text of XML: escaped, and without the characters that XML has no way to say."""
    return escape("".join(" " if character < " " or character == "\x7f" else character for character in text))

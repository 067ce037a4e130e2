"""Plots of the console: what is on them, and that no number and no name makes them anything but an image."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from geminga.app.console.core.history import APART_MS, KEYS_MAX, SAMPLES_MAX, SPAN_MS, SeenLately
from geminga.app.console.core.plots import LINES, POINTS_MAX, Series, ago, compact, line_plot

NOW = 1_700_000_000_000
COORDINATE = re.compile(r"-?\d+(\.\d+)?")


def drawn_inside(svg, width, height):
    """Parse, and hold every place to the image; the elements by name."""
    root = ElementTree.fromstring(svg)
    places = []
    for element in root.iter():
        assert "style" not in element.attrib
        for pair in element.get("points", "").split():
            places.append(pair.split(","))
        if element.tag == "circle":
            places.append([element.get("cx"), element.get("cy")])
    for across, down in places:
        assert COORDINATE.fullmatch(across)
        assert COORDINATE.fullmatch(down)
        assert 0 <= float(across) <= width
        assert 0 <= float(down) <= height
    return [element.tag for element in root.iter()]


@given(
    st.lists(st.lists(st.tuples(st.integers(NOW - 900_000, NOW + 9_000), st.floats()), max_size=20), max_size=5),
    st.text(max_size=20),
    st.integers(-5, 900_000),
)
def test_any_points_make_a_plot(lines, name, span_ms):
    series = [Series(name, sorted(points, key=lambda point: point[0])) for points in lines]
    svg = line_plot(series, title=name, unit=name, now_ms=NOW, span_ms=span_ms)
    drawn_inside(svg, 420, 156)
    assert svg.__html__() == svg
    drawn = set(re.findall(r'class="(?:line|dot)([^"]*)"', svg))
    assert drawn <= set(LINES[: len(lines)])


def test_a_plot_says_what_it_shows_and_its_axis_ends_round():
    points = [(NOW - 10_000, 100.0), (NOW - 5_000, 1_150.0), (NOW, 870.0)]
    svg = line_plot([Series("In", points)], title="Rate", unit="messages/s", now_ms=NOW, span_ms=60_000)
    assert "<title>Rate</title>" in svg
    assert "In: now 870 messages/s, between 100 and 1.15k in the last 1 min." in svg
    shown = re.findall(r"<text[^>]*>([^<]*)<", svg)
    assert shown == ["Rate, messages/s", "0", "1k", "2k", "1 min ago", "now"]


def test_a_plot_says_of_which_line_nothing_is_known_yet():
    svg = line_plot([Series("In", []), Series("Out", [(NOW, 2.0)])], title="t", unit="u", now_ms=NOW, span_ms=60_000)
    assert "<desc>In: no value yet. Out: now 2 u, between 2 and 2 in the last 1 min.</desc>" in svg


def test_several_lines_have_a_legend_in_their_order():
    series = [Series("in", [(NOW, 1.0)]), Series("out", [(NOW, 2.0)])]
    svg = line_plot(series, title="Rates", unit="u", now_ms=NOW, span_ms=1_000)
    places = {name: float(across) for across, name in re.findall(r'<text x="([0-9.]+)" y="12">(\w+)<', svg)}
    assert places["in"] < places["out"] < 420


def test_names_are_escaped_wherever_they_stand():
    series = [Series('<b>"&', [(NOW, 1.0)])]
    svg = line_plot(series, title="</title><script>", unit="<i>\x00\x1b", now_ms=NOW, span_ms=1_000)
    assert "<script" not in svg
    assert "<b>" not in svg
    assert "<i>" not in svg
    ElementTree.fromstring(svg)


def test_a_line_is_broken_where_nobody_looked_and_what_is_no_number_is_left_out():
    apart = [(NOW - 100_000, 1.0), (NOW - 95_000, 2.0), (NOW - 5_000, 3.0), (NOW, 4.0)]
    whole = line_plot([Series("a", apart)], title="t", unit="u", now_ms=NOW, span_ms=200_000, gap_ms=90_000)
    broken = line_plot([Series("a", apart)], title="t", unit="u", now_ms=NOW, span_ms=200_000)
    assert (whole.count("<polyline"), broken.count("<polyline")) == (1, 2)
    missing = [(NOW - 3_000, math.nan), (NOW - 2_000, 7.0), (NOW - 1_000, math.inf)]
    alone = line_plot([Series("a", missing)], title="t", unit="u", now_ms=NOW, span_ms=200_000)
    assert (alone.count("<circle"), alone.count("<polyline")) == (1, 0)


def test_values_below_zero_have_their_place_and_points_have_a_limit():
    svg = line_plot([Series("a", [(NOW - 1, -3.0), (NOW, 2.0)])], title="t", unit="u", now_ms=NOW, span_ms=10)
    assert re.findall(r'text-anchor="end">([^<]*)<', svg)[:3] == ["-4", "0", "2"]
    many = [(NOW - number, 1.0) for number in range(POINTS_MAX + 7, 0, -1)]
    svg = line_plot([Series("a", many)], title="t", unit="u", now_ms=NOW, span_ms=9_000)
    (line,) = re.findall(r'<polyline class="line" points="([^"]*)"', svg)
    assert line.count(",") == POINTS_MAX


def test_numbers_are_short():
    shown = [compact(value) for value in (0, 0.001, 0.25, 7, 12.34, 999.96, 1_234, 56_789, 1e6, 2.5e9, 3e18, -1_500)]
    assert shown == ["0", "0", "0.25", "7", "12.3", "1k", "1.23k", "56.8k", "1M", "2.5G", "3E", "-1.5k"]
    assert [compact(value) for value in (math.nan, math.inf)] == ["-", "-"]
    assert [ago(value) for value in (-1, 40_000, 300_000, 5_400_000)] == ["0 s", "40 s", "5 min", "1.5 h"]


def test_a_history_keeps_samples_apart_and_forgets_the_old():
    history = SeenLately()
    for second in range(2 * SPAN_MS // 1_000):
        history.add("t", {"in": float(second)}, now_ms=NOW + second * 1_000)
    points = history.series("t", "in", "In").points
    last_ms = points[-1][0]
    assert len(points) == SAMPLES_MAX
    assert all(after[0] - before[0] >= APART_MS for before, after in pairwise(points))
    history.add("t", {"out": 1.0}, now_ms=last_ms + SPAN_MS + 1)
    assert history.series("t", "in", "In").points == ()
    assert history.series("other", "in", "In").points == ()


def test_a_clock_that_was_set_back_begins_the_history_anew():
    history = SeenLately()
    history.add("t", {"in": 1.0}, now_ms=NOW)
    history.add("t", {"in": 2.0}, now_ms=NOW - 60_000)
    assert history.series("t", "in", "In").points == ((NOW - 60_000, 2.0),)


def test_histories_of_all_visitors_together_have_a_limit():
    history = SeenLately()
    for number in range(KEYS_MAX + 10):
        history.add("watched", {"in": 1.0}, now_ms=NOW + number * APART_MS)
        history.add(f"t{number}", {"in": 1.0}, now_ms=NOW + number * APART_MS)
    assert len(history) == KEYS_MAX
    assert len(history.series("watched", "in", "In").points) == SAMPLES_MAX
    assert history.series("t0", "in", "In").points == ()

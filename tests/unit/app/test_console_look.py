"""The console's sheet and script as texts: contrast of every pair of colours, nothing from elsewhere, nothing that the
pages' policy forbids. What they do in a browser: ``make browser``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import geminga.app.console

FOLDER = Path(geminga.app.console.__file__).parent
SHEET = (FOLDER / "static" / "console.css").read_text(encoding="utf-8")
SCRIPT = (FOLDER / "static" / "console.js").read_text(encoding="utf-8")
SOFT = ("ok", "warn", "bad", "info", "off")
#: Text and its ground: 4.5 : 1.
TEXTS = [
    *((text, ground) for text in ("text", "muted", "accent") for ground in ("ground", "surface", "sunken", "row")),
    *((name, f"{name}-soft") for name in SOFT),
    *(("text", f"{name}-soft") for name in SOFT),
    ("accent-strong", "accent-soft"),
    ("accent", "accent-soft"),
    ("on-accent", "accent"),
    ("on-accent", "accent-strong"),
    ("surface", "bad"),
    ("surface", "bad-strong"),
    ("bad", "surface"),
]
#: Edges of controls, lines of plots: 3 : 1.
EDGES = [
    (edge, ground) for edge in ("control", "plot-1", "plot-2", "plot-3", "accent") for ground in ("ground", "surface")
]


def tokens(sheet):
    """Colours by name, for light and for dark."""
    light, dark = re.findall(r":root \{(.*?)\n\s*\}", sheet, re.DOTALL)[:2]
    found = [dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6});", block)) for block in (light, dark)]
    return {"light": found[0], "dark": found[1]}


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    """WCAG 2.2, "contrast ratio"."""
    lower, upper = sorted((luminance(one), luminance(other)))
    return (upper + 0.05) / (lower + 0.05)


def too_faint(colours, pairs, least):
    ratios = {pair: contrast(colours[pair[0]], colours[pair[1]]) for pair in pairs}
    return {pair: round(ratio, 2) for pair, ratio in ratios.items() if ratio < least}


def test_contrast_is_what_wcag_says():
    assert round(contrast("#000000", "#ffffff"), 3) == 21
    assert round(contrast("#777777", "#ffffff"), 2) == 4.48


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_and_edges_are_seen(scheme):
    colours = tokens(SHEET)[scheme]
    assert too_faint(colours, TEXTS, 4.5) == {}
    assert too_faint(colours, EDGES, 3) == {}
    assert too_faint({**colours, "muted": "#8a8f98" if scheme == "light" else "#5a6270"}, TEXTS, 4.5) != {}


def test_every_token_that_is_used_is_there():
    known = set(re.findall(r"^\s*--([a-z0-9-]+):", SHEET, re.MULTILINE))
    assert set(re.findall(r"var\(--([a-z0-9-]+)\)", SHEET)) - known == set()


def test_nothing_comes_from_elsewhere():
    for text in (SHEET, SCRIPT):
        assert re.findall(r"https?:|//[a-z0-9-]+\.[a-z]|@import|url\(", text) == []


def test_the_script_makes_no_markup_of_text_and_no_style():
    """The policy of the pages forbids both; a browser would say so only to who looks at its log."""
    assert (
        re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|Function\(|\.style\b", SCRIPT) == []
    )

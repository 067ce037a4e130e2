"""What pages and acts ask of a request."""

from __future__ import annotations

from typing import Any, cast

import pytest

from geminga.app.console.core.history import SeenLately
from geminga.app.console.pages import all_pages, start
from geminga.app.console.tables import Refusal, View


def view(**query: str) -> View:
    nothing = cast("Any", None)
    return View(nothing, {}, query, form={}, can_act=True, part="", now_ms=0, seen=SeenLately(), clients=nothing)


def test_rows_are_cut_into_pages() -> None:
    rows = list(range(101))
    assert view().page_of(rows, per_page=50) == (rows[:50], 1, 3, 101)
    assert view(page="3").page_of(rows, per_page=50) == (rows[100:], 3, 3, 101)
    assert view(page="999").page_of(rows, per_page=50).number == 3
    assert view(page="2").page_of([], per_page=50) == ([], 1, 1, 0)


@pytest.mark.parametrize("text", ["x", "1.5", "٣", "9" * 30, "11", "-1"])
def test_what_is_no_number_of_these_is_refused(text: str) -> None:
    with pytest.raises(Refusal, match="from 0 to 10"):
        view(n=text).number("n", 1, least=0, most=10)


def test_numbers_and_texts() -> None:
    assert view(n="7").number("n", 1, least=0, most=10) == 7
    assert view(n=" ").number("n", 1, least=0, most=10) == 1
    with pytest.raises(Refusal, match="needs topic"):
        view().wanted("topic")
    with pytest.raises(Refusal, match="at most 3 characters"):
        view(topic="four").wanted("topic", most=3)


def test_pages_have_paths_of_their_own() -> None:
    paths = [page.path for page in all_pages()]
    assert len(set(paths)) == len(paths)
    assert start.PAGES[0].path == "/"

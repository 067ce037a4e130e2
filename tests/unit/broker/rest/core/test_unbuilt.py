"""What is refused because it is not built, as data."""

from __future__ import annotations

import re

from geminga.broker.core.coercion import NotBuiltError
from geminga.broker.rest.calls.core.unbuilt import ROUTES


def test_no_path_is_named_twice() -> None:
    shapes = [(method, re.sub(r"\{[^}]*\}", "{}", row.path)) for row in ROUTES for method in row.methods]
    assert len(shapes) == len(set(shapes))
    assert len(shapes) > 120


def test_error_is_501_and_says_what_is_missing() -> None:
    assert NotBuiltError.http_status == 501
    assert str(NotBuiltError("compaction")) == "compaction: not built"

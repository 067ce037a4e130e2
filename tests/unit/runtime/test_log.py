"""Logger names."""

from __future__ import annotations

from geminga.runtime import get_logger


def test_logger_has_the_name_asked_for():
    assert get_logger("geminga.x").name == "geminga.x"

"""Examples of the property tests do not hang on what a process has loaded before."""

from __future__ import annotations

import os

import pytest
from hypothesis.internal.conjecture import providers


@pytest.mark.skipif("PROPERTY_SEED" in os.environ, reason="`make search` draws constants of the product, too")
def test_constants_of_loaded_modules_are_not_drawn() -> None:
    constants = providers._get_local_constants()
    assert [*constants.integers, *constants.strings, *constants.bytes] == []

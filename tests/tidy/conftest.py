"""The trees of the whole product are what these tests look at: none of it is garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package", autouse=True)
def _trees_are_no_garbage() -> Iterator[None]:
    """Millions of nodes live until the end; looking for some that do not takes longer than most of the rules."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()

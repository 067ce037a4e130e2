"""What tests of our client share: a topic of one's own."""

from __future__ import annotations

import itertools

import pytest

_numbers = itertools.count()


@pytest.fixture
def topic() -> str:
    """A name that no other test has, of whichever module: one broker may judge them all."""
    return f"client-{next(_numbers)}"

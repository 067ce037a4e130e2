"""Topics of the tests that both brokers judge."""

from __future__ import annotations

import pytest


@pytest.fixture
def topic(fresh_topic: str) -> str:
    """A topic of ``public/default`` that nobody used: its local name."""
    return fresh_topic.rsplit("/", 1)[1]

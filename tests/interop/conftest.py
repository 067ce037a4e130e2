"""Topics and clusters of the tests that both brokers judge."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tools.zookeeper_server import ZooKeeperServer, running_zookeeper


@pytest.fixture
def topic(fresh_topic: str) -> str:
    """A topic of ``public/default`` that nobody used: its local name."""
    return fresh_topic.rsplit("/", 1)[1]


@pytest.fixture
def zookeeper(judge_is_apache: bool) -> Iterator[ZooKeeperServer]:
    """One of its own: each cluster is made anew."""
    if not judge_is_apache:
        pytest.skip("Apache's ledger client, bookies and auto-recovery")
    with running_zookeeper() as server:
        yield server

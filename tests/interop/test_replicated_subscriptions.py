"""Replicated subscriptions of a cluster of Geminga's and one of Apache's: each follows the other."""

from __future__ import annotations

import pytest
from tools.standalone_process import StandaloneProcess

from integration.test_geo_replication import NAMES
from integration.test_replicated_subscriptions import fails_over
from interop.test_geo_replication import brokers as brokers

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

__all__ = ["brokers"]
#: What Apache counts as backlog, and its consumers may see again: the markers behind the last update, and what was
#: published since the snapshot before.
MARKERS = 20


@pytest.mark.parametrize("first", NAMES)
def test_a_consumer_fails_over_between_geminga_and_apache(brokers: dict[str, StandaloneProcess], first: str) -> None:
    then = next(name for name in NAMES if name != first)
    fails_over(brokers, first, then, 50, {"west": MARKERS})

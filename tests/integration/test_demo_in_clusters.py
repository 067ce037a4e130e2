"""``make demo CLUSTERS=2`` on a few events."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.processes.demo_run import told_by_demo

pytestmark = pytest.mark.integration


@pytest.mark.long
def test_each_cluster_has_every_event_once_and_in_order(tmp_path: Path) -> None:
    told = told_by_demo(tmp_path, 2_001, CLUSTERS="2")
    assert told["killed"].startswith("city-2 pulsar://127.0.0.1:")
    assert [one["published"] for one in told["clusters"]] == [1_000, 1_001]
    for one in told["clusters"]:
        assert one["found"] == 2_001
        assert (one["lost"], one["duplicated"], one["out_of_order"], one["backlog"]) == (0, 0, 0, 0)

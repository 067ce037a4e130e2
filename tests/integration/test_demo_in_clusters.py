"""``make demo CLUSTERS=2`` on a few events."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.house.source_tree import ROOT

pytestmark = pytest.mark.integration


@pytest.mark.long
def test_each_cluster_has_every_event_once_and_in_order(tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text("".join(json.dumps({"repo": f"r{n % 7}", "n": n}) + "\n" for n in range(2_001)))
    done = subprocess.run(
        [sys.executable, "-m", "demo"],
        cwd=ROOT,
        env={**os.environ, "CLUSTERS": "2", "JSON": "1", "EVENTS": str(events)},
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["killed"].startswith("city-2 pulsar://127.0.0.1:")
    assert [one["published"] for one in told["clusters"]] == [1_000, 1_001]
    for one in told["clusters"]:
        assert one["found"] == 2_001
        assert (one["lost"], one["duplicated"], one["out_of_order"], one["backlog"]) == (0, 0, 0, 0)

"""``make demo TXN=1`` on a few events."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.house.source_tree import ROOT

pytestmark = pytest.mark.integration


def test_events_are_moved_once_though_mover_and_broker_are_killed(tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text("".join(json.dumps({"repo": f"r{n % 7}", "n": n}) + "\n" for n in range(2_000)))
    asked = {"TXN": "1", "JSON": "1", "KILLS": "2", "EVENTS": str(events)}
    done = subprocess.run(
        [sys.executable, "-m", "demo"],
        cwd=ROOT,
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["events"], told["found"], told["lost"], told["duplicated"]) == (2_000, 2_000, 0, 0)
    assert (told["kills_of_the_mover"], told["kills_of_the_broker"]) == (1, 1)

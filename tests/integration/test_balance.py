"""Load over broker processes under the official client: two that join take their part, and clients notice little."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.house.source_tree import ROOT

# Five rounds of a minute, and the start.
pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(960)]


def test_brokers_that_join_carry_their_part_within_a_few_rounds(tmp_path: Path) -> None:
    # A process of its own: reconnections are counted in its client's log.
    command = [sys.executable, "-m", "tools.balance", "--keep", str(tmp_path / "data"), "--json", "shedding"]
    done = subprocess.run(
        [*command, "--rounds", "5"], cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    found = json.loads(done.stdout)
    assert found["moves"] >= 10, done.stderr
    assert 0 < found["reconnectionsPerMove"] <= 1, done.stderr
    # Moves copy nothing: what bookies write for a byte published stays what it was on one broker.
    assert found["storedPerCopy"] <= found["storedPerCopyBefore"] * 1.05, done.stderr

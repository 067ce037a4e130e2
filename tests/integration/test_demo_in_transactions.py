"""``make demo TXN=1`` on a few events."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.processes.demo_run import told_by_demo

pytestmark = pytest.mark.integration


def test_events_are_moved_once_though_mover_and_broker_are_killed(tmp_path: Path) -> None:
    told = told_by_demo(tmp_path, 2_000, timeout_s=120, TXN="1", KILLS="2")
    assert (told["events"], told["found"], told["lost"], told["duplicated"]) == (2_000, 2_000, 0, 0)
    assert (told["kills_of_the_mover"], told["kills_of_the_broker"]) == (1, 1)

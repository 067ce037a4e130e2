"""``make demo BROKERS=2 BOOKIES=3`` on a few events."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.processes.demo_run import told_by_demo

pytestmark = pytest.mark.integration


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_broker_is_taken_over_a_bookie_is_replaced_and_nothing_is_lost(tmp_path: Path) -> None:
    told = told_by_demo(tmp_path, 2_000, BROKERS="2", BOOKIES="3", DEDUP="1")
    assert (told["found"], told["lost"], told["duplicated"], told["out_of_order"]) == (2_000, 0, 0, 0)
    assert (told["entries_lacking_copies"], told["fragments_naming_killed"]) == (0, 0)
    assert told["fragments_of_killed"] > 0
    assert told["joined"] != told["killed"] != told["killed_second"]
    broker = told["broker"]
    assert told["brokers"] == 2
    assert broker["killed"].startswith("pulsar://127.0.0.1:")
    assert 1 <= broker["partitions"] <= 4
    assert broker["taken_over_s"] > 0

"""Load over broker processes under the official client: two that join take their part, and clients notice little."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.balance import shedding

pytestmark = [pytest.mark.integration, pytest.mark.long]


def test_brokers_that_join_carry_their_part_within_a_few_rounds(tmp_path: Path) -> None:
    lines: list[str] = []
    found = shedding.run(tmp_path, seed=1, pattern="one to ten", rounds=5, say=lines.append)
    story = "\n".join([*lines, str(found)])
    assert found["evenFromRound"], story
    assert found["moves"] >= 10, story
    assert found["reconnectionsPerMove"] <= 1, story
    # Moves copy nothing: what bookies write for a byte published stays what it was on one broker.
    assert found["storedPerCopy"] <= found["storedPerCopyBefore"] * 1.05, story

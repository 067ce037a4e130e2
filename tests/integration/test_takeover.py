"""Topics of a killed broker, as processes under official clients: answered in time, by the brokers that are left."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.balance import takeover

pytestmark = [pytest.mark.integration, pytest.mark.long]

SESSION_MS = 4000


def test_topics_with_clients_answer_again_within_the_session_and_two_seconds(tmp_path: Path) -> None:
    found = takeover.run(tmp_path, topics=500, used=500, session_ms=SESSION_MS, within_s=60)
    assert found["answered"] == found["lost"] >= 100
    assert found["p99S"] <= SESSION_MS / 1000 + 2, found
    assert min(found["takenBy"].values()) >= found["lost"] / 4, found
    assert sum(found["takenBy"].values()) == found["lost"]

"""Random walks of clients and administration show here what they showed at Apache Pulsar's own broker.

The walks, and what was seen at each of their steps, were taken down by ``make interop INTEROP_ARGS="walks --record"``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest
from tools.interop.walks.recording import Shown, recorded
from tools.interop.walks.running import SETTINGS, walk_all
from tools.standalone_process import StandaloneProcess

from support.house.weekly_sample import sampled

pytestmark = pytest.mark.integration

#: The walks are shared out to so many tests, each of which takes its own at the same time.
LOTS = 6
#: Nothing has come for so long: nothing will. What must come is waited for; who parts is given more, once.
QUIET_S = 0.05
PATIENT_S = 0.5


@pytest.fixture
def broker(tmp_path) -> Iterator[StandaloneProcess]:
    """Of this test's own, for its settings."""
    process = StandaloneProcess(tmp_path / "data", log=tmp_path / "log", settings=SETTINGS)
    process.start()
    yield process
    process.kill()


@pytest.mark.parametrize("lot", sampled("walks", range(LOTS), 1))
def test_walks_show_what_apaches_broker_showed(broker: StandaloneProcess, lot: int) -> None:
    walks = recorded()[lot::LOTS]
    parted = _parted(broker, walks, QUIET_S)
    assert not (parted and (parted := _parted(broker, [one for one, _ in parted], PATIENT_S))), _told(*parted[0])


def _parted(broker: StandaloneProcess, walks: list[Shown], quiet_s: float) -> list[tuple[Shown, list[object]]]:
    named = {f"seed{one.seed}-{int(quiet_s * 1000)}": one for one in walks}
    steps = {name: one.steps for name, one in named.items()}
    awaited = {name: one.seen for name, one in named.items()}
    found = asyncio.run(walk_all(broker, steps, quiet_s=quiet_s, awaited=awaited))
    return [(one, found[name]) for name, one in named.items() if found[name] != one.seen]


def _told(shown: Shown, found: list[object]) -> str:
    lines = [f"seed {shown.seed} (Apache's broker: what comes behind ->)"]
    for step, theirs, ours in zip(shown.steps, shown.seen, found, strict=True):
        lines.append(f"{json.dumps(step)} -> {json.dumps(theirs)}")
        if theirs != ours:
            return "\n".join([*lines, f"  here: {json.dumps(ours)}"])
    return "\n".join(lines)

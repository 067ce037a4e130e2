"""``examples/cluster/migrate.py`` before it touches anything: its steps, and plans that can not be right."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.house.source_tree import ROOT

BROKERS = [{"broker": f"b{number}:8080", "stop": "false", "start": "false"} for number in (1, 2)]
BOOKIES = [{"old": f"old-{n}", "new": f"new-{n}", "start": "a", "read_only": "b", "stop": "c"} for n in (1, 2)]
PLAN: dict[str, Any] = {
    "metadata": "nowhere:1",
    "namespaces": ["public/default"],
    "leaves": "geminga",
    "brokers": BROKERS,
    "autorecovery": {"start": "true", "stop": "true"},
    "bookies": BOOKIES,
}


def told(tmp_path: Path, plan: dict[str, Any], *words: str) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan))
    program = [sys.executable, str(ROOT / "examples" / "cluster" / "migrate.py"), str(path), *words]
    return subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)


def test_steps_are_told_in_order_and_the_lake_comes_first_where_geminga_is_left(tmp_path: Path) -> None:
    done = told(tmp_path, PLAN, "--list")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "1. look whether everything is there",
        "2. bring back from the lake what is there alone",
        "3. replace broker b1:8080",
        "4. replace broker b2:8080",
        "5. replace auto-recovery",
        "6. replace bookie old-1 by new-1",
        "7. replace bookie old-2 by new-2",
        "8. look whether everything answers",
    ]
    assert "lake" not in told(tmp_path, {**PLAN, "leaves": "apache"}, "--list").stdout
    assert told(tmp_path, PLAN, "--list", "--from", "7").stdout.startswith("7. replace bookie old-2")


@pytest.mark.parametrize(
    ("change", "words", "why"),
    [
        ({"leaves": "kafka"}, [], "wrong 'kafka'"),
        ({"bookies": [BOOKIES[0], {**BOOKIES[1], "new": "old-1"}]}, [], "a bookie id twice"),
        ({}, ["--from", "9"], "expected a step from 1 to 8"),
    ],
)
def test_plan_that_can_not_be_right_is_refused(
    tmp_path: Path, change: dict[str, Any], words: list[str], why: str
) -> None:
    done = told(tmp_path, {**PLAN, **change}, "--list", *words)
    assert done.returncode == 1
    assert why in done.stderr
    assert done.stdout == ""

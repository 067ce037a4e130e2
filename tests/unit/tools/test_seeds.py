"""The runner of seeds, as it is called."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def _commit() -> str:
    from tools.seeds.__main__ import commit

    return commit()


@pytest.mark.parametrize("scenario", ["transactions", "storage"])
def test_seeds_are_run_by_several_processes_and_once(tmp_path: Path, scenario: str) -> None:
    log = tmp_path / "seeds.jsonl"
    # A seed of another simulation does not count.
    other = {"commit": _commit(), "scenario": "takeover", "seed": 0, "ok": True}
    log.write_text(json.dumps(other) + "\n")
    command = [sys.executable, "-m", "tools.seeds", "--scenario", scenario, "--count", "2", "--jobs", "2"]
    command += ["--log", str(log)]
    for left in (2, 0):
        run = subprocess.run(
            command, cwd=ROOT, env={"PYTHONPATH": "tests:."}, capture_output=True, text=True, check=False, timeout=120
        )
        assert run.returncode == 0, run.stderr
        assert f": {left} seeds from 0" in run.stdout
        assert "2 seeds, 0 failures" in run.stdout
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert sorted(line["seed"] for line in lines[1:]) == [0, 1]
    assert all(sum(line["struck"].values()) for line in lines[1:])

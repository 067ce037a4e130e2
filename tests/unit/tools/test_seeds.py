"""The runner of seeds, as it is called."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_seeds_are_run_by_several_processes_and_once(tmp_path: Path) -> None:
    log = tmp_path / "seeds.jsonl"
    command = [sys.executable, "-m", "tools.seeds", "--count", "2", "--jobs", "2", "--log", str(log)]
    for left in (2, 0):
        run = subprocess.run(
            command, cwd=ROOT, env={"PYTHONPATH": "tests:."}, capture_output=True, text=True, check=False, timeout=120
        )
        assert run.returncode == 0, run.stderr
        assert f": {left} seeds from 0" in run.stdout
        assert "2 seeds, 0 failures" in run.stdout
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert sorted(line["seed"] for line in lines) == [0, 1]

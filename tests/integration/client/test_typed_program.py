"""A user's program over the whole client passes strict type checks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy")

ROOT = Path(__file__).resolve().parents[3]
SAMPLE = ROOT / "tests" / "samples" / "typed_client_program.py"
CACHE = ROOT / "build" / "typed-program-cache"


def check(*programs: Path, directory: Path) -> subprocess.CompletedProcess[str]:
    """mypy --strict, with no settings of ours; what it knows of modules that did not change is kept."""
    options = ["--strict", "--config-file=", "--follow-imports=silent", f"--cache-dir={CACHE}"]
    return subprocess.run(
        [sys.executable, "-m", "mypy", *options, *map(str, programs)],
        capture_output=True,
        text=True,
        env={**os.environ, "MYPYPATH": str(ROOT / "src")},
        cwd=directory,
        check=False,
    )


@pytest.mark.slow
def test_sample_program_passes_and_a_wrong_one_does_not(tmp_path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        SAMPLE.read_text(encoding="utf-8")
        .replace('texts.send("text")', "texts.send(7)")
        .replace("operation_timeout_ms=5_000", 'operation_timeout_ms="5 s"'),
        encoding="utf-8",
    )
    found = check(SAMPLE, wrong, directory=tmp_path)
    assert "2 errors in 1 file (checked 2 source files)" in found.stdout, found.stdout + found.stderr
    assert all(line.startswith("wrong.py:") for line in found.stdout.splitlines()[:2]), found.stdout

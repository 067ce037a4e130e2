"""``geminga cluster`` where there is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("word", ["status", "down"])
def test_where_there_is_no_cluster_the_command_says_so_and_makes_nothing(word: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "geminga", "cluster", word, "--dir", str(tmp_path / "none")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr == f"geminga: there is no cluster in {tmp_path}/none: geminga cluster up --dir makes one\n"
    assert list(tmp_path.iterdir()) == []

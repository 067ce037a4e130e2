"""docs/backup.md, run as it stands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tools.free_ports import free_ports

from support.house.page_blocks import blocks_of, program_of
from support.house.source_tree import ROOT
from support.processes.killing import kill_named

# Two servers and a dozen commands, each a process.
pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(180)]


def test_the_page_on_backups_runs_as_it_stands(tmp_path: Path) -> None:
    ports = dict(zip(("6650", "8080"), map(str, free_ports(2)), strict=True))
    program = program_of(blocks_of((ROOT / "docs" / "backup.md").read_text(encoding="utf-8")), ports)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    try:
        done = subprocess.run(
            ["bash", "-c", program],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=150,
            check=False,
        )
    finally:
        kill_named(tmp_path / "server.pid")
    assert done.returncode == 0, done.stdout[-4000:]
    assert done.stdout.rstrip().endswith("== the end")
    assert "everything acknowledged before" in done.stdout
    assert "as it was made" in done.stdout

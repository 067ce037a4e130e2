"""``geminga metadata copy`` as an operator runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "geminga", "metadata", "copy", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_what_makes_no_sense_is_one_paragraph(tmp_path: Path) -> None:
    done = run(str(tmp_path), "sqlite:elsewhere")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("geminga: 'sqlite:elsewhere' is no ZooKeeper; expected zk:host:port")
    done = run(f"sqlite:{tmp_path}", "zk:127.0.0.1:1")
    assert done.returncode == 1
    assert done.stderr == f"geminga: {tmp_path} is no data directory of a standalone: it holds no geminga.json\n"
    assert run(str(tmp_path)).returncode == 2

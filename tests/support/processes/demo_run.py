"""``make demo`` on a few events, and what it says of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.house.source_tree import ROOT


def told_by_demo(directory: Path, events: int, *, timeout_s: float = 170, **asked: str) -> dict[str, Any]:
    """Run it with the variables that are ``asked`` for, and read its result. Raises AssertionError if it fails."""
    file = directory / "events.jsonl"
    file.write_text("".join(json.dumps({"repo": f"r{n % 7}", "n": n}) + "\n" for n in range(events)))
    done = subprocess.run(
        [sys.executable, "-m", "demo"],
        cwd=ROOT,
        env={**os.environ, "JSON": "1", "EVENTS": str(file), **asked},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told

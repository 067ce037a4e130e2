"""What an operator makes before an installation with TLS and tokens, by the commands of docs/kubernetes.md."""

from __future__ import annotations

import base64
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from tools.chart.programs import ROOT
from tools.chart.rendering import Manifest
from tools.image.page_blocks import blocks

PAGE: Final = ROOT / "docs" / "kubernetes.md"
_CREATE: Final = re.compile(r"^kubectl create secret generic (\S+) (.*)$")
_FILE: Final = re.compile(r"--from-file=(\S+?)=(\S+)")


def make(place: Path) -> list[Manifest]:
    """Run the blocks of the page that make keys and certificates in ``place``; the Secrets that kubectl would make.

    ``kubectl`` and ``geminga`` of the page are a program that keeps its words, and this environment's.
    """
    programs = place / "programs"
    programs.mkdir(parents=True)
    kept = place / "kubectl.said"
    _program(programs / "kubectl", f'echo "kubectl $*" >> {kept}')
    _program(programs / "geminga", f'exec {sys.executable} -m geminga "$@"')
    wanted = [block.text for block in blocks(PAGE.read_text("utf-8")) if "create secret" in block.text]
    if not wanted:
        raise SystemExit(f"{PAGE}: no block creates Secrets")
    for text in wanted:
        done = subprocess.run(
            ["bash", "-euc", text],
            env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
            cwd=place,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"{text}\nof {PAGE} ended with {done.returncode}: {done.stderr}")
    return [_secret(line, place) for line in kept.read_text("utf-8").splitlines() if _CREATE.match(line)]


def _program(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/bash\n{line}\n", "utf-8")
    path.chmod(0o755)


def _secret(line: str, place: Path) -> Manifest:
    match = _CREATE.match(line)
    assert match is not None
    files = _FILE.findall(match[2])
    return {
        "kind": "Secret",
        "metadata": {"name": match[1]},
        "data": {key: base64.b64encode((place / name).read_bytes()).decode() for key, name in files},
    }

"""``make wheels``: a compiled wheel for each Python that is here, in dist/, each installed alone and tried.

Compiling needs a C compiler, and what requirements.lock has (mypy follows all that the code imports). Needs a package
index. What a wheel asks of the system is told by ``auditwheel show``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tools.compiled import copy_tree
from tools.package_check import PYTHONS, ROOT, STORY, Failed, pythons, run

DIST: Final = ROOT / "dist"


def built(program: str, directory: Path) -> Path:
    """The wheel of this Python. Raises Failed."""
    run([program, "-m", "venv", directory / "build"])
    python = directory / "build" / "bin" / "python"
    # All of it: mypy follows what the code imports.
    run([python, "-m", "pip", "install", "-q", "--no-deps", "--require-hashes", "-r", ROOT / "requirements.lock"])
    tree = directory / "tree"
    copy_tree(tree)
    command = [python, "-m", "pip", "wheel", "-q", ".", "--no-deps", "--no-build-isolation", "-w", DIST]
    words = [str(part) for part in command]
    environment = {**os.environ, "GEMINGA_COMPILE": "1"}
    for old in DIST.glob(f"*-cp{''.join(_version(program))}-*.whl"):
        old.unlink()
    done = subprocess.run(words, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed((done.stdout + done.stderr)[-3000:])
    return max(DIST.glob("*.whl"), key=lambda wheel: wheel.stat().st_mtime_ns)


def _version(program: str) -> tuple[str, str]:
    major, minor = run([program, "-c", "import sys; print(*sys.version_info[:2])"]).split()
    return major, minor


def tried(program: str, wheel: Path, directory: Path) -> str:
    """What the installed command says of itself, after a story was told with it. Raises Failed."""
    run([program, "-m", "venv", directory / "use"])
    python = directory / "use" / "bin" / "python"
    run([python, "-m", "pip", "install", "-q", f"{wheel}[server]", "auditwheel"])
    said = run([python, "-m", "geminga", "--version"], cwd=directory).strip()
    if not said.endswith("(compiled)"):
        raise Failed(f"{wheel.name} is not compiled: {said}")
    if "served" not in run([python, "-c", STORY], cwd=directory):
        raise Failed(f"{wheel.name} did not serve")
    asked = run([python, "-m", "auditwheel", "show", wheel], cwd=directory)
    tags = re.findall(r"\"(manylinux\S+|linux\S+)\"", asked.replace("\n", " "))
    return f"{said}; {wheel.stat().st_size / 2**20:.1f} MiB; consistent with {tags[0] if tags else asked.strip()}"


def main() -> int:
    """0, or 1 with the sentence of the first step that failed."""
    DIST.mkdir(exist_ok=True)
    there = dict(pythons())
    for version in PYTHONS:
        if version not in there:
            print(f"Python {version}: not here", flush=True)
            continue
        with tempfile.TemporaryDirectory(prefix="wheels-") as place:
            try:
                wheel = built(there[version], Path(place))
                print(f"Python {version}: {wheel.name}: {tried(there[version], wheel, Path(place))}", flush=True)
            except Failed as failure:
                print(f"Python {version}: {failure}", file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

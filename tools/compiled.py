"""``make compiled``: the product with its hot modules compiled, in build/compiled/src; tests run on it by PYTHONPATH.

Nothing is compiled in ``src`` itself, where every other tool reads and runs what is written.
"""

from __future__ import annotations

import filecmp
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
TREE: Final = ROOT / "build" / "compiled"
PURE: Final = ROOT / "src"
COMPILED: Final = TREE / "src"
#: What a build of the package reads.
PARTS: Final = ("src", "setup.py", "pyproject.toml", "README.md", "LICENSE")


def copy_tree(target: Path) -> None:
    """What a build reads, as it is written now; compiled files of another time are gone."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, target / part, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy2(ROOT / part, target / part)


def stale(pure: Path = PURE, compiled: Path = COMPILED) -> Iterator[str]:
    """Sources that the compiled tree does not have as they are now, by path."""
    for path in sorted(pure.rglob("*.py")):
        name = path.relative_to(pure)
        if not (compiled / name).exists() or not filecmp.cmp(path, compiled / name, shallow=False):
            yield str(name)


def main() -> int:
    """Status of the build; its output goes to build.log beside it, of which errors are shown."""
    copy_tree(TREE)
    log = TREE / "build.log"
    with log.open("wb") as file:
        done = subprocess.run(
            [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
            cwd=TREE,
            env={**os.environ, "GEMINGA_COMPILE": "1"},
            stdout=file,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        told = [line for line in lines if "error" in line.lower()] or lines[-10:]
        print(*told[-20:], f"not compiled; all of it is in {log.relative_to(ROOT)}", sep="\n", file=sys.stderr)
        return done.returncode
    print(f"compiled: {len(list((TREE / 'src').rglob('*.so'))) - 1} modules in {(TREE / 'src').relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

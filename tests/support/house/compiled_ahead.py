"""Bytecode that the workers of ``make test`` would each make for themselves, made once before they start.

On a fresh clone every worker would compile the product and rewrite the assertions of all test files at the same time
as the others: 20 CPU seconds each for what one of them can do for all.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from importlib.util import cache_from_source
from pathlib import Path
from typing import Final

import pytest

from support.house.source_tree import ROOT

#: As many as there are cores for sure.
PROCESSES: Final = 2
#: With fewer files to do, starting processes costs more than they save.
FILES_MIN: Final = 40

_COMPILED: Final = ("src", "tests/support", "tools", "demo", "bench")


def stale_files(files: Sequence[Path]) -> list[Path]:
    """Test files whose rewritten bytecode is missing or older than they are, for this Python and this pytest."""
    return [file for file in files if not _is_fresh(file)]


def _is_fresh(file: Path) -> bool:
    plain = Path(cache_from_source(str(file)))
    rewritten = plain.with_name(f"{plain.stem}-pytest-{pytest.__version__}.pyc")
    try:
        return rewritten.stat().st_mtime >= file.stat().st_mtime
    except OSError:
        return False


def compile_ahead(root: Path = ROOT) -> int:
    """Make what is missing; the number of test files that were done. Without leave to write bytecode, none are."""
    stale = stale_files(sorted((root / "tests").rglob("test_*.py")))
    if sys.dont_write_bytecode or len(stale) < FILES_MIN:
        return 0
    subprocess.run([sys.executable, "-m", "compileall", "-q", "-j", str(PROCESSES), *_COMPILED], cwd=root, check=True)
    collect = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "no:cacheprovider", "-p", "no:xdist"]
    collecting = [
        subprocess.Popen([*collect, *map(str, stale[share::PROCESSES])], cwd=root, stdout=subprocess.DEVNULL)
        for share in range(PROCESSES)
    ]
    # What one of them can not collect, the workers say.
    for process in collecting:
        process.wait()
    return len(stale)

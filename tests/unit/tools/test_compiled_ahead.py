"""Bytecode that is made once for all workers."""

from __future__ import annotations

import os
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from support.house.compiled_ahead import stale_files


def test_a_test_file_is_stale_until_its_rewritten_bytecode_is_newer(tmp_path: Path) -> None:
    fresh, changed, new = (tmp_path / f"test_{name}.py" for name in ("fresh", "changed", "new"))
    for file in (fresh, changed, new):
        file.write_text("def test_some(): assert True\n")
    for file in (fresh, changed):
        plain = Path(cache_from_source(str(file)))
        plain.parent.mkdir(exist_ok=True)
        plain.with_name(f"{plain.stem}-pytest-{pytest.__version__}.pyc").write_bytes(b"")
    later = fresh.stat().st_mtime + 60
    os.utime(changed, (later, later))
    assert stale_files([fresh, changed, new]) == [changed, new]

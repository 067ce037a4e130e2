"""docs/first-steps.md, run as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import geminga
from support.house.source_tree import ROOT

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_page_of_first_steps_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = _BLOCK.findall((ROOT / "docs" / "first-steps.md").read_text(encoding="utf-8"))
    assert len(blocks) == 6
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    try:
        for number, block in enumerate(blocks, 1):
            exec(compile(block, f"first-steps.md, block {number}", "exec"), names)
    finally:
        if isinstance(broker := names.get("broker"), geminga.Standalone):
            broker.stop()

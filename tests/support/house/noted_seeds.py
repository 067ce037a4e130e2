"""Seeds that catch planted defects: the cheapest that was found of each, tried before others are.

Which seeds catch a defect changes with every change of what is simulated, and looking for one takes up to a minute of
CPU time. ``python -m tools.noted_seeds`` looks, and writes ``tests/noted_seeds.json``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Final

from support.house.source_tree import ROOT

NOTED: Final = ROOT / "tests" / "noted_seeds.json"


@cache
def noted_seeds() -> Mapping[str, Mapping[str, int]]:
    """By scenario and defect; empty where nobody looked yet."""
    if not NOTED.exists():
        return {}
    found: dict[str, dict[str, int]] = json.loads(NOTED.read_text(encoding="utf-8"))
    return found


def noted_seed(scenario: str, why: str) -> int | None:
    """The seed to try first; None: none is known."""
    return noted_seeds().get(scenario, {}).get(why)

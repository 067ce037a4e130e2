"""No constructor of the product takes a switch for a defect: tests plant lines of ``tools/mutants/packages``."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from support.house.source_tree import SourceModule, product_modules

#: Where a switch is left: its package is being taken apart.
_LEFT = "geminga.managed_ledger"


def switches(module: SourceModule) -> Iterator[str]:
    """Classes, parameters and fields that are called after defects, but for the simulator's disk, which is none."""
    for node in module.nodes:
        name = node.name if isinstance(node, ast.ClassDef) else node.arg if isinstance(node, ast.arg) else ""
        if name.lower().strip("_") in ("defect", "defects"):
            yield f"{module.name}:{node.lineno} {name}: plant it as a mutant, or in a faulty Disk"


def test_no_constructor_takes_a_switch_for_defects() -> None:
    found = [line for one in product_modules() if not one.name.startswith(_LEFT) for line in switches(one)]
    assert not found, "\n".join(found)


def test_a_switch_is_caught() -> None:
    text = "class Defects: ...\ndef __init__(self, *, defects=None): ..."
    assert len(list(switches(SourceModule("geminga.bookie.x", text)))) == 2
    assert not list(switches(SourceModule("geminga.bookie.x", "def disk(faults): ...")))

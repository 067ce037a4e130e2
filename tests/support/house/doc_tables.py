"""What tables of the documentation say of tests, held against the tests."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path


def is_long(path: Path, test: str) -> bool | None:
    """Whether a test runs in ``make test-long`` alone; None: it is not there. Of its cases some may be long."""
    return _functions(path).get(test)


@cache
def _functions(path: Path) -> dict[str, bool]:
    """Those of a test file, and whether they are long; the tables name most files several times."""
    return {
        node.name: any(ast.unparse(decorator) == "pytest.mark.long" for decorator in node.decorator_list)
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
    }

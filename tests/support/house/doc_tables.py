"""What tables of the documentation say of tests, held against the tests."""

from __future__ import annotations

import ast
from pathlib import Path


def is_long(path: Path, test: str) -> bool | None:
    """Whether a test runs in ``make test-long`` alone; None: it is not there. Of its cases some may be long."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name == test:
            return any(ast.unparse(decorator) == "pytest.mark.long" for decorator in node.decorator_list)
    return None

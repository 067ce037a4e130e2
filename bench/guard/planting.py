"""A slowdown put into a copied tree on purpose: a loop that does nothing at the head of one function."""

from __future__ import annotations

import ast

from bench.servers import BenchError


def planted(source: str, function: str, turns: int) -> str:
    """``source`` of a module whose ``function`` (``name`` or ``Class.name``) first goes round ``turns`` times.

    Raises BenchError if there is none.
    """
    body: list[ast.stmt] = ast.parse(source).body
    found: ast.stmt | None = None
    for name in function.split("."):
        found = next((one for one in body if getattr(one, "name", None) == name), None)
        if not isinstance(found, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            raise BenchError(f"nothing can be planted: there is no {function}")
        body = found.body
    first = body[1] if _is_docstring(body[0]) and len(body) > 1 else body[0]
    lines = source.splitlines(keepends=True)
    # Not range(): its ints over 256 are made anew, so that turns would not all cost the same.
    lines.insert(first.lineno - 1, f"{' ' * first.col_offset}for _planted in [None] * {turns}: pass\n")
    return "".join(lines)


def turns_for(share: float, clean: float, probed: float, probe_turns: int) -> int:
    """Turns that make a row dearer by ``share``, from its cost without and with ``probe_turns``.

    Raises BenchError if the row does not run through what was planted.
    """
    each = (probed - clean) / probe_turns
    if each <= 0:
        raise BenchError("nothing can be planted: the row does not run through the function")
    return max(1, round(clean * share / each))


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)

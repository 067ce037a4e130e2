"""Futures that several may wait for are waited for behind a shield: who is cut off would end them for all others.

``await future`` passes the cancellation of who waits on to it: the others are told that they were cancelled, and
whoever sets the result finds it done. Those below have one that waits.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from support.house.used_names import product_trees

#: Module and attribute -> why nobody else waits.
ALONE = {
    ("broker/filters/pool.py", "_all_gone"): "made by the only close",
    ("broker/websocket/sessions.py", "_wake"): "of the session's own task",
    ("client/_producing/registration.py", "_access"): "of the producer's own task",
    ("client/_producing/room_line.py", "call"): "of who stands there",
    ("metadata/snapshot.py", "opened"): "of who made the snapshot",
    ("metadata/socket/link.py", "_said"): "of who makes the link",
    ("metadata/socket/store.py", "_first"): "of who opens the store",
    ("metadata/zookeeper/store.py", "_first"): "of who opens the store",
    ("bookkeeper/remote/start_tls.py", "answered"): "of who connects",
    ("runtime/disk_threads.py", "closing"): "of who closes the file, which is forgotten before",
}


def _attributes(target: ast.expr) -> Iterator[str]:
    for node in ast.walk(target):
        if isinstance(node, ast.Attribute):
            yield node.attr


def _is_future(node: ast.expr | None) -> bool:
    return node is not None and any(
        isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "create_future"
        for call in ast.walk(node)
    )


def _names_futures(annotation: ast.expr) -> bool:
    """Whether it has a ``Future[...]``, also as the text of one that is quoted."""
    for node in ast.walk(annotation):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "Future[" in node.value:
            return True
        if isinstance(node, ast.Subscript):
            value = node.value
            name = value.attr if isinstance(value, ast.Attribute) else value.id if isinstance(value, ast.Name) else ""
            if name.endswith("Future"):
                return True
    return False


def waits(trees: Iterable[tuple[str, ast.Module]]) -> set[tuple[str, str]]:
    """Modules and attributes that hold futures, or futures by key, which are awaited as they are."""
    found = set()
    for module, tree in trees:
        futures: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.AnnAssign) and (_is_future(node.value) or _names_futures(node.annotation)):
                futures.update(_attributes(node.target))
            elif isinstance(node, ast.Assign) and _is_future(node.value):
                for target in node.targets:
                    futures.update(_attributes(target))
        for function in ast.walk(tree):
            if not isinstance(function, ast.AsyncFunctionDef):
                continue
            names = dict(_taken(function, futures))
            for node in ast.walk(function):
                if isinstance(node, ast.Await):
                    held = (
                        names.get(node.value.id, "") if isinstance(node.value, ast.Name) else _held(node.value, futures)
                    )
                    if held:
                        found.add((module, held))
    return found


def _held(value: ast.expr, futures: set[str]) -> str:
    """The attribute whose future, or one of whose futures, an expression is; empty: none."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "get":
        value = value.func.value
    if isinstance(value, ast.Subscript):
        value = value.value
    return value.attr if isinstance(value, ast.Attribute) and value.attr in futures else ""


def _taken(function: ast.AsyncFunctionDef, futures: set[str]) -> Iterator[tuple[str, str]]:
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.NamedExpr) and (held := _held(node.value, futures)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from ((target.id, held) for target in targets if isinstance(target, ast.Name))


def test_a_future_that_is_awaited_as_it_is_has_one_that_waits() -> None:
    found = waits(product_trees().items())
    assert found - set(ALONE) == set(), "several may wait: await asyncio.shield(...), or say above why nobody else does"
    assert set(ALONE) - found == set(), "nothing of it is awaited any more"


def test_the_rule_sees_futures_and_futures_by_key() -> None:
    tree = ast.parse(
        """
class C:
    def __init__(self):
        self._one: asyncio.Future[None] | None = None
        self._by_key: dict[str, asyncio.Future[None]] = {}
        self._other = 1

    async def wait(self, loop):
        self._made = loop.create_future()
        await self._one
        await self._by_key["a"]
        await self._made
        await self._other
        await asyncio.shield(self._shielded)

    async def taken(self, key):
        if (found := self._named.get(key)) is not None:
            await found

    async def make(self, loop, key):
        made = self._named[key] = loop.create_future()
        made.set_result(None)
"""
    )
    assert waits([("m", tree)]) == {("m", "_one"), ("m", "_by_key"), ("m", "_made"), ("m", "_named")}

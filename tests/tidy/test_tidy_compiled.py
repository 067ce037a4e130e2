"""Modules that are compiled keep to what mypyc can do; each rule refuses what once broke it."""

from __future__ import annotations

import ast

import pytest

from support.house.compilable import compiled_modules, faults
from support.house.source_tree import nodes_of, product_modules


def _nodes(text: str) -> tuple[ast.AST, ...]:
    return nodes_of(ast.parse(text))


def test_listed_modules_are_there_in_order_and_keep_the_rules() -> None:
    listed = compiled_modules()
    nodes = {module.name: module.nodes for module in product_modules()}
    assert listed == sorted(set(listed))
    assert set(listed) <= nodes.keys()
    assert faults(nodes, set(listed)) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("async def f():\n    try:\n        pass\n    except OSError:\n        raise", "a:5: raise in async def"),
        ("b''.decode(errors='replace')", "a:1: decode(errors=...)"),
        ("class A:\n    def f(self): ...\n    g = f", "a:3: a second name for the method f"),
        ("class A(NamedTuple):\n    a: int\n    b: memoryview | None", "a:3: a memoryview in a NamedTuple"),
        ("class A(Enum):\n    def __init__(self, text): ...", "a:2: an enum whose members"),
        ("from b import B\nclass A(B): ...", "a.A is compiled and extends B, which has slots"),
    ],
)
def test_each_rule_refuses_what_broke_it(text: str, told: str) -> None:
    nodes = {"a": _nodes(text), "b": _nodes("class B:\n    __slots__ = ('x',)")}
    (fault,) = faults(nodes, {"a"})
    assert fault.startswith(told)


def test_a_class_that_extends_a_compiled_one_must_be_compiled() -> None:
    nodes = {"a": _nodes("class A: ..."), "b": _nodes("from a import A\nclass B(A): ...")}
    assert faults(nodes, {"a"}) == ["b.B extends A, which is compiled: it must be compiled too"]
    assert faults(nodes, {"a", "b"}) == []
    assert faults({"a": _nodes("class A(Protocol): ..."), "b": nodes["b"]}, {"a"}) == []


def test_what_is_no_fault_is_none() -> None:
    text = """
async def f():
    try:
        pass
    except OSError as error:
        def g():
            raise
        raise error
def h():
    try:
        pass
    except OSError:
        raise
b"".decode("utf-8", "replace")
class A(B):
    def f(self): ...
    C = 1
class D(B):
    b: memoryview
    def __init__(self): ...
"""
    assert faults({"a": _nodes(text), "b": _nodes("class B:\n    __slots__ = ()")}, {"a"}) == []

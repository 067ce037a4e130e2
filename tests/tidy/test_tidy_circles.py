"""How many modules know each other by type: no circle is larger than its budget, and budgets only shrink."""

from __future__ import annotations

import pytest

from support.house.module_circles import (
    BUDGETS,
    CIRCLE_GOAL,
    circle_violations,
    circles,
    module_graph,
    package_of,
    shortest_cycle,
)
from support.house.source_tree import SourceModule, product_modules


def test_no_circle_is_larger_than_its_budget_and_no_budget_larger_than_its_circle() -> None:
    found = circle_violations(module_graph(product_modules()), BUDGETS)
    assert not found, "\n".join(found)


def ring(*names: str) -> dict[str, frozenset[str]]:
    return {name: frozenset({names[at - 1]}) for at, name in enumerate(names)}


def planted(count: int) -> dict[str, frozenset[str]]:
    return ring(*(f"geminga.broker.topic.m{at}" for at in range(count)))


@pytest.mark.parametrize(
    "text",
    [
        "from geminga.broker.b import B",
        "import geminga.broker.b",
        "from .b import B",
        "from . import b",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from geminga.broker.b import B",
        "def f() -> None:\n    from geminga.broker.b import B\n    B()",
        "class A:\n    def f(self) -> None:\n        import geminga.broker.b as b\n        b.f()",
    ],
)
def test_an_import_counts_wherever_it_stands(text: str) -> None:
    modules = [
        SourceModule("geminga.broker", "", is_package_init=True),
        SourceModule("geminga.broker.a", text),
        SourceModule("geminga.broker.b", "from geminga.broker.a import A"),
    ]
    assert circles(module_graph(modules)) == [{"geminga.broker.a", "geminga.broker.b"}]


def test_an_import_counts_as_the_module_that_it_names() -> None:
    modules = [
        SourceModule("geminga.broker", "from geminga.broker.a import A\n__all__ = ['A']", is_package_init=True),
        SourceModule("geminga.broker.a", "from geminga.broker import b"),
        SourceModule("geminga.broker.b", "from geminga.broker import A, c"),
        SourceModule("geminga.broker.c", ""),
    ]
    graph = module_graph(modules)
    assert graph["geminga.broker.a"] == {"geminga.broker.b"}  # a module of the package, not the package
    assert graph["geminga.broker.b"] == {"geminga.broker", "geminga.broker.c"}  # a name that the package hands on
    assert circles(graph) == [{"geminga.broker", "geminga.broker.a", "geminga.broker.b"}]


def test_a_circle_over_its_budget_is_told_with_its_modules_and_a_shortest_cycle() -> None:
    graph = planted(6)
    graph["geminga.broker.topic.m2"] |= {"geminga.broker.topic.m3"}
    (line,) = circle_violations(graph, {"geminga.broker": 5})
    assert "6 modules know each other by type in geminga.broker.topic, 5 may" in line
    assert all(name in line for name in graph)
    assert line.endswith("geminga.broker.topic.m2 -> geminga.broker.topic.m3 -> geminga.broker.topic.m2")


def test_without_a_budget_the_goal_holds() -> None:
    assert circle_violations(planted(CIRCLE_GOAL), {}) == []
    assert circle_violations(planted(CIRCLE_GOAL + 1), {}) != []
    assert circle_violations(planted(CIRCLE_GOAL + 1), {"geminga.broker.rest": 9, "geminga.brok": 9})[0].startswith(
        "5 modules"
    )


def test_a_budget_that_its_circle_does_not_need_is_told() -> None:
    assert circle_violations(planted(6), {"geminga.broker": 6}) == []
    assert '"geminga.broker": 6,' in circle_violations(planted(6), {"geminga.broker": 7})[0]
    assert "take its line" in circle_violations(planted(CIRCLE_GOAL), {"geminga.broker": 7})[0]
    # The innermost budget answers.
    budgets = {"geminga.broker": 6, "geminga.broker.topic": 6}
    assert circle_violations(planted(6), budgets) == [
        "geminga.broker: its largest circle has 0 modules; take its line from BUDGETS"
    ]


def test_two_circles_of_a_package_are_two() -> None:
    graph = {**planted(5), **ring("geminga.broker.rest.a", "geminga.broker.rest.b")}
    graph["geminga.broker.rest.a"] |= {"geminga.broker.topic.m0"}  # one way only
    assert [len(circle) for circle in circles(graph)] == [5, 2]


def test_the_package_and_the_shortest_cycle_of_a_circle() -> None:
    assert package_of({"geminga.broker.a", "geminga.broker.rest.a"}) == "geminga.broker"
    assert package_of({"geminga.broker", "geminga.broker.a"}) == "geminga.broker"
    graph = ring("a", "b", "c")
    assert shortest_cycle(graph, graph) == ["a", "c", "b", "a"]
    graph["a"] |= {"b"}
    assert shortest_cycle(graph, graph) == ["a", "b", "a"]

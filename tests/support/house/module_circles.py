"""Circles of modules that know each other by type: the budgets, and how they are counted.

An import counts wherever it stands, also inside a function and under ``TYPE_CHECKING``: who needs the other's class to
be read needs the other. Each import counts as the one module that it names (``from a import b`` is ``a.b`` where that
is a module, else ``a``, a package's ``__init__`` among them). A circle is a strongly connected component: everything in
it can only be understood together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import takewhile

from support.house.source_tree import SourceModule, imports_of

#: No circle may be larger, except those below a package that has a budget.
CIRCLE_GOAL = 4

#: Package -> the size of the largest circle within it that no package below it answers for. A budget only shrinks: it
#: is lowered together with its circle, and its line goes once the circle has reached the goal.
BUDGETS: Mapping[str, int] = {}

Graph = Mapping[str, frozenset[str]]


def module_graph(modules: Iterable[SourceModule]) -> dict[str, frozenset[str]]:
    """Module -> the modules among these that it imports anywhere."""
    modules = list(modules)
    known = frozenset(module.name for module in modules)
    return {
        module.name: frozenset(one.target for one in imports_of(module, known)) & known - {module.name}
        for module in modules
    }


def circles(graph: Graph) -> list[frozenset[str]]:
    """The strongly connected components of more than one module, largest first."""
    finished: list[str] = []
    seen: set[str] = set()
    for start in sorted(graph):
        if start in seen:
            continue
        seen.add(start)
        path = [(start, iter(sorted(graph[start])))]
        while path:
            name, targets = path[-1]
            unseen = next((target for target in targets if target not in seen), None)
            if unseen is None:
                finished.append(name)
                path.pop()
            else:
                seen.add(unseen)
                path.append((unseen, iter(sorted(graph[unseen]))))
    importers: dict[str, set[str]] = {name: set() for name in graph}
    for name, targets_of in graph.items():
        for target in targets_of:
            importers[target].add(name)
    found = []
    placed: set[str] = set()
    for start in reversed(finished):
        component = set()
        waiting = [start]
        while waiting:
            name = waiting.pop()
            if name not in placed:
                placed.add(name)
                component.add(name)
                waiting += importers[name]
        if len(component) > 1:
            found.append(frozenset(component))
    return sorted(found, key=lambda circle: (-len(circle), min(circle)))


def shortest_cycle(circle: Iterable[str], graph: Graph) -> list[str]:
    """The fewest modules of the circle that import each other in a ring; the first one is named again at the end."""
    inside = frozenset(circle)
    best: list[str] = []
    for start in sorted(inside):
        came_from: dict[str, str] = {}
        waiting = deque([start])
        while waiting and start not in came_from:
            name = waiting.popleft()
            for target in sorted(graph[name] & inside):
                if target not in came_from:
                    came_from[target] = name
                    waiting.append(target)
        ring = [start]
        while ring[-1] != start or len(ring) == 1:
            ring.append(came_from[ring[-1]])
        if not best or len(ring) < len(best):
            best = ring[::-1]
    return best


def package_of(circle: Iterable[str]) -> str:
    """The innermost package that holds all modules of the circle."""
    # A package's own ``__init__`` lies in it.
    names = [name.split(".") for name in sorted(circle)]
    shared = takewhile(lambda parts: len(set(parts)) == 1, zip(*names, strict=False))
    return ".".join(parts[0] for parts in shared)


def _answers_for(circle: Iterable[str], budgets: Mapping[str, int]) -> str | None:
    """The innermost package with a budget that holds the circle."""
    inside = package_of(circle) + "."
    return max((package for package in budgets if inside.startswith(package + ".")), key=len, default=None)


def circle_violations(graph: Graph, budgets: Mapping[str, int]) -> list[str]:
    """Circles over their budget (or the goal), and budgets that are not what their circle needs."""
    found = []
    needed = dict.fromkeys(budgets, 0)
    for circle in circles(graph):
        package = _answers_for(circle, budgets)
        limit = CIRCLE_GOAL if package is None else budgets[package]
        if package is not None:
            needed[package] = max(needed[package], len(circle))
        if len(circle) > limit:
            found.append(
                f"{len(circle)} modules know each other by type in {package_of(circle)}, {limit} may: "
                f"{' '.join(sorted(circle))}\n    shortest: {' -> '.join(shortest_cycle(circle, graph))}"
            )
    for package, size in needed.items():
        if size <= CIRCLE_GOAL:
            found.append(f"{package}: its largest circle has {size} modules; take its line from BUDGETS")
        elif size < budgets[package]:
            found.append(
                f'the largest circle of {package} became smaller; its line in BUDGETS is now "{package}": {size},'
            )
    return found

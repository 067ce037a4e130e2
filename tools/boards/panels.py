"""Panels of Grafana's boards, the queries in them, and the metrics those ask for. Pure.

How variables are filled in: ``$cluster`` and every other variable of a board is ``.*`` where it is matched by a pattern
and the cluster's name where it is compared; ``$__rate_interval``, ``$__interval`` and their like are
:data:`INTERVAL`. Windows that a query names itself stay.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

#: What Grafana works out from the width of a panel and how often Prometheus asks.
INTERVAL: Final = "20s"
_INTERVALS: Final = re.compile(r"\$\{?(?:__rate_interval|__interval|__range|interval)\}?")
_VARIABLE: Final = re.compile(r"\$\{?([A-Za-z_]\w*)(?::\w+)?\}?")
_TEXT: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_SELECTOR: Final = re.compile(r"\{[^}]*\}")
_WINDOW: Final = re.compile(r"\[[^\]]*\]")
_GROUPING: Final = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)")
_NAME: Final = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")
#: Words of the language that stand where names do, not followed by a parenthesis.
_WORDS: Final = frozenset(("bool", "offset", "and", "or", "unless", "by", "without", "on", "ignoring", "inf", "nan"))


class Panel(NamedTuple):
    """What shows something."""

    board: str
    title: str
    queries: tuple[str, ...]

    @property
    def metrics(self) -> frozenset[str]:
        """Names that its queries ask for."""
        return frozenset(name for query in self.queries for name in metric_names(query))


def panels_of(path: Path) -> list[Panel]:
    """Those of a board's file that have queries; ValueError where it is no board."""
    document = json.loads(path.read_text())
    if not isinstance(document, dict):
        raise ValueError(f"{path}: no board: an object with panels was expected")
    return [
        Panel(path.stem, str(each.get("title") or "").strip(), queries)
        for each in _all_panels(document)
        if (queries := tuple(target["expr"].strip() for target in each.get("targets") or () if target.get("expr")))
    ]


def boards_in(directory: Path, left_out: Iterable[str] = ()) -> list[Panel]:
    """Panels of all boards of a directory, but for those boards."""
    without = frozenset(left_out)
    return [panel for path in sorted(directory.glob("*.json")) if path.stem not in without for panel in panels_of(path)]


def filled(query: str, cluster: str) -> str:
    """The query with all variables filled in; see the module."""
    query = _INTERVALS.sub(INTERVAL, query)
    query = re.sub(r'([=!]~\s*)"([^"]*)"', lambda match: f'{match[1]}"{_VARIABLE.sub(".*", match[2])}"', query)
    return _VARIABLE.sub(cluster, query)


def metric_names(query: str) -> frozenset[str]:
    """Metrics that a query asks for."""
    bare = _GROUPING.sub(" ", _WINDOW.sub(" ", _SELECTOR.sub("{}", _TEXT.sub('""', query))))
    found = set()
    for match in _NAME.finditer(bare):
        name = match[0]
        before = bare[match.start() - 1 : match.start()]
        if name not in _WORDS and not bare[match.end() :].lstrip().startswith("(") and not before.isdigit():
            found.add(name)
    return frozenset(found)


def families(page: str) -> dict[str, str]:
    """Names on a page of metrics, those of sums, counts and buckets too: name to type."""
    types: dict[str, str] = {}
    found: dict[str, str] = {}
    for line in page.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            types[name] = kind
        elif line and not line.startswith("#"):
            name = re.split(r"[{ ]", line, maxsplit=1)[0]
            base = re.sub(r"_(sum|count|bucket)$", "", name)
            found[name] = types.get(name) or types.get(base, "untyped")
    return found


def _all_panels(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for panel in document.get("panels") or ():
        yield panel
        yield from _all_panels(panel)
    for row in document.get("rows") or ():
        yield from _all_panels(row)

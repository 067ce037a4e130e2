"""Generate the tables of ``docs/rest.md`` from the routes: what is built, and what answers 501.

``python tools/generate_rest_docs.py`` writes the page; ``--check`` writes nothing and fails if what is checked in
differs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from starlette.routing import Route

from geminga.broker.policies.core.rows import ROWS
from geminga.broker.rest.calls.core import unbuilt
from geminga.broker.rest.calls.routing import DOMAIN
from geminga.broker.rest.families import all_rows

PAGE = Path(__file__).resolve().parent.parent / "docs" / "rest.md"
#: What is generated stands between a line that begins so and the next line that is the end.
BEGIN = "<!-- generated: {name} -->"
END = "<!-- end -->"
#: In this order wherever methods are listed.
METHODS = ("GET", "PUT", "POST", "DELETE")


def tables() -> dict[str, list[str]]:
    """Name of a table -> its lines."""
    return {
        "unbuilt": ["| What is missing | Paths |", "|---|---|", *_unbuilt_rows()],
        "policies": [
            "| Policy | Broker | Namespace | Topic | What it says |",
            "|---|---|---|---|---|",
            *_policy_rows(),
        ],
        "built": ["| Path | Methods |", "|---|---|", *_built_rows(all_rows())],
    }


def _policy_rows() -> Iterable[str]:
    for row in ROWS:
        keys = "<br>".join(f"`{key}`" for key in row.keys) or "-"
        namespace = f"`{row.namespace.key}`" if row.namespace is not None else "-"
        topic = "<br>".join(f"`{name}`" for name in row.topic.avro) if row.topic is not None else "-"
        yield f"| {row.name} | {keys} | {namespace} | {topic} | {row.text} |"


def _unbuilt_rows() -> Iterable[str]:
    by_what: dict[str, list[str]] = {}
    for row in unbuilt.ROUTES:
        by_what.setdefault(row.what, []).append(f"{' '.join(_ordered(row.methods))} `{_shown(row.path)}`")
    for what, paths in by_what.items():
        yield f"| {what} | {'<br>'.join(paths)} |"


def _built_rows(routes: Iterable[Route]) -> Iterable[str]:
    by_path: dict[str, set[str]] = {}
    for route in routes:
        by_path.setdefault(_shown(route.path.replace(DOMAIN, "{domain}")), set()).update(route.methods or ())
    for path, methods in sorted(by_path.items()):
        yield f"| `{path}` | {' '.join(_ordered(methods - {'HEAD'}))} |"


def _shown(path: str) -> str:
    """Without the part that nearly all have, and without how a subscription is encoded."""
    return (
        path.removeprefix("/admin/v2/")
        .replace("form_subscription", "subscription")
        .replace("path_subscription", "subscription")
    )


def _ordered(methods: Iterable[str]) -> list[str]:
    return sorted(methods, key=METHODS.index)


def filled(page: str) -> str:
    """``page`` with every table as the routes give it now."""
    for name, lines in tables().items():
        begin = BEGIN.format(name=name)
        before, mark, rest = page.partition(begin + "\n")
        _, end, after = rest.partition(END)
        if not mark or not end:
            raise SystemExit(f"docs/rest.md has no place for the table {name!r}")
        page = "\n".join([before + begin, *lines, END]) + after
    return page


def main() -> int:
    """Run as a command; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only; exit code 1 if anything differs")
    present = PAGE.read_text(encoding="utf-8")
    fresh = filled(present)
    if parser.parse_args().check:
        if fresh != present:
            sys.stderr.write("out of date: docs/rest.md (make rest-docs)\n")
        return int(fresh != present)
    PAGE.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

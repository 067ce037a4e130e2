"""``python -m tools.boards``: write our boards, compare names, or try boards on a cluster with a real Prometheus.

- ``write``: ``deploy/grafana/*.json`` from ``ours.py``.
- ``names DIRECTORY PAGE...``: metrics that the boards of a directory ask for and that none of these pages has.
- ``try [DIRECTORY]``: start a cluster and Prometheus (Debian's ``prometheus``), load it, evaluate each panel of our
  boards and of those in DIRECTORY (StreamNative's ``apache-pulsar-grafana-dashboard/dashboards.kubernetes``, fetched by
  whoever asks; they are not part of this repository). Ends with 1 where too few panels have data.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Final

from tools.boards.ours import BOARDS, text
from tools.boards.panels import Panel, boards_in, families
from tools.boards.verdict import ABSENT, EMPTY, MOVES, REASONS, RESTS, STILL, Judged, Reasons, own_lints, share

ROOT: Final = Path(__file__).resolve().parents[2]
OURS: Final = ROOT / "deploy/grafana"
RULES: Final = ROOT / "deploy/prometheus/geminga-alerts.yml"
#: Of boards of others.
WANTED: Final = 0.95
PORT: Final = 19090


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m tools.boards", description="Boards and alert rules.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("write", help="write deploy/grafana")
    names = commands.add_parser("names", help="metrics that boards ask for and pages do not have")
    names.add_argument("boards", type=Path)
    names.add_argument("pages", type=Path, nargs="+")
    tried = commands.add_parser("try", help="evaluate every panel on a cluster with Prometheus")
    tried.add_argument("boards", type=Path, nargs="?")
    tried.add_argument("--port", type=int, default=PORT, help="of Prometheus")
    tried.add_argument("--keep", type=Path, help="write pages of metrics and verdicts there")
    arguments = parser.parse_args()
    if arguments.command == "write":
        OURS.mkdir(parents=True, exist_ok=True)
        for board in BOARDS:
            (OURS / f"{board.file}.json").write_text(text(board))
        return 0
    if arguments.command == "names":
        print("\n".join(missing(_others(arguments.boards), [path.read_text() for path in arguments.pages])))
        return 0
    return _try(arguments.boards, arguments.port, arguments.keep)


def missing(panels: list[Panel], pages: list[str]) -> list[str]:
    """Metrics of these panels that none of the pages has, each with the boards that ask."""
    there = {name for page in pages for name in families(page)}
    wanted: dict[str, set[str]] = {}
    for panel in panels:
        for name in panel.metrics - there - {"up"}:
            wanted.setdefault(name, set()).add(panel.board)
    return [f"{name}: {', '.join(sorted(boards))}" for name, boards in sorted(wanted.items())]


def _others(directory: Path) -> list[Panel]:
    return boards_in(directory, tomllib.loads(REASONS.read_text())["boards"])


def _try(directory: Path | None, port: int, keep: Path | None) -> int:
    from tools.boards.trial import loaded, looked_at, summary, watched

    if shutil.which("promtool") is None:
        print("no promtool here: install Prometheus (Debian's package prometheus)", file=sys.stderr)
        return 2
    subprocess.run(["promtool", "check", "rules", str(RULES)], check=True)
    reasons = Reasons.read()
    with (
        tempfile.TemporaryDirectory(prefix="geminga-boards-") as place,
        watched(Path(place), port, RULES) as (prometheus, clusters),
    ):
        seen = loaded(clusters)
        ours = looked_at(prometheus, boards_in(OURS), seen, reasons)
        others = [] if directory is None else looked_at(prometheus, _others(directory), seen, reasons)
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        for name, page in seen.pages.items():
            (keep / f"{name}.txt").write_text(page)
        (keep / "verdicts.json").write_text(summary([*ours, *others]))
    is_enough = _told("ours", ours, 1.0) and _lint(seen.pages)
    if others:
        is_enough = _told("others", others, WANTED) and is_enough
    return 0 if is_enough else 1


def _lint(pages: dict[str, str]) -> bool:
    found = []
    for name, page in pages.items():
        checked = subprocess.run(
            ["promtool", "check", "metrics"], input=page, capture_output=True, text=True, check=False
        )
        found += [f"{name}: {line}" for line in own_lints(checked.stdout + checked.stderr)]
    print("\n".join(found) or f"promtool check metrics: {len(pages)} pages, nothing but names of Pulsar's")
    return not found


def _told(whose: str, found: list[Judged], wanted: float) -> bool:
    for verdict in (EMPTY, STILL, RESTS, ABSENT):
        for each in found:
            if each.verdict == verdict:
                print(f"{verdict}: {each.panel.board}: {each.panel.title}{': ' if each.why else ''}{each.why}")
    counts = {
        verdict: sum(each.verdict == verdict for each in found) for verdict in (MOVES, RESTS, STILL, EMPTY, ABSENT)
    }
    good, exist = share(found)
    print(f"{whose}: {good} of {exist} panels whose subject exists ({good / exist:.3f}, wanted {wanted}); {counts}")
    return good >= wanted * exist


if __name__ == "__main__":
    sys.exit(main())

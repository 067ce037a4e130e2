"""``python -m tools.balance takeover`` and ``shedding``: brokers as processes under official clients; a table.

Exit code 1 if what was promised of it did not hold.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from tools.balance import shedding, takeover


def main() -> int:
    """Read the options, run, print."""
    parser = argparse.ArgumentParser(prog="python -m tools.balance", description=__doc__)
    parser.add_argument("--keep", metavar="DIR", help="keep data and logs there")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON line")
    kinds = parser.add_subparsers(dest="kind", required=True)
    killed = kinds.add_parser("takeover", help="a broker is killed: how soon its topics answer again")
    killed.add_argument("--topics", type=int, default=500, help="of the cluster (500)")
    killed.add_argument("--used", type=int, help="of them with a producer and a consumer (all)")
    killed.add_argument("--session-ms", type=int, default=4000, help="of ZooKeeper (4000)")
    killed.add_argument("--within-s", type=float, default=120.0, help="give up after so long (120)")
    shed = kinds.add_parser("shedding", help="64 bundles on one broker, two join: how evenly they share the load")
    shed.add_argument("--seed", type=int, default=1, help="of the load (1)")
    shed.add_argument("--pattern", default="one to ten", choices=tuple(shedding.PATTERNS), help="of it (one to ten)")
    shed.add_argument("--rounds", type=int, default=10, help="of shedding, a minute each (10)")
    options = parser.parse_args()
    directory = Path(options.keep or tempfile.mkdtemp(prefix="geminga-balance-"))
    directory.mkdir(parents=True, exist_ok=True)
    found, is_kept = (_takeover if options.kind == "takeover" else _shedding)(options, directory)
    if options.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:18} {value}")
    if is_kept and not options.keep:
        shutil.rmtree(directory, ignore_errors=True)
    if not is_kept:
        print(f"NOT KEPT; logs in {directory}", file=sys.stderr)
    return 0 if is_kept else 1


def _takeover(options: argparse.Namespace, directory: Path) -> tuple[dict[str, Any], bool]:
    used = options.topics if options.used is None else min(options.used, options.topics)
    found = takeover.run(
        directory,
        topics=options.topics,
        used=used,
        session_ms=options.session_ms,
        within_s=options.within_s,
    )
    return found, bool(found["isWhole"]) and found["p99S"] <= options.session_ms / 1000 + 2


def _shedding(options: argparse.Namespace, directory: Path) -> tuple[dict[str, Any], bool]:
    found = shedding.run(
        directory,
        seed=options.seed,
        pattern=options.pattern,
        rounds=options.rounds,
        say=lambda line: print(line, file=sys.stderr, flush=True),
    )
    return found, bool(found["evenFromRound"]) and found["reconnectionsPerMove"] <= 1


if __name__ == "__main__":
    sys.exit(main())

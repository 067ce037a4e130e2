"""Two commits in one run: ``python -m bench.compare --base COMMIT [case ...]``.

For each case a turn is base, this tree, base again, on the same disk and with the same generator; what is compared is
the product under ``src``. Printed are the median over the turns of this tree to base, and beside it the same of base to
itself with its spread: what a difference must exceed to be one. ``NO`` marks a case whose median is worse than
``--worse`` and lies outside that spread. The exit code is 1 then.
"""

from __future__ import annotations

import argparse
import compileall
import dataclasses
import io
import json
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from tools.standalone_process import ROOT

from bench import client, measure
from bench.measure import DURABLE, TOPIC
from bench.servers import Bench, BenchError

#: A tree under test; figures are better when they are higher.
Run = Callable[[Bench], float]

CLIENT_MESSAGES = 200_000
#: Starts whose median is one figure: a single one says little.
STARTS = 3


def publish(size: int, connections: int) -> Run:
    """Durable receipts a second."""

    def run(bench: Bench) -> float:
        with bench.product() as broker:
            return measure.publish_once(bench, broker.broker_port, size, connections)

    return run


def dispatch(acks: str, size: int = 100, count: int = 200_000) -> Run:
    """Messages a second of a catch-up after a restart."""

    def run(bench: Bench) -> float:
        with bench.product() as broker:
            topic = f"{TOPIC}-dispatch"
            measure.fill(bench, broker, topic, size, count)
            broker.stop()
            broker.start()
            return float(measure.consume(broker, topic, count, acks)["rate"])

    return run


def start(*, is_fresh: bool) -> Run:
    """Starts a second, from exec to the first durable receipt."""

    def run(bench: Bench) -> float:
        seconds = []
        for _ in range(STARTS):
            with bench.product() as broker:
                if not is_fresh:
                    measure.first_receipt(broker)
                    broker.stop()
                    broker.start()
                seconds.append(measure.first_receipt(broker))
        return 1 / statistics.median(seconds)

    return run


def client_sends(mode: str, count: int) -> Run:
    """Messages a second of our client, durable."""

    def run(bench: Bench) -> float:
        with bench.product() as broker:
            options = {"topic": TOPIC, "size": 100, "count": count, "warmup": count // 10, "loop": bench.loop}
            return float(client.run_client(broker, "ours", mode, source=bench.source, **options)["rate"])

    return run


def client_receives(mode: str) -> Run:
    """Messages a second of our client."""

    def run(bench: Bench) -> float:
        with bench.product() as broker:
            options: dict[str, Any] = {"topic": TOPIC, "size": 100, "count": CLIENT_MESSAGES, "loop": bench.loop}
            client.run_client(broker, "ours", "fill", source=bench.source, **options)
            options |= {"subscription": "compare", "prefetch": client.PREFETCH}
            return float(client.run_client(broker, "ours", mode, source=bench.source, **options)["rate"])

    return run


CASES: dict[str, Run] = {
    "publish 100 B, 1 connection": publish(100, 1),
    "publish 100 B, 16 connections": publish(100, 16),
    "publish 1 KiB, 100 connections": publish(1024, 100),
    "dispatch, cumulative": dispatch("cumulative"),
    "dispatch, individual": dispatch("individual"),
    "client send_nowait": client_sends("send_nowait", 600_000),
    "client send": client_sends("send", 150_000),
    "client receive": client_receives("receive"),
    "client batch_receive": client_receives("batch_receive"),
    "client async for": client_receives("async_for"),
    "start, fresh directory": start(is_fresh=True),
    "start, existing directory": start(is_fresh=False),
}


@dataclasses.dataclass
class Turns:
    """Figures of one case, one of each list a turn."""

    base: list[float] = dataclasses.field(default_factory=list)
    tree: list[float] = dataclasses.field(default_factory=list)
    again: list[float] = dataclasses.field(default_factory=list)

    def verdict(self, worse: float) -> dict[str, Any]:
        """The row of the table; ``worse``: the share below which a median counts as worse."""
        # Both neighbours: what else the machine does changes from moment to moment.
        ratios = [t / ((b + a) / 2) for b, t, a in zip(self.base, self.tree, self.again, strict=True)]
        itself = [a / b for b, a in zip(self.base, self.again, strict=True)]
        spread = [min(*itself, *(1 / ratio for ratio in itself)), max(*itself, *(1 / ratio for ratio in itself))]
        ratio = statistics.median(ratios)
        return {
            "base /s": statistics.median(self.base + self.again),
            "this /s": statistics.median(self.tree),
            "this to base": ratio,
            "turns": " ".join(f"{ratio:.2f}" for ratio in ratios),
            "base to itself": statistics.median(itself),
            "its spread": f"{spread[0]:.2f} to {spread[1]:.2f}",
            "ok": "NO" if ratio < 1 - worse and ratio < spread[0] else "yes",
        }


def unpack(commit: str, directory: Path, *besides: str) -> Path:
    """The source of a commit, and paths ``besides``; raises BenchError."""
    made = subprocess.run(["git", "archive", commit, "src", *besides], cwd=ROOT, capture_output=True, check=False)
    if made.returncode:
        raise BenchError(f"git archive {commit}: {made.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as archive:
        archive.extractall(directory, filter="data")
    return directory / "src"


def main() -> int:
    """Compare; 1 if something got worse or could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__)
    parser.add_argument("--base", required=True, help="the commit to compare with")
    parser.add_argument("--pairs", type=int, default=7, help="turns of each case")
    parser.add_argument("--worse", type=float, default=0.03, help="the share below which a median counts as worse")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measured publish rate")
    parser.add_argument("--loop", choices=("asyncio", "uvloop"), default="uvloop")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("case", nargs="*", help=f"beginnings of names; default: all of {', '.join(CASES)}")
    options = parser.parse_args()
    names = [name for name in CASES if not options.case or name.startswith(tuple(options.case))]
    if not names:
        parser.error(f"no case begins with {options.case}; known: {', '.join(CASES)}")
    console = Console(stderr=options.json)
    console.width = max(console.width, 150)
    build = ROOT / "build"
    build.mkdir(exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="compare-", dir=build))
    turns = {name: Turns() for name in names}
    try:
        tree = Bench(scratch, options.seconds, 0.5, 1, options.loop, {})
        base = dataclasses.replace(tree, source=unpack(options.base, scratch / "base"))
        for bench in (tree, base):
            # Where Python may write none of it, each start would compile the whole product again.
            compileall.compile_dir(bench.source, quiet=1)
        with Progress(console=console) as progress:
            task = progress.add_task("turns", total=options.pairs * len(names))
            for _ in range(options.pairs):
                for name, found in turns.items():
                    progress.update(task, description=name)
                    found.base.append(CASES[name](base))
                    found.tree.append(CASES[name](tree))
                    found.again.append(CASES[name](base))
                    progress.advance(task)
    except BenchError as error:
        console.print(str(error), markup=False, style="red")
        return 1
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    rows = {name: found.verdict(options.worse) for name, found in turns.items()}
    table = Table(title=f"this tree to {options.base}, {options.pairs} turns", caption=f"durability: {DURABLE}")
    table.add_column("case")
    for column in next(iter(rows.values())):
        table.add_column(column, justify="right")
    for name, row in rows.items():
        cells = [f"{value:,.2f}" if isinstance(value, float) else str(value) for value in row.values()]
        table.add_row(name, *cells, style="red" if row["ok"] == "NO" else None)
    console.print(table)
    if options.json:
        print(json.dumps({"base": options.base, "pairs": options.pairs, "durability": DURABLE, "rows": rows}))
    return int(any(row["ok"] == "NO" for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())

"""What a start costs beside another commit, in turns: CPU and memory until ready, and until the first answer over HTTP.

Of this tree also the CPU of ``geminga --version``, of the help of each command, and of commands of ``geminga admin``
against a broker. Medians; nothing is judged by the clock on the wall, which is other programs' too.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import typer
from rich.console import Console
from rich.table import Table
from tools.standalone_process import ROOT, StandaloneProcess

from bench.guard.trees import Tree
from bench.servers import BenchError, environment

#: What is asked first; a load balancer or a test waits for its answer.
FIRST_PATHS: Final = ("/admin/v2/brokers/ready", "/admin/v2/brokers/health", "/admin/v2/clusters")
#: CPU seconds of a command, at most.
VERSION_CPU_S: Final = 0.10
COMMAND_CPU_S: Final = 0.25
#: Of a broker that has one topic. What is not there is refused, which costs no less.
ADMIN_COMMANDS: Final = (
    ("topics", "stats", "t"),
    ("topics", "stats-internal", "t"),
    ("transactions", "coordinators-list"),
    ("transactions", "coordinator-stats"),
    ("transactions", "slow-transactions", "-t", "1s"),
    ("transactions", "transaction-buffer-stats", "-t", "t"),
)
#: The same with TLS, and as somebody. Nobody listens there: who asks has all it needs by then.
_NOWHERE: Final = "127.0.0.1:1"
_BASIC: Final = ("--auth-plugin", "basic", "--auth-params", '{"userId": "u", "password": "p"}')
SECURED_COMMANDS: Final = (
    ("topics", "stats", "t", "--admin-url", f"https://{_NOWHERE}"),
    (
        "topics",
        "stats",
        "t",
        "--admin-url",
        f"https://{_NOWHERE}",
        "--auth-plugin",
        "token",
        "--auth-params",
        "token:t",
    ),
    ("topics", "stats", "t", "--admin-url", f"https://{_NOWHERE}", *_BASIC),
    ("topics", "stats", "t", "--admin-url", f"http://{_NOWHERE}", *_BASIC),
)
_MIB: Final = 1 << 20

Figures = dict[str, float]


def started_once(source: Path, scratch: Path, path: str) -> Figures:
    """CPU seconds and MiB of one standalone in a process of its own, from the import to the first answer."""
    directory = Path(tempfile.mkdtemp(prefix="start-", dir=scratch))
    broker = StandaloneProcess(directory / "data", log=directory / "log", environment=environment(source))
    try:
        broker.start()
        ready = {"ready CPU s": broker.cpu_seconds(), "ready MiB": broker.rss_bytes() / _MIB}
        broker.request("GET", path)
        return {**ready, "REST CPU s": broker.cpu_seconds(), "REST MiB": broker.rss_bytes() / _MIB}
    finally:
        broker.kill()
        shutil.rmtree(directory, ignore_errors=True)


def compared(base: Tree, tree: Tree, scratch: Path, turns: int) -> dict[str, tuple[Figures, Figures]]:
    """Medians of both, by the path that is asked first."""
    found: dict[str, tuple[Figures, Figures]] = {}
    for path in FIRST_PATHS:
        runs: tuple[list[Figures], list[Figures]] = ([], [])
        for turn in range(turns):
            # Who goes first alternates: what the machine does besides falls on both.
            for which in (0, 1) if turn % 2 else (1, 0):
                runs[which].append(started_once((base, tree)[which].source, scratch, path))
        found[path] = (_median(runs[0]), _median(runs[1]))
    return found


def _median(runs: Sequence[Figures]) -> Figures:
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def command_cpu(arguments: Sequence[str], turns: int) -> float:
    """CPU seconds of ``geminga`` with these arguments, whatever it answers; the median."""
    taken = []
    for _ in range(turns):
        with subprocess.Popen(
            [sys.executable, "-m", "geminga", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            _, _, usage = os.wait4(process.pid, 0)
            process.returncode = 0
        taken.append(usage.ru_utime + usage.ru_stime)
    return statistics.median(taken)


def helps() -> Iterator[list[str]]:
    """The help of each command and group."""
    from geminga.app.commands.cli import app_for

    def below(command: object, words: list[str]) -> Iterator[list[str]]:
        yield [*words, "--help"]
        for name, one in getattr(command, "commands", {}).items():
            yield from below(one, [*words, name])

    return below(typer.main.get_command(app_for([])), [])


def commands_over_limit(scratch: Path, turns: int) -> tuple[Figures, list[str]]:
    """CPU seconds of each command, and those that take more than they may."""
    taken = {"--version": command_cpu(["--version"], turns)}
    taken |= {" ".join(words): command_cpu(words, turns) for words in helps()}
    with StandaloneProcess(scratch / "cli-data", log=scratch / "cli-log") as broker:
        broker.request("PUT", "/admin/v2/persistent/public/default/t")
        for words in ADMIN_COMMANDS:
            asked = ["admin", *words, "--admin-url", broker.web_url]
            taken[" ".join(("admin", *words))] = command_cpu(asked, turns)
    taken |= {" ".join(("admin", *words)): command_cpu(("admin", *words), turns) for words in SECURED_COMMANDS}
    over = [name for name, cpu_s in taken.items() if cpu_s > (VERSION_CPU_S if name == "--version" else COMMAND_CPU_S)]
    return taken, over


def _table(found: dict[str, tuple[Figures, Figures]], base: str) -> Table:
    table = Table(title=f"a start of this tree to {base}, medians")
    for column in ("first asked", "figure", "base", "tree", "ratio"):
        table.add_column(column, justify="left" if column in ("first asked", "figure") else "right")
    for path, (old, new) in found.items():
        for name, value in new.items():
            ratio = value / old[name]
            style = "red" if ratio > 1 else None
            table.add_row(path, name, f"{old[name]:.3f}", f"{value:.3f}", f"{ratio:.3f}", style=style)
    return table


def main() -> int:
    """Compare; 1 if a figure is above the base's, or a command takes more than it may."""
    parser = argparse.ArgumentParser(prog="python -m bench.start_cost", description=__doc__)
    parser.add_argument("--base", required=True, help="the commit to compare with")
    parser.add_argument("--turns", type=int, default=9, help="starts of each tree for each path")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.turns < 1:
        parser.error("--turns is at least 1")
    console = Console(stderr=options.json)
    console.width = max(console.width, 120)
    (ROOT / "build").mkdir(exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="start-cost-", dir=ROOT / "build"))
    try:
        base, tree = Tree.of_commit(options.base, scratch / "base"), Tree.of_this(scratch / "tree")
        console.print("starts in turns ...", style="dim")
        found = compared(base, tree, scratch, options.turns)
        console.print("commands ...", style="dim")
        taken, over = commands_over_limit(scratch, min(options.turns, 3))
    except BenchError as error:
        console.print(str(error), markup=False, style="red")
        return 1
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    console.print(_table(found, options.base))
    slowest = sorted(taken, key=lambda name: -taken[name])[:5]
    console.print(
        f"--version {taken['--version']:.2f} s of CPU; dearest of {len(taken) - 1} helps and admin commands: "
        + ", ".join(f"{name} {taken[name]:.2f}" for name in slowest),
        markup=False,
        highlight=False,
    )
    if over:
        console.print(f"over {VERSION_CPU_S} (--version) or {COMMAND_CPU_S} s: {', '.join(over)}", style="red")
    worse = [f"{path}: {name}" for path, (old, new) in found.items() for name in new if new[name] > old[name]]
    if options.json:
        answer = {path: {"base": old, "tree": new} for path, (old, new) in found.items()}
        print(json.dumps({"starts": answer, "commands": taken, "worse": worse, "over": over}))
    return int(bool(worse or over))


if __name__ == "__main__":
    sys.exit(main())

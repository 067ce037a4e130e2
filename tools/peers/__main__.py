"""``make peers``: programs of our own on the public API of the Go and the Java client, against Geminga's broker.

Each program (``tests/peers/go``, ``tests/peers/java``) holds checks of what the client's documentation promises. This
starts the broker, runs the programs, stops and starts the broker when a check asks for it, and prints what came out.
``--apache`` runs the same programs against Apache Pulsar's own broker, to see what is expected of a broker and what is
the client's own. ``--mapped`` runs the broker where nothing but mapped ports can be reached, as in a container.
``--security`` asks for credentials and rights: ``token`` and ``tls`` with a role that administers its tenant,
``consume-only`` with one that may only consume: what wants more must then end with the authorization error.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from rich.console import Console
from rich.table import Table

from tools.free_ports import free_ports
from tools.interop.apache_standalone import ApacheStandalone
from tools.interop.artifacts import ToolError, java
from tools.mapped_ports import MappedStandalone, why_not_permitted
from tools.peers.security import KINDS, Security, prepare
from tools.standalone_process import StandaloneProcess

ROOT: Final = Path(__file__).resolve().parents[2]
PROGRAMS: Final = ROOT / "tests" / "peers"
BUILD: Final = ROOT / "build" / "peers"
#: Nothing of this may hang: a run of one program takes some six minutes on two cores.
RUN_LIMIT_S: Final = 1500.0
#: Letters of a problem that are shown.
PROBLEM_MAX: Final = 2_000
#: Go and Maven fetch what they need the first time.
BUILD_LIMIT_S: Final = 900.0
#: What the checks want besides the defaults.
SETTINGS: Final = {
    "delayedDeliveryTickTimeMillis": "100",
    "transactionCoordinatorEnabled": "true",
    "exposingBrokerEntryMetadataToClientEnabled": "true",
    "brokerEntryMetadataInterceptors": ",".join(
        f"org.apache.pulsar.common.intercept.Append{name}MetadataInterceptor" for name in ("Index", "BrokerTimestamp")
    ),
}


@dataclass(frozen=True)
class Verdict:
    """What came of one check; ``problem`` is empty when it passed."""

    check: str
    seconds: float
    problem: str


def build_go(part: str = "") -> list[str]:
    """The command that runs the Go program, or the one in a folder beside it; raises ToolError."""
    go = shutil.which("go")
    if go is None:
        raise ToolError("go: not here; install Go 1.25 or newer")
    program = BUILD / f"go-{part or 'peers'}"
    _build([go, "build", "-o", str(program), f"./{part}"], PROGRAMS / "go")
    return [str(program)]


def build_java() -> list[str]:
    """The command that runs the Java program; raises ToolError."""
    maven = shutil.which("mvn")
    if maven is None:
        raise ToolError("mvn: not here; Maven builds the Java program")
    classpath = BUILD / "java-classpath.txt"
    target = BUILD / "java"
    goals = ["compile", "dependency:build-classpath", f"-Dmdep.outputFile={classpath}", f"-DbuildDirectory={target}"]
    _build([maven, "-q", "-B", *goals], PROGRAMS / "java")
    path = os.pathsep.join([str(target / "classes"), classpath.read_text(encoding="utf-8").strip()])
    return [java(), "-Xmx1g", "-cp", path, "peers.Main"]


BUILDERS: Final = {"go": build_go, "java": build_java}


def _build(command: list[str], folder: Path) -> None:
    BUILD.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=BUILD_LIMIT_S)
    if done.returncode:
        raise ToolError(f"{folder.name} does not build:\n{(done.stdout + done.stderr)[-4000:]}")


def run(
    command: list[str], broker: StandaloneProcess, log: Path, console: Console, security: Security | None = None
) -> list[Verdict]:
    """Run a program to its end, do what it asks, and collect its verdicts."""
    url, web = security.urls(broker.service_url, broker.web_url) if security else (broker.service_url, broker.web_url)
    arguments = ["-url", url, "-web", web, "-log", str(log), *(security.arguments if security else [])]
    with log.with_suffix(".err").open("w", encoding="utf-8") as errors:
        program = subprocess.Popen(
            [*command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )
    assert program.stdin is not None
    assert program.stdout is not None
    watchdog = threading.Timer(RUN_LIMIT_S, program.kill)
    watchdog.start()
    verdicts = []
    try:
        for line in program.stdout:
            if line.startswith("!"):
                _obey(line[1:].strip(), broker, program.stdin)
                continue
            if not line.startswith("{"):
                continue
            found = json.loads(line)
            problem = found.get("problem", "")
            is_refused = security is not None and security.excuses(problem)
            verdict = Verdict(found["check"], found["ms"] / 1000, "" if is_refused else problem)
            verdicts.append(verdict)
            mark = "refused, as expected" if is_refused else "[red]FAILED[/red]" if verdict.problem else "passed"
            console.print(f"{mark} {verdict.seconds:6.1f} s  ", end="")
            console.print(verdict.check, markup=False, highlight=False)
            if problem:
                console.print("    " + problem[:PROBLEM_MAX], markup=False, highlight=False)
        code = program.wait(10.0)
        if code:
            verdicts.append(Verdict("the program's end", 0.0, f"exit code {code}; see {log.with_suffix('.err')}"))
    finally:
        watchdog.cancel()
        program.kill()
        program.wait()
    return verdicts


def _obey(wish: str, broker: StandaloneProcess, answers: IO[str]) -> None:
    match wish.split():
        case ["kill"]:
            broker.kill()
        case ["start", *settings]:
            broker.settings.update(setting.split("=", 1) for setting in settings)
            broker.start()
        case _:
            raise AssertionError(f"the program asked for {wish!r}: kill, and start (with key=value), are known")
    answers.write("done\n")
    answers.flush()


def report(console: Console, results: dict[str, tuple[list[Verdict], float]]) -> bool:
    """A line for each client; whether everything passed."""
    table = Table(title="Official clients, programs of our own")
    for column in ("client", "checks", "passed", "failed", "seconds"):
        table.add_column(column, justify="left" if column == "client" else "right")
    for name, (verdicts, seconds) in results.items():
        failed = sum(bool(v.problem) for v in verdicts)
        table.add_row(name, *map(str, (len(verdicts), len(verdicts) - failed, failed)), f"{seconds:.0f}")
    console.print(table)
    return all(verdicts and not any(v.problem for v in verdicts) for verdicts, _ in results.values())


def main() -> int:
    """Run; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.peers", description=__doc__)
    parser.add_argument("clients", nargs="*", default=[*BUILDERS], help=f"of {', '.join(BUILDERS)}; default: all")
    parser.add_argument("-k", default="", metavar="TEXT", help="the checks whose name contains this")
    parser.add_argument("--apache", action="store_true", help="against Apache Pulsar's own broker")
    parser.add_argument("--mapped", action="store_true", help="of the broker nothing but mapped ports can be reached")
    parser.add_argument("--security", choices=KINDS, help="credentials and rights of the clients; default: none")
    options = parser.parse_args()
    if options.security and (options.apache or options.mapped):
        parser.error("--security is of the plain run: neither --apache nor --mapped goes with it")
    console = Console(width=160)
    BUILD.mkdir(parents=True, exist_ok=True)
    results = {}
    try:
        commands = {name: [*BUILDERS[name](), "-k", options.k] for name in options.clients}
    except ToolError as error:
        console.print(str(error), markup=False)
        return 2
    if options.mapped and (reason := why_not_permitted()):
        console.print(reason, markup=False)
        return 2
    for name, command in commands.items():
        judge = "apache" if options.apache else "geminga"
        with tempfile.TemporaryDirectory(prefix="peers-", ignore_cleanup_errors=True) as data:
            log = BUILD / f"{name}-{judge}-broker.log"
            log.unlink(missing_ok=True)
            broker: StandaloneProcess
            security = prepare(options.security, Path(data), free_ports(2)) if options.security else None
            if options.apache:
                broker = ApacheStandalone(Path(data), log=log, settings=SETTINGS)
            elif options.mapped:
                # It tells its machine's name, and ports are mapped with their numbers: HTTP lookups know no others.
                settings = {**SETTINGS, "bindAddress": "0.0.0.0", "gemingaAllowOpen": "true"}
                broker = MappedStandalone(Path(data), log=log, settings=settings, ports=free_ports(2))
            else:
                settings = {**SETTINGS, **(security.settings if security else {})}
                broker = StandaloneProcess(Path(data) / "broker", log=log, settings=settings)
            broker.start(120.0)
            if security:
                security.provision(broker.web_url)
            started = time.monotonic()
            try:
                results[name] = (
                    run(command, broker, BUILD / f"{name}-{judge}-client.log", console, security),
                    time.monotonic() - started,
                )
                if security and (published := security.published(broker.web_url)):
                    results[name][0].append(Verdict("nothing is published", 0.0, published))
            finally:
                broker.kill()
                if isinstance(broker, MappedStandalone):
                    broker.mapping.close()
    return 0 if report(console, results) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Run the official Python client's own tests against a fresh standalone: ``make conformance CLIENT_TESTS=dir``.

``dir`` is the ``tests`` folder of a checkout of the client (tag v3.13.0; it stays outside this repository). The tests
use the fixed ports 6650 and 8080. Each test runs in a process of its own, one after the other, with a time limit.
Exit code 0: every test that is expected to pass did.
"""

from __future__ import annotations

import argparse
import ast
import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402
from tools.standalone_process import StandaloneProcess, StartError  # noqa: E402

from geminga.security.keys import secret_key  # noqa: E402
from geminga.security.token_rules import create_token  # noqa: E402

HERE = Path(__file__).resolve().parent
BROKER_PORT, WEB_PORT = 6650, 8080
REQUEST_LIMIT_S = 30.0
#: Whose token the suite reads, and who sets the broker up: a super-user of python.conf.
TOKEN_ROLE, SETS_UP = "token-principal", "superUser"
#: The file with the user whose password the suite knows.
PASSWORD_FILE = ".htpasswd"


#: What the official client prints when its logging threads outlive the interpreter: after the verdict, with every
#: connection closed, so it says nothing of the broker.
ABORTED_AT_EXIT = "terminate called without an active exception"


@dataclass(slots=True)
class Outcome:
    """How one test ended."""

    rung: str
    name: str
    expected: bool
    passed: bool
    seconds: float
    reason: str


def load_rungs() -> dict[str, dict[str, object]]:
    """Rung -> title, tests, and why it is not expected yet."""
    return tomllib.loads((HERE / "python_rungs.toml").read_text(encoding="utf-8"))


def find_tests(folder: Path) -> dict[str, str]:
    """``pulsar::seek`` -> ``pulsar_test.PulsarTest.test_seek`` for every test method in the folder."""
    found = {}
    for path in sorted(folder.glob("*_test.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            for item in node.body if isinstance(node, ast.ClassDef) else []:
                if isinstance(item, ast.FunctionDef) and item.name.startswith("test_"):
                    short = f"{path.stem.removesuffix('_test')}::{item.name.removeprefix('test_')}"
                    found[short] = f"{path.stem}.{node.name}.{item.name}"
    return found


def certificates(folder: Path) -> dict[str, str]:
    """Ports with TLS and the suite's own certificates, as variables of the broker's environment."""
    files = {
        "tlsCertificateFilePath": "broker-cert.pem",
        "tlsKeyFilePath": "broker-key.pem",
        "tlsTrustCertsFilePath": "cacert.pem",
    }
    found = {f"GEMINGA_{key}": str(folder / "test-conf" / name) for key, name in files.items()}
    return {**found, "GEMINGA_brokerServicePortTls": "6651", "GEMINGA_webServicePortTls": "8443"}


def credentials(folder: Path, secret: bytes) -> list[str]:
    """A token where the suite reads it; options of a broker that verifies it, and the suite's own user."""
    (folder / ".test-token.txt").write_text(token_of(TOKEN_ROLE, secret), encoding="utf-8")
    users = folder / "test-conf" / PASSWORD_FILE
    texts = [f"tokenSecretKey=data:;base64,{base64.b64encode(secret).decode()}", f"basicAuthConf={users}"]
    texts.append(f"brokerClientAuthenticationParameters=token:{token_of(SETS_UP, secret)}")
    return [word for text in texts for word in ("--set", text)]


def token_of(role: str, secret: bytes) -> str:
    """A token of that role that never expires."""
    return create_token(secret_key(secret), "HS256", {"sub": role}, {})


def provision(broker: StandaloneProcess, token: str) -> list[str]:
    """Tenants, namespaces and permissions as the suite expects them, by a super-user; what the broker would not do."""
    tenant_public = {"adminRoles": ["anonymous"], "allowedClusters": ["standalone"]}
    calls = [
        ("POST", "/admin/v2/tenants/public", tenant_public),
        ("PUT", "/admin/v2/namespaces/public/default-2", {"replication_clusters": ["standalone"]}),
        ("PUT", "/admin/v2/tenants/private", {"adminRoles": [], "allowedClusters": ["standalone"]}),
        ("PUT", "/admin/v2/namespaces/private/auth", {"replication_clusters": ["standalone"]}),
        ("POST", "/admin/v2/namespaces/public/default/permissions/anonymous", ["produce", "consume"]),
        ("POST", "/admin/v2/namespaces/public/default-2/permissions/anonymous", ["produce", "consume"]),
        ("POST", "/admin/v2/namespaces/private/auth/permissions/token-principal", ["produce", "consume"]),
    ]
    refused = []
    for method, path, body in calls:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        request = urllib.request.Request(broker.web_url + path, json.dumps(body).encode(), headers, method=method)
        try:
            urllib.request.urlopen(request, timeout=REQUEST_LIMIT_S).close()
        except urllib.error.HTTPError as error:
            refused.append(f"{method} {path}: {error.code} {error.read().decode(errors='replace')[:200]}")
    return refused


def run_test(target: str, folder: Path, limit_s: float) -> tuple[bool, float, str]:
    """(passed, seconds, reason) of one test in its own process."""
    started = time.perf_counter()
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "unittest", "-v", target],
            cwd=folder,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            env=environment,
            preexec_fn=_hear_interruptions,
        )
    except subprocess.TimeoutExpired as expired:
        output = (expired.stderr or b"") + (expired.stdout or b"")
        return False, limit_s, f"no end within {limit_s:.0f} s; {last_words(output.decode(errors='replace'))}"
    seconds = time.perf_counter() - started
    ran_one = "\nRan 1 test" in done.stderr and "skipped" not in done.stderr.rsplit("\nRan 1 test", 1)[-1]
    if done.returncode == 0 and ran_one:
        return True, seconds, ""
    if ran_one and "\nOK\n" in done.stderr and ABORTED_AT_EXIT in done.stderr.rsplit("\nOK\n", 1)[1]:
        return True, seconds, "passed; the client then aborted while its interpreter ended"
    return False, seconds, last_words(done.stderr + done.stdout) or f"exit code {done.returncode}"


def _hear_interruptions() -> None:
    """In the child: a run that a shell put into the background ignores SIGINT, and one test sends it to itself."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def last_words(output: str) -> str:
    """The line that tells why: the last exception, or the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    places = [line for line in lines if line.startswith("File ") and "_test.py" in line]
    errors = [line for line in lines if line.split(":")[0].endswith(("Error", "Exception")) or "_pulsar." in line[:12]]
    words = errors[-1] if errors else (lines[-1] if lines else "")
    place = places[-1].split(", ")[1] if places else ""
    return f"{words[:160]} ({place})" if place else words[:160]


def ports_in_use() -> list[int]:
    """Which of the suite's ports are taken."""
    taken = []
    for port in (BROKER_PORT, WEB_PORT):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                taken.append(port)
    return taken


def is_expected(rung: Mapping[str, object], name: str, brokers: int) -> bool:
    """Whether this test of a rung has to pass with so many brokers; those of ``one_broker`` only with one."""
    alone = rung.get("one_broker", [])
    assert isinstance(alone, list)
    return "later" not in rung and (brokers == 1 or name not in alone)


def report(console: Console, outcomes: list[Outcome], rungs: dict[str, dict[str, object]]) -> None:
    """The table by rung, then every failure with its reason."""
    table = Table(title="official Python client, its own tests")
    for column in ("rung", "what", "passed", "of", "expected"):
        table.add_column(column)
    for rung, about in rungs.items():
        mine = [o for o in outcomes if o.rung == rung]
        if mine:
            expected = "later" if "later" in about else "all"
            table.add_row(rung, str(about["title"]), str(sum(o.passed for o in mine)), str(len(mine)), expected)
    wanted = [o for o in outcomes if o.expected]
    table.add_row("", "expected", str(sum(o.passed for o in wanted)), str(len(wanted)), "", style="bold")
    console.print(table)
    for outcome in outcomes:
        if outcome.passed and outcome.reason:
            console.print(f"[yellow]note[/] {outcome.name}: {outcome.reason}")
        if not outcome.passed:
            mark = "[red]failed[/]" if outcome.expected else "[dim]failed, not expected to pass[/]"
            console.print(f"{mark} {outcome.name} ({outcome.seconds:.1f} s): ", end="")
            console.print(outcome.reason, markup=False)


def main() -> int:
    """Run; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tests", help="the tests folder of a checkout of the client")
    parser.add_argument("--rungs", help="comma separated; default: those expected to pass")
    parser.add_argument("--only", help="comma separated names, like pulsar::seek")
    parser.add_argument("--all", action="store_true", help="also those not expected yet")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds a test may take")
    parser.add_argument("--json", help="write the outcomes to this file")
    parser.add_argument("--brokers", type=int, default=1, help="processes that share the topics (standalone --brokers)")
    parser.add_argument("--keep", action="store_true", help="keep data and log, and say where")
    options = parser.parse_args()
    console = Console(width=160)
    source = Path(options.tests).expanduser()
    if not options.tests or not (source / "pulsar_test.py").is_file():
        console.print(f"{options.tests or 'CLIENT_TESTS'}: not the tests folder of the official Python client")
        return 2
    if taken := ports_in_use():
        console.print(f"the suite needs the ports {BROKER_PORT} and {WEB_PORT}; in use: {taken}")
        return 2
    rungs = load_rungs()
    chosen = select(rungs, options)
    scratch = Path(tempfile.mkdtemp(prefix="geminga-conformance-"))
    folder = scratch / "tests"
    shutil.copytree(source, folder)
    brokers = ["--brokers", str(options.brokers)] if options.brokers > 1 else []
    secret = os.urandom(32)
    broker = StandaloneProcess(
        scratch / "data",
        log=scratch / "broker.log",
        arguments=["--config", str(HERE / "python.conf"), *credentials(folder, secret), *brokers],
        broker_port=BROKER_PORT,
        web_port=WEB_PORT,
        environment=certificates(folder),
    )
    outcomes: list[Outcome] = []
    try:
        broker.start()
        for refusal in provision(broker, token_of(SETS_UP, secret)):
            console.print(f"[yellow]not provisioned[/] {refusal}")
        known = find_tests(folder)
        for rung, name in chosen:
            expected = is_expected(rungs[rung], name, options.brokers)
            target = known.get(name)
            passed, seconds, reason = (
                run_test(target, folder, options.limit) if target else (False, 0.0, "no such test in this checkout")
            )
            outcomes.append(Outcome(rung, name, expected, passed, seconds, reason))
            console.print(f"{'ok  ' if passed else 'FAIL'} {name} {seconds:.1f} s")
            if not broker.is_running:
                console.print(f"[red]the broker died during {name}[/]\n{broker.log_tail()}", markup=True)
                broker.start()
    except StartError as error:
        console.print(f"the broker did not start: {error}", markup=False)
        return 1
    finally:
        broker.kill()
    report(console, outcomes, rungs)
    if options.json:
        Path(options.json).write_text(json.dumps([vars_of(o) for o in outcomes], indent=1), encoding="utf-8")
    if options.keep:
        console.print(f"kept: {scratch}")
    else:
        shutil.rmtree(scratch, ignore_errors=True)
    return 0 if all(o.passed for o in outcomes if o.expected) else 1


def select(rungs: dict[str, dict[str, object]], options: argparse.Namespace) -> list[tuple[str, str]]:
    """(rung, test) in order, by the options."""
    every = [(rung, str(name)) for rung, about in rungs.items() for name in about["tests"]]  # type: ignore[attr-defined]
    if options.only:
        wanted = set(options.only.split(","))
        return [pair for pair in every if pair[1] in wanted]
    if options.rungs:
        return [pair for pair in every if pair[0] in options.rungs.split(",")]
    return [pair for pair in every if options.all or "later" not in rungs[pair[0]]]


def vars_of(outcome: Outcome) -> dict[str, object]:
    """An outcome as JSON."""
    return {name: getattr(outcome, name) for name in Outcome.__slots__}


if __name__ == "__main__":
    sys.exit(main())

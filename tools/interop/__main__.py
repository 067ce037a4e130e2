"""``make interop``: the client's tests with Apache Pulsar's own broker as the judge; then REST calls sent to both.

The tests are those that Geminga's broker judges in ``make test``; nothing in them knows which broker it is. Needs a
Java runtime (17 or newer) and, the first time, Maven. Leaves the broker's log and the outcomes in ``build/interop``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from tools.interop import autobahn
from tools.interop.admin import running as admin_running
from tools.interop.artifacts import BUILD, ToolError, class_path, java_needed, java_version, pinned_version
from tools.interop.rest import running
from tools.interop.walks import running as walks_running

ROOT: Final = Path(__file__).resolve().parents[2]
#: Nothing of this may hang; a whole run takes some twenty minutes on two cores.
RUN_LIMIT_S: Final = 3000.0
#: What is judged: title, file or folder.
SUITES: Final = [
    ("our consumer: types x acknowledgments x batches", "tests/integration/client/test_consumer_acknowledging.py"),
    ("how it receives", "tests/integration/client/test_consumer_receiving.py"),
    ("redelivery, retry, dead letters", "tests/integration/client/test_consumer_redelivery.py"),
    ("seek, readers", "tests/integration/client/test_consumer_moving.py"),
    ("several topics, patterns, partitions", "tests/integration/client/test_consumer_topics.py"),
    ("its options", "tests/integration/client/test_consumer_options.py"),
    ("our table view", "tests/integration/client/test_table_view.py"),
    ("official produces, ours consumes", "tests/integration/test_client_consumer_interop.py"),
    ("ours produces, official consumes", "tests/integration/test_client_producer_interop.py"),
    ("schemas in both directions", "tests/integration/test_schema_interop.py"),
    ("our blocking client", "tests/integration/client/test_blocking_client.py"),
    ("topics read into Spark", "tests/integration/test_spark_source_brokers.py"),
    ("forked processes, notebooks, web handlers, cancellation", "tests/integration/client/test_client_places.py"),
    ("geminga client, geminga perf", "tests/integration/test_client_commands.py"),
    ("batches at a broker that takes whole entries", "tests/interop/test_client_batch_index.py"),
    ("properties of acknowledgments", "tests/interop/test_ack_properties.py"),
    ("unloads, restarts, fencing, send timeouts", "tests/interop/test_client_reconnect.py"),
    ("Key_Shared and Failover: who gets what", "tests/interop/test_client_key_shared.py"),
    ("what brokers refuse", "tests/interop/test_client_refusals.py"),
    ("deduplication and sequence ids", "tests/interop/test_client_deduplication.py"),
    ("transactions", "tests/interop/test_client_transactions.py"),
    ("transactions: the records that the broker writes", "tests/interop/test_transaction_records.py"),
    ("a whole cluster becomes Geminga's and Apache's again", "tests/interop/test_migration.py"),
    ("rates", "tests/interop/test_rates.py"),
    ("tokens, passwords, certificates: who is let in", "tests/interop/test_authentication.py"),
    ("our client with each kind of credentials, over TLS and without", "tests/interop/test_client_security.py"),
    ("policies of topics, edited here", "tests/interop/test_policy_events.py"),
    ("the bookie protocol, by BookKeeper's own classes", "tests/interop/test_bookie_wire.py"),
    ("BookKeeper's client at our bookie, ours at BookKeeper's", "tests/interop/test_bookies.py"),
    (
        "clusters: BookKeeper's client on our bookies, ours and our broker on BookKeeper's",
        "tests/interop/test_bookkeeper_cluster.py",
    ),
    ("subscriptions go from a broker of one make to the other", "tests/interop/test_cursor_takeover.py"),
    ("brokers of both makes in one cluster", "tests/interop/test_mixed_cluster.py"),
    ("... all that a topic keeps goes to and fro with it", "tests/interop/test_mixed_state.py"),
    ("... pulsar-admin says the same at either", "tests/interop/test_pulsar_admin.py"),
    ("... while topics go to and fro and brokers are killed", "tests/interop/test_mixed_story.py"),
    ("clusters of both makes copy topics to each other", "tests/interop/test_geo_replication.py"),
    ("... and subscriptions", "tests/interop/test_replicated_subscriptions.py"),
    ("... with policies in one store", "tests/interop/test_shared_configuration_of_both.py"),
    ("... with policies kept alike by a topic", "tests/interop/test_configuration_alike_of_both.py"),
    ("Java's client between two clusters, one of which is killed", "tests/interop/test_failover_of_java.py"),
    ("... official clients between one of each make", "tests/interop/test_failover_between_makes.py"),
    ("auto-recovery of both makes in one cluster", "tests/interop/test_bookkeeper_autorecovery.py"),
    ("what the tests of the official client expect", "tests/integration/test_official_client.py"),
    ("the official client while topics are unloaded", "tests/integration/test_unload.py"),
    ("who may ask for what over HTTP", "tests/interop/test_rest_rights.py"),
    ("who may ask for what over the binary protocol", "tests/interop/test_command_rights.py"),
    ("statistics, beside Geminga's own", "tests/interop/test_rest_statistics.py"),
    ("metrics, beside Geminga's own", "tests/interop/test_rest_metrics.py"),
    ("rows written from Spark", "tests/integration/spark/test_spark_sink_messages.py"),
    ("rows written once from Spark", "tests/integration/spark/test_spark_sink_effectively_once.py"),
    ("rows written exactly once from Spark", "tests/interop/test_spark_exactly_once.py"),
]


def run_tests(version: str, arguments: list[str]) -> tuple[int, Path]:
    """Run pytest; its exit code, and where the outcomes are."""
    outcomes = BUILD / f"outcomes-{version}.xml"
    outcomes.unlink(missing_ok=True)
    (BUILD / f"broker-{version}.log").unlink(missing_ok=True)
    environment = {**os.environ, "INTEROP_PULSAR": version, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not long", f"--junitxml={outcomes}"]
    paths = [] if any(a.startswith("tests") for a in arguments) else [path for _, path in SUITES]
    process = subprocess.Popen([*command, *paths, *arguments], cwd=ROOT, env=environment)
    try:
        return process.wait(RUN_LIMIT_S), outcomes
    except subprocess.TimeoutExpired:
        return 1, outcomes
    finally:
        # The broker dies with the process that started it.
        process.kill()
        process.wait()


def count(outcomes: Path) -> dict[str, Counter[str]]:
    """Module -> how many passed, failed, were skipped, and how many seconds they took."""
    found: dict[str, Counter[str]] = {}
    for case in ElementTree.parse(outcomes).iter("testcase"):
        kinds = {child.tag for child in case}
        failed = "failed" if kinds & {"failure", "error"} else ("skipped" if "skipped" in kinds else "passed")
        counts = found.setdefault(case.get("classname", ""), Counter())
        counts[failed] += 1
        counts["ms"] += int(float(case.get("time", "0")) * 1000)
    return found


def report(console: Console, version: str, outcomes: Path, seconds: float) -> None:
    """One line for each suite, and the sum."""
    table = Table(title=f"Geminga's client, judged by the broker of Apache Pulsar {version}")
    for column in ("what", "passed", "failed", "skipped", "seconds"):
        table.add_column(column, justify="left" if column == "what" else "right")
    total: Counter[str] = Counter()
    counted = count(outcomes)
    for title, path in SUITES:
        counts = counted.pop(path.removesuffix(".py").replace("/", "."), None)
        if counts is not None:
            total += counts
            table.add_row(title, *_cells(counts))
    for module, counts in counted.items():
        total += counts
        table.add_row(module, *_cells(counts))
    table.add_row("all", *_cells(total), style="bold")
    console.print(table)
    console.print(f"{seconds:.0f} s with the broker's start; its log is build/interop/broker-{version}.log")


def _cells(counts: Counter[str]) -> list[str]:
    return [str(counts[kind]) for kind in ("passed", "failed", "skipped")] + [f"{counts['ms'] / 1000:.1f}"]


def main() -> int:
    """Run; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.interop", description=__doc__)
    parser.add_argument("--pulsar", default="", help="another version than the pinned one")
    options, arguments = parser.parse_known_args()
    console = Console(width=120)
    version = options.pulsar or pinned_version()
    started = time.perf_counter()
    if arguments[:1] == ["autobahn"]:
        try:
            return autobahn.main(arguments[1:])
        except ToolError as error:
            console.print(str(error), markup=False)
            return 2
    if "--geminga" in arguments and arguments[0] == "rest":
        return running.run(console, version, arguments[1:])
    try:
        if (found := java_version()) < (needed := java_needed(version)):
            raise ToolError(f"Java {found} is too old: set INTEROP_JAVA to the java of version {needed} or newer")
        class_path(version)
    except ToolError as error:
        console.print(str(error), markup=False)
        return 2
    resolved = time.perf_counter()
    console.print(f"Apache Pulsar {version} on Java {found}; artifacts ready after {resolved - started:.1f} s")
    if arguments[:1] == ["rest"]:
        return running.run(console, version, arguments[1:])
    if arguments[:1] == ["walks"]:
        return walks_running.main(arguments[1:])
    if arguments[:1] == ["admin"]:
        return admin_running.run(console, version, arguments[1:])
    code, outcomes = run_tests(version, arguments)
    if outcomes.exists():
        report(console, version, outcomes, time.perf_counter() - resolved)
    return code if arguments else max(code, running.run(console, version, []))


if __name__ == "__main__":
    sys.exit(main())

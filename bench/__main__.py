"""``python -m bench [all | publish | latency | dispatch | catchup | together | client | idle | topics | ...]``.

Each prints a table that states what durability its figures have; ``--json`` prints the same as one JSON line each.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import measure
from bench.bookie_entries import LARGE_BYTES, large_entries, wire
from bench.bookie_publish import publish as publish_on_bookies
from bench.bookie_reads import tail
from bench.bookie_recovery import recovery
from bench.broker_cluster import bundles, lookups, takeover
from bench.broker_processes import broker_processes
from bench.catch_up import catch_up
from bench.client import client as measure_client
from bench.compaction import compaction
from bench.cursor import holes as measure_cursor
from bench.delayed import delayed
from bench.first_sends import first_sends
from bench.geo import geo
from bench.isolation import RATE, SIZE, isolation
from bench.lake import lake
from bench.measure import DURABLE, Row
from bench.metadata import metadata
from bench.peers.run import peers
from bench.peers.verdict import FAILED, is_red
from bench.secure import secure
from bench.servers import Bench, BenchError
from bench.spark import spark as measure_spark
from bench.transactions import transactions
from bench.transactions_unused import unused

Measurement = Callable[[Bench, argparse.Namespace], list[Row]]


def _publish(bench: Bench, options: argparse.Namespace) -> list[Row]:
    sizes = tuple(options.size or measure.SIZES)
    return measure.publish(bench, sizes, tuple(options.connections or measure.CONNECTIONS), options.topics)


#: Name -> (title, durability, measurement).
MEASUREMENTS: dict[str, tuple[str, str, Measurement]] = {
    "fdatasync": ("the disk's raw fdatasync rate", "fdatasync after each write", lambda b, _: measure.raw_fdatasync(b)),
    "start": ("exec to first receipt", DURABLE, lambda b, _: measure.start(b)),
    "idle": ("idle after one admin call, one scrape, 1,000 messages", DURABLE, lambda b, _: measure.idle(b)),
    "publish": (
        "unbatched publish, floor against product (bare: a floor that knows where this generator puts its fields)",
        f"all: {DURABLE}",
        _publish,
    ),
    "latency": (
        "publish latency at a fixed rate",
        f"both: {DURABLE}",
        lambda b, o: measure.latency(b, o.rate, (o.size or [100])[0]),
    ),
    "dispatch": (
        "catch-up reads by one consumer",
        "messages were published durably; acknowledgments are persisted in the background",
        lambda b, o: measure.dispatch(b, (o.size or [100])[0]),
    ),
    "catchup": (
        "catch-up over entries of 100 bytes and 4.7 MB",
        "messages were published durably; acknowledgments are persisted in the background",
        lambda b, _: catch_up(b),
    ),
    "together": (
        "publish and dispatch together",
        f"publish: {DURABLE}; acknowledgments are persisted in the background",
        lambda b, o: measure.together(b, (o.size or [100])[0]),
    ),
    "brokers": (
        "a broker in the process of its storage, and broker processes beside it: 4 topics",
        f"publish: {DURABLE}; acknowledgments are persisted in the background",
        lambda b, _: broker_processes(b),
    ),
    "lookups": (
        "lookups of topics, at the broker that has them and at another one",
        "none: nothing is written",
        lambda b, _: lookups(b),
    ),
    "takeover": (
        "a broker process of two is killed, and its topics' clients come back: first receipts since the kill",
        f"publish: {DURABLE}",
        lambda b, o: takeover(b, o.count),
    ),
    "firsts": (
        "a producer and one message on each of many new topics, beside Apache Pulsar's broker",
        f"both: {DURABLE}",
        lambda b, o: first_sends(b, o.count, o.turns, is_alone=o.alone),
    ),
    "bundles": (
        "memory per bundle that a broker process owns",
        "what a bundle's owner is, is synced before the answer",
        lambda b, _: bundles(b),
    ),
    "topics": ("memory per idle topic with one durable subscription", DURABLE, lambda b, o: measure.topics(b, o.count)),
    "client": (
        "our client against the official one: 100-byte messages, batched, each in a process of its own",
        f"publish: {DURABLE}; acknowledgments are persisted in the background",
        lambda b, o: measure_client(b, (o.size or [100])[0]),
    ),
    "cursor": (
        "a cursor with 10,000,000 entries of which every second is acknowledged",
        "the last acknowledgment: fdatasync before its answer",
        lambda b, _: measure_cursor(b),
    ),
    "delayed": (
        "10,000,000 delayed entries, one by one: an index of plain bitmaps, Pulsar's heap, and ours; time beside heapq",
        "none: an index in memory; the messages are durable, and so is a snapshot once it is written",
        lambda b, _: delayed(b),
    ),
    "metadata": (
        "the metadata store of a standalone, and that of a cluster: 100,000 nodes, 10,000 watches",
        "both sync their log before each answer, on the same disk",
        lambda b, _: metadata(b),
    ),
    "quorums": (
        "publish on one bookie and on three, beside the bare floor",
        f"all: {DURABLE}, on each of the ack quorum's bookies",
        lambda b, _: publish_on_bookies(b),
    ),
    "entries": (
        "entries of 128 KiB, 4 GB, 1/1/1 on one disk, beside the disk's own sequential rate",
        "the disk: fdatasync after each stretch; bookies: fdatasync of the journal before each answer",
        lambda b, o: large_entries(b, int(o.gigabytes * 1e9) or LARGE_BYTES),
    ),
    "wire": (
        "adds to a bookie: in the process, and over a connection in version 3 and 2",
        "fdatasync of the journal before each answer",
        lambda b, _: wire(b),
    ),
    "isolation": (
        f"latencies of {SIZE:,} B, {RATE:,}/s, beside a reader that catches up at full speed",
        f"publish: {DURABLE}",
        lambda b, o: isolation(b, o.k),
    ),
    "tail": (
        "what a reader at the tail costs the disk: counted by bookie and kernel",
        f"publish: {DURABLE}",
        lambda b, _: tail(b),
    ),
    "recovery": (
        "a bookie of four is lost: its copies are made anew while a publisher goes on",
        f"publish: {DURABLE}; a copy is on stable storage before metadata name its bookie",
        lambda b, _: recovery(b),
    ),
    "spark": (
        "topics (producer batches of 128 KiB, the default) in Spark against a source in memory, a sink to nowhere, and "
        "Parquet files; pulsar-spark can not be had here",
        f"publish: {DURABLE}; Parquet files: none",
        lambda b, o: measure_spark(b, o.gigabytes, (o.size or [0])[0], o.k),
    ),
    "lake": (
        "a topic in Spark: closed ledgers from the lake and the tail from the broker, beside all from the broker",
        f"publish: {DURABLE}; a lake file is synced and read back before it counts",
        lambda b, o: lake(b, o.messages, (o.size or [0])[0]),
    ),
    "peers": (
        "beside Apache Pulsar, Redis and NATS, same load; times: above 1 is better; CPU us: the server's a message",
        "all servers sync their journal before each receipt, on the same disk (non-persistent: none); Geminga's "
        "receipt of an acknowledgment is durable too",
        lambda b, o: peers(b, o),
    ),
    "secure": (
        "TLS, a token, both, beside plain and beside Apache Pulsar with the same, by the official Go client; "
        "times: above 1 is better; CPU us: the server's a message or connection",
        "both servers sync their journal before each receipt, on the same disk",
        lambda b, o: secure(b, o),
    ),
    "transactions": (
        "in transactions and without (x plain), beside Apache Pulsar, our client for both; times: above 1 is better",
        "both servers sync their journal before each answer, on the same disk",
        lambda b, o: transactions(b, o),
    ),
    "unused": (
        "plain publishing where transactions are enabled and none is open, against a broker without them",
        f"both: {DURABLE}",
        lambda b, _: unused(b),
    ),
    "geo": (
        "a cluster copies to another: CPU of both sides, rate, lag, many topics, a link that is cut; beside Apache "
        "Pulsar (times: above 1 is better)",
        "both servers of both sides sync their journal before each answer, on the same disk",
        lambda b, o: geo(b, o),
    ),
    "compaction": (
        "a topic is compacted while another is published to (200/s of 100 B), beside Apache Pulsar; CPU us: the "
        "server's a message; p50, p99 and max in ms",
        "both servers sync their journal before each receipt, on the same disk",
        lambda b, o: compaction(b, o),
    ),
    "loops": (
        "asyncio against uvloop",
        f"all: {DURABLE}",
        lambda b, o: measure.loops(b, (o.size or [100])[0]),
    ),
}
#: What ``bookies`` runs.
BOOKIES = ("quorums", "entries", "wire", "isolation", "tail", "recovery")
#: What ``all`` runs.
ALL = (
    "fdatasync",
    "start",
    "idle",
    "publish",
    "latency",
    "dispatch",
    "catchup",
    "together",
    "brokers",
    "lookups",
    "takeover",
    "bundles",
    "topics",
    "client",
    "cursor",
    "delayed",
    "metadata",
    *BOOKIES,
    "spark",
    "lake",
)


def show(console: Console, name: str, rows: list[Row]) -> None:
    """One table."""
    title, durability, _ = MEASUREMENTS[name]
    table = Table(title=f"{name}: {title}", caption=f"durability: {durability}")
    columns = [name for name, value in rows[0].items() if not isinstance(value, dict)]
    for column in columns:
        table.add_column(column.strip(), justify="left" if isinstance(rows[0][column], str) else "right")
    for row in rows:
        red = row.get("met") == "NO" or is_red(row)
        table.add_row(*(_text(row[column]) for column in columns), style="red" if red else None)
    console.print(table)


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}" if value < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def main() -> int:
    """Run what was asked for; 1 if something could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("what", nargs="*", default=["all"], help=", ".join(["all", "bookies", *MEASUREMENTS]))
    parser.add_argument("--size", type=int, action="append", help="payload bytes (repeatable)")
    parser.add_argument("--connections", type=int, action="append", help="(repeatable)")
    parser.add_argument("--topics", type=int, default=1, help="publish: spread the connections over this many topics")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measured rate")
    parser.add_argument("--warmup", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3, help="publish: turns of floor and product, medians are shown")
    parser.add_argument("--rate", type=int, default=2_000, help="latency: sends per second")
    parser.add_argument("--count", type=int, default=10_000, help="topics, firsts, takeover, geo: how many")
    parser.add_argument(
        "--turns", type=int, default=3, help="peers, secure, transactions, firsts: of each server in each row"
    )
    parser.add_argument(
        "-k",
        default="",
        metavar="TEXT",
        help='peers, secure, transactions, compaction, isolation: rows whose name contains this, or "a or b"; '
        "spark: queries, geo: cost, lag, topics, cut, the same way",
    )
    parser.add_argument(
        "--gigabytes", type=float, default=0.0, help="spark: payloads of each query (0.2 by default); entries: 4"
    )
    parser.add_argument("--alone", action="store_true", help="geo, compaction, firsts: without Apache Pulsar")
    parser.add_argument("--cut-seconds", type=float, default=30.0, help="geo: how long the link is cut (600: in full)")
    parser.add_argument("--messages", type=int, default=0, help="lake, compaction: how many (1,000,000)")
    parser.add_argument("--profile", action="store_true", help="peers: say where Geminga's processor time went")
    parser.add_argument("--loop", choices=("asyncio", "uvloop"), default="uvloop", help="product and floor")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="broker configuration")
    parser.add_argument("--dir", help="where the scratch directory goes (the disk that is measured)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    names = [n for w in options.what for n in {"all": ALL, "bookies": BOOKIES}.get(w, (w,))]
    if unknown := [name for name in names if name not in MEASUREMENTS]:
        parser.error(f"unknown: {', '.join(unknown)}; known: all, bookies, {', '.join(MEASUREMENTS)}")
    console = Console(stderr=options.json)
    console.width = max(console.width, 190 if {"compaction", "peers", "secure", "transactions"} & set(names) else 130)
    # Not the system's temporary folder, which may be memory: a durable figure needs a disk.
    base = Path(options.dir) if options.dir else Path(__file__).resolve().parents[1] / "build"
    base.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="bench-", dir=base))
    settings = dict(pair.split("=", 1) for pair in options.set)
    bench = Bench(scratch, options.seconds, options.warmup, options.rounds, options.loop, settings)
    console.print(f"Python {platform.python_version()}, {os.cpu_count()} CPUs, {platform.system()}, scratch on {base}")
    failed = 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started and written goes
    try:
        for name in names:
            try:
                rows = MEASUREMENTS[name][2](bench, options)
            except BenchError as error:
                failed = 1
                console.print(f"[red]{name} failed:[/] ", end="")
                console.print(str(error), markup=False)
                continue
            failed |= any(row.get("verdict") == FAILED for row in rows)
            show(console, name, rows)
            if options.json:
                print(json.dumps({"bench": name, "durability": MEASUREMENTS[name][1], "rows": rows}), flush=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())

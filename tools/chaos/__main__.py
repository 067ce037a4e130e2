"""``python -m tools.chaos --rounds 50 --seed 1``: rounds of faults under load, then the history is checked.

Exit code 1 if anything acknowledged was lost, came out of order or twice, or was never delivered.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pulsar
from rich.console import Console

from tools.chaos.cluster import Cluster
from tools.chaos.history import judge, undelivered
from tools.chaos.load import Consuming, Publishing, read_all
from tools.chaos.plan import plan

#: Sessions are short, so that some faults outlast them and some do not.
SESSION_MS: Final = 6000
#: Seconds until everything published is delivered, once nothing fails any more.
DRAIN_S: Final = 120.0
TOPICS: Final = (("chaos-batched", True), ("chaos-unbatched", False))
#: Copies as in Pulsar's ``broker.conf``, striped over three; small ledgers, so that there are many.
SETTINGS: Final = {
    "managedLedgerDefaultEnsembleSize": 3,
    "managedLedgerDefaultWriteQuorum": 2,
    "managedLedgerDefaultAckQuorum": 2,
    "managedLedgerMaxEntriesPerLedger": 2000,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    "brokerDeduplicationEnabled": "true",
    # Everything is kept, for who reads the history afterwards.
    "defaultRetentionTimeInMinutes": -1,
    "defaultRetentionSizeInMB": -1,
}


def run(rounds: int, seed: int, bookies: int, directory: Path, console: Console, *, brokers: int = 1) -> dict[str, Any]:
    """All rounds; what was found."""
    faults = plan(seed, rounds, bookies, SESSION_MS / 1000, brokers=brokers)
    cluster = Cluster(directory, bookies=bookies, brokers=brokers, session_ms=SESSION_MS, broker_settings=SETTINGS)
    try:
        cluster.start()
        logger = pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(directory / "client.log"))
        client = pulsar.Client(cluster.service_url, logger=logger, operation_timeout_seconds=60)
        producers = [Publishing(client, f"persistent://public/default/{name}", batching=on) for name, on in TOPICS]
        consumers = [Consuming(client, each.topic) for each in producers]
        started = time.monotonic()
        for number, fault in enumerate(faults, 1):
            threading.Event().wait(fault.before_s)
            cluster.fail(fault)
            threading.Event().wait(fault.away_s)
            cluster.repair(fault)
            acknowledged = sum(len(each.acknowledged) for each in producers)
            console.print(
                f"round {number} of {rounds}: {fault.kind} {fault.who} for {fault.away_s:.1f} s; "
                f"{acknowledged:,} acknowledged",
                highlight=False,
            )
        for each in producers:
            each.stop()
        deadline = time.monotonic() + DRAIN_S
        while time.monotonic() < deadline and not all(
            consumer.has(producer.acknowledged) for consumer, producer in zip(consumers, producers, strict=True)
        ):
            threading.Event().wait(0.2)
        found = _found(client, producers, consumers)
        for consumer in consumers:
            consumer.stop()
        client.close()
        seconds = time.monotonic() - started
        kinds = Counter(f"{fault.kind} {fault.who.partition('-')[0]}" for fault in faults)
        return {"seed": seed, "rounds": rounds, "seconds": round(seconds, 1), **found, "faults": dict(kinds)}
    finally:
        cluster.close()


def _found(client: pulsar.Client, producers: list[Publishing], consumers: list[Consuming]) -> dict[str, Any]:
    found: Counter[str] = Counter()
    for producer, consumer in zip(producers, consumers, strict=True):
        verdict = judge(producer.sent, producer.acknowledged, read_all(client, producer.topic))
        found["acknowledged"] += len(producer.acknowledged)
        found["refused"] += len(producer.errors)
        for name, numbers in verdict._asdict().items():
            found[name] += len(numbers)
        found["undelivered"] += len(undelivered(producer.acknowledged, consumer.delivered))
        found["deliveredAgain"] += consumer.again
    return dict(found)


#: Whatever of these is not zero is a broken promise.
PROMISED: Final = ("lost", "out_of_order", "duplicated", "invented", "undelivered")


def main() -> int:
    """Read the options, run, print."""
    parser = argparse.ArgumentParser(prog="python -m tools.chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=50, help="faults (50)")
    parser.add_argument("--seed", type=int, default=1, help="of the plan (1)")
    parser.add_argument("--bookies", type=int, default=5, choices=range(3, 8), help="3 to 7 (5)")
    parser.add_argument("--brokers", type=int, default=1, choices=range(1, 6), help="1 to 5 (1)")
    parser.add_argument("--keep", metavar="DIR", help="keep data and logs there")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON line")
    options = parser.parse_args()
    console = Console(stderr=True, soft_wrap=True)
    directory = Path(options.keep or tempfile.mkdtemp(prefix="geminga-chaos-"))
    directory.mkdir(parents=True, exist_ok=True)
    found = run(options.rounds, options.seed, options.bookies, directory, console, brokers=options.brokers)
    broken = [name for name in PROMISED if found[name]]
    if options.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:16} {value}")
    if broken:
        console.print(f"BROKEN: {', '.join(broken)}; logs in {directory}", highlight=False)
        return 1
    if not options.keep:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

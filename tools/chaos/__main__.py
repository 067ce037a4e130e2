"""``python -m tools.chaos --rounds 50 --seed 1``: rounds of faults under load, then the history is checked.

``--clusters 3 --cuts 50 --kills 20``: clusters that copy to each other, whose links are cut meanwhile.

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
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pulsar
from rich.console import Console

from geminga.app.configuration.core.log_options import JSON, TEXT
from tools.chaos.cluster import Cluster
from tools.chaos.history import judge, undelivered
from tools.chaos.load import RATE, Consuming, Moving, Publishing, read_all
from tools.chaos.mesh import PROMISED as MESH_PROMISED
from tools.chaos.mesh import Mesh, run_mesh
from tools.chaos.plan import kind_of, plan

if TYPE_CHECKING:
    from tools.chaos.secured import Security

#: Sessions are short, so that some faults outlast them and some do not.
SESSION_MS: Final = 6000
#: Seconds without anything new, once nothing fails any more, until what was not delivered counts as lost on the way.
DRAIN_S: Final = 60.0
#: Of the clients: as long as a fault and a slow start after it.
OPERATION_S: Final = 60
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


class Sizes(NamedTuple):
    """How many processes of each kind."""

    bookies: int = 5
    brokers: int = 1
    zookeepers: int = 1


class Load:
    """Two topics for each broker, one of them batched; of each topic a producer and two subscriptions."""

    def __init__(
        self, cluster: Cluster, directory: Path, *, topics: int, seed: int, security: Security | None = None
    ) -> None:
        options = {} if security is None else security.client_options()
        logger = pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(directory / "client.log"))
        self._clients = [
            pulsar.Client(cluster.service_url, logger=logger, operation_timeout_seconds=OPERATION_S, **options)
            for _ in range(2)
        ]
        self.client = self._clients[0]
        names = [f"persistent://public/default/chaos-{number}" for number in range(topics)]
        rate = RATE // topics
        self.producers = [
            Publishing(self.client, name, batching=number % 2 == 0, rate=rate) for number, name in enumerate(names)
        ]
        self.consumers = [Consuming(self.client, name) for name in names]
        self.moving = [Moving(self._clients, name, seed=seed) for name in names]

    @property
    def acknowledged(self) -> int:
        """Messages with a receipt, of all topics."""
        return sum(len(each.acknowledged) for each in self.producers)

    def drain(self) -> None:
        """End publishing, and wait until everything is delivered to every subscription, or nothing new is."""
        for each in self.producers:
            each.stop()
        seen, since = -1, time.monotonic()
        while time.monotonic() - since < DRAIN_S:
            if all(
                one.delivered.has(producer.acknowledged)
                for group in (self.consumers, self.moving)
                for one, producer in zip(group, self.producers, strict=True)
            ):
                return
            now = sum(len(one.delivered.numbers) for group in (self.consumers, self.moving) for one in group)
            if now > seen:
                seen, since = now, time.monotonic()
            threading.Event().wait(0.2)

    def close(self) -> None:
        """End consuming, and everything else."""
        for each in (*self.consumers, *self.moving):
            each.stop()
        for client in self._clients:
            client.close()

    def found(self) -> dict[str, int]:
        """What there is to be read now, held against what was sent, and what was delivered."""
        found: Counter[str] = Counter()
        for producer, consumer, moving in zip(self.producers, self.consumers, self.moving, strict=True):
            verdict = judge(producer.sent, producer.acknowledged, read_all(self.client, producer.topic))
            found["acknowledged"] += len(producer.acknowledged)
            found["refused"] += len(producer.errors)
            for name, numbers in verdict._asdict().items():
                found[name] += len(numbers)
            for one in (consumer.delivered, moving.delivered):
                found["undelivered"] += len(undelivered(producer.acknowledged, one.numbers))
                found["deliveredAgain"] += one.again
            found["misdelivered"] += len(consumer.delivered.out_of_order)
            found["moves"] += moving.moves
        return dict(found)


def run(
    rounds: int,
    seed: int,
    sizes: Sizes,
    directory: Path,
    console: Console,
    security: Security | None = None,
    log_format: str = TEXT,
) -> dict[str, Any]:
    """All rounds; what was found. ``security``: TLS and authentication on every link. ``log_format``: of all logs."""
    bookies, brokers, zookeepers = sizes
    faults = plan(seed, rounds, bookies, SESSION_MS / 1000, brokers=brokers, zookeepers=zookeepers)
    cluster = Cluster(
        directory,
        bookies=bookies,
        brokers=brokers,
        zookeepers=zookeepers,
        session_ms=SESSION_MS,
        broker_settings=SETTINGS,
        security=security,
        log_format=log_format,
    )
    try:
        cluster.start()
        load = Load(cluster, directory, topics=2 * brokers, seed=seed, security=security)
        started = time.monotonic()
        for number, fault in enumerate(faults, 1):
            threading.Event().wait(fault.before_s)
            cluster.fail(fault)
            threading.Event().wait(fault.away_s)
            cluster.repair(fault)
            console.print(
                f"round {number} of {rounds}: {fault.kind} {fault.who} for {fault.away_s:.1f} s; "
                f"{load.acknowledged:,} acknowledged",
                highlight=False,
            )
        load.drain()
        found = load.found()
        load.close()
        found["unreadable"] = len(broken_lines(cluster.logs)) if log_format == JSON else 0
        seconds = time.monotonic() - started
        kinds = Counter(f"{fault.kind} {kind_of(fault.who)}" for fault in faults)
        return {"seed": seed, "rounds": rounds, "seconds": round(seconds, 1), **found, "faults": dict(kinds)}
    finally:
        cluster.close()


def broken_lines(logs: Iterable[Path]) -> list[str]:
    """Lines that are no object with a message, or no line of the log's: of logs in JSON."""
    broken = []
    for log in logs:
        for line in log.read_text("utf-8").splitlines():
            try:
                is_whole = {"time", "level", "logger", "message"} <= json.loads(line).keys()
            except (ValueError, AttributeError):
                is_whole = False
            if not is_whole:
                broken.append(f"{log.name}: {line}")
    return broken


#: Whatever of these is not zero is a broken promise.
PROMISED: Final = ("lost", "out_of_order", "duplicated", "invented", "undelivered", "misdelivered", "unreadable")


def _security(directory: Path, *, is_on: bool) -> Security | None:
    if not is_on:
        return None
    # With it comes what makes certificates, in the tests' support.
    from tools.chaos.secured import Security

    return Security(directory / "keys")


def _run_mesh(options: argparse.Namespace, directory: Path, console: Console) -> dict[str, Any]:
    mesh = Mesh(
        directory,
        clusters=options.clusters,
        bookies=options.bookies or 3,
        brokers=options.brokers or 2,
        session_ms=SESSION_MS,
        settings=SETTINGS,
    )
    return run_mesh(
        mesh,
        directory,
        console,
        seed=options.seed,
        cuts=options.cuts,
        kills=options.kills,
        session_s=SESSION_MS / 1000,
    )


def main() -> int:
    """Read the options, run, print."""
    parser = argparse.ArgumentParser(prog="python -m tools.chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=50, help="faults (50)")
    parser.add_argument("--clusters", type=int, default=1, choices=range(1, 6), help="that copy to each other (1)")
    parser.add_argument("--cuts", type=int, default=50, help="of links between clusters (50)")
    parser.add_argument("--kills", type=int, default=20, help="of brokers and bookies of several clusters (20)")
    parser.add_argument("--seed", type=int, default=1, help="of the plan (1)")
    parser.add_argument("--bookies", type=int, choices=range(3, 8), help="3 to 7 (5; of several clusters each 3)")
    parser.add_argument("--brokers", type=int, choices=range(1, 6), help="1 to 5 (1; of several clusters each 2)")
    parser.add_argument("--zookeepers", type=int, default=1, choices=(1, 3, 5), help="1, 3 or 5 (1)")
    parser.add_argument("--log-format", default=TEXT, choices=(TEXT, JSON), help="json: every line has to parse (text)")
    parser.add_argument("--security", action="store_true", help="TLS and authentication on every link")
    parser.add_argument("--keep", metavar="DIR", help="keep data and logs there")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON line")
    options = parser.parse_args()
    console = Console(stderr=True, soft_wrap=True)
    directory = Path(options.keep or tempfile.mkdtemp(prefix="geminga-chaos-"))
    directory.mkdir(parents=True, exist_ok=True)
    if options.clusters > 1 and (options.security or options.zookeepers > 1 or options.log_format == JSON):
        parser.error("--clusters goes with neither --security nor --zookeepers nor --log-format json")
    if options.clusters > 1:
        found = _run_mesh(options, directory, console)
        broken = [name for name in MESH_PROMISED if found[name]]
    else:
        sizes = Sizes(options.bookies or 5, options.brokers or 1, options.zookeepers)
        security = _security(directory, is_on=options.security)
        found = run(options.rounds, options.seed, sizes, directory, console, security, options.log_format)
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

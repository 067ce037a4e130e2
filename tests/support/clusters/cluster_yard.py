"""A cluster of real processes, Apache's and ours, that shell commands start and stop, as an operator's do."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from kazoo.client import KazooClient
from tools.free_ports import free_ports
from tools.interop.apache_broker import ApacheBroker
from tools.interop.apache_standalone import MEMORY, OPENS
from tools.interop.artifacts import HERE, class_path, java, pinned_version
from tools.zookeeper_server import ZooKeeperServer

from support.house.source_tree import ROOT
from support.processes.steady_load import wait_until_healthy
from support.worlds.rest import Rest

CLUSTER: Final = "east"
SESSION_MS: Final = 4000
LIMIT_S: Final = 240
BROKER_SETTINGS: Final = {
    # Many ledgers, so that each bookie has some that are closed, and one that is written.
    "managedLedgerMaxEntriesPerLedger": 50,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    # What a client sends again when its broker went is there once.
    "brokerDeduplicationEnabled": "true",
    "transactionCoordinatorEnabled": "true",
    "defaultRetentionTimeInMinutes": -1,
    "defaultRetentionSizeInMB": -1,
    "metadataStoreSessionTimeoutMillis": SESSION_MS,
}
STOP: Final = """
import os, signal, sys
from tools.process_tree import wait_gone
pid = int(sys.argv[1])
os.kill(pid, signal.SIGTERM)
sys.exit(bool(wait_gone([pid], 60)))
"""


class Yard:
    """Processes that shell commands start and stop, by name, as an operator's do; what they say is in a file each."""

    def __init__(self, directory: Path, zookeeper: ZooKeeperServer) -> None:
        self.directory = directory
        self.hosts = zookeeper.hosts
        self.lake = directory / "lake"
        self.lake.mkdir()
        self.pause = threading.Event()
        self._bookie_ports: dict[str, int] = {}
        self.ports = {name: free_ports(2) for name in ("one", "two")}

    # ---- brokers: two addresses

    @property
    def urls(self) -> str:
        return "pulsar://" + ",".join(f"127.0.0.1:{broker}" for broker, _ in self.ports.values())

    def versions(self) -> set[str]:
        """What the brokers say they are."""
        return {Rest(f"http://{self.web(name)}").get("brokers/version").body.decode() for name in self.ports}

    def web(self, name: str) -> str:
        return f"127.0.0.1:{self.ports[name][1]}"

    def broker(self, name: str, make: str) -> str:
        """The command that starts it."""
        broker_port, web_port = self.ports[name]
        if make == "apache":
            data = self.directory / name
            broker = ApacheBroker(data, log=data / "log", metadata=f"zk:{self.hosts}", cluster=CLUSTER)
            broker.settings |= BROKER_SETTINGS
            broker.broker_port, broker.web_port = broker_port, web_port
            return self.start(name, broker.command())
        settings = {
            **BROKER_SETTINGS,
            "clusterName": CLUSTER,
            "managedLedgerOffloadDriver": "filesystem",
            "fileSystemURI": f"file://{self.lake}",
            "managedLedgerOffloadDeletionLagMs": 0,
        }
        ports = ["--broker-port", str(broker_port), "--web-port", str(web_port)]
        return self.start(name, self.ours("broker", "--metadata", f"zk:{self.hosts}", *ports, **settings))

    # ---- bookies and auto-recovery

    def bookie(self, name: str, make: str, *, read_only: bool = False) -> str:
        """The command that starts it."""
        if make == "geminga":
            settings = {"zkTimeout": SESSION_MS, "bookieId": name, "forceReadOnlyBookie": str(read_only).lower()}
            data = ["--data", str(self.directory / name), "--port", "0"]
            return self.start(name, self.ours("bookie", *data, "--metadata", f"zk:{self.hosts}", **settings))
        settings = {
            "bookieId": name,
            "bookiePort": self.bookie_port(name),
            "journalDirectories": self.directory / name / "journal",
            "ledgerDirectories": self.directory / name / "ledgers",
            "ledgerStorageClass": "org.apache.bookkeeper.bookie.InterleavedLedgerStorage",
            "diskUsageThreshold": 0.999,
            "diskUsageWarnThreshold": 0.999,
            "forceReadOnlyBookie": str(read_only).lower(),
        }
        return self.start(name, self.apaches("org.apache.bookkeeper.server.Main", name, settings))

    def bookie_port(self, name: str) -> int:
        """The same at each of its starts."""
        if name not in self._bookie_ports:
            (self._bookie_ports[name],) = free_ports(1)
        return self._bookie_ports[name]

    def wait_for_bookies(self, count: int) -> None:
        """Until so many take entries."""
        client = KazooClient(self.hosts)
        client.start(timeout=LIMIT_S)
        try:
            for _ in range(LIMIT_S):
                if len(set(client.get_children("/ledgers/available")) - {"readonly"}) >= count:
                    return
                self.pause.wait(1)
        finally:
            client.stop()
            client.close()
        raise AssertionError(f"fewer than {count} bookies")

    def recovery(self, make: str) -> str:
        """The command that starts it."""
        settings = {"zkTimeout": SESSION_MS, "openLedgerRereplicationGracePeriod": 1000}
        name = f"{make}-recovery"
        if make == "geminga":
            return self.start(name, self.ours("autorecovery", "--metadata", f"zk:{self.hosts}", **settings))
        own = {**settings, "bookieId": name, "rwRereplicateBackoffMs": 200}
        return self.start(name, self.apaches("org.apache.bookkeeper.replication.AutoRecoveryMain", name, own))

    # ---- processes

    def ours(self, *words: str, **settings: object) -> list[str]:
        given = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        return [sys.executable, "-m", "geminga", *words, *given]

    def apaches(self, main: str, name: str, settings: dict[str, Any]) -> list[str]:
        common = {
            "metadataServiceUri": f"zk+hierarchical://{self.hosts}/ledgers",
            "zkTimeout": SESSION_MS,
            "allowLoopback": "true",
            "listeningInterface": "lo",
            "advertisedAddress": "127.0.0.1",
        }
        conf = self.directory / f"{name}-{'ro' if settings.get('forceReadOnlyBookie') == 'true' else 'rw'}.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in {**common, **settings}.items()))
        return [*java_program(), main, "-c", str(conf)]

    def start(self, name: str, program: list[str]) -> str:
        directory = self.directory / name
        directory.mkdir(exist_ok=True)
        line = f"{shlex.join(program)} >> {directory}.log 2>&1 < /dev/null & echo $! > {directory}.pid"
        return shlex.join(["sh", "-c", line])

    def stop(self, name: str) -> str:
        """The command that ends whoever runs under this name, and returns when it has ended."""
        line = f"{shlex.join([sys.executable, '-c', STOP])} $(cat {self.directory / name}.pid)"
        return shlex.join(["sh", "-c", line])

    def kill_all(self) -> None:
        for pid in self.directory.glob("*.pid"):
            try:
                os.kill(int(pid.read_text()), signal.SIGKILL)
            except (ProcessLookupError, ValueError):
                pass

    # ---- the way of all of it

    def plan(self, make: str, bookies: dict[str, str]) -> dict[str, Any]:
        """To processes of this make; ``bookies``: new ids by old ones."""
        before = "apache" if make == "geminga" else "geminga"
        steps = []
        for old, new in bookies.items():
            again = f"{self.stop(old)} && {self.bookie(old, before, read_only=True)}"
            steps.append(
                {
                    "old": old,
                    "new": new,
                    "start": self.bookie(new, make),
                    "read_only": shlex.join(["sh", "-c", again]),
                    "stop": self.stop(old),
                }
            )
        return {
            "metadata": self.hosts,
            "namespaces": ["public/default"],
            "leaves": before,
            "brokers": [
                {"broker": self.web(name), "stop": self.stop(name), "start": self.broker(name, make)}
                for name in self.ports
            ],
            "autorecovery": {"start": self.recovery(make), "stop": self.stop(f"{before}-recovery")},
            "bookies": steps,
        }

    def migrate(self, plan: dict[str, Any]) -> None:
        path = self.directory / "plan.json"
        path.write_text(json.dumps(plan, indent=1))
        done = subprocess.run(
            [sys.executable, str(ROOT / "examples" / "cluster" / "migrate.py"), str(path), "--timeout", str(LIMIT_S)],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=4 * LIMIT_S,
            check=False,
        )
        print(done.stdout)
        assert done.returncode == 0, done.stdout + done.stderr


def java_program() -> list[str]:
    opens = [part for name in OPENS for part in ("--add-opens", f"{name}=ALL-UNNAMED")]
    logging = f"-Dlog4j2.configurationFile={HERE / 'log4j2.xml'}"
    return [java(), *MEMORY, *opens, logging, "-cp", class_path(pinned_version())]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}


def run(command: str) -> None:
    subprocess.run(shlex.split(command), check=True, env=environment())


@contextmanager
def apaches_cluster(zookeeper: ZooKeeperServer, directory: Path) -> Iterator[Yard]:
    """As one that was always there."""
    yard = Yard(directory, zookeeper)
    setup = ["-c", CLUSTER, "-md", f"zk:{yard.hosts}", "-cms", f"zk:{yard.hosts}", "-uw", f"http://{yard.web('one')}"]
    setup += ["-ub", yard.urls.partition(",")[0]]
    program = [*java_program(), "org.apache.pulsar.PulsarClusterMetadataSetup", *setup]
    subprocess.run(program, check=True, timeout=LIMIT_S, capture_output=True)
    try:
        for number in range(3):
            run(yard.bookie(f"apache-{number}", "apache"))
        yard.wait_for_bookies(3)
        run(yard.recovery("apache"))
        for name in yard.ports:
            run(yard.broker(name, "apache"))
        for name in yard.ports:
            wait_until_healthy(f"http://{yard.web(name)}")
        yield yard
    finally:
        yard.kill_all()

"""A cluster of Apache's processes gets Geminga's brokers, one at a time and under load, and Apache's again.

The step is ``examples/cluster/replace_broker.py``, as an operator runs it.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from tools.interop.apache_broker import ApacheBroker
from tools.interop.apache_standalone import free_ports
from tools.zookeeper_server import ZooKeeperServer

from geminga.app.cluster_metadata import initialize
from geminga.app.core.cluster_options import ClusterOptions
from support.apache_cluster import apaches_bookies
from support.rest import Rest
from support.source_tree import ROOT
from support.steady_load import SteadyLoad, wait_until_healthy

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

CLUSTER: Final = "east"
SESSION_MS: Final = 4000
TOPICS: Final = [f"persistent://public/default/moved-{number}" for number in range(6)]
STOP: Final = """
import os, signal, sys
from tools.process_tree import wait_gone
pid = int(sys.argv[1])
os.kill(pid, signal.SIGTERM)
sys.exit(bool(wait_gone([pid], 60)))
"""


class Place:
    """An address at which one broker after the other runs."""

    def __init__(self, directory: Path, zookeeper: ZooKeeperServer, name: str) -> None:
        self._directory = directory / name
        self._directory.mkdir()
        self._metadata = f"zk:{zookeeper.hosts}"
        self.broker_port, self.web_port = free_ports(2)
        self._pid = self._directory / "pid"

    @property
    def id(self) -> str:
        return f"127.0.0.1:{self.web_port}"

    @property
    def url(self) -> str:
        return f"http://{self.id}"

    def start(self, make: str) -> str:
        """The command that starts a broker of this make, and returns."""
        return shlex.join(
            ["sh", "-c", f"{self._program(make)} >> {self._log} 2>&1 < /dev/null & echo $! > {self._pid}"]
        )

    def _program(self, make: str) -> str:
        if make == "apache":
            broker = ApacheBroker(self._directory, log=self._log, metadata=self._metadata, cluster=CLUSTER)
            broker.broker_port, broker.web_port = self.broker_port, self.web_port
            return shlex.join(broker.command())
        ports = ["--broker-port", str(self.broker_port), "--web-port", str(self.web_port)]
        program = [sys.executable, "-m", "geminga", "broker", "--metadata", self._metadata, *ports]
        settings = {"clusterName": CLUSTER, "metadataStoreSessionTimeoutMillis": SESSION_MS}
        return shlex.join(
            [*program, *(part for item in settings.items() for part in ("--set", "=".join(map(str, item))))]
        )

    @property
    def _log(self) -> Path:
        return self._directory / "log"

    def stop(self) -> str:
        """The command that stops whoever runs here, and returns when it has ended."""
        return shlex.join([sys.executable, "-c", STOP, self._pid.read_text().strip()])

    def kill(self) -> None:
        if self._pid.exists():
            try:
                os.kill(int(self._pid.read_text()), signal.SIGKILL)
            except ProcessLookupError:
                pass


@contextmanager
def ended(places: list[Place]) -> Iterator[None]:
    try:
        yield
    finally:
        for place in places:
            place.kill()


def replace(place: Place, other: Place, make: str) -> None:
    program = [sys.executable, str(ROOT / "examples" / "cluster" / "replace_broker.py"), "--admin", other.url]
    program += [
        "--broker",
        place.id,
        "--namespace",
        "public/default",
        "--stop",
        place.stop(),
        "--start",
        place.start(make),
    ]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
    done = subprocess.run(program, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    print(done.stdout.strip())


def test_brokers_become_ours_and_apaches_again_under_load(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    first, second = places = [Place(tmp_path, zookeeper, name) for name in ("one", "two")]
    with apaches_bookies(zookeeper, tmp_path), ended(places):
        urls = f"pulsar://127.0.0.1:{first.broker_port},127.0.0.1:{second.broker_port}"
        metadata = f"zk:{zookeeper.hosts}"
        initialize(ClusterOptions(CLUSTER, first.url, metadata, broker_service_url=urls.partition(",")[0], bundles=16))
        for place in places:
            subprocess.run(shlex.split(place.start("apache")), check=True)
        for place in places:
            wait_until_healthy(place.url)
        with SteadyLoad(urls, tmp_path, TOPICS) as load:
            for make in ("geminga", "apache"):
                for place, other in ((first, second), (second, first)):
                    replace(place, other, make)
                versions = {Rest(place.url).get("brokers/version").body.decode() for place in places}
                assert (versions == {"4.2.4"}) == (make == "apache")
        assert load.missing() == 0
        assert sum(map(len, load.sent.values())) > 500
        assert load.received == load.sent  # in order for each key of each topic
        print(sum(map(len, load.sent.values())), "messages")

"""The commands of rendered examples run by podman: the cluster comes up, serves, and a broker's stop is not felt."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tools.chart import secrets
from tools.chart.pods import NETWORK, SUBNET, Cluster, Pod
from tools.chart.programs import PLACE, ROOT
from tools.chart.rendering import manifests, rendered
from tools.image.podman import IMAGE, podman, require
from tools.image.zookeeper_image import NAME as ZOOKEEPER
from tools.image.zookeeper_image import make_zookeeper

#: What an image of ZooKeeper has and ours of PySpark's jars has not, by its name.
_SHIM: Final = f"""\
FROM {ZOOKEEPER}
RUN printf '#!/bin/bash\\nexec /java/bin/java -Xmx192m -XX:+UseSerialGC -Dzookeeper.jmx.log4j.disable=true \
-Dlog4j2.level=WARN -cp "/jars/*" org.apache.zookeeper.server.quorum.QuorumPeerMain "$2"\\n' \
> /usr/local/bin/zkServer.sh && chmod 755 /usr/local/bin/zkServer.sh
"""
#: The image of `make image` with the code of this tree, for one that was made before.
_TREE: Final = f"""\
FROM {IMAGE}
USER root
RUN rm -rf /usr/local/lib/python3.11/dist-packages/geminga
COPY src/geminga /usr/local/lib/python3.11/dist-packages/geminga
RUN python3 -m compileall -q -f --invalidation-mode unchecked-hash /usr/local/lib/python3.11/dist-packages/geminga && \\
    python3 -m geminga.app.container.default_files /pulsar/conf && chmod -R g=u /pulsar/conf
USER 10000:0
"""
TREE_NAME: Final = "localhost/geminga-chart"
SHIM_NAME: Final = "localhost/geminga-chart-zookeeper"
MESSAGES: Final = 600
TOPIC: Final = "persistent://public/default/orders"
UP_S: Final = 180.0


class Trial(NamedTuple):
    """An example, and how far it is made smaller for one machine."""

    settings: tuple[str, ...]
    #: The component whose service clients are given.
    door: str
    #: Of that service.
    has_tls: bool
    #: Clients show a token.
    has_tokens: bool


_SMALL: Final = ("zookeeper.replicaCount=1", "broker.replicaCount=2")
TRIALS: Final[Mapping[str, Trial]] = {
    "three-of-each": Trial(("broker.replicaCount=2",), "broker", has_tls=False, has_tokens=False),
    "tls-and-tokens": Trial(_SMALL, "broker", has_tls=True, has_tokens=True),
    "one-broker": Trial((), "standalone", has_tls=False, has_tokens=False),
    "monitors": Trial(_SMALL, "broker", has_tls=False, has_tokens=False),
    "proxy": Trial((*_SMALL, "proxy.replicaCount=1"), "proxy", has_tls=True, has_tokens=True),
}


class Door:
    """Where clients of a trial go, and who they are."""

    def __init__(self, chosen: Trial) -> None:
        self._chosen = chosen
        self.host = f"geminga-{chosen.door}.geminga.svc.cluster.local"
        self.url = f"pulsar+ssl://{self.host}:6651" if chosen.has_tls else f"pulsar://{self.host}:6650"
        self.web = f"https://{self.host}:8443" if chosen.has_tls else f"http://{self.host}:8080"

    @property
    def variables(self) -> dict[str, str]:
        """Of a client's environment."""
        found = {}
        if self._chosen.has_tls:
            found["GEMINGA_TLS_TRUST_CERT_PATH"] = "/files/ca.pem"
        if self._chosen.has_tokens:
            found |= {"GEMINGA_AUTH_PLUGIN": "token", "GEMINGA_AUTH_PARAMS": "file:///files/admin.token"}
        return found


def trial(name: str) -> list[str]:
    """Run an example; what was wrong."""
    require()
    make_zookeeper()
    _make_images()
    chosen = TRIALS[name]
    place = PLACE / "run" / name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    files = place / "files"
    files.mkdir()
    documents = manifests(rendered(name, chosen.settings))
    if chosen.has_tls:
        documents += secrets.make(files)
        for each in ("admin.token", "ca.pem"):
            (files / each).chmod(0o644)
    shutil.copy(Path(__file__).with_name("load.py"), files)
    cluster = Cluster(documents, {"zookeeper": SHIM_NAME, "geminga": TREE_NAME}, place / "pods")
    podman("network", "rm", "--force", NETWORK, check=False)
    podman("network", "create", f"--subnet={SUBNET}.0/24", NETWORK)
    started = time.monotonic()
    try:
        for component in ("zookeeper", "init", "bookkeeper", "autorecovery", "broker", "proxy", "standalone"):
            for pod in cluster.of(component):
                cluster.start(pod)
        door = Door(chosen)
        return _smoke(name, cluster, door, files, started)
    except SystemExit as failed:
        for pod in cluster.pods:
            print(f"--- {pod.name}\n{podman('logs', '--tail=12', pod.name, check=False).stdout[-3000:]}")
        return [f"{name}: {failed}"]
    finally:
        podman("rm", "--force", "--time=5", "load", *(pod.name for pod in cluster.pods), check=False)
        podman("network", "rm", "--force", NETWORK, check=False)


def _make_images() -> None:
    for name, text, place in ((SHIM_NAME, _SHIM, PLACE / "schemas"), (TREE_NAME, _TREE, ROOT)):
        path = PLACE / f"{name.rpartition('/')[2]}.Dockerfile"
        path.write_text(text, "utf-8")
        podman("build", f"--tag={name}", "--file", path, f"--ignorefile={_ignored(place)}", place)


def _ignored(place: Path) -> Path:
    """What of a directory is no part of an image: all but the package."""
    path = PLACE / f"{place.name}.ignore"
    path.write_text("*\n!src/geminga\n**/__pycache__\n", "utf-8")
    return path


def _smoke(name: str, cluster: Cluster, door: Door, files: Path, started: float) -> list[str]:
    """Publish and consume, ask the admin API, stop a broker under load."""

    def client(*words: str, check: bool = True) -> str:
        return cluster.program(*words, files=files, variables=door.variables, check=check)

    admin = ("bin/geminga", "admin")
    _until(lambda: "geminga" in client(*admin, "clusters", "list", "--admin-url", door.web, check=False), "clusters")
    _until(lambda: "OK" in client("python3", "-c", _PROBES, *_probed(cluster), check=False).splitlines(), "probes")
    up_s = time.monotonic() - started
    produce = ("bin/geminga", "client", "produce", TOPIC, "-m", "hello", "--url", door.url)
    client(*produce)
    said = client(
        "bin/geminga", "client", "consume", TOPIC, "-s", "first", "-p", "Earliest", "-n", "1", "--url", door.url
    )
    wrong = [] if "hello" in said else [f"{name}: consumed {said!r}"]
    if not cluster.of("broker"):
        print(f"{name}: {len(cluster.pods)} pod up and ready after {up_s:.0f} s; published, consumed")
        return wrong
    brokers = client(*admin, "brokers", "list", "geminga", "--admin-url", door.web)
    missing = [pod.name for pod in cluster.of("broker") if f"{pod.name}." not in brokers]
    if missing:
        wrong.append(f"{name}: {', '.join(missing)} missing among the brokers: {brokers}")
    if door.variables.get("GEMINGA_AUTH_PARAMS"):
        refused = cluster.program(
            *produce, files=files, variables={"GEMINGA_TLS_TRUST_CERT_PATH": "/files/ca.pem"}, check=False
        )
        if "uthentic" not in refused:
            wrong.append(f"{name}: who has no token was not refused: {refused}")
    owner = client(*admin, "topics", "lookup", TOPIC, "--admin-url", door.web)
    stopped = next(pod for pod in cluster.of("broker") if pod.name in owner)
    print(
        f"{name}: {len(cluster.pods)} pods up and ready after {up_s:.0f} s; published, consumed; {stopped.name} stops"
    )
    return wrong + [f"{name}: {each}" for each in _stop_under_load(cluster, door, files, stopped)]


def _stop_under_load(cluster: Cluster, door: Door, files: Path, stopped: Pod) -> list[str]:
    cluster.program(
        "python3", "/files/load.py", door.url, TOPIC, str(MESSAGES),
        files=files, variables=door.variables, options=("--detach", "--name=load"),
    )  # fmt: skip
    _until(lambda: "READY" in podman("logs", "load").stdout, "the load")
    begin = time.monotonic()
    podman("stop", stopped.name)
    took_s = time.monotonic() - begin
    code = podman("inspect", "--format={{.State.ExitCode}}", stopped.name).stdout.strip()
    ended = podman("wait", "load").stdout.strip()
    said = podman("logs", "load")
    last = (said.stdout + said.stderr).strip().splitlines()[-1]
    print(f"  SIGTERM: ended with {code} after {took_s:.1f} s; its clients: {last}")
    wrong = []
    if code != "0":
        wrong.append(f"{stopped.name} ended with {code} at SIGTERM")
    if ended != "0" or f"acknowledged {MESSAGES}, came {MESSAGES}" not in last:
        wrong.append(f"clients of {stopped.name}: {last}")
    return wrong


#: Asks what the probes ask, from beside the pods; certificates as the kubelet does: it looks at none.
_PROBES: Final = """
import ssl, sys, urllib.request
for url in sys.argv[1:]:
    urllib.request.urlopen(url, timeout=5, context=ssl._create_unverified_context())
print("OK")
"""


def _probed(cluster: Cluster) -> Sequence[str]:
    """The URL of each probe over HTTP."""
    found = []
    for pod in cluster.pods:
        container = pod.spec["containers"][0]
        ports = {each["name"]: each["containerPort"] for each in container.get("ports") or ()}
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            get = container.get(kind, {}).get("httpGet")
            if get:
                found.append(f"{get['scheme'].lower()}://{pod.address}:{ports[get['port']]}{get['path']}")
    return found


def _until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + UP_S
    while not holds():
        if time.monotonic() > end:
            raise SystemExit(f"{what}: not within {UP_S:.0f} s")
        time.sleep(1)


if __name__ == "__main__":
    sys.exit("\n".join(trial(sys.argv[1])) or 0)

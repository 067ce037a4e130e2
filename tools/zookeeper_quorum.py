"""Several ZooKeeper servers on this machine that are one: each starts, is killed and paused by itself."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Final

from tools.free_ports import free_ports
from tools.zookeeper_server import Seat, ServerTls, ZooKeeperServer

#: Until there is a leader.
ELECTION_S: Final = 60.0
LOOK_S: Final = 0.05


class ZooKeeperQuorum:
    """``count`` servers, each on a directory of its own; with one it is a server by itself."""

    def __init__(self, directory: Path, count: int, *, sync: bool = False, tls: ServerTls | None = None) -> None:
        """``sync``: each write reaches the disk, as with anybody who means it. ``tls``: of a second port of each."""
        if count == 1:
            self.servers = [ZooKeeperServer(directory, sync=sync, tls=tls)]
            return
        ports = free_ports(3 * count)
        peers = [*zip(ports[:count], ports[count : 2 * count], strict=True)]
        self.servers = []
        for number, port in enumerate(ports[2 * count :], 1):
            server = ZooKeeperServer(directory / str(number), sync=sync, tls=tls, seat=Seat(number, peers))
            server.port = port
            self.servers.append(server)

    @property
    def hosts(self) -> str:
        """Of all of them, as clients are told."""
        return ",".join(server.hosts for server in self.servers)

    @property
    def secure_hosts(self) -> str:
        """The same with TLS."""
        return ",".join(server.secure_hosts for server in self.servers)

    @property
    def majority(self) -> int:
        """How many are needed."""
        return len(self.servers) // 2 + 1

    def start(self) -> None:
        """Start all of them, and wait until they answer. Raises AssertionError."""
        if len(self.servers) == 1:
            self.servers[0].start()
            return
        for server in self.servers:
            server.launch()
        self.wait_served()

    def wait_served(self) -> None:
        """Until all that run serve clients. Raises AssertionError."""
        deadline = time.monotonic() + ELECTION_S
        pause = threading.Event()
        while not all(server.mode() for server in self.servers if server.is_running):
            assert time.monotonic() < deadline, "\n".join(server.log() for server in self.servers)
            pause.wait(LOOK_S)

    def leader(self) -> ZooKeeperServer | None:
        """Who leads now."""
        return next((server for server in self.servers if server.mode() in ("leader", "standalone")), None)

    def kill(self) -> None:
        """kill -9 for everybody."""
        for server in self.servers:
            server.kill()

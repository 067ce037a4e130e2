"""``geminga proxy`` as a process."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from tools.standalone_process import StandaloneProcess


class ProxyProcess:
    """A proxy before one broker, on a port of its own that it keeps; between ``with`` and its end it serves."""

    def __init__(self, broker: StandaloneProcess, directory: Path, *, also: Iterable[int] = ()) -> None:
        """``also``: ports of other brokers that clients may name."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self.port = taken.getsockname()[1]
        ports = ",".join(str(port) for port in (broker.broker_port, *also))
        self.words = [
            *(sys.executable, "-m", "geminga", "proxy", "--json", "--port", str(self.port), "--web-port", "0"),
            *("--broker", broker.service_url, "--web", broker.web_url),
            *("--set", f"brokerProxyAllowedTargetPorts={ports}"),
        ]
        self.log = directory / f"proxy-{self.port}.log"
        self.process: subprocess.Popen[str]
        self.ready: dict[str, object] = {}

    @property
    def url(self) -> str:
        """For clients."""
        return f"pulsar://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Of the process."""
        return self.process.pid

    def start(self) -> Self:
        """Again, too; AssertionError with its log if it does not say that it is ready."""
        with self.log.open("a") as log:
            self.process = subprocess.Popen(self.words, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        self.ready = json.loads(self.process.stdout.readline() or "{}")
        assert self.ready, self.log.read_text()
        return self

    def end(self, number: signal.Signals) -> int:
        """Its exit code."""
        self.process.send_signal(number)
        code = self.process.wait(30)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def kill(self) -> None:
        """At once; nothing if it has ended."""
        if self.process.poll() is None:
            self.end(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

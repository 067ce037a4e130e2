"""A standalone that asks who is there, on ports with and without TLS; and what of it an attack may not change."""

from __future__ import annotations

import json
import os
import ssl
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from support.house.signing import SECRET, in_text, token_of
from support.processes.certificates import Authority
from tools.chaos.cluster import BookieProcess
from tools.chaos.secured import Security
from tools.standalone_process import StandaloneProcess
from tools.zookeeper_server import running_zookeeper

_PACKAGE: Final = "org.apache.pulsar.broker.authentication."
ADMIN: Final = "root"
#: The topic of who is known, and may go on.
TOPIC: Final = "persistent://public/default/witness"


class Held(NamedTuple):
    """What the process holds now."""

    rss_bytes: int
    open_files: int
    cpu_s: float


class Attacked:
    """A running one; see :func:`running`."""

    def __init__(self, process: StandaloneProcess, authority: Authority) -> None:
        self.process = process
        self.trust = str(authority.certificate)
        self.token = token_of(ADMIN).decode()
        ready = process.ready
        self.ports = {
            name: _port(str(ready[key]))
            for name, key in (
                ("binary", "brokerServiceUrl"),
                ("binary with TLS", "brokerServiceUrlTls"),
                ("HTTP", "webServiceUrl"),
                ("HTTPS", "webServiceUrlTls"),
            )
        }
        self._context = ssl.create_default_context(cafile=self.trust)

    def made(self) -> dict[str, object]:
        """Everything that an attack could have made: tenants, their namespaces, topics with their subscriptions."""
        found: dict[str, object] = {}
        for tenant in self._get("/admin/v2/tenants"):
            found[tenant] = self._get(f"/admin/v2/tenants/{tenant}")
            for namespace in self._get(f"/admin/v2/namespaces/{tenant}"):
                found[namespace] = self._get(f"/admin/v2/namespaces/{namespace}")
                for topic in self._get(f"/admin/v2/persistent/{namespace}"):
                    found[topic] = self._get(f"/admin/v2/{topic.replace('://', '/')}/subscriptions")
                found[f"{namespace} loaded"] = self._get(f"/admin/v2/non-persistent/{namespace}")
        return found

    def _get(self, path: str) -> list[str]:
        request = urllib.request.Request(
            f"https://127.0.0.1:{self.ports['HTTPS']}{path}", headers={"Authorization": f"Bearer {self.token}"}
        )
        with urllib.request.urlopen(request, context=self._context, timeout=30) as answer:
            found: list[str] = json.load(answer)
            return found

    def held(self) -> Held:
        """Memory, descriptors, CPU so far."""
        pid = self.process.pid
        return Held(self.process.rss_bytes(), len(os.listdir(f"/proc/{pid}/fd")), self.process.cpu_seconds())

    def log_bytes(self) -> int:
        """Of its log."""
        return self.process.log.stat().st_size

    def complaints(self) -> list[str]:
        """Lines of its log that no stranger may cause."""
        text = self.process.log.read_text(errors="replace")
        return [line for line in text.splitlines() if "Traceback" in line or " ERROR " in line or "contained" in line]


@contextmanager
def running(directory: Path) -> Iterator[Attacked]:
    """Started in ``directory``, killed afterwards."""
    directory.mkdir(parents=True, exist_ok=True)
    authority = Authority(directory, "authority")
    settings = {
        "brokerServicePortTls": 0,
        "webServicePortTls": 0,
        "tlsCertificateFilePath": authority.store("own", "127.0.0.1"),
        "tlsTrustCertsFilePath": authority.certificate,
        "authenticationEnabled": "true",
        "authenticationProviders": ",".join(f"{_PACKAGE}AuthenticationProvider{kind}" for kind in ("Token", "Basic")),
        "tokenSecretKey": in_text(SECRET),
        "basicAuthConf": in_text(b"joe:ab7Wl3zw4JrNg\n"),
        "authorizationEnabled": "true",
        "superUserRoles": ADMIN,
        "authenticateMetricsEndpoint": "true",
    }
    with StandaloneProcess(directory / "data", log=directory / "log", settings=settings) as process:
        yield Attacked(process, authority)


def _port(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None, url
    return port


@contextmanager
def running_bookie(directory: Path) -> Iterator[tuple[int, BookieProcess]]:
    """The port of a bookie that takes certificates of one authority alone, with a ZooKeeper of its own."""
    security = Security(directory / "keys")
    with running_zookeeper(tls=security.zookeeper) as zookeeper:
        process = BookieProcess(
            directory / "bookie", log=directory / "bookie.log", settings=security.bookie_settings("bookie")
        )
        process.zookeeper = f"zk:{zookeeper.secure_hosts}"
        try:
            process.start()
            yield process.port, process
        finally:
            process.kill()

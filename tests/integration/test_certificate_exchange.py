"""Broken, expired, foreign and good certificates, by SIGHUP and by time: the fingerprint that each port serves."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tools.standalone_process import StandaloneProcess

from geminga.app.configuration.bookie_tls_config import FACTORY
from geminga.wire._generated import bookkeeper_protocol_pb2 as pb
from geminga.wire.bookkeeper.v3 import OperationType, encode_request
from support.processes.bookie_process import BookieProcess
from support.processes.certificates import Authority, parts_of

# Two processes each time, and looks a second apart; test_following.py has the cases without any.
pytestmark = [pytest.mark.integration, pytest.mark.long]
WAIT_S = 30.0
KEPT = "the certificates that were read before stay in use"
START_TLS = encode_request(OperationType.START_TLS, 1, startTLSRequest=pb.StartTLSRequest())


class Port:
    """What is asked for its certificate, and who is told that there is another."""

    def __init__(self, address: tuple[str, int], pid: int, log: Path, said: bytes = b"") -> None:
        self.address = address
        self.pid = pid
        self.log = log
        #: What comes before TLS on this port.
        self.said = said

    def served(self) -> str:
        """SHA-256 of the certificate."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with socket.create_connection(self.address, timeout=WAIT_S) as plain:
            if self.said:
                plain.sendall(self.said)
                length = int.from_bytes(_exactly(plain, 4), "big")
                _exactly(plain, length)
            with context.wrap_socket(plain) as secured:
                shown = secured.getpeercert(binary_form=True)
        assert shown is not None
        return hashlib.sha256(shown).hexdigest()


def _exactly(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        part = connection.recv(count - len(found))
        assert part, "closed"
        found += part
    return found


class Files:
    """The pair of files that all ports serve."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory, "authority")
        self.foreign = Authority(directory, "foreign")
        self.certificate, self.key = directory / "own.cert", directory / "own.key"
        self.put("first")

    def put(self, name: str, days: tuple[int, int] = (-1, 30)) -> str:
        """A good pair unless its time is over; SHA-256 of the certificate."""
        certificate, key = parts_of(self.authority.store(name, "127.0.0.1", days=days))
        text = certificate.read_text()
        os.replace(key, self.key)
        os.replace(certificate, self.certificate)
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(text)).hexdigest()

    def spoil(self, kind: str) -> None:
        """What must not be served."""
        if kind == "broken":
            self.certificate.write_text("nothing")
        elif kind == "expired":
            self.put("expired", (-9, -5))
        else:
            # Another authority's, put beside the key that was there.
            os.replace(parts_of(self.foreign.store("foreign-own", "127.0.0.1"))[0], self.certificate)


@pytest.fixture(params=["signal", "time"])
def how(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.fixture
def ports(tmp_path: Path, files: Files, how: str) -> Iterator[list[Port]]:
    """The binary port of a broker, its HTTP, and a bookie's."""
    seconds = 300 if how == "signal" else 1
    broker_keys = {
        "brokerServicePortTls": 0,
        "webServicePortTls": 0,
        "tlsCertificateFilePath": files.certificate,
        "tlsKeyFilePath": files.key,
        "tlsCertRefreshCheckDurationSec": seconds,
    }
    bookie_keys = {
        "tlsProviderFactoryClass": FACTORY,
        "tlsCertificatePath": files.certificate,
        "tlsKeyStore": files.key,
        "tlsCertFilesRefreshDurationSeconds": 0 if how == "signal" else seconds,
    }
    with ExitStack() as stack:
        broker = stack.enter_context(
            StandaloneProcess(tmp_path / "data", log=tmp_path / "broker.log", settings=broker_keys)
        )
        settings = [part for key, value in bookie_keys.items() for part in ("--set", f"{key}={value}")]
        bookie = BookieProcess(tmp_path / "bookie", *settings)
        bookie.start()
        stack.callback(bookie.kill)
        assert bookie.process is not None
        found = []
        for key in ("brokerServiceUrlTls", "webServiceUrlTls"):
            url = urlsplit(str(broker.ready[key]))
            found.append(Port((str(url.hostname), int(url.port or 0)), broker.pid, broker.log))
        found.append(Port(("127.0.0.1", bookie.port), bookie.process.pid, bookie.log, START_TLS))
        yield found


def until(what: Callable[[], bool], told: Callable[[], str]) -> None:
    """Ask until it is so; what asks is answered by who reads the files."""
    end = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < end, told()


def test_fingerprint_that_is_served_is_that_of_the_newest_good_files(ports: list[Port], files: Files, how: str) -> None:
    def logs() -> str:
        return "\n".join(log.read_text() for log in {port.log for port in ports})

    def tell() -> None:
        for pid in {port.pid for port in ports} if how == "signal" else ():
            os.kill(pid, signal.SIGHUP)

    good = files.put("second")
    tell()
    until(lambda: {port.served() for port in ports} == {good}, logs)
    for number, kind in enumerate(("broken", "expired", "foreign")):
        before = logs().count(KEPT)
        files.spoil(kind)
        tell()
        # Of the broker's two ports and of the bookie's.
        until(lambda: (ports[0].served(), logs().count(KEPT))[1] >= before + len(ports), logs)  # noqa: B023
        assert {port.served() for port in ports} == {good}, kind
        good = files.put(f"good-{number}")
        tell()
        until(lambda: {port.served() for port in ports} == {good}, logs)  # noqa: B023
    assert "Traceback" not in logs()

"""A process that may open few files: strangers take what is left over, never what clients and storage need."""

from __future__ import annotations

import resource
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Self

import pytest
from bench.frames import send_frame
from tools.standalone_process import StandaloneProcess, StartError

from geminga.wire._generated import pulsar_api_pb2 as pb
from support.house.waiting import until
from support.house.weekly_sample import sampled
from support.processes.raw_protocol import RawConnection, producer_frame

pytestmark = pytest.mark.integration

TOPIC = "persistent://public/default/descriptors"
LIMIT = 256
STRANGERS = 400
#: The least of what a journal may be, so that it opens further files while the test runs.
SETTINGS = {"gemingaHandshakeTimeoutSeconds": 1, "journalPreAllocSizeMB": 1, "journalMaxSizeMB": 1}
HALF_REQUEST = b"GET /admin/v2/clusters HTTP/1.1\r\nHost: localhost"


def few_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))


@pytest.fixture(params=sampled("few descriptors", ["uvloop", "asyncio"], 1))
def process(request, tmp_path) -> Iterator[StandaloneProcess]:
    """A process whose hard limit is small too."""
    if request.param == "uvloop":
        pytest.importorskip("uvloop")
    settings = {**SETTINGS, "gemingaEventLoop": request.param}
    log = tmp_path / "broker.log"
    with StandaloneProcess(tmp_path / "data", log=log, settings=settings, before_exec=few_files) as made:
        yield made
        made.kill()


class Producer:
    """A connected producer that counts its receipts."""

    def __init__(self, port: int) -> None:
        self.connection = RawConnection(port)
        self.connection.send(producer_frame(f"{TOPIC}-{self.connection.address.replace(':', '-')}"))
        self.connection.expect(pb.BaseCommand.PRODUCER_SUCCESS)
        self.sent = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def publish(self, size_bytes: int = 100) -> None:
        """One message; AssertionError if it gets no receipt."""
        self.connection.send(send_frame(self.sent, b"x" * size_bytes))
        receipt = self.connection.expect(pb.BaseCommand.SEND_RECEIPT).send_receipt
        assert receipt.sequence_id == self.sent
        self.sent += 1


@contextmanager
def strangers(port: int, said: bytes) -> Iterator[list[socket.socket]]:
    """Connections that say no more than that; those that were refused in time are among them."""
    with ExitStack() as stack:
        made = []
        for _ in range(STRANGERS):
            try:
                stranger = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
                stranger.sendall(said)
            except OSError:  # refused already
                continue
            made.append(stranger)
        yield made


def has_ended(stranger: socket.socket) -> bool:
    """Whether the broker closed it; what it says before is read."""
    stranger.setblocking(False)
    try:
        while stranger.recv(4096):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


def publish_once(process: StandaloneProcess) -> None:
    with Producer(process.broker_port) as producer:
        producer.publish()


def web_status(process: StandaloneProcess) -> int:
    try:
        with urllib.request.urlopen(f"{process.web_url}/admin/v2/clusters", timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def test_half_http_requests_cost_nobody_else_a_receipt(process) -> None:
    with Producer(process.broker_port) as producer, strangers(process.web_port, HALF_REQUEST) as made:
        for _ in range(4):
            producer.publish(1_000_000)
        publish_once(process)
        assert len(made) > 100
        until(lambda: all(has_ended(stranger) for stranger in made), "half requests time out")
        assert web_status(process) == 200
        producer.publish()
    assert process.is_running
    log = process.log.read_text()
    assert log.count("WARNING") <= 4
    assert "open files: at most 256" in log
    assert "Traceback" not in log


def test_silent_connections_leave_room_for_http_and_then_for_clients(process) -> None:
    with Producer(process.broker_port) as producer, strangers(process.broker_port, b"") as made:
        for _ in range(4):
            producer.publish(1_000_000)
        assert web_status(process) == 200
        assert len(made) > 100
        until(lambda: all(has_ended(stranger) for stranger in made), "silent connections time out")
        publish_once(process)
        producer.publish()
    assert process.is_running
    log = process.log.read_text()
    assert "Traceback" not in log
    # One for those refused, one for those who never shook hands.
    assert log.count("WARNING") <= 3


def test_refused_client_is_told_to_come_back(process) -> None:
    with strangers(process.broker_port, b"") as made:
        refused = next(stranger for stranger in reversed(made) if stranger.recv(1, socket.MSG_PEEK))
        answer = refused.recv(4096)
        command = pb.BaseCommand.FromString(answer[8:])
        assert command.error.error == pb.ServiceNotReady
        assert "try again later" in command.error.message


def test_storage_without_a_descriptor_goes_on_when_there_is_one(tmp_path) -> None:
    settings = {"journalPreAllocSizeMB": 1, "journalMaxSizeMB": 1, "diskCheckInterval": 100}
    with StandaloneProcess(tmp_path / "data", log=tmp_path / "broker.log", settings=settings) as process:
        limits = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        with Producer(process.broker_port) as producer:
            producer.publish()
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (4, limits[1]))
            # More than the journal file and its spare hold.
            for number in range(1, 6):
                producer.connection.send(send_frame(number, b"x" * 1_000_000))
            until(lambda: "becomes read-only" in process.log.read_text(), "the journal finds no descriptor")
        assert process.is_running
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, limits)
        until(lambda: publishes(process), "receipts again", 30)
        assert process.is_running
        assert "Traceback" not in process.log.read_text()
        process.kill()


def publishes(process: StandaloneProcess) -> bool:
    try:
        publish_once(process)
    except (AssertionError, OSError):
        return False
    return True


def test_limit_that_leaves_nothing_for_clients_is_refused_at_start(tmp_path) -> None:
    def fewer() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48))

    process = StandaloneProcess(tmp_path / "data", log=tmp_path / "broker.log", before_exec=fewer)
    with pytest.raises(StartError, match="may open 48 files, its hard limit; at least 64"):
        process.start()
    assert not process.is_running


def test_soft_limit_is_raised_to_the_hard_one(tmp_path) -> None:
    def soft_only() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 300))

    with StandaloneProcess(tmp_path / "data", log=tmp_path / "broker.log", before_exec=soft_only) as process:
        assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (300, 300)
        assert "open files: at most 300, raised from 100" in process.log.read_text()
        process.kill()

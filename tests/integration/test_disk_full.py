"""A disk that takes no more, at a real process: a clear error for publishers, and back again when space returns.

The limit is the kernel's on the size of files (RLIMIT_FSIZE), set and lifted while the broker runs: every write that
would make a file longer fails, as on a full disk, and nobody needs to be root.
"""

from __future__ import annotations

import resource
import threading

import pulsar
import pytest
from bench.frames import send_frame
from tools.standalone_process import StandaloneProcess

from geminga.wire._generated import pulsar_api_pb2 as pb
from support.house.waiting import until
from support.processes.official import quiet_client
from support.processes.raw_protocol import RawConnection, producer_frame

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TOPIC = "persistent://public/default/full"
SMALL = {"journalPreAllocSizeMB": 1, "journalMaxSizeMB": 4}
#: Less than a journal file, more than the metadata store needs.
LIMIT_BYTES = 700_000
RECOVERY_S = 45


@pytest.fixture
def process(tmp_path):
    """A process with small journal files."""
    with StandaloneProcess(tmp_path / "data", log=tmp_path / "broker.log", settings=SMALL) as made:
        yield made
        made.kill()


def limit_files(process: StandaloneProcess, size_bytes: int) -> None:
    """No file of the process may become longer than that; -1 lifts the limit."""
    hard = resource.RLIM_INFINITY
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (hard if size_bytes < 0 else size_bytes, hard))


def publish_raw(port: int, sequence_id: int) -> pb.BaseCommand | None:
    """One message over a connection of its own; the broker's answer (None: it closed)."""
    with RawConnection(port) as connection:
        connection.send(producer_frame(TOPIC))
        answer = connection.receive()
        if answer is None or answer.type != pb.BaseCommand.PRODUCER_SUCCESS:
            return answer
        connection.send(send_frame(sequence_id, b"x" * 20_000))
        return connection.receive()


def publish_until(kind: int, port: int, seconds: float) -> list[pb.BaseCommand | None]:
    """Publish again and again until an answer of ``kind``; all answers."""
    answers: list[pb.BaseCommand | None] = []

    def is_answered() -> bool:
        answers.append(publish_raw(port, len(answers)))
        return answers[-1] is not None and answers[-1].type == kind

    until(is_answered, pb.BaseCommand.Type.Name(kind), seconds)
    return answers


def test_full_disk_refuses_publishing_clearly_and_recovers(process, tmp_path) -> None:
    client = quiet_client(process.service_url, tmp_path)
    consumer = client.subscribe(TOPIC, "s")
    before = client.create_producer(TOPIC, producer_name="before", batching_enabled=False)
    before.send(b"before")

    limit_files(process, LIMIT_BYTES)
    error = publish_until(pb.BaseCommand.SEND_ERROR, process.broker_port, 30)[-1]
    assert error is not None
    assert error.send_error.error == pb.PersistenceError
    assert error.send_error.message
    assert process.is_running, process.log_tail()
    answered = threading.Event()
    results: list[pulsar.Result] = []
    waiting = client.create_producer(TOPIC, producer_name="waiting", batching_enabled=False, send_timeout_millis=0)
    waiting.send_async(b"waiting", lambda result, _: (results.append(result), answered.set()))
    assert not answered.wait(0.5)

    limit_files(process, -1)
    publish_until(pb.BaseCommand.SEND_RECEIPT, process.broker_port, RECOVERY_S)
    assert answered.wait(RECOVERY_S)
    assert results == [pulsar.Result.Ok]
    seen = set()
    while {b"before", b"waiting"} - seen:
        seen.add(consumer.receive(timeout_millis=10_000).data())
    client.close()
    assert process.stop() == 0


def test_broker_that_was_full_when_killed_starts_again_with_everything_acknowledged(process, tmp_path) -> None:
    client = quiet_client(process.service_url, tmp_path)
    client.subscribe(TOPIC, "s").close()
    client.close()
    limit_files(process, LIMIT_BYTES)
    answers = publish_until(pb.BaseCommand.SEND_ERROR, process.broker_port, 30)
    acknowledged = sum(a is not None and a.type == pb.BaseCommand.SEND_RECEIPT for a in answers)
    process.kill()
    process.start()
    client = quiet_client(process.service_url, tmp_path)
    consumer = client.subscribe(TOPIC, "s")
    for _ in range(acknowledged):
        consumer.receive(timeout_millis=10_000)
    client.close()

"""A program is killed in a transaction and nobody starts it again: its inputs come to another after the time-out."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.standalone_process import StandaloneProcess

from geminga.client import ConsumerType, InitialPosition, MessageId, Timeout, blocking
from support.house.source_tree import ROOT

pytestmark = pytest.mark.integration

TIMEOUT_S = 2.0
#: Beyond it, for a machine that has other things to do.
GRACE_S = 8.0
INPUTS = [b"0", b"1", b"2"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    directory: Path = tmp_path_factory.mktemp("left-open")
    settings = {"transactionCoordinatorEnabled": "true", "brokerDeduplicationEnabled": "true"}
    with StandaloneProcess(directory / "data", log=directory / "broker.log", settings=settings) as running:
        yield running


def hang_and_die(url: str, source: str, target: str, kind: str) -> float:
    """When its transaction began at the latest."""
    command = [sys.executable, str(ROOT / "tests/support/processes/hung_program.py"), url, source, target]
    command += [str(len(INPUTS)), str(TIMEOUT_S), kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as program:
        assert program.stdout is not None
        line = program.stdout.readline()
        program.kill()
    assert line == b"held\n"
    return time.monotonic()


@pytest.mark.parametrize(
    ("kind", "is_broker_killed"), [("Shared", False), ("Exclusive", True), ("Failover", False), ("Shared", True)]
)
def test_inputs_of_a_killed_program_come_to_another_after_the_time_out(
    broker: StandaloneProcess, kind: str, is_broker_killed: bool
) -> None:
    source, target = (f"{kind}-{is_broker_killed}-{name}" for name in ("in", "out"))
    with blocking.connect(broker.service_url) as client:
        client.subscribe(target, "keep", initial_position=InitialPosition.Earliest).close()
        with client.create_producer(source, batching_enabled=False) as producer:
            for data in INPUTS:
                producer.send(data)
        since = hang_and_die(broker.service_url, source, target, kind)
        with client.create_producer(target) as producer:
            producer.send(b"plain")
        if is_broker_killed:
            broker.kill()
            broker.start()
        found = []
        with client.subscribe(source, "s", consumer_type=ConsumerType[kind]) as other:
            while len(found) < len(INPUTS) and time.monotonic() - since < TIMEOUT_S + GRACE_S:
                try:
                    message = other.receive(200)
                except Timeout:
                    continue
                # It may be that the broker's restart took longer than the time-out.
                found.append(message.data())
                other.acknowledge(message)
            with pytest.raises(Timeout):
                other.receive(300)
        assert sorted(found) == INPUTS, "each of them, once"
        # What was published in it is never seen, and holds back nothing any more.
        with client.create_reader(target, MessageId.earliest) as reader:
            assert reader.read_next(10_000).data() == b"plain"
            assert not reader.has_message_available()

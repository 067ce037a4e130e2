"""A stop means stop: while an administrator's request is under way, while requests hang, and told twice."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException

import pytest

from support.processes.killing import end_now
from support.worlds.rest import Answer, Rest

pytestmark = pytest.mark.integration

TOPIC = "persistent/public/default/p"
MANY = ("--set", "maxNumPartitionsPerPartitionedTopic=1000000")
"""More than a broker creates unless it is told so."""


class Request:
    """A request whose answer is waited for on a thread of its own."""

    def __init__(self, rest: Rest, method: str, path: str, body: object = None) -> None:
        self.answer: Answer | None = None
        self.error: OSError | HTTPException | None = None
        self._thread = threading.Thread(target=self._run, args=(rest, method, path, body), daemon=True)
        self._thread.start()

    def _run(self, rest: Rest, method: str, path: str, body: object) -> None:
        try:
            self.answer = rest.call(method, path, body)
        except (OSError, HTTPException) as error:  # a stop cuts off an answer before it, or in it
            self.error = error

    def wait(self) -> None:
        self._thread.join(20)
        assert not self._thread.is_alive()


class Broker:
    """A process that is told to stop."""

    def __init__(self, data, *arguments: str) -> None:
        command = [sys.executable, "-m", "geminga", "standalone", "--data", str(data), "--json", *arguments]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [*command, "--broker-port", "0", "--web-port", "0"], stdout=pipe, stderr=pipe, text=True
        )
        assert self.process.stdout is not None
        self.ready = json.loads(self.process.stdout.readline())
        self.rest = Rest(self.ready["webServiceUrl"])

    def stop(self, *, signals: int = 1) -> tuple[int, str, float]:
        """Exit code, what it wrote to standard error, seconds that it took."""
        began_s = time.monotonic()
        assert self.process.stderr is not None
        written = ""
        for _ in range(signals):
            self.process.send_signal(signal.SIGTERM)
            while signals > 1 and "stopping" not in written:
                written += self.process.stderr.readline()
        _, rest = self.process.communicate(timeout=60)
        return self.process.returncode, written + rest, time.monotonic() - began_s

    def has_partitions(self, count: int) -> bool:
        with urllib.request.urlopen(f"{self.rest.base_url}/admin/v2/persistent/public/default") as answer:
            return len(json.load(answer)) >= count


@pytest.fixture
def start(tmp_path):
    running: list[Broker] = []

    def make(*arguments: str) -> Broker:
        running.append(Broker(tmp_path / "d", *arguments))
        return running[-1]

    yield make
    for item in running:
        end_now(item.process)


def test_stop_during_the_creation_of_a_million_partitions_takes_less_than_two_seconds(start) -> None:
    broker = start(*MANY)
    request = Request(broker.rest, "PUT", f"{TOPIC}/partitions", 1_000_000)
    while not broker.has_partitions(2000):
        assert request.answer is None
    code, errors, seconds = broker.stop()
    assert code == 0
    assert seconds < 2, f"the stop took {seconds:.1f} s"
    assert "Traceback" not in errors
    assert "ERROR" not in errors
    request.wait()
    assert request.answer is None or (request.answer.status, "stopping" in request.answer.reason) == (503, True)


def test_two_signals_end_it_at_once(start) -> None:
    broker = start(*MANY)
    request = Request(broker.rest, "PUT", f"{TOPIC}/partitions", 200_000)
    while not broker.has_partitions(100):
        assert request.answer is None
    _, errors, seconds = broker.stop(signals=2)
    assert seconds < 2, f"two signals took {seconds:.1f} s"
    assert "Traceback" not in errors


def test_creation_that_was_cut_off_is_completed_after_a_restart(start) -> None:
    count = 4000
    broker = start()
    request = Request(broker.rest, "PUT", f"{TOPIC}/partitions", count)
    while not broker.has_partitions(100):
        pass
    broker.stop()
    request.wait()
    broker = start()
    assert broker.rest.get(f"{TOPIC}/partitions").json["partitions"] == count
    assert not broker.has_partitions(count)
    assert broker.rest.post(f"{TOPIC}/createMissedPartitions").status == 204
    names = broker.rest.get("persistent/public/default").json
    assert sorted(names) == sorted(f"persistent://public/default/p-partition-{index}" for index in range(count))
    assert broker.rest.post("persistent/public/default/unknown/createMissedPartitions").status == 404
    assert broker.rest.delete(f"{TOPIC}/partitions").status == 204
    assert broker.rest.get("persistent/public/default").json == []
    assert broker.stop()[0] == 0


def test_half_requests_do_not_delay_a_stop(start) -> None:
    broker = start()
    port = int(broker.ready["webServiceUrl"].rpartition(":")[2])
    head = b"PUT /admin/v2/persistent/public/default/p/partitions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
    halves = [socket.create_connection(("127.0.0.1", port)) for _ in range(4)]
    for half, part in zip(halves, (b"PUT /adm", head, head + b"\r\n", head + b"\r\n123"), strict=True):
        half.sendall(part)
    # Answered when what came before it was read.
    assert broker.rest.get("clusters").status == 200
    code, errors, seconds = broker.stop()
    for half in halves:
        half.close()
    assert code == 0
    assert seconds < 4, f"the stop took {seconds:.1f} s"
    assert "Traceback" not in errors


@contextmanager
def told_to_stop(program: str) -> Iterator[subprocess.Popen[str]]:
    """A Python that runs it, and got the first signal once it was ready."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", program], stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        yield process


@pytest.mark.parametrize("event_loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("callback", ["pass", "held()"])
def test_second_signal_ends_a_stop_that_hangs(event_loop: str, callback: str) -> None:
    if event_loop == "uvloop":
        pytest.importorskip("uvloop")
    program = f"""
import asyncio, os, signal, sys
from geminga.app.lifecycle.event_loop import loop_factory
from geminga.app.lifecycle.process_life import stop_on_signals

def held():
    print("held", flush=True)
    while True:
        pass

async def main():
    stop = asyncio.Event()
    stop_on_signals(asyncio.get_running_loop(), stop, latest_s=lambda: 60)
    print("ready", flush=True)
    await stop.wait()
    print("told", flush=True)
    {callback}
    await asyncio.Event().wait()

with asyncio.Runner(loop_factory=loop_factory({event_loop!r})) as runner:
    runner.run(main())
"""
    with told_to_stop(program) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "told\n"
        if callback == "held()":
            assert process.stdout.readline() == "held\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGINT
    assert errors == "geminga: ended at once, by a second signal (SIGINT); the next start recovers\n"


def test_stop_that_takes_longer_than_allowed_ends_by_itself() -> None:
    program = """
import asyncio
from geminga.app.lifecycle.process_life import stop_on_signals

async def main():
    stop = asyncio.Event()
    stop_on_signals(asyncio.get_running_loop(), stop, latest_s=lambda: 0.1)
    print("ready", flush=True)
    await stop.wait()
    while True:
        pass

asyncio.run(main())
"""
    with told_to_stop(program) as process:
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert errors.startswith("geminga: ended at once, 0.1 s after it was told to stop")


@pytest.mark.parametrize("program", ["proxy", "autorecovery"])
def test_who_is_told_to_stop_while_it_waits_for_its_metadata_stops(program: str) -> None:
    """It heard of that when its start was over, and was ended before as one that hangs."""
    pipe = subprocess.PIPE
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        address = f"zk:127.0.0.1:{silent.getsockname()[1]}"
        words = [sys.executable, "-m", "geminga", program]
        words += ["--metadata", address] if program == "autorecovery" else ["--set", f"metadataStoreUrl={address}"]
        with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True) as process:
            accepted, _ = silent.accept()
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=60)
            accepted.close()
    assert process.returncode == 0, errors
    assert "ended at once" not in errors
    assert "Traceback" not in errors

"""Damaged frames at a real process: it lives on, closes or answers, leaks nothing, and says one line for each close.

MUTATED_FRAMES sets the count of the long test, MUTATED_SEED the seed. Automatic creation is off: a damaged name must
not make a topic, or memory would grow for a good reason.
"""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from pathlib import Path

import pytest
from tools.standalone_process import StandaloneProcess

from geminga.wire._generated import pulsar_api_pb2 as pb
from support.house.waiting import until
from support.processes.mutations import is_whole, mutate, valid_frames
from support.processes.official import quiet_client
from support.processes.raw_protocol import RawConnection, frame, producer_frame

pytestmark = [pytest.mark.integration, pytest.mark.slow]

COUNT = 4_000
COUNT_LONG = int(os.environ.get("MUTATED_FRAMES", "100000"))
SEED = int(os.environ.get("MUTATED_SEED", "1"))
GROWTH_BYTES_MAX = 2_000_000
TOPIC = "persistent://public/default/mutated"
PING = frame(pb.BaseCommand(type=pb.BaseCommand.PING, ping=pb.CommandPing()))
SETTINGS = {"allowAutoTopicCreation": "false", "allowAutoSubscriptionCreation": "false", "managedLedgerCacheSizeMB": 1}


def open_sockets(process: StandaloneProcess) -> int:
    """How many sockets the broker has open."""
    found = 0
    for entry in Path(f"/proc/{process.pid}/fd").iterdir():
        try:
            found += entry.readlink().name.startswith("socket:")
        except FileNotFoundError:
            continue
    return found


def feed(process: StandaloneProcess, rng: random.Random, frames: list[bytes], count: int) -> list[str]:
    """Send ``count`` damaged frames; addresses of the clients that the broker closed because of whole ones.

    Behind a whole frame goes a PING: what answers it lives. Behind any other the connection ends on our side.
    Strangers, who have not said CONNECT, are not among them: they get one line a minute together.
    """
    closed = []
    is_client = False
    connection: RawConnection | None = None
    for number in range(count):
        if connection is None:
            is_client = number % 10 != 0
            connection = RawConnection(process.broker_port, handshake=is_client)
            if is_client:
                connection.send(producer_frame(TOPIC))
                connection.expect(pb.BaseCommand.PRODUCER_SUCCESS)
        data = mutate(rng, frames)
        whole = is_whole(data)
        try:
            connection.send(data + (PING if whole else b""))
            if not whole:
                connection.socket.shutdown(1)
            while (answer := connection.receive()) is not None and not (whole and answer.type == pb.BaseCommand.PONG):
                pass
        except TimeoutError:
            pytest.fail(f"neither answer nor close after {data!r}")
        except OSError:  # reset, or not connected any more
            answer = None
        if answer is None:
            if whole and is_client:
                closed.append(connection.address)
            connection.close()
            connection = None
    if connection is not None:
        connection.close()
    return closed


def run_mutations(tmp_path, count: int, seed: int) -> None:
    """Half, measure, the other half, measure again."""
    process = StandaloneProcess(tmp_path / "data", log=tmp_path / "broker.log", settings=SETTINGS)
    with process:
        process.request("PUT", f"/admin/v2/{TOPIC.replace('://', '/')}")
        process.request("PUT", f"/admin/v2/{TOPIC.replace('://', '/')}/subscription/s")
        before = open_sockets(process)
        rng = random.Random(seed)
        frames = valid_frames(TOPIC, "s")
        closed = feed(process, rng, frames, count // 2)
        assert process.is_running, process.log_tail()
        rss = process.rss_bytes()
        closed += feed(process, rng, frames, count - count // 2)
        assert process.is_running, process.log_tail()
        growth = process.rss_bytes() - rss
        until(lambda: open_sockets(process) <= before, "no connection is left open")
        client = quiet_client(process.service_url, tmp_path)
        client.create_producer(TOPIC).send(b"still here")
        client.close()
        log = process.log.read_text(encoding="utf-8", errors="replace")
    lines = Counter(re.findall(r"closing connection /([\d.:]+)", log))
    unexplained = Counter(closed) - lines
    print(f"{count} frames, {len(closed)} whole ones closed their connection; 2nd half: RSS +{growth / 1000:.0f} kB")
    assert "Traceback" not in log
    assert closed
    assert not unexplained, "closed without a word"
    assert sum(lines.values()) <= count, "more than one line for a connection"
    if count >= 50_000:
        assert growth <= GROWTH_BYTES_MAX


def test_damaged_frames_never_stop_the_broker(tmp_path) -> None:
    run_mutations(tmp_path, COUNT, SEED)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_damaged_frames_leak_nothing(tmp_path) -> None:
    run_mutations(tmp_path, COUNT_LONG, SEED + 1000)

"""A backup of a cluster of processes, killed while it copies, and made while a bookie is away."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from geminga import Standalone
from geminga.client import blocking
from integration.test_local_cluster import FREE, Command
from support.processes.killing import serial_after_a_kill

pytestmark = [pytest.mark.integration, pytest.mark.long]

TOPIC = "persistent://public/default/backed-up"
#: Rounds, each of which is killed.
KILLS = 5


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "geminga", "backup", *words]


def done(*words: str) -> dict[str, object]:
    ended = subprocess.run(command(*words, "--json"), capture_output=True, text=True, timeout=110, check=False)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    found: dict[str, object] = json.loads(ended.stdout)
    return found


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Command]:
    command = Command(tmp_path / "cluster")
    try:
        yield command
    finally:
        command.close()


def test_a_killed_backup_leaves_the_one_before_and_one_bookie_may_be_away(cluster: Command, tmp_path: Path) -> None:
    up = cluster.up("--bookies", "2", "--brokers", "1", *FREE, "--set", "managedLedgerMaxEntriesPerLedger=20")
    store, url = str(up["metadataStoreUrl"]), str(up["brokerServiceUrl"])
    copy, new = tmp_path / "copy", tmp_path / "new"
    kept = serial = 0
    with blocking.connect(url) as client, client.create_producer(TOPIC, batching_enabled=False) as producer:
        for turn in range(KILLS):
            for number in range(40):
                producer.send(b"%d" % (40 * turn + number) + b" " * 20_000)
            if turn:
                words = command("create", str(copy), "--metadata", store, "--whole")
                with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as program:
                    until_begun(copy, serial + 1, turn, program)
                    program.kill()
            else:
                done("create", str(copy), "--metadata", store)
            before, serial = serial, serial_after_a_kill(done("verify", str(copy)), serial)
            kept += serial == before
        assert kept, "no kill came before the end of a backup"
        subprocess.run(["kill", "-9", str(cluster.pid("bookie-2"))], check=True)
        said = done("create", str(copy), "--metadata", store)
        assert said["lostLedgers"] == []
    done("restore", str(copy), str(new))
    with (
        Standalone(new, {"clusterName": "local"}) as server,
        blocking.connect(server.service_url) as client,
        client.create_reader(TOPIC, blocking.MessageId.earliest) as reader,
    ):
        there = []
        while reader.has_message_available():
            there.append(int(reader.read_next(10_000).data()))
        assert there == list(range(40 * KILLS))


def until_begun(copy: Path, serial: int, count: int, program: subprocess.Popen[bytes]) -> None:
    """So many files of that backup are begun, or it has ended; the time limit of the test ends it."""
    begin = f"{serial:08d}-"
    while sum(path.name.startswith(begin) for path in (copy / "files").iterdir()) < count:
        if program.poll() is not None:
            break

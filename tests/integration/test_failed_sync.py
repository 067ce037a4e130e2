"""A sync that fails stops the program: nothing is acknowledged after it, and what was acknowledged is there again.

A real process on the real disk; only the system call's answer is made up.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from bench.frames import send_frame
from tools.standalone_process import ROOT, StandaloneProcess

from geminga.wire._generated import pulsar_api_pb2 as pb
from support.house.weekly_sample import sampled
from support.processes.official import quiet_client
from support.processes.raw_protocol import RawConnection, producer_frame

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TOPIC = "persistent://public/default/synced"
MESSAGES_MAX = 20_000


class FailingProcess(StandaloneProcess):
    """Its syncs of what matches ``pattern`` fail once the trigger file is there."""

    pattern = ""
    trigger = Path()

    def command(self) -> list[str]:
        python, _, _, *arguments = super().command()
        return [
            python,
            str(ROOT / "tests/support/processes/failing_sync.py"),
            self.pattern,
            str(self.trigger),
            *arguments,
        ]


def publish_until_closed(port: int, first: int, trigger: Path) -> int:
    """One message after the other; how many receipts came before the broker was gone."""
    with RawConnection(port, timeout_s=20) as connection:
        connection.send(producer_frame(TOPIC))
        connection.expect(pb.BaseCommand.PRODUCER_SUCCESS)
        for received in range(MESSAGES_MAX):
            if received == 50:
                trigger.touch()
            try:
                connection.send(send_frame(first + received, b"%d" % received + b"x" * 2000))
            except ConnectionError:
                return received
            answer = connection.receive()
            if answer is None:
                return received
            assert answer.type == pb.BaseCommand.SEND_RECEIPT, str(answer)
    pytest.fail(f"{MESSAGES_MAX} messages and no end")


@pytest.mark.parametrize(
    ("pattern", "part"),
    sampled(
        "failed syncs",
        [
            ("*.journal", "journal"),
            ("*.log", "bookie flush"),
            ("*.index.tmp", "bookie flush"),
            ("*/checkpoint.tmp", "bookie flush"),
            ("*/bookie/ledgers", "bookie flush"),
            ("metadata", "metadata store"),
        ],
        2,
        are_rows=True,
    ),
)
def test_failed_sync_stops_the_process_and_loses_nothing(tmp_path, pattern, part) -> None:
    settings = {
        "dbStorage_writeCacheMaxSizeMb": 0.5,
        "managedLedgerMaxEntriesPerLedger": 100,
        "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    }
    process = FailingProcess(tmp_path / "data", log=tmp_path / "broker.log", settings=settings)
    process.pattern, process.trigger = pattern, tmp_path / "fail"
    with process:
        client = quiet_client(process.service_url, tmp_path)
        client.subscribe(TOPIC, "s").close()
        client.close()
        acknowledged = publish_until_closed(process.broker_port, 0, process.trigger)
        assert process.process is not None
        assert process.process.wait(10) == 1
        log = " ".join(process.log_tail(40).split())
        assert f"stopped by a fatal error in {part}" in log
        assert "Traceback" not in log
        if pattern == "*.journal":
            assert acknowledged == 50
        process.trigger.unlink()
        process.start()
        client = quiet_client(process.service_url, tmp_path)
        consumer = client.subscribe(TOPIC, "s")
        for expected in range(acknowledged):
            assert consumer.receive(10_000).data().rstrip(b"x") == b"%d" % expected
        client.close()
        assert process.stop() == 0


def test_process_ends_at_once_although_nobody_reads_its_last_words() -> None:
    program = """
import os
os.close(2)
from geminga.app.lifecycle.process_life import end_at_once
try:
    end_at_once("journal", OSError("fsync"))
finally:
    os._exit(7)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 1

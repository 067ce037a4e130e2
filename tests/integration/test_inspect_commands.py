"""``geminga admin topics`` on a running broker and ``geminga inspect`` on what it left behind when it was killed."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tools.standalone_process import ROOT, StandaloneProcess

from geminga.client.blocking import ConsumerType, InitialPosition, connect

pytestmark = pytest.mark.integration

TOPIC = "persistent://public/default/looked at"
COUNT = 600


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return subprocess.run(
        [sys.executable, "-m", "geminga", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": ""},
    )


def refusal(*arguments: str) -> str:
    """What it says when it fails, on one line."""
    done = command(*arguments)
    assert done.returncode == 1
    return " ".join(done.stderr.split())


def answer(*arguments: str):
    """Its JSON."""
    done = command(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_cursor_is_shown_while_it_runs_and_found_the_same_after_a_kill(tmp_path) -> None:
    data = str(tmp_path / "data")
    settings = {"brokerDeduplicationEnabled": "true"}
    with StandaloneProcess(tmp_path / "data", log=tmp_path / "log", settings=settings) as process:
        with connect(process.service_url) as client:
            consumer = client.subscribe(
                TOPIC,
                "a/b",
                consumer_type=ConsumerType.Shared,
                initial_position=InitialPosition.Earliest,
                ack_receipt_enabled=True,
            )
            producer = client.create_producer(TOPIC, batching_enabled=False, producer_name="p")
            for number in range(COUNT):
                producer.send_nowait(b"%d" % number)
            producer.flush()
            messages = [consumer.receive() for _ in range(COUNT)]
            consumer.acknowledge([message for index, message in enumerate(messages) if index % 2])
            running = answer("admin", "topics", "stats-internal", TOPIC, "--admin-url", process.web_service_url)
            cursor = running["cursors"]["a%2Fb"]
            own = cursor["geminga"]
            assert (own["acknowledgedEntries"], own["backlog"]) == (COUNT // 2, COUNT // 2)
            assert cursor["totalNonContiguousDeletedMessagesRange"] == COUNT // 2
            assert own["segments"] == 1
            assert own["memoryBytes"] > 0
            assert own["lastMarker"] == f"{cursor['cursorLedger']}:{cursor['cursorLedgerLastEntry']}"
            assert running["geminga"]["deduplication"]["highestSequenceIds"] == {"p": COUNT - 1}
            delayed = running["geminga"]["delayedDelivery"]
            assert (delayed["entries"], delayed["waitingEntries"]) == (0, {"a/b": 0})
            text = command("admin", "topics", "stats-internal", TOPIC, "--admin-url", process.web_service_url)
            assert f"mark delete position {cursor['markDeletePosition']}" in " ".join(text.stdout.split())
            assert f"in use by process {process.pid}" in refusal("inspect", "cursor", data, TOPIC)
            process.kill()
        before = {path: path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()}
        check_stopped(data, cursor)
        assert before == {path: path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()}


def check_stopped(data: str, cursor: dict[str, object]) -> None:
    """What lies in the directory is what the broker said."""
    found = answer("inspect", "cursor", data, TOPIC, "a/b")[0]
    assert found["markDeletePosition"] == cursor["markDeletePosition"]
    assert (found["acknowledgedEntries"], found["backlog"]) == (COUNT // 2, COUNT // 2)
    assert found["cursorLedger"]["lastMarker"] == cursor["cursorLedgerLastEntry"]
    assert len(found["cursorLedger"]["segmentsInUse"]) == 1
    ledger_id = found["newestTopicLedgers"][-1]["ledgerId"]
    ledger = answer("inspect", "ledger", data, str(ledger_id))
    assert ledger["entryIds"] == [f"0..{COUNT - 1}"]
    assert ledger["entriesWithWrongDigest"] == []
    assert ledger["metadata"]["state"] == "OPEN"
    files = answer("inspect", "journal", data)["files"]
    assert sum(file["entries"] for file in files) >= COUNT
    assert all(file["damaged_at"] is None for file in files)
    records = command("inspect", "journal", data, "--records")
    assert records.stdout.count("kind add") >= 1
    assert "nothing is not a topic" in refusal("inspect", "cursor", data, "nothing")
    assert "has no subscription x; it has a/b" in refusal("inspect", "cursor", data, TOPIC, "x")
    assert "acknowledged entries" in command("inspect", "cursor", data, TOPIC).stdout


def test_inspection_of_what_is_no_data_directory_is_refused(tmp_path) -> None:
    assert "is no data directory of a standalone" in refusal("inspect", "journal", str(tmp_path))
    assert "No such file" in refusal("inspect", "journal", str(tmp_path / "nowhere"))

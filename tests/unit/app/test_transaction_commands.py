"""``geminga admin transactions``: what it asks a broker for, and what it prints."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import geminga.admin.blocking
from geminga import Standalone
from geminga.app.administration.units import WrongWordError, value_of
from geminga.client.blocking import connect

TOPIC = "persistent://public/default/a b%2Fc"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0), ("7", 7_000), ("10s", 10_000), ("5m", 300_000), ("2H", 7_200_000), ("1d", 86_400_000)],
)
def test_times_have_units(text: str, expected: int) -> None:
    assert value_of("millis", text) == expected


@pytest.mark.parametrize("text", ["", "s", "1.5h", "1y3d", "1ms", "٣s", "x"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(WrongWordError, match="is no time such as"):
        value_of("millis", text)


def run(url: str, *arguments: str, code: int = 0, is_json: bool = True) -> str:
    command = [sys.executable, "-m", "geminga", "admin", "transactions", *arguments, "--admin-url", url]
    done = subprocess.run(
        [*command, *(["--json"] if is_json else [])], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == code, done
    return done.stdout + done.stderr


def test_commands_show_transactions_and_end_them(tmp_path: Path) -> None:
    settings = {"transactionCoordinatorEnabled": "true"}
    with Standalone(config=settings) as broker, connect(broker.service_url) as client:
        url = broker.web_service_url
        with client.create_producer(TOPIC) as producer, client.subscribe(TOPIC, "s/1") as consumer:
            producer.send(b"plain")
            message = consumer.receive(5_000)
            txn = client.transaction(60)
            consumer.acknowledge(message, txn=txn)
            producer.send(b"in it", txn=txn)
            most, least = (str(number) for number in txn.id)
            assert len(json.loads(run(url, "coordinators-list"))) == 16
            slow = json.loads(run(url, "slow-transactions", "--time", "0", "-c", most))
            assert list(slow) == [str(txn.id)]
            assert json.loads(run(url, "transaction-metadata", "-m", most, "-l", least)) == slow[str(txn.id)]
            held = json.loads(run(url, "transaction-in-buffer-stats", "-t", TOPIC, "-m", most, "-l", least))
            assert held["aborted"] is False
            ids = ["-l", str(message.message_id().ledger_id()), "-e", str(message.message_id().entry_id())]
            place = run(url, "position-stats-in-pending-ack", "-t", TOPIC, "-s", "s/1", *ids, is_json=False)
            assert place.split() == ["state", "PendingAck"]
            acks = json.loads(run(url, "pending-ack-stats", "-t", TOPIC, "-s", "s/1", "-l"))
            assert (acks["state"], acks["ongoingTxnSize"], acks["lowWaterMarks"]) == ("Ready", 1, {})
            with geminga.admin.blocking.connect(url) as admin:
                assert admin.transactions.pending_ack_stats(TOPIC, "s/1")["state"] == "Ready"
            unasked = run(url, "abort-transaction", "-m", most, "-l", least, code=2, is_json=False)
            assert "there is no terminal to ask at: nothing was done" in unasked
            assert run(url, "abort-transaction", "-m", most, "-l", least, "--yes", is_json=False) == ""
            missing = run(url, "transaction-metadata", "-m", most, "-l", least, code=1)
            assert f"The transaction with this txdID `{txn.id}`not found" in missing
        refused = run(url, "scale-transactionCoordinators", "-r", "3", code=1, is_json=False)
        assert "406 Number of transaction coordinators should be more" in refused
        assert "is not persistent" in run(url, "transaction-buffer-stats", "-t", "non-persistent://a/b/c", code=2)
        assert "is no time" in run(url, "slow-transactions", "-t", "soon", code=2)

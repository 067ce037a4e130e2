"""Transactions, encryption, delays and schemas go to the lake as what they are."""

from __future__ import annotations

from datetime import timedelta

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import geminga
from geminga.app.commands.cli import app_for
from geminga.client import MessageId, blocking
from support.house.waiting import until
from support.worlds.rest import Rest

pytestmark = pytest.mark.integration

TOPIC, PATH = "persistent://public/default/kinds", "persistent/public/default/kinds"


def test_aborted_messages_and_markers_are_kept_and_shown_to_nobody(tmp_path):
    (tmp_path / "lake").mkdir()
    settings = {
        "managedLedgerMaxEntriesPerLedger": 10,
        "managedLedgerMinLedgerRolloverTimeMinutes": 0,
        "managedLedgerOffloadDeletionLagMs": 0,
        "managedLedgerOffloadDriver": "filesystem",
        "fileSystemURI": str(tmp_path / "lake"),
        "defaultRetentionTimeInMinutes": -1,
        "defaultRetentionSizeInMB": -1,
    }
    with geminga.Standalone(tmp_path / "data", settings) as broker, blocking.connect(broker.service_url) as client:
        producer = client.create_producer(TOPIC, batching_enabled=False)
        expected = []
        for round_number in range(3):
            for commit in (True, False):
                txn = client.transaction().__enter__()
                for index in range(3):
                    data = b"%d-%s-%d" % (round_number, b"in" if commit else b"out", index)
                    producer.send(data, txn=txn)
                    expected += [data] if commit else []
                txn.commit() if commit else txn.abort()
        for index in range(12):
            delay = {"deliver_after": timedelta(hours=1)} if index == 0 else {}
            producer.send(b"end-%d" % index, **delay)
            expected.append(b"end-%d" % index)
        command = ["lake", "offload", TOPIC, "--admin-url", broker.web_service_url, "--wait"]
        assert CliRunner().invoke(app_for(["lake"]), command).exit_code == 0
        files = sorted((tmp_path / "lake").rglob("*.parquet"))
        assert len(files) >= 3
        rows = [row for file in files for row in pq.read_table(file).to_pylist()]
        kinds = {kind: [row for row in rows if row["kind"] == kind] for kind in ("message", "marker", "aborted")}
        assert sum(map(len, kinds.values())) == len(rows)
        shown = [row["value"] for row in kinds["message"]]
        assert shown == expected[: len(shown)]
        assert len(kinds["aborted"]) == 9
        assert all(row["raw"] and row["value"] is None and row["txn_least"] is not None for row in kinds["aborted"])
        assert {row["marker_type"] for row in kinds["marker"]} == {21, 22}
        assert [row["deliver_at"] is not None for row in kinds["message"]].count(True) <= 1
    with geminga.Standalone(tmp_path / "data", settings) as broker, blocking.connect(broker.service_url) as client:
        rest = Rest(broker.web_service_url)
        until(lambda: not rest.get(f"{PATH}/lake").json["ledgers"][0]["isOnBookies"], "gone from the bookies")
        reader = client.create_reader(TOPIC, MessageId.earliest)
        assert [reader.read_next(20_000).data() for _ in expected] == expected

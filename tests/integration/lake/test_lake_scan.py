"""``scanOffloadedLedgers``: which files of the lake a namespace's topics have, and which nobody reads."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

import geminga
from geminga.admin import blocking as admin
from geminga.app.commands.cli import app_for
from geminga.broker.rest.namespace_routes import lake_scan
from geminga.client import blocking
from support.worlds.rest import Rest

pytestmark = pytest.mark.integration

TOPIC = "persistent://public/default/scanned"
#: Two ledgers are closed, and a third one is open.
SETTINGS = {
    "managedLedgerMaxEntriesPerLedger": 5,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    "defaultRetentionTimeInMinutes": -1,
    "defaultRetentionSizeInMB": -1,
    "managedLedgerOffloadDriver": "filesystem",
}


def test_each_file_is_told_with_what_the_topics_say_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    with (
        geminga.Standalone(config={**SETTINGS, "fileSystemURI": str(lake)}) as broker,
        blocking.connect(broker.service_url) as client,
        admin.connect(broker.web_service_url) as asked,
    ):
        assert asked.namespaces.scan_offloaded_ledgers("public/default")["total"] == 0
        with client.create_producer(TOPIC, batching_enabled=False) as producer:
            for number in range(11):
                producer.send(b"%d" % number)
        words = ["lake", "offload", TOPIC, "--admin-url", broker.web_service_url, "--wait"]
        found = CliRunner().invoke(app_for(["lake"]), words)
        assert found.exit_code == 0, found.output
        said = asked.namespaces.scan_offloaded_ledgers("public/default")
        assert [one["status"] for one in said["objects"]] == ["OK", "OK"]
        assert said["objects"][0]["managedLedgerName"] == "public/default/persistent/scanned"
        assert said["objects"][0]["numEntries"] == 5
        assert said["objects"][0]["size"] > 0
        directory = lake / "public" / "default" / "persistent" / "scanned"
        first, _ = sorted(one.name for one in directory.glob("*.parquet"))
        ledger, uid = first.removesuffix(".parquet").rsplit("-", 1)
        other_uid = uid[::-1] if uid[::-1] != uid else "0" * 32
        shutil.copy(directory / first, directory / f"{ledger}-{other_uid}.parquet")
        shutil.copy(directory / first, directory / f"ledger-{999:019d}-{uid}.parquet")
        (directory / "notes.txt").write_text("of nobody")
        gone = directory.parent / "gone"
        gone.mkdir()
        shutil.copy(directory / first, gone / first)
        said = asked.namespaces.scan_offloaded_ledgers("public/default")
        statuses = {one["name"].removeprefix("public/default/persistent/"): one["status"] for one in said["objects"]}
        assert statuses == {
            f"gone/{first}": "NOT-FOUND",
            f"scanned/{first}": "OK",
            f"scanned/{ledger}-{other_uid}.parquet": "BAD-UUID",
            f"scanned/ledger-{999:019d}-{uid}.parquet": "NOT-FOUND",
            "scanned/notes.txt": "UNKNOWN",
            **{name: "OK" for name in statuses if name.endswith(".parquet") and statuses[name] == "OK"},
        }
        assert (said["total"], said["errors"], said["unknown"]) == (6, 3, 1)
        monkeypatch.setattr(lake_scan, "OBJECTS_MAX", 2)
        said = asked.namespaces.scan_offloaded_ledgers("public/default")
        assert (len(said["objects"]), said["total"]) == (2, 6)
        rest = Rest(broker.web_service_url)
        assert rest.get("namespaces/public/nothing/scanOffloadedLedgers").status == 404
        assert json.dumps(asked.brokers.bookie_ops()["public/default"][TOPIC]) == json.dumps(
            {"dataLedgerCreateOp": 0, "cursorLedgerCreateOp": 0}
        )

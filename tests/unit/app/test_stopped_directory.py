"""A stopped data directory, read without changing it; torn and damaged files are told, not hidden."""

from __future__ import annotations

import asyncio
import tracemalloc
from pathlib import Path

import pytest

import geminga
from geminga.app.handles.backups import back_up_stopped
from geminga.app.storage import inspection
from geminga.app.storage.stopped_directory import StoppedDirectory
from geminga.client.blocking import connect
from geminga.model.errors import DataDirectoryError

TOPIC = "persistent://public/default/t"


@pytest.fixture
def stopped(tmp_path) -> str:
    """Ten messages, one subscription, an orderly stop."""
    path = str(tmp_path / "data")
    with geminga.Standalone(path) as broker, connect(broker.service_url) as client:
        client.subscribe(TOPIC, "s").close()
        producer = client.create_producer(TOPIC, batching_enabled=False)
        for number in range(10):
            producer.send(b"%d" % number)
        client.create_producer(f"{TOPIC}-2").send(b"another")
    return path


def test_directory_in_use_is_refused_and_usable_again_after_a_look(stopped) -> None:
    with geminga.Standalone(stopped), pytest.raises(DataDirectoryError, match="in use by process"):
        StoppedDirectory(stopped)
    with StoppedDirectory(stopped), pytest.raises(DataDirectoryError, match="in use"):
        StoppedDirectory(stopped)
    with geminga.Standalone(stopped):
        pass


def test_entries_are_found_wherever_they_lie(stopped) -> None:
    with StoppedDirectory(stopped) as directory:
        cursors = inspection.cursors(directory, TOPIC, None)
        ledger_id = cursors[0]["newestTopicLedgers"][0]["ledgerId"]
        document = inspection.ledger(directory, ledger_id)
        for journal in Path(stopped).rglob("*.journal"):
            journal.unlink()  # what it tells, the log does, too
        stored = [
            entry_id
            for ledger in range(max(0, ledger_id - 20), ledger_id + 20)
            for entry_id in directory.entries(ledger)
        ]
        assert len(directory.entries(ledger_id)) == 10
        assert len(stored) > 10
    assert (cursors[0]["cursor"], cursors[0]["backlog"]) == ("s", 10)
    assert document["entryIds"] == ["0..9"]
    assert document["entriesWithWrongDigest"] == []


def test_a_ledger_is_looked_at_entry_by_entry_beside_one_file(tmp_path: Path) -> None:
    """All of it was held at once."""
    path = str(tmp_path / "data")
    settings = {"logSizeLimit": 1 << 20, "dbStorage_writeCacheMaxSizeMb": 2}
    with geminga.Standalone(path, config=settings) as broker, connect(broker.service_url) as client:
        producer = client.create_producer(TOPIC, batching_enabled=False)
        for number in range(80):
            producer.send(bytes([number]) * 200_000)
    for journal in Path(path).rglob("*.journal"):
        journal.unlink()  # what it tells, the logs do, too
    logs = {log.name: log.stat().st_size for log in Path(path).rglob("*.log")}
    with StoppedDirectory(path) as directory:
        directory.value("/")  # what SQLite takes is not what is looked for
        (ledger_id,) = [each for each in range(30) if len([*directory.copies(each)]) > 50]
        tracemalloc.start()
        document = inspection.ledger(directory, ledger_id)
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert (document["entryIds"], document["entriesWithWrongDigest"], document["lastAddConfirmed"]) == (
        ["0..79"],
        [],
        78,
    )
    assert len(document["entriesByFile"]) > 5
    assert sum(document["entriesByFile"].values()) == 80
    assert peak_bytes < max(logs.values()) + 1_500_000 < document["bytes"] / 3


def test_a_backup_without_the_journal_that_the_checkpoint_names_is_none(stopped, tmp_path: Path) -> None:
    (tmp_path / "data" / "bookie" / "journal" / "old.journal").touch()  # somebody's, and no number
    asyncio.run(back_up_stopped(stopped, str(tmp_path / "copy"), whole=False))
    for journal in Path(stopped).rglob("0*.journal"):
        journal.rename(tmp_path / journal.name)  # it is elsewhere since, and the folder is what was there before
    with pytest.raises(DataDirectoryError, match=r"bookie/journal has no journal 1, which the checkpoint in .* names"):
        asyncio.run(back_up_stopped(stopped, str(tmp_path / "copy"), whole=False))


def test_what_is_not_there_is_said(stopped) -> None:
    with StoppedDirectory(stopped) as directory:
        with pytest.raises(DataDirectoryError, match="is not a topic"):
            inspection.cursors(directory, "other", None)
        with pytest.raises(DataDirectoryError, match="not known"):
            inspection.ledger(directory, 123_456)

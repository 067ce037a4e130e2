"""``geminga backup`` of a standalone that serves: what is in it, what a restored server has, what is refused."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Self

import pytest
from tools.standalone_process import StandaloneProcess
from typer.testing import CliRunner, Result

from geminga import Standalone
from geminga.admin import AdminError
from geminga.admin import blocking as admin
from geminga.app.commands import backup_commands
from geminga.app.commands.cli import app_for
from geminga.app.handles import backups as backup_handle
from geminga.app.servers import backups as server_backups
from geminga.app.storage import backup_sources
from geminga.client import blocking
from geminga.metadata import snapshot
from geminga.model.errors import GemingaError
from support.house.waiting import until
from support.processes.killing import serial_after_a_kill

TOPICS = [f"persistent://public/default/backed-up-{number}" for number in range(3)]
#: So small that ledgers, journals and logs roll, flush, and are collected while a backup is made.
TINY = {
    "managedLedgerMaxEntriesPerLedger": 20,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    "journalMaxSizeMB": 1,
    "gcWaitTime": 100,
    "flushInterval": 100,
}
#: Nothing is trimmed.
KEPT = {**TINY, "defaultRetentionTimeInMinutes": -1, "defaultRetentionSizeInMB": -1}
#: Rounds of a long test.
KILLS = 10
#: Modules of the whole that are tried here through the command.
TRIED = (backup_commands, backup_handle, server_backups, backup_sources, snapshot)


def run(*words: str) -> Result:
    return CliRunner().invoke(app_for(["backup"]), ["backup", *words])


def done(*words: str) -> dict[str, object]:
    found = run(*words, "--json")
    assert found.exit_code == 0, (found.output, found.exception)
    document: dict[str, object] = json.loads(found.stdout)
    return document


class Load:
    """Publishes to each topic and acknowledges half of it, until it is told to end."""

    def __init__(self, url: str) -> None:
        self.url = url
        #: By topic: (when the receipt came, ms since the epoch; value), in order.
        self.published: dict[str, list[tuple[int, int]]] = {topic: [] for topic in TOPICS}
        self.errors: list[BaseException] = []
        self._end = threading.Event()
        self.is_warm = threading.Event()
        self._threads = [threading.Thread(target=self._guarded, args=(topic,)) for topic in TOPICS]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        assert self.is_warm.wait(30)
        return self

    def __exit__(self, *raised: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(30)
        assert not self.errors, self.errors

    def _guarded(self, topic: str) -> None:
        try:
            self._work(topic)
        except BaseException as error:
            self.errors.append(error)
            self.is_warm.set()

    def _work(self, topic: str) -> None:
        told = self.published[topic]
        with blocking.connect(self.url) as client:
            producer = client.create_producer(topic)
            consumer = client.subscribe(topic, "half")
            while not self._end.is_set():
                producer.send(str(len(told)).encode())
                told.append((time.time_ns() // 1_000_000, len(told)))
                if len(told) % 2:
                    consumer.acknowledge_cumulative(consumer.receive(10_000))
                if len(told) > 60:
                    self.is_warm.set()


@pytest.fixture(scope="module")
def story(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, dict[str, list[tuple[int, int]]], list[dict]]:
    """A backup directory with two backups made under load, what was published, and what was said of each."""
    place = tmp_path_factory.mktemp("backup")
    said = []
    with Standalone(place / "data", config=TINY) as server:
        with Load(server.service_url) as load:
            for _ in range(2):
                said.append(done("create", str(place / "copy"), "--admin-url", server.web_service_url))
        refused = run("create", str(place / "data" / "inside"), "--admin-url", server.web_service_url)
        assert "one within the other" in refused.output
    return place, load.published, said


def test_restored_server_has_all_that_was_acknowledged_and_cursors_are_not_ahead(story, tmp_path: Path) -> None:
    place, published, said = story
    assert done("verify", str(place / "copy"))["faults"] == []
    restored = done("restore", str(place / "copy"), str(tmp_path / "new"))
    assert restored["backupId"] == said[-1]["backupId"]
    with Standalone(tmp_path / "new", config=TINY) as server, blocking.connect(server.service_url) as client:
        for topic in TOPICS:
            owed = [value for at_ms, value in published[topic] if at_ms < said[-1]["asOfMs"]]
            assert len(owed) > 60
            there = _values(client, topic)
            # Trimming took what "half" had acknowledged: the rest is there, in order, to the end.
            assert there[-1] >= owed[-1]
            assert there == list(range(there[0], there[-1] + 1))
            consumer = client.subscribe(topic, "half")
            first = int(consumer.receive(10_000).data())
            assert there[0] <= first <= there[-1]
            client.create_producer(topic).send(b"goes on")


def test_transactions_of_several_brokers_are_whole_or_not_there(tmp_path: Path) -> None:
    """Any broker is asked; what one commits while the copy is made is in both topics, and an open one goes on."""
    both = TOPICS[:2]
    process = StandaloneProcess(tmp_path / "data", log=tmp_path / "log", arguments=["--brokers", "2"], settings=TINY)
    with process:
        urls = [f"http://{one}" for one in json.loads(process.request("GET", "/admin/v2/brokers"))]
        with blocking.connect(process.service_url) as client:
            producers = [client.create_producer(topic) for topic in both]
            left_open = client.transaction(600.0)
            for producer in producers:
                producer.send(b"-1", txn=left_open)
            open_id = left_open.detach()
            committed: list[int] = []
            end = threading.Event()

            def commit_on() -> None:
                while not end.is_set():
                    with client.transaction() as txn:
                        for producer in producers:
                            producer.send(str(len(committed)).encode(), txn=txn)
                    committed.append(time.time_ns() // 1_000_000)

            thread = threading.Thread(target=commit_on)
            thread.start()
            try:
                until(lambda: committed, "a transaction is committed")
                said = [done("create", str(tmp_path / "copy"), "--admin-url", url) for url in urls]
            finally:
                end.set()
                thread.join(30)
        assert [each["serial"] for each in said] == [1, 2]
    as_of_ms = said[-1]["asOfMs"]
    assert isinstance(as_of_ms, int)
    owed = sum(at_ms < as_of_ms for at_ms in committed)
    assert owed > 0
    done("restore", str(tmp_path / "copy"), str(tmp_path / "new"))
    with Standalone(tmp_path / "new", config=TINY) as server, blocking.connect(server.service_url) as client:
        assert _values(client, both[0]) == []
        client.end_transaction(open_id, commit=True)
        first, second = (_values(client, topic) for topic in both)
        assert first == second == list(range(-1, len(first) - 1))
        assert owed <= len(first) - 1 <= len(committed)


def test_offloaded_and_compacted_topics_are_as_they_were(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    settings = {
        **KEPT,
        "managedLedgerOffloadDriver": "filesystem",
        "fileSystemURI": str(tmp_path / "lake"),
        "managedLedgerOffloadDeletionLagMs": 0,
    }
    away, compacted = TOPICS[:2]
    with (
        Standalone(tmp_path / "data", config=settings) as server,
        blocking.connect(server.service_url) as client,
        admin.connect(server.web_service_url) as asked,
    ):
        with client.create_producer(away) as producer:
            for number in range(70):
                producer.send(str(number).encode())
        words = ["lake", "offload", away, "--admin-url", server.web_service_url, "--wait"]
        found = CliRunner().invoke(app_for(["lake"]), words)
        assert found.exit_code == 0, found.output
        with client.create_producer(compacted, batching_enabled=False) as producer:
            for number in range(30):
                producer.send(str(number).encode(), partition_key=f"k{number % 3}")
        asked.compaction.start(compacted)
        until(lambda: asked.compaction.status(compacted)["status"] == "SUCCESS", "the compaction", 20)
        before = asked.topics.internal_stats(away)["ledgers"]
        assert any(ledger["offloaded"] for ledger in before)
        said = done("create", str(tmp_path / "copy"), "--admin-url", server.web_service_url)
        assert said["serial"] == 1
    done("restore", str(tmp_path / "copy"), str(tmp_path / "new"))
    with Standalone(tmp_path / "new", config=settings) as server, blocking.connect(server.service_url) as client:
        assert _values(client, away) == list(range(70))
        assert _values(client, compacted, is_read_compacted=True) == [27, 28, 29]
        assert _values(client, compacted) == list(range(30))


@pytest.mark.long
@pytest.mark.parametrize("brokers", [[], ["--brokers", "2"]], ids=["alone", "two brokers"])
def test_a_killed_server_leaves_a_whole_backup(tmp_path: Path, brokers: list[str]) -> None:
    copy, topic, serial = tmp_path / "copy", TOPICS[0], 0
    process = StandaloneProcess(tmp_path / "data", log=tmp_path / "log", arguments=brokers, settings=KEPT)
    #: Acknowledged before a backup was begun, by its number.
    owed: dict[int, int] = {}
    kept = 0
    for turn in range(KILLS):
        with process:
            with blocking.connect(process.service_url) as client, client.create_producer(topic) as producer:
                for number in range(40):
                    producer.send(str(40 * turn + number).encode() + b" " * 20_000)
            owed[serial + 1] = 40 * (turn + 1)
            if not turn:
                done("create", str(copy), "--admin-url", process.web_service_url)
            else:
                with admin.connect(process.web_service_url) as asked:
                    request = f"request-{turn:032x}"
                    (copy / request).touch(mode=0o600)
                    asked.brokers.start_backup(directory=str(copy), request=request, whole=True)
                _until_copied(copy, serial + 1, turn)
            process.kill()
        before, serial = serial, serial_after_a_kill(done("verify", str(copy)), serial)
        kept += serial == before
    assert kept, "no kill came before the end of a backup"
    done("restore", str(copy), str(tmp_path / "new"))
    with Standalone(tmp_path / "new", config=KEPT) as server, blocking.connect(server.service_url) as client:
        there = _values(client, topic)
        assert there == list(range(len(there)))
        assert len(there) >= owed[serial]


@pytest.mark.long
def test_a_killed_command_leaves_a_whole_backup_of_a_stopped_directory(story, tmp_path: Path) -> None:
    data, copy, kept = story[0] / "data", tmp_path / "copy", 0
    serial = int(str(done("create", str(copy), "--data", str(data))["serial"]))
    command = [sys.executable, "-m", "geminga", "backup", "create", str(copy), "--data", str(data), "--whole"]
    for turn in range(KILLS):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as program:
            _until_copied(copy, serial + 1, turn + 1)
            program.kill()
        before, serial = serial, serial_after_a_kill(done("verify", str(copy)), serial)
        kept += serial == before
    assert kept, "no kill came before the end of a backup"


def _until_copied(copy: Path, serial: int, count: int) -> None:
    """So many files of that backup are there, or it is made; the time limit of the test ends it."""
    begin = f"{serial:08d}-"
    while sum(path.name.startswith(begin) for path in (copy / "files").iterdir()) < count:
        if json.loads((copy / "geminga-backup.json").read_bytes())["backup"]["serial"] == serial:
            break


def _values(client: blocking.Client, topic: str, **options: bool) -> list[int]:
    values = []
    reader = client.create_reader(topic, blocking.MessageId.earliest, **options)
    while reader.has_message_available():
        values.append(int(reader.read_next(10_000).data()))
    reader.close()
    return values


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda copy: _one(copy, "*.journal-*").unlink(), ".journal) is missing"),
        (lambda copy: _flip(_one(copy, "*metadata.sqlite")), "(metadata.sqlite) is damaged: CRC32C"),
        (lambda copy: _cut(_one(copy, "*checkpoint")), "(bookie/ledgers/checkpoint) has"),
        (lambda copy: _flip(copy / "geminga-backup.json"), "geminga-backup.json is damaged"),
        (lambda copy: _newer(copy / "geminga-backup.json"), "has backup format 3; this program reads formats up to 2"),
        (lambda copy: (copy / "geminga-backup.json").unlink(), "holds no backup: geminga-backup.json is not there"),
    ],
    ids=["missing", "damaged", "cut", "manifest", "newer", "none"],
)
def test_damaged_backup_is_named_and_restores_nothing(story, tmp_path: Path, spoil, told: str) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(story[0] / "copy", copy)
    spoil(copy)
    assert told in _refused("verify", str(copy))
    assert told in _refused("restore", str(copy), str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_stopped_directory_is_backed_up_and_files_that_are_there_are_kept(story, tmp_path: Path) -> None:
    data, copy = str(story[0] / "data"), str(tmp_path / "copy")
    first = done("create", copy, "--data", data)
    assert first["filesKept"] == 0
    again = done("create", copy, "--data", data)
    assert again["serial"] == 2
    # Logs and index do not change.
    assert again["bytesKept"] > 0
    assert again["bytesCopied"] + again["bytesKept"] == first["bytesCopied"]
    assert done("create", copy, "--data", data, "--whole")["bytesKept"] == 0
    done("restore", copy, str(tmp_path / "new"))
    assert "holds a backup of another server" in _refused("create", copy, "--data", str(tmp_path / "new"))
    assert "is not empty (found " in _refused("restore", copy, str(tmp_path / "new"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "photo.png").touch()
    assert "holds something else than a backup (found photo.png)" in _refused(
        "create", str(tmp_path / "other"), "--data", data
    )
    # What is in a directory of the name that backups use is no leftover of a backup that was cut off.
    photo = tmp_path / "album" / "files" / "photo.png"
    photo.parent.mkdir(parents=True)
    photo.touch()
    assert "holds something else than a backup (found files/photo.png)" in _refused(
        "create", str(tmp_path / "album"), "--data", data
    )
    assert photo.exists()
    assert "is no data directory of a standalone" in _refused("create", copy, "--data", str(tmp_path / "other"))
    (tmp_path / "file").touch()
    assert "is no directory" in _refused("restore", copy, str(tmp_path / "file"))


def test_running_server_is_copied_at_the_rate_that_is_asked_for(tmp_path: Path) -> None:
    with Standalone(tmp_path / "data") as server, blocking.connect(server.service_url) as client:
        with client.create_producer("rated") as producer:
            for _ in range(10):
                producer.send(random.Random(1).randbytes(100_000))
        begun = time.monotonic()
        words = ("create", str(tmp_path / "copy"), "--admin-url", server.web_service_url)
        done(*words, "--rate-limit", "700000")
        took_s = time.monotonic() - begun
    # The entries alone are a million bytes.
    assert took_s > 1.4


def test_server_writes_only_where_who_asks_shows_that_it_may(tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir(mode=0o700)
    here = str(tmp_path / "copy")
    with Standalone(tmp_path / "data") as server, admin.connect(server.web_service_url) as asked:
        for directory, request, told in (
            (here, "request-" + "0" * 32, "No such file or directory"),
            (here, "../data/geminga.json", "expected request- and 32 hex digits"),
            ("copy", "request-" + "0" * 32, "expected an absolute path"),
            (f"{here}/../data", "request-" + "0" * 32, "expected an absolute path"),
        ):
            with pytest.raises(AdminError, match=re.escape(told)):
                asked.brokers.start_backup(directory=directory, request=request)
        with pytest.raises(AdminError, match="rateLimit -1: expected bytes a second, 0 or more"):
            asked.brokers.start_backup(directory=here, request="request-" + "0" * 32, rate_limit=-1)
        assert asked.brokers.backup()["state"] == "none"
        assert list((tmp_path / "copy").iterdir()) == []
    with Standalone() as server:
        assert "keeps nothing in files" in _refused("create", here, "--admin-url", server.web_service_url)


def _refused(*words: str) -> str:
    found = run(*words)
    assert found.exit_code == 1 or isinstance(found.exception, GemingaError), found.output
    return f"{found.output} {found.exception}"


def _one(copy: Path, pattern: str) -> Path:
    return next(iter((copy / "files").glob(pattern)))


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _newer(path: Path) -> None:
    path.write_bytes(json.dumps({**json.loads(path.read_bytes()), "format": 3}).encode())

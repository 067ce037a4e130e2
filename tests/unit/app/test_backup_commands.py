"""``geminga backup`` on the command line: where a backup is restored to, by how many copies, and how fast."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from geminga.admin._brokers import Brokers
from geminga.admin._calling import Lanes, Request
from geminga.app.commands import backup_commands
from geminga.app.commands.cli import app_for
from geminga.app.configuration.config import load_config
from geminga.app.handles.backups import alone_in, back_up_running, local_runtime
from geminga.app.servers import backups
from geminga.app.servers.backups import LocalBackups
from geminga.app.servers.standalone import StandaloneServer
from geminga.app.storage.backup_reading import restore
from geminga.app.storage.backup_sources import RunningSource
from geminga.app.storage.backup_writing import REQUEST_PREFIX, BackupWriter, Copying, Cut, Progress, are_nested
from geminga.app.storage.core.backup_format import MANIFEST_FILE
from geminga.bookie.cut import CutFile
from geminga.metadata import SqliteMetadataStore
from geminga.model.errors import ConfigurationError, ConflictError, DataDirectoryError, PreconditionFailedError
from geminga.runtime import Runtime
from geminga.runtime.disk_threads import ThreadedDisk, ThreadedFile


def run(*words: str) -> Result:
    return CliRunner().invoke(app_for(["backup"]), ["backup", *words])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("restore", "copy"), "expected either DATA"),
        (("restore", "copy", "data", "--metadata", "zk:there:2181"), "expected either DATA"),
        (("restore", "copy", "data", "--set", "a=b"), "--set is for a cluster"),
        (("restore", "copy", "data", "--rate-limit", "-1"), "--rate-limit"),
        (("create", "copy", "--rate-limit", "many"), "--rate-limit"),
    ],
)
def test_words_that_do_not_fit_together_are_refused_before_anything_is_done(words: tuple[str, ...], said: str) -> None:
    done = run(*words)
    assert done.exit_code == 2
    assert said in " ".join(done.output.replace("│", " ").split())


def cluster_given(file: Path, assignments: list[str]) -> backup_commands.BackupOptions:
    return backup_commands.BackupOptions("zk:there:2181/prod", [str(file)], assignments, rate_limit=0, is_json=False)


def test_copies_of_restored_ledgers_come_from_files_and_words_and_must_fit(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("managedLedgerDefaultEnsembleSize=3\nmanagedLedgerDefaultWriteQuorum=2\n", encoding="utf-8")
    loaded, sizes = backup_commands._reached(cluster_given(file, ["managedLedgerDefaultAckQuorum=1"]), "it")
    assert str(loaded.metadata) == "zk:there:2181/prod"
    assert (sizes.ensemble_size, sizes.write_quorum, sizes.ack_quorum) == (3, 2, 1)
    given = ["managedLedgerDefaultAckQuorum=4"]
    with pytest.raises(ConfigurationError, match="WriteQuorum=2, AckQuorum=4: expected each to be at most"):
        backup_commands._reached(cluster_given(file, given), "it")


def test_a_directory_without_a_backup_is_told_before_a_cluster_is_asked(tmp_path: Path) -> None:
    done = run("restore", str(tmp_path), "--metadata", "zk:127.0.0.1:1")
    assert isinstance(done.exception, DataDirectoryError)
    assert "holds no backup: geminga-backup.json is not there" in str(done.exception)


def test_a_broker_is_told_the_name_of_its_cluster_and_not_of_one_that_it_knows() -> None:
    assert backup_commands.named([]) == ""
    assert backup_commands.named(["prod"]) == " --set clusterName=prod"
    assert backup_commands.named(["east", "west"]) == " --set clusterName=NAME, where NAME is its own of east, west"


# ---- who asks a server


class Answers(Lanes):
    """The server's words about backups, one after the other."""

    def __init__(self, *states: dict[str, Any]) -> None:
        self._states = list(states)

    async def ask(self, request: Request[Any]) -> Any:
        return self._states.pop(0) if request.method == "GET" else None


class Asked:
    """What the handle uses of an administration client."""

    def __init__(self, *states: dict[str, Any]) -> None:
        self.brokers = Brokers(Answers(*states))


def test_another_backup_that_was_begun_since_is_not_taken_for_the_one_that_was_asked_for(tmp_path: Path) -> None:
    copy = str(tmp_path / "copy")
    other = {"state": "done", "directory": str(tmp_path / "other"), "backupId": "b2"}

    async def asked(*states: dict[str, Any]) -> Any:
        return await back_up_running(Asked(*states), copy, whole=False, told=lambda _: None)

    with pytest.raises(DataDirectoryError, match=rf"another backup by now, in {tmp_path}/other: how this one ended"):
        asyncio.run(asked({"state": "running", "directory": copy, "bytesCopied": 1}, other))
    assert asyncio.run(asked({**other, "directory": copy}))["backupId"] == "b2"
    with pytest.raises(DataDirectoryError, match="knows no backup: it is none"):
        asyncio.run(asked({"state": "none"}))
    # Also not the directory, which was not there before.
    assert not Path(copy).exists()


def test_two_commands_make_no_backup_in_one_directory(tmp_path: Path) -> None:
    copy = str(tmp_path / "copy")
    with alone_in(copy):
        with pytest.raises(DataDirectoryError, match="another command makes a backup in"):
            asyncio.run(back_up_running(Asked(), copy, whole=False, told=lambda _: None))
        with pytest.raises(DataDirectoryError, match="another command makes a backup in"), alone_in(copy):
            pass
    with alone_in(copy):
        pass


# ---- directories


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [("a", "a", True), ("a/b", "a", True), ("a", "a/b/c", True), ("a", "ab", False), ("link/b", "a", True)],
)
def test_one_directory_is_within_the_other_whatever_link_leads_there(
    tmp_path: Path, one: str, other: str, expected: bool
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert are_nested(str(tmp_path / one), str(tmp_path / other)) is expected


def test_a_backup_in_its_data_directory_is_refused_whether_a_server_runs_or_not(tmp_path: Path) -> None:
    done = run("create", str(tmp_path / "data" / "copy"), "--data", str(tmp_path / "data"))
    assert isinstance(done.exception, DataDirectoryError)
    assert "one within the other" in str(done.exception)
    assert not (tmp_path / "data").exists()


class Made:
    """A data directory with metadata, and nothing else."""

    directory_format, origin, program = 1, "", "test"

    def __init__(self, runtime: Runtime) -> None:
        self.bookies: dict[str, str] = {}
        self._runtime = runtime

    def preview(self) -> list[CutFile]:
        return []

    async def cut(self) -> Cut:
        return Cut(0, [], {}, self._write)

    async def _write(self, path: str) -> None:
        await (await SqliteMetadataStore.open(self._runtime, path)).close()


class Watched(ThreadedDisk):
    """One on which a server starts in ``place`` when a folder is made there."""

    place = ""

    async def make_dirs(self, path: str) -> None:
        await super().make_dirs(path)
        if path == self.place:
            await self.write_file(f"{path}/geminga.json", b"of the server")


class Growing(Made):
    """The same with a file, which takes its time to copy; meanwhile the metadata's log would grow."""

    async def cut(self) -> Cut:
        file = CutFile("bookie/ledgers/0000000001.log", f"{self.place}/log", None, is_final=True)
        return Cut(0, [file], {}, self._write)

    place = ""


def test_the_metadata_are_copied_before_the_files_whose_copy_takes_its_time(tmp_path: Path) -> None:
    copied: list[str] = []

    class Told(ThreadedDisk):
        async def open_file(self, path: str, *, lane: str, create: bool = False) -> ThreadedFile:
            copied.extend([path.rpartition("-")[2]] if create else [])
            return await super().open_file(path, lane=lane, create=create)

    async def main() -> None:
        async with local_runtime() as runtime:
            source = Growing(runtime)
            source.place = str(tmp_path)
            await runtime.disk.write_file(f"{tmp_path}/log", b"entries")
            await runtime.disk.make_dirs(f"{tmp_path}/copy")
            disk = Told()

            async def write(path: str) -> None:
                copied.append("metadata")
                await Made._write(source, path)

            source._write = write
            await BackupWriter(disk, f"{tmp_path}/copy", source, Copying(Progress())).write()
            await disk.close()

    asyncio.run(main())
    assert copied == ["metadata", "7"]


def test_the_moment_is_let_go_of_before_anything_is_written_to_the_backup(tmp_path: Path) -> None:
    """It was with the metadata's last byte, wherever that went to."""
    data = str(tmp_path / "metadata.sqlite")

    def is_log_held() -> bool:
        """Whether somebody reads what was before the end of the log, which then can not be cut back."""
        connection = sqlite3.connect(data, timeout=0)
        try:
            return bool(connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
        finally:
            connection.close()

    async def main() -> None:
        async with local_runtime() as runtime:
            await runtime.disk.write_file(f"{tmp_path}/geminga.json", b'{"format":1}')
            store = await SqliteMetadataStore.open(runtime, data)
            async with RunningSource(runtime, str(tmp_path), store, {}) as source:
                cut = await source.cut()
                await store.put("/later", b"", expected_version=None)
                assert not is_log_held()
                await cut.write_metadata(f"{tmp_path}/copy")
                assert not is_log_held()
            await store.close()

    asyncio.run(main())


def test_what_was_refused_as_the_place_of_a_backup_is_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "photo.png").touch()

    async def main() -> None:
        async with local_runtime() as runtime:
            with pytest.raises(DataDirectoryError, match="holds something else than a backup"):
                await BackupWriter(runtime.disk, str(tmp_path), Made(runtime), Copying(Progress())).write()

    asyncio.run(main())
    assert [file.name for file in tmp_path.iterdir()] == ["photo.png"]


def test_a_directory_that_was_taken_while_the_backup_was_verified_stays_as_it_is(tmp_path: Path) -> None:
    copy, new = str(tmp_path / "copy"), str(tmp_path / "new")

    async def main() -> None:
        async with local_runtime() as runtime:
            await runtime.disk.make_dirs(copy)
            await BackupWriter(runtime.disk, copy, Made(runtime), Copying(Progress())).write()
            with pytest.raises(DataDirectoryError, match="one within the other"):
                await restore(runtime, copy, f"{copy}/new")
            with alone_in(new), pytest.raises(DataDirectoryError, match="is in use by another process"):
                await restore(runtime, copy, new)
            disk = Watched()
            disk.place = new
            with pytest.raises(DataDirectoryError, match=r"is not empty \(found geminga.json\)"):
                await restore(dataclasses.replace(runtime, disk=disk), copy, new)
            await disk.close()
            await restore(runtime, copy, f"{new}-2")

    asyncio.run(main())
    assert Path(new, "geminga.json").read_text() == "of the server"
    assert Path(f"{new}-2", "geminga.json").exists()


def test_a_place_that_hangs_holds_neither_the_files_of_the_bookies_nor_anybody_else(
    tmp_path: Path, monkeypatch
) -> None:
    """As a file system of another machine would: a pipe that nobody reads where the manifest is written, or nobody
    writes where it is read."""
    monkeypatch.setattr(backups, "STALLED_S", 0.2)
    monkeypatch.setattr(backups, "LOOK_S", 0.2)
    monkeypatch.setattr(backups, "CLOSE_S", 0.1)
    place, request = tmp_path / "copy", f"{REQUEST_PREFIX}{'0' * 32}"
    place.mkdir(mode=0o700)
    (place / request).touch(mode=0o600)
    pipe = place / f"{MANIFEST_FILE}.tmp"

    async def ended(made: LocalBackups) -> dict[str, Any]:
        while made._task is not None:
            await asyncio.wait({made._task})
        return dict(await made.state())

    async def freed(made: LocalBackups) -> None:
        """The other end of the pipe is opened: who hangs goes on."""
        os.close(os.open(pipe, os.O_RDWR | os.O_NONBLOCK))
        assert made._ending is not None
        await made._ending
        pipe.unlink(missing_ok=True)

    async def main() -> None:
        nonlocal pipe
        config = load_config(overrides=["brokerServicePort=0", "webServicePort=0"])
        server = StandaloneServer(config, str(tmp_path / "data"), on_fatal=lambda *told: pytest.fail(str(told)), pid=1)
        await server.start()
        assert server.runtime is not None
        made = server._use_backups()
        (bookie,) = server._bookies.opened.values()
        os.mkfifo(pipe)
        await made.start(str(place), request, whole=False)
        state = await ended(made)
        assert state["state"] == "failed"
        assert f"nothing was written to {place} for 0.2 s: is it on a file system that hangs?" in state["error"]
        assert bookie.storage.logs.held._holders == 0
        # Others read and write files meanwhile; another backup waits for this one's end.
        assert await asyncio.wait_for(server.runtime.disk.list_dir(str(tmp_path)), 10)
        with pytest.raises(ConflictError, match=f"a backup is being made in {place}"):
            await made.start(str(place), request, whole=False)
        await freed(made)
        pipe = place / MANIFEST_FILE
        os.mkfifo(pipe)
        with pytest.raises(
            PreconditionFailedError, match=f"{place} did not answer within 0.2 s: is it on a file system"
        ):
            await made.start(str(place), request, whole=False)
        await freed(made)
        await made.start(str(place), request, whole=False)
        assert (await ended(made))["state"] == "done"
        assert await server.stop()

    asyncio.run(main())
